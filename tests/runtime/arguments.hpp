// SPDX-License-Identifier: Apache-2.0
/// @file
/// A right call and a wrong one, for tests of what is refused.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "davit/communicator.hpp"
#include "davit/error.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {

/// Arguments of an alltoallv in which every rank sends `count` numbers to every other, and the buffers they name.
class Arguments {
 public:
  Arguments(Communicator const& comm, std::int64_t count = 4)
      : rank_(comm.rank()),
        ranks(static_cast<std::size_t>(comm.size())),
        source(ranks * static_cast<std::size_t>(count)),
        target(source.size() * sizeof(std::int32_t)) {
    send_counts.assign(ranks, count);
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      send_displs.push_back(static_cast<std::int64_t>(peer) * count);
      for (std::int64_t i = 0; i < count; ++i)
        source[peer * static_cast<std::size_t>(count) + static_cast<std::size_t>(i)] =
            value(rank_, static_cast<int>(peer), i);
    }
    recv_counts = send_counts;
    recv_displs = send_displs;
    on_rank.emplace(bytes_of(source));
    send = on_rank->data();
    recv = target.data();
  }

  void run(Communicator& comm) const {
    comm.alltoallv(send, send_counts, send_displs, send_dtype, recv, recv_counts, recv_displs, recv_dtype);
  }
  [[nodiscard]] Request post(Communicator& comm) const {
    return comm.ialltoallv(send, send_counts, send_displs, send_dtype, recv, recv_counts, recv_displs, recv_dtype);
  }
  [[nodiscard]] Plan plan(Communicator& comm) const {
    return comm.alltoallv_init(send, send_counts, send_displs, send_dtype, recv, recv_counts, recv_displs, recv_dtype);
  }
  /// The whole of a right exchange came.
  void check(std::string const& what = {}) const {
    for (std::size_t from = 0; from < ranks; ++from) check_from(static_cast<int>(from), what);
    EXPECT_TRUE(target.intact()) << what;
  }
  void check_from(int from, std::string const& what = {}) const {
    auto const bytes = target.read();
    auto const* const numbers = reinterpret_cast<std::int32_t const*>(bytes.data());
    auto const count = static_cast<std::int64_t>(source.size() / ranks);
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(numbers[from * count + i], value(from, rank_, i)) << what << ": from rank " << from << ", number " << i;
    }
  }
  void check_untouched(std::string const& what = {}) const {
    for (auto const byte : target.read()) ASSERT_EQ(byte, kUntouched) << what;
    EXPECT_TRUE(target.intact()) << what;
  }

  int rank_;
  std::size_t ranks;
  std::vector<std::int32_t> source;
  std::optional<Memory> on_rank;  ///< the same, where the rank keeps buffers
  Guarded target;
  void const* send;
  void* recv;
  std::vector<std::int64_t> send_counts;
  std::vector<std::int64_t> send_displs;
  std::vector<std::int64_t> recv_counts;
  std::vector<std::int64_t> recv_displs;
  Dtype send_dtype = i32;
  Dtype recv_dtype = i32;

 private:
  static std::int32_t value(int from, int to, std::int64_t i) {
    return static_cast<std::int32_t>(100000 * (from + 1) + 1000 * to + i % 1000);
  }
};

/// A right exchange, after whatever came before.
inline void exchange_is_right(Communicator& comm, std::string const& what = {}, std::int64_t count = 4) {
  Arguments right(comm, count);
  right.run(comm);
  right.check(what);
}

/// Runs `call`, which must raise PeerError, and checks whom it names.
template <class Call>
std::string peer_error(Call&& call, int culprit) {
  return raised<PeerError>([&] {
    try {
      call();
    } catch (PeerError const& error) {
      EXPECT_EQ(error.rank(), culprit) << error.what();
      throw;
    }
  });
}

}  // namespace davit::test
