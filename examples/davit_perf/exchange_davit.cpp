// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/exchange.hpp"

namespace perf {
namespace {

class DavitExchange final : public ExchangeSide {
 public:
  DavitExchange(Exchange const& exchange, davit::Communicator& comm) : ExchangeSide(exchange), comm_(comm) {}

  void run() override {
    auto const& [counts, displs, total] = exchange_.recv();
    auto const& send = exchange_.send();
    if (exchange_.operation() == Operation::allgatherv) {
      comm_.allgatherv(exchange_.input(), send.total, davit::u8, output().data(), counts, displs, davit::u8);
    } else {
      comm_.alltoallv(exchange_.input(), send.counts, send.displs, davit::u8, output().data(), counts, displs,
                      davit::u8);
    }
  }

 private:
  davit::Communicator& comm_;
};

}  // namespace

std::unique_ptr<ExchangeSide> make_davit_exchange(Exchange const& exchange, davit::Communicator& comm) {
  return std::make_unique<DavitExchange>(exchange, comm);
}

}  // namespace perf
