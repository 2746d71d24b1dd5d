// SPDX-License-Identifier: Apache-2.0
// staged-mpi: what an MPI program does whose data lie on a GPU: copies down to pinned memory, MPI, copies up. The block
// that a rank keeps never leaves the GPU.
#include "examples/davit_perf/cuda/peers.hpp"

namespace perf {
namespace {

class StagedExchange final : public ExchangeSide {
 public:
  StagedExchange(Exchange const& exchange, Gpu& gpu)
      : ExchangeSide(exchange),
        gpu_(gpu),
        send_(support::pinned_memory(static_cast<std::size_t>(exchange.send().total))),
        recv_(support::pinned_memory(static_cast<std::size_t>(exchange.recv().total))),
        send_counts_(to_int(exchange.send().counts)),
        send_displs_(to_int(exchange.send().displs)),
        recv_counts_(to_int(exchange.recv().counts)),
        recv_displs_(to_int(exchange.recv().displs)),
        floats_(to_int(exchange.in_elements(exchange.send().counts))) {
    if (exchange.operation() == Operation::alltoallv) send_counts_[me()] = recv_counts_[me()] = 0;
  }

  void run() override {
    switch (exchange_.operation()) {
      case Operation::allgatherv:
        return gather();
      case Operation::reduce_scatterv:
        return reduce();
      default:
        return exchange();
    }
  }

 private:
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(exchange_.rank()); }

  void exchange() {
    auto const& send = exchange_.send();
    copy_but_own(send_.get(), exchange_.input(), send);
    support::copy(gpu_.stream.get(), output() + exchange_.recv().displs[me()], exchange_.input() + send.displs[me()],
                  static_cast<std::size_t>(send.counts[me()]));
    gpu_.stream.wait();
    support::check(MPI_Alltoallv(send_.get(), send_counts_.data(), send_displs_.data(), MPI_BYTE, recv_.get(),
                                 recv_counts_.data(), recv_displs_.data(), MPI_BYTE, gpu_.world.comm()),
                   "MPI_Alltoallv");
    copy_but_own(output(), recv_.get(), exchange_.recv());
    gpu_.stream.wait();
  }

  void gather() {
    auto const bytes = static_cast<std::size_t>(exchange_.send().total);
    support::copy(gpu_.stream.get(), send_.get(), exchange_.input(), bytes);
    support::copy(gpu_.stream.get(), output() + exchange_.recv().displs[me()], exchange_.input(), bytes);
    gpu_.stream.wait();
    support::check(MPI_Allgatherv(send_.get(), send_counts_.front(), MPI_BYTE, recv_.get(), recv_counts_.data(),
                                  recv_displs_.data(), MPI_BYTE, gpu_.world.comm()),
                   "MPI_Allgatherv");
    copy_but_own(output(), recv_.get(), exchange_.recv());
    gpu_.stream.wait();
  }

  void reduce() {
    support::copy(gpu_.stream.get(), send_.get(), exchange_.input(), static_cast<std::size_t>(exchange_.send().total));
    gpu_.stream.wait();
    support::check(MPI_Reduce_scatter(send_.get(), recv_.get(), floats_.data(), MPI_FLOAT, MPI_SUM, gpu_.world.comm()),
                   "MPI_Reduce_scatter");
    support::copy(gpu_.stream.get(), output(), recv_.get(), output_bytes());
    gpu_.stream.wait();
  }

  /// The blocks before the own one and those behind it, which lie packed.
  void copy_but_own(std::byte* to, std::byte const* from, Blocks const& blocks) const {
    auto const own = blocks.displs[me()];
    auto const behind = own + blocks.counts[me()];
    support::copy(gpu_.stream.get(), to, from, static_cast<std::size_t>(own));
    support::copy(gpu_.stream.get(), to + behind, from + behind, static_cast<std::size_t>(blocks.total - behind));
  }

  Gpu& gpu_;
  std::shared_ptr<std::byte> send_, recv_;
  std::vector<int> send_counts_, send_displs_, recv_counts_, recv_displs_, floats_;
};

}  // namespace

std::unique_ptr<ExchangeSide> make_staged_exchange(Exchange const& exchange, Gpu& gpu) {
  return std::make_unique<StagedExchange>(exchange, gpu);
}

}  // namespace perf
