// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an ExpertGroup holds: its settings, who owns which expert, the routing areas of all ranks, and memory for rows.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "davit/expert_group.hpp"
#include "runtime/agree.hpp"
#include "runtime/communicator_state.hpp"
#include "runtime/row_pool.hpp"

namespace davit::detail {

/// One rank's choices as published: the same expert twice in a token is merged, unused entries are -1 with weight 0.
struct RoutingArea {
  std::int64_t* tokens;
  std::int32_t* ids;  ///< [tokens, K]
  float* weights;     ///< [tokens, K]
};

class GroupState {
 public:
  /// Collective. @throws as the constructor of ExpertGroup.
  GroupState(std::shared_ptr<CommunicatorState> comm, ExpertGroupOptions const& options);
  ~GroupState();
  GroupState(GroupState const&) = delete;
  GroupState& operator=(GroupState const&) = delete;

  [[nodiscard]] int owner_of(std::int64_t expert) const { return owners_[static_cast<std::size_t>(expert)]; }
  [[nodiscard]] std::int64_t first_expert(int rank) const noexcept;
  [[nodiscard]] std::int64_t experts_of(int rank) const noexcept;
  /// Area of routing `number` in a rank's segment.
  [[nodiscard]] RoutingArea area(int rank, std::uint64_t number) const noexcept;
  /// This rank has written its area of routing `number`, `entries` ids: the other nodes get it too, before the cards.
  void publish(std::uint64_t number, std::size_t entries) const;
  /// In `rank`'s segment, written by `peer`: how often it has let go of the area of routing `number`.
  [[nodiscard]] Counter& released(int rank, int peer, std::uint64_t number) const noexcept;
  /// What `released` must have come to before routing `number` may be written.
  [[nodiscard]] std::uint32_t uses_before(std::uint64_t number) const noexcept {
    return static_cast<std::uint32_t>(number / static_cast<std::uint64_t>(options.routings));
  }

  /// Where received rows live on a side of the communicator.
  [[nodiscard]] std::shared_ptr<RowPool> pool_for(Side& side) const;

  std::shared_ptr<CommunicatorState> const comm;
  ExpertGroupOptions options;  ///< defaults filled in
  Dtype partial_dtype{};
  std::uint32_t serial = 0;  ///< of the communicator's groups; alike on all ranks
  std::uint64_t next_routing = 0;
  std::unique_ptr<std::atomic<bool>[]> held;  ///< areas that routings of this rank hold

 private:
  [[nodiscard]] std::size_t counters_bytes() const noexcept;
  [[nodiscard]] std::size_t area_bytes() const noexcept;

  [[nodiscard]] Segment make_segment() const;
  [[nodiscard]] Mirror make_mirror(int owner) const;
  [[nodiscard]] std::size_t released_offset(int peer, std::uint64_t number) const noexcept;

  std::vector<int> owners_;
  SharedSegments segments_;
  int on_wire_ = -1;  ///< number of the segments there
};

}  // namespace davit::detail
