// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bootstrap/mpi_bootstrap.hpp"
#include "davit/davit_mpi.h"
#include "runtime/interposer/attached.hpp"
#include "runtime/log.hpp"

namespace davit::drop_in {
namespace {

using bootstrap::check;

constexpr auto no_such_dtype = static_cast<Dtype>(0xFF);  // davit refuses it, and so the other ranks learn of it

/// One side of an exchange as MPI gives it. `counts` null: `count` for all, block i at i * count.
struct Given {
  void* data;
  int const* counts;
  int const* displs;
  int count;
  MPI_Datatype datatype;

  [[nodiscard]] std::int64_t count_of(std::size_t peer) const { return counts != nullptr ? counts[peer] : count; }
  [[nodiscard]] std::int64_t displ_of(std::size_t peer) const {
    return counts != nullptr ? displs[peer] : static_cast<std::int64_t>(peer) * count;
  }
};

/// The same side in bytes. Where the type has gaps, the blocks lie packed in a buffer of its own.
class Side {
 public:
  Side(Given const& given, Attached const& at) : given_(given), own_(at.own), type_(type_of(given.datatype, at.own)) {
    auto const ranks = static_cast<std::size_t>(at.size);
    numbers_.resize(2 * ranks);
    std::int64_t low = 0;
    std::int64_t total = 0;
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      auto const count = given.count_of(peer);
      numbers_[peer] = count < 0 ? -1 : count * type_.size;
      negative_ = negative_ || count < 0;
      if (count <= 0) continue;
      auto& displ = numbers_[ranks + peer];
      displ = type_.contiguous ? given.displ_of(peer) * type_.size : total;
      low = std::min(low, displ);
      total += numbers_[peer];
    }
    data_ = static_cast<std::byte*>(given.data);
    if (!type_.contiguous && total > 0) {
      packed_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(total));
      data_ = packed_.get();
    }
    if (low < 0) {  // MPI lets a block lie before the buffer's address
      data_ += low;
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        if (numbers_[peer] > 0) numbers_[ranks + peer] -= low;
      }
    }
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] Counts counts() const noexcept { return Counts(numbers_).first(numbers_.size() / 2); }
  [[nodiscard]] Counts displs() const noexcept { return Counts(numbers_).last(numbers_.size() / 2); }
  [[nodiscard]] bool negative() const noexcept { return negative_; }

  void pack() {
    each_piece([&](std::byte* block, int count, std::byte* packed, int bytes) {
      int at = 0;
      check(MPI_Pack(block, count, given_.datatype, packed, bytes, &at, own_), "MPI_Pack");
      if (at != bytes) throw SystemError("davit: MPI_Pack writes more than the bytes of the datatype");
    });
  }
  void unpack() {
    each_piece([&](std::byte* block, int count, std::byte* packed, int bytes) {
      int at = 0;
      check(MPI_Unpack(packed, bytes, &at, block, count, given_.datatype, own_), "MPI_Unpack");
    });
  }

 private:
  /// MPI_Pack counts bytes in an int, so long blocks go in pieces.
  template <class Work>
  void each_piece(Work const& work) {
    if (packed_ == nullptr) return;
    constexpr std::int64_t most = std::int64_t{1} << 30;
    auto* packed = packed_.get();
    for (std::size_t peer = 0; peer < counts().size(); ++peer) {
      auto* block = static_cast<std::byte*>(given_.data) + given_.displ_of(peer) * type_.extent;
      if (counts()[peer] <= 0) continue;
      if (type_.size > most) throw UsageError("davit: an element of the datatype is above 1 GiB");
      for (auto left = given_.count_of(peer); left > 0;) {
        auto const piece = std::min(left, most / type_.size);
        work(block, static_cast<int>(piece), packed, static_cast<int>(piece * type_.size));
        block += piece * type_.extent;
        packed += piece * type_.size;
        left -= piece;
      }
    }
  }

  Given const given_;
  MPI_Comm own_;
  Type type_;
  std::vector<std::int64_t> numbers_;  // counts, then displacements
  std::byte* data_ = nullptr;
  std::unique_ptr<std::byte[]> packed_;
  bool negative_ = false;
};

