// SPDX-License-Identifier: Apache-2.0
#include "runtime/interposer/sides.hpp"

#include <algorithm>
#include <string>

#include "bootstrap/mpi_bootstrap.hpp"
#include "runtime/factory.hpp"
#include "runtime/log.hpp"

namespace davit::drop_in {
namespace {

using bootstrap::check;

bool is_on_a_gpu(void const* data) noexcept {
  auto* const backend = detail::device_backend();
  return backend != nullptr && backend->place(data).kind == MemoryKind::device;
}

}  // namespace

Given blocks_of(void const* data, std::int64_t count, MPI_Datatype datatype) {
  return {.data = const_cast<void*>(data), .datatype = datatype, .count = count};
}

Given blocks_of(void const* data, int const* counts, int const* displs, MPI_Datatype datatype) {
  return {.data = const_cast<void*>(data), .datatype = datatype, .counts = counts, .displs = displs};
}

Given blocks_of(void const* data, MPI_Count const* counts, MPI_Aint const* displs, MPI_Datatype datatype) {
  return {.data = const_cast<void*>(data), .datatype = datatype, .large_counts = counts, .large_displs = displs};
}

Side::Side(Given const& given, std::size_t blocks, MPI_Comm own)
    : blocks_(blocks),
      datatype_(given.datatype),
      own_(own),
      type_(type_of(given.datatype, own)),
      given_data_(static_cast<std::byte*>(given.data)),
      numbers_(few_numbers_.data()),
      data_(given_data_) {
  if (given.data == bootstrap::in_place_buffer) throw BadBuffer("davit: recvbuf is MPI_IN_PLACE, only sendbuf may be");
  if (blocks > few) {
    many_numbers_ = std::make_unique_for_overwrite<std::int64_t[]>(2 * blocks);
    numbers_ = many_numbers_.get();
  }
  if (!type_.contiguous) places_.resize(blocks);
  std::int64_t low = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    auto const count = given.count_of(block);
    auto& bytes = numbers_[block];
    auto& displ = numbers_[blocks + block];
    displ = 0;
    bytes = count < 0 ? -1 : 0;
    negative_ = negative_ || count < 0;
    if (count <= 0) continue;
    bool over = __builtin_mul_overflow(count, type_.size, &bytes);
    over = __builtin_mul_overflow(given.displ_of(block), type_.extent, &displ) || over;
    if (over || bytes > INT64_MAX - total_) throw UsageError("davit: bytes of a block, or of all, are above 2^63 - 1");
    if (!type_.contiguous) {
      places_[block] = displ;
      displ = total_;
    }
    low = std::min(low, displ);
    total_ += bytes;
  }
  if (!type_.contiguous && total_ > 0) {
    if (is_on_a_gpu(given_data_)) {
      throw UsageError("davit: a datatype with gaps on GPU memory: MPI_Pack works on host memory only");
    }
    packed_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(total_));
    data_ = packed_.get();
  }
  if (low < 0) {  // MPI lets a block lie before the buffer's address
    data_ += low;
    for (std::size_t block = 0; block < blocks; ++block) {
      if (numbers_[block] > 0) numbers_[blocks + block] -= low;
    }
  }
}

Side::~Side() {
  if (keeps_datatype_) MPI_Type_free(&datatype_);
}

void Side::keep_datatype() {
  if (packed_ == nullptr) return;
  MPI_Datatype copy{};
  check(MPI_Type_dup(datatype_, &copy), "MPI_Type_dup");
  datatype_ = copy;
  keeps_datatype_ = true;
}

/// MPI_Pack counts bytes in an int, so long blocks go in pieces.
template <class Work>
void Side::each_piece(Work const& work) {
  if (packed_ == nullptr) return;
  constexpr std::int64_t most = std::int64_t{1} << 30;
  auto* packed = packed_.get();
  for (std::size_t block = 0; block < blocks_; ++block) {
    if (numbers_[block] <= 0) continue;
    if (type_.size > most) throw UsageError("davit: an element of the datatype is above 1 GiB");
    auto* data = given_data_ + places_[block];
    for (auto left = numbers_[block] / type_.size; left > 0;) {
      auto const piece = std::min(left, most / type_.size);
      work(data, static_cast<int>(piece), packed, static_cast<int>(piece * type_.size));
      data += piece * type_.extent;
      packed += piece * type_.size;
      left -= piece;
    }
  }
}

void Side::pack() {
  each_piece([&](std::byte* block, int count, std::byte* packed, int bytes) {
    int at = 0;
    check(MPI_Pack(block, count, datatype_, packed, bytes, &at, own_), "MPI_Pack");
    if (at != bytes) throw SystemError("davit: MPI_Pack writes more than the bytes of the datatype");
  });
}

void Side::unpack() {
  each_piece([&](std::byte* block, int count, std::byte* packed, int bytes) {
    int at = 0;
    check(MPI_Unpack(packed, bytes, &at, block, count, datatype_, own_), "MPI_Unpack");
  });
}

Sides::Sides(Attached const& at, Given const& send, Given const& recv)
    : to_(recv, static_cast<std::size_t>(at.size), at.own) {
  bool negative = to_.negative();
  if (send.data == bootstrap::in_place_buffer) {
    to_.pack();
  } else {
    from_.emplace(send, static_cast<std::size_t>(at.size), at.own);
    negative = negative || from_->negative();
    from_->pack();
    auto const me = static_cast<std::size_t>(at.rank);
    if (from_->counts()[me] != to_.counts()[me]) blame_ = MPI_ERR_TRUNCATE;
  }
  if (negative) blame_ = MPI_ERR_COUNT;
}

void Sides::keep_datatypes() { to_.keep_datatype(); }

}  // namespace davit::drop_in
