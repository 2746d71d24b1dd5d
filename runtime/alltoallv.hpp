// SPDX-License-Identifier: Apache-2.0
/// @file
/// alltoallv: the stepped exchange. In step s rank r pushes to r + s and pulls from r - s, chunk by chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/call.hpp"

namespace davit::detail {

/// Blocks of one side, in elements; spans borrow from the caller or from an OwnedExchange.
struct Blocks {
  std::byte* data = nullptr;
  Counts counts;
  Counts displs;
  Dtype dtype{};

  [[nodiscard]] std::uint64_t bytes(int peer) const noexcept {
    return static_cast<std::uint64_t>(counts[static_cast<std::size_t>(peer)]) * size_of(dtype);
  }
  [[nodiscard]] std::byte* block(int peer) const noexcept {
    return bytes(peer) == 0 ? nullptr
                            : data + displs[static_cast<std::size_t>(peer)] * static_cast<std::int64_t>(size_of(dtype));
  }
};

/// Both sides of an alltoallv.
struct Exchange {
  Blocks send;
  Blocks recv;
  bool in_place = false;
};

/// Checks what the caller gave; everything after it may trust the result.
/// @throws UsageError naming the argument, its value and the bound.
[[nodiscard]] Exchange checked_exchange(char const* operation, int rank, int ranks, void const* send,
                                        Counts send_counts, Counts send_displs, Dtype send_dtype, void* recv,
                                        Counts recv_counts, Counts recv_displs, Dtype recv_dtype);
/// The side that an exchange belongs to. @throws as side_for.
[[nodiscard]] Side& side_of(CommunicatorState& comm, char const* operation, Exchange const& exchange,
                            std::optional<Stream> stream = {});
/// Checks one side: sizes of the spans, signs, overflow, null; with `disjoint`, that blocks do not overlap.
[[nodiscard]] Blocks checked_blocks(char const* operation, char const* side, int ranks, void* data, Counts counts,
                                    Counts displs, Dtype dtype, bool disjoint);

/// Copies of the spans of an exchange, for calls that outlive the caller's.
class OwnedExchange {
 public:
  explicit OwnedExchange(Exchange const& borrowed);
  OwnedExchange(OwnedExchange const&) = delete;
  OwnedExchange& operator=(OwnedExchange const&) = delete;
  [[nodiscard]] Exchange const& view() const noexcept { return view_; }

 private:
  std::vector<std::int64_t> numbers_;
  Exchange view_;
};

class Alltoallv : public Call {
 public:
  Alltoallv(CommunicatorState& comm, Side& side, Exchange const& exchange);

 private:
  [[nodiscard]] Card terms(int peer) const override;
  bool open() override;
  bool submit() override;

  enum class Next { submitted, must_wait, end };
  Next push_next();
  Next pull_next();
  void submit_in_turn();
  void push_chunk(int step, std::uint64_t chunk);
  void pull_chunk(int step, std::uint64_t chunk);
  void keep_own();

  [[nodiscard]] std::uint64_t chunks_of(std::uint64_t bytes) const noexcept;
  [[nodiscard]] bool may_push_direct(int peer) const;
  [[nodiscard]] bool pushes_direct(int peer) const;
  [[nodiscard]] bool pulls_direct(int peer) const;

  Exchange exchange_;
  std::shared_ptr<void> staged_;  ///< in place: what was in `recv` when the call began
  std::vector<std::int64_t> staged_displs_;
  bool kept_ = false;
  int push_step_ = 1;
  std::uint64_t push_chunk_ = 0;
  int pull_step_ = 1;
  std::uint64_t pull_chunk_ = 0;
  bool holds_submitted_ = false;
};

/// Arguments that outlive their caller: of a nonblocking call, or of a plan.
class PlanState {
 public:
  PlanState(std::weak_ptr<CommunicatorState> state, Exchange const& arguments)
      : comm(std::move(state)), exchange(arguments) {}

  std::weak_ptr<CommunicatorState> const comm;
  OwnedExchange const exchange;
};

/// A posted or enqueued alltoallv, with the arguments it works on.
class OpenAlltoallv final : public Alltoallv {
 public:
  OpenAlltoallv(CommunicatorState& comm, Side& side, std::shared_ptr<PlanState> plan)
      : Alltoallv(comm, side, plan->exchange.view()), plan_(std::move(plan)) {
    home = plan_->comm;
  }

 private:
  std::shared_ptr<PlanState> plan_;
};

/// Only agrees on the sizes of an exchange; moves nothing.
class SizeAgreement final : public Call {
 public:
  SizeAgreement(CommunicatorState& comm, Exchange const& exchange)
      : Call(comm, Operation::alltoallv_init), exchange_(exchange) {}

 private:
  [[nodiscard]] Card terms(int peer) const override;
  bool submit() override { return true; }
  Exchange exchange_;
};

/// All cards read: all ranks have called.
class Barrier final : public Call {
 public:
  explicit Barrier(CommunicatorState& comm, Operation operation = Operation::barrier) : Call(comm, operation) {}

 private:
  [[nodiscard]] Card terms(int) const override { return {}; }
  bool submit() override { return true; }
};

}  // namespace davit::detail
