// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which ranks share a node, and who takes in what comes from ranks of other nodes. A pure function of every rank's
/// node number, so all ranks hold the same.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace davit {

class NodeMap {
 public:
  /// All ranks on one node.
  NodeMap(int rank, int ranks) : NodeMap(rank, std::vector<int>(static_cast<std::size_t>(ranks))) {}
  /// @param nodes of each rank; equal numbers share a node, in [0, ranks).
  NodeMap(int rank, std::vector<int> nodes) : rank_(rank), node_of_(std::move(nodes)), index_(node_of_.size()) {
    for (std::size_t at = 0; at < node_of_.size(); ++at) {
      auto const node = static_cast<std::size_t>(node_of_[at]);
      if (node >= ranks_of_.size()) ranks_of_.resize(node + 1);
      index_[at] = ranks_of_[node].size();
      ranks_of_[node].push_back(static_cast<int>(at));
    }
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(node_of_.size()); }
  [[nodiscard]] int nodes() const noexcept { return static_cast<int>(ranks_of_.size()); }
  [[nodiscard]] int node_of(int rank) const noexcept { return node_of_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int here() const noexcept { return node_of(rank_); }
  [[nodiscard]] bool is_here(int rank) const noexcept { return node_of(rank) == here(); }
  /// Rising.
  [[nodiscard]] std::span<int const> ranks_of(int node) const noexcept {
    return ranks_of_[static_cast<std::size_t>(node)];
  }
  /// The rank of `node` that takes in what `rank`, of another node, sends there: ranks of a node take turns, so that
  /// each local rank has a rail of its own where nodes are alike.
  [[nodiscard]] int partner(int rank, int node) const noexcept {
    auto const there = ranks_of(node);
    return there[index_[static_cast<std::size_t>(rank)] % there.size()];
  }
  /// Ranks of other nodes whose partner `rank` is, rising.
  [[nodiscard]] std::vector<int> taken_in_by(int rank) const {
    std::vector<int> owners;
    for (int owner = 0; owner < size(); ++owner) {
      if (node_of(owner) != node_of(rank) && partner(owner, node_of(rank)) == rank) owners.push_back(owner);
    }
    return owners;
  }

 private:
  int rank_;
  std::vector<int> node_of_;
  std::vector<std::size_t> index_;  ///< of each rank among those of its node
  std::vector<std::vector<int>> ranks_of_;
};

}  // namespace davit