/// Calls on davit with what it refuses, so that the other ranks do not wait for this one.
void refuse(Attached& at) {
  try {
    at.davit.alltoallv(nullptr, {}, {}, no_such_dtype, nullptr, {}, {}, no_such_dtype);
  } catch (UsageError const&) {  // the caller has a better one
  }
}

/// @returns an MPI error class.
int exchange(Attached& at, Given const& send, Given const& recv) {
  int kind = MPI_ERR_TYPE;
  bool called = false;
  try {
    bool const in_place = send.data == bootstrap::in_place_buffer;
    Side to(recv, at);
    auto from = in_place ? std::nullopt : std::optional<Side>(std::in_place, send, at);
    kind = MPI_ERR_OTHER;
    if (in_place) {
      to.pack();
    } else {
      from->pack();
      auto const me = static_cast<std::size_t>(at.rank);
      if (from->counts()[me] != to.counts()[me]) kind = MPI_ERR_TRUNCATE;
    }
    if (to.negative() || (!in_place && from->negative())) kind = MPI_ERR_COUNT;
    called = true;
    if (in_place) {
      at.davit.alltoallv(davit::in_place, to.counts(), to.displs(), u8, to.data(), to.counts(), to.displs(), u8);
    } else {
      at.davit.alltoallv(from->data(), from->counts(), from->displs(), u8, to.data(), to.counts(), to.displs(), u8);
    }
    kind = MPI_ERR_OTHER;
    to.unpack();
    return MPI_SUCCESS;
  } catch (MismatchError const& error) {
    detail::log(LogLevel::error, error.what());
    return MPI_ERR_TRUNCATE;
  } catch (std::exception const& error) {
    detail::log(LogLevel::error, error.what());
    if (!called) refuse(at);
    return kind;
  }
}

/// What hangs on `comm`, or null where MPI does the call.
Attached* taken(MPI_Comm comm, int& failure) {
  try {
    auto* const at = attached(comm);
    return at != nullptr && at->davit ? at : nullptr;
  } catch (std::exception const& error) {
    detail::log(LogLevel::error, error.what());
    failure = MPI_ERR_OTHER;
    return nullptr;
  }
}

int run(Attached& at, MPI_Comm comm, Given const& send, Given const& recv) {
  int code = MPI_SUCCESS;
  {
    Inside const inside;
    code = exchange(at, send, recv);
  }
  // The handler is the program's: what it calls is no business of davit.
  if (code != MPI_SUCCESS) MPI_Comm_call_errhandler(comm, code);
  return code;
}

int failed(MPI_Comm comm, int code) {
  MPI_Comm_call_errhandler(comm, code);
  return code;
}

}  // namespace
}  // namespace davit::drop_in

using davit::drop_in::Inside;

int davit_alltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[], MPI_Datatype sendtype,
                    void* recvbuf, int const recvcounts[], int const rdispls[], MPI_Datatype recvtype, MPI_Comm comm) {
  int code = MPI_SUCCESS;
  auto* const at = davit::drop_in::taken(comm, code);
  if (code != MPI_SUCCESS) return davit::drop_in::failed(comm, code);
  if (at == nullptr) {
    Inside const inside;
    return PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
  }
  return davit::drop_in::run(*at, comm, {const_cast<void*>(sendbuf), sendcounts, sdispls, 0, sendtype},
                             {recvbuf, recvcounts, rdispls, 0, recvtype});
}

int davit_alltoall(void const* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                   MPI_Datatype recvtype, MPI_Comm comm) {
  int code = MPI_SUCCESS;
  auto* const at = davit::drop_in::taken(comm, code);
  if (code != MPI_SUCCESS) return davit::drop_in::failed(comm, code);
  if (at == nullptr) {
    Inside const inside;
    return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
  }
  return davit::drop_in::run(*at, comm, {const_cast<void*>(sendbuf), nullptr, nullptr, sendcount, sendtype},
                             {recvbuf, nullptr, nullptr, recvcount, recvtype});
}
