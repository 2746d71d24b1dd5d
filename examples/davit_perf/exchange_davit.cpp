// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/exchange.hpp"

namespace perf {
namespace {

class DavitExchange final : public ExchangeSide {
 public:
  DavitExchange(Exchange const& exchange, davit::Communicator& comm, std::optional<davit::Stream> stream)
      : ExchangeSide(exchange), comm_(comm), stream_(stream), elements_(exchange.in_elements(exchange.send().counts)) {}

  [[nodiscard]] bool blocks() const noexcept override { return !stream_; }

  void run() override {
    auto const& [counts, displs, total] = exchange_.recv();
    auto const& send = exchange_.send();
    auto const* const input = exchange_.input();
    switch (exchange_.operation()) {
      case Operation::allgatherv:
        return comm_.allgatherv(input, send.total, davit::u8, output(), counts, displs, davit::u8, stream_);
      case Operation::reduce_scatterv:
        return comm_.reduce_scatterv(input, output(), elements_, exchange_.dtype(), stream_);
      default:
        break;
    }
    if (stream_) {
      comm_.alltoallv(input, send.counts, send.displs, davit::u8, output(), counts, displs, davit::u8, *stream_);
    } else {
      comm_.alltoallv(input, send.counts, send.displs, davit::u8, output(), counts, displs, davit::u8);
    }
  }

 private:
  davit::Communicator& comm_;
  std::optional<davit::Stream> stream_;
  std::vector<std::int64_t> elements_;
};

}  // namespace

std::unique_ptr<ExchangeSide> make_davit_exchange(Exchange const& exchange, davit::Communicator& comm,
                                                  std::optional<davit::Stream> stream) {
  return std::make_unique<DavitExchange>(exchange, comm, stream);
}

}  // namespace perf
