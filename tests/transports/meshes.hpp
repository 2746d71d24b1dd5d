// SPDX-License-Identifier: Apache-2.0
/// @file
/// The meshes of all ranks in one process, for tests that play the ranks one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transports/mesh.hpp"

namespace davit::test {

class Meshes {
 public:
  Meshes(Geometry const& geometry, Mesh::Start start) {
    auto const ranks = static_cast<int>(geometry.ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      meshes_.push_back(
          std::make_unique<Mesh>(NodeMap(rank, static_cast<int>(geometry.ranks)), geometry, "/dev/shm", start));
    }
    for (auto& mesh : meshes_) {
      for (int peer = 0; peer < ranks; ++peer) {
        auto const& ticket = (*this)[peer].segment().ticket();
        mesh->adopt(peer, Segment::attach(ticket), ticket);
      }
      mesh->prepare([](std::byte*, std::size_t, std::uint32_t) {});
    }
  }

  [[nodiscard]] Mesh& operator[](int rank) { return *meshes_[static_cast<std::size_t>(rank)]; }
  /// Rank's outbox, as it lies in memory.
  [[nodiscard]] Outbox outbox(int rank) { return {(*this)[rank].segment().mapping(), (*this)[rank].geometry()}; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(meshes_.size()); }

 private:
  std::vector<std::unique_ptr<Mesh>> meshes_;
};

}  // namespace davit::test
