// SPDX-License-Identifier: Apache-2.0
/// @file
/// A program of somebody else: two ranks in two threads exchange rows of unequal length and check what came.
#include <davit/davit.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::int64_t kRows = 1000;

// Rank `from` sends kRows + 10 * from + to numbers to `to`.
std::int64_t count(int from, int to) { return kRows + 10 * from + to; }
std::int32_t element(int from, int to, std::int64_t i) {
  return static_cast<std::int32_t>(100000 * from + 10000 * to + i);
}

bool exchange(std::shared_ptr<davit::Bootstrap> bootstrap) {
  davit::Communicator comm{std::move(bootstrap)};
  int const me = comm.rank();
  std::array<std::int64_t, 2> const send_counts{count(me, 0), count(me, 1)};
  std::array<std::int64_t, 2> const recv_counts{count(0, me), count(1, me)};
  std::array<std::int64_t, 2> const send_displs{0, send_counts[0]};
  std::array<std::int64_t, 2> const recv_displs{0, recv_counts[0]};

  std::vector<std::int32_t> send;
  for (int to = 0; to < 2; ++to)
    for (std::int64_t i = 0; i < count(me, to); ++i) send.push_back(element(me, to, i));
  std::vector<std::int32_t> recv(static_cast<std::size_t>(recv_counts[0] + recv_counts[1]), -1);
  comm.alltoallv(send.data(), send_counts, send_displs, recv.data(), recv_counts, recv_displs);

  std::vector<std::int32_t> expected;
  for (int from = 0; from < 2; ++from)
    for (std::int64_t i = 0; i < count(from, me); ++i) expected.push_back(element(from, me, i));
  return recv == expected;
}

}  // namespace

int main() {
  auto const bootstraps = davit::threads(2);
  std::array<bool, 2> right{};
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      try {
        right[r] = exchange(bootstraps[r]);
      } catch (std::exception const& error) {
        std::fprintf(stderr, "rank %zu: %s\n", r, error.what());
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  if (davit::version() != DAVIT_VERSION || !right[0] || !right[1]) {
    std::fprintf(stderr, "wrong\n");
    return 1;
  }
  std::printf("davit %s: both ranks hold what was sent\n", DAVIT_VERSION);
}
