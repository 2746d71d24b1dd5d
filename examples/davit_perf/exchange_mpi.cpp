// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <string>

#include "examples/davit_perf/exchange.hpp"
#include "examples/support/sizes.hpp"

namespace perf {
namespace {

/// MPI_Alltoallv or MPI_Allgatherv on bytes, MPI_Reduce_scatter on floats.
class MpiExchange final : public ExchangeSide {
 public:
  MpiExchange(Exchange const& exchange, support::World const& world)
      : ExchangeSide(exchange),
        comm_(world.comm()),
        send_counts_(to_int(exchange.send().counts)),
        send_displs_(to_int(exchange.send().displs)),
        recv_counts_(to_int(exchange.recv().counts)),
        recv_displs_(to_int(exchange.recv().displs)),
        floats_(to_int(exchange.in_elements(exchange.send().counts))) {}

  void run() override {
    switch (exchange_.operation()) {
      case Operation::allgatherv:
        support::check(MPI_Allgatherv(exchange_.input(), send_counts_.front(), MPI_BYTE, output(), recv_counts_.data(),
                                      recv_displs_.data(), MPI_BYTE, comm_),
                       "MPI_Allgatherv");
        break;
      case Operation::reduce_scatterv:
        support::check(MPI_Reduce_scatter(exchange_.input(), output(), floats_.data(), MPI_FLOAT, MPI_SUM, comm_),
                       "MPI_Reduce_scatter");
        break;
      default:
        support::check(MPI_Alltoallv(exchange_.input(), send_counts_.data(), send_displs_.data(), MPI_BYTE, output(),
                                     recv_counts_.data(), recv_displs_.data(), MPI_BYTE, comm_),
                       "MPI_Alltoallv");
    }
  }

 private:
  MPI_Comm comm_;
  std::vector<int> send_counts_, send_displs_, recv_counts_, recv_displs_, floats_;
};

}  // namespace

std::unique_ptr<ExchangeSide> make_mpi_exchange(Exchange const& exchange, support::World const& world) {
  return std::make_unique<MpiExchange>(exchange, world);
}

std::vector<int> to_int(std::vector<std::int64_t> const& numbers) {
  std::vector<int> narrow;
  for (auto const number : numbers) narrow.push_back(static_cast<int>(number));
  return narrow;
}

void require_mpi_counts(Options const& options, support::World const& world) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  auto const longest_at = [&](std::int64_t bytes) {
    std::int64_t longest = 0;
    for (int rank = 0; rank < world.size(); ++rank) {
      auto const shape = shape_of(options, bytes, rank, world.size());
      longest = std::max({longest, shape.send.total, shape.recv.total});
    }
    return longest;
  };
  // Above this not even davit's own 64-bit totals hold, and no machine has the memory.
  constexpr std::int64_t absurd = std::int64_t{1} << 40;
  if (options.max_bytes <= absurd && longest_at(options.max_bytes) <= most) return;
  auto fits = options.min_bytes;
  while (fits <= absurd && longest_at(fits) <= most) fits *= 2;
  auto text = "--max " + support::format_size(options.max_bytes) +
              ": MPI counts a buffer's bytes by int, and a rank's buffer would have more than " + std::to_string(most) +
              " bytes with " + std::to_string(world.size()) + " ranks";
  if (fits > options.min_bytes) text += "; --max " + support::format_size(fits / 2) + " is possible";
  throw support::Failure(support::Exit::usage, text, support::Told::by_root);
}

}  // namespace perf
