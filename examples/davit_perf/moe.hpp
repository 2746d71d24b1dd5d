// SPDX-License-Identifier: Apache-2.0
/// @file
/// moe: the tokens and their choices, and the sides that move them.
///
/// Notation as in davit/expert_group.hpp: R ranks, E experts, L experts on this rank, T tokens, K top_k, H hidden.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "davit/communicator.hpp"
#include "davit/dtype.hpp"
#include "examples/davit_perf/device.hpp"
#include "examples/davit_perf/options.hpp"
#include "examples/support/expert_map.hpp"
#include "examples/support/moe_recipe.hpp"
#include "examples/support/world.hpp"

namespace perf {

/// One batch of tokens on this rank, the input of all sides.
class MoeProblem {
 public:
  MoeProblem(Options const& options, std::int64_t tokens, support::World const& world, Device& device);

  // Give the input of `round`: a few tokens swap their choices; one element of every 16th row of `rows` changes.
  void change_choices(std::uint64_t round) noexcept;
  void change_rows(std::byte* rows, std::int64_t count, std::uint64_t round) const;
  void change_x(std::uint64_t round) { change_rows(x_.get(), tokens_, round); }

  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::int64_t top_k() const noexcept { return top_k_; }
  [[nodiscard]] std::int64_t hidden() const noexcept { return hidden_; }
  [[nodiscard]] davit::Dtype dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::size_t row_bytes() const noexcept { return static_cast<std::size_t>(hidden_) * size_of(dtype_); }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] support::ExpertMap const& map() const noexcept { return map_; }
  [[nodiscard]] Device& device() const noexcept { return device_; }

  [[nodiscard]] std::byte const* x() const noexcept { return x_.get(); }              ///< [T, H], on the device
  [[nodiscard]] std::span<std::int32_t const> ids() const noexcept { return ids_; }   ///< [T, K], distinct in a token
  [[nodiscard]] std::span<float const> weights() const noexcept { return weights_; }  ///< [T, K], sum 1 in a token
  [[nodiscard]] std::span<std::int32_t const> ids_of(std::int64_t token) const noexcept;  ///< [K]
  [[nodiscard]] std::span<float const> weights_of(std::int64_t token) const noexcept;     ///< [K]

 private:
  void draw_choices(Options const& options);
  void draw_rows();

  std::int64_t tokens_;
  std::int64_t top_k_;
  std::int64_t hidden_;
  davit::Dtype dtype_;
  int rank_;
  int ranks_;
  std::uint64_t seed_;
  support::ExpertMap map_;
  Device& device_;
  Memory x_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
};

/// One way to route, dispatch and combine. Memory is its own, made in the first route, and kept.
class MoeSide {
 public:
  explicit MoeSide(MoeProblem const& problem) : problem_(problem), output_(problem.device().allocate(output_bytes())) {}
  MoeSide(MoeSide const&) = delete;
  MoeSide& operator=(MoeSide const&) = delete;
  virtual ~MoeSide() = default;

  // Collective. What dispatch and combine write is there when the device has finished.
  virtual void route() = 0;     ///< the problem's present ids and weights; blocks
  virtual void dispatch() = 0;  ///< the problem's present x into received()
  virtual void combine() = 0;   ///< received(), now the experts' results, into output()

  /// Whether dispatch and combine wait for their own ends.
  [[nodiscard]] virtual bool blocks() const noexcept { return true; }

  // After route. All rows are on the device.
  [[nodiscard]] virtual std::byte* received() const = 0;  ///< [received_rows(), H]
  [[nodiscard]] virtual std::int64_t received_rows() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> expert_counts() const = 0;  ///< [L], rows
  /// Whether a token's sums of ranks are added and rounded in no further groups.
  [[nodiscard]] virtual bool adds_ranks_at_once() const { return true; }
  /// For each row of the layout by_expert, where it lies in received(). For checks.
  [[nodiscard]] virtual std::vector<std::int64_t> by_expert() const;

  [[nodiscard]] std::byte* output() const noexcept { return output_.get(); }  ///< [T, H]
  [[nodiscard]] std::size_t output_bytes() const noexcept {
    return static_cast<std::size_t>(problem_.tokens()) * problem_.row_bytes();
  }

 protected:
  MoeProblem const& problem_;

 private:
  Memory output_;
};

/// davit, blocking or, with a stream, dispatch and combine enqueued.
[[nodiscard]] std::unique_ptr<MoeSide> make_davit_moe(MoeProblem const& problem, davit::Communicator& comm,
                                                      std::optional<davit::Stream> stream = {});
/// The recipe done well. @param blocks whether the carrier's calls wait for their ends.
[[nodiscard]] std::unique_ptr<MoeSide> make_recipe_moe(MoeProblem const& problem, support::World const& world,
                                                       std::unique_ptr<support::RowCarrier> carrier, bool blocks);
[[nodiscard]] support::LayerShape layer_of(MoeProblem const& problem);
[[nodiscard]] std::unique_ptr<MoeSide> make_mpi_moe(MoeProblem const& problem, support::World const& world);
[[nodiscard]] std::unique_ptr<MoeSide> make_mpi_expert_moe(MoeProblem const& problem, support::World const& world);

}  // namespace perf
