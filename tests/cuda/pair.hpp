// SPDX-License-Identifier: Apache-2.0
/// @file
/// Two processes under mpirun, a GPU each (or one for both, with DAVIT_ALLOW_SHARED_GPU=1), and an outbox each that
/// both have mapped and registered: what a communicator makes, by hand.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transports/cuda/cuda_backend.hpp"
#include "transports/cuda/handles.hpp"
#include "transports/mesh.hpp"

namespace davit::test {

/// This process and its GPU. Valid once MPI is up.
struct Seat {
  int rank = 0;
  int ranks = 1;
  int device = 0;
  bool is_shared = false;  ///< with the other rank
  std::string why_not;     ///< not empty: nothing can be tested here
};
[[nodiscard]] Seat const& seat();

/// Whether launches wait until the kernel has run.
[[nodiscard]] bool launches_block();

/// Both ranks' segments.
struct Segments {
  SegmentTicket tickets[2];
  Mapping mappings[2];
};
/// Collective. @param own begins with its ticket's nonce, by which the other rank knows it.
/// @throws std::runtime_error where the other rank's cannot be mapped.
[[nodiscard]] Segments exchange_segments(Segment const& own);

class Pair {
 public:
  /// Collective. @param start where numbers and chunks begin.
  Pair(std::uint32_t slots, std::uint64_t slot_bytes, Mesh::Start start);

  [[nodiscard]] Mesh& mesh() noexcept { return mesh_; }
  [[nodiscard]] DeviceEngine& engine() noexcept { return *engine_; }
  [[nodiscard]] int rank() const noexcept { return mesh_.rank(); }
  [[nodiscard]] int peer() const noexcept { return 1 - mesh_.rank(); }
  [[nodiscard]] Outbox const& own() const noexcept { return own_; }
  [[nodiscard]] Outbox const& peers() const noexcept { return peers_; }
  /// Where chunk `index`, one a call, lies.
  [[nodiscard]] std::uint32_t place(std::uint32_t index) const noexcept {
    return mesh_.place(start_.number + index, 1, 0);
  }
  /// A counter's value when `chunks` chunks have passed.
  [[nodiscard]] std::uint32_t after(std::uint32_t chunks) const noexcept { return start_.chunk + chunks; }

 private:
  Mesh::Start start_;
  Mesh mesh_;
  Segments segments_;
  std::shared_ptr<void> registrations_[2];
  Outbox own_;
  Outbox peers_;
  std::unique_ptr<DeviceEngine> engine_;
};

/// Polls until `done`. @returns false after the limit.
[[nodiscard]] bool wait_for(std::function<bool()> const& done,
                            std::chrono::milliseconds limit = std::chrono::seconds(60));

/// "up waits for data 7 of rank 1, there is 5".
[[nodiscard]] std::string standing(Engine const& engine);

void barrier();

}  // namespace davit::test
