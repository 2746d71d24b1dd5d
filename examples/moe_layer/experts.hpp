// SPDX-License-Identifier: Apache-2.0
/// @file
/// Experts at work on rows, however the rows lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "davit/expert_group.hpp"
#include "examples/moe_layer/model.hpp"

namespace moe {

/// The experts that one rank holds.
class Experts {
 public:
  Experts() = default;
  Experts(Experts const&) = delete;
  Experts& operator=(Experts const&) = delete;
  virtual ~Experts() = default;

  /// Replaces the rows that a dispatch brought by the experts' results, in place. Where a token has one row for several
  /// experts (by_source), that row becomes their weighted sum.
  virtual void run(davit::Received& received) = 0;
  /// The same for rows that lie one expert after the other, `counts[e]` for local expert e.
  virtual void run(std::byte* rows, std::span<std::int64_t const> counts) = 0;
};

/// Experts that work on any number of their rows at a time: finds each one's rows. Not by_source.
class ExpertsByRows : public Experts {
 public:
  explicit ExpertsByRows(Options const& options) : options_(options) {}
  void run(davit::Received& received) override;
  void run(std::byte* rows, std::span<std::int64_t const> counts) final;

 protected:
  [[nodiscard]] virtual std::int64_t count() const = 0;
  /// As Expert::apply, by the local expert of that number.
  virtual void apply(std::int64_t expert, std::byte* rows, std::int64_t count) = 0;
  [[nodiscard]] Options const& options() const noexcept { return options_; }

 private:
  void run_slots(davit::Received& received);

  Options const& options_;
};

/// On the host.
class LocalExperts final : public ExpertsByRows {
 public:
  LocalExperts(Options const& options, std::int64_t first, std::int64_t count);
  using ExpertsByRows::run;
  void run(davit::Received& received) override;

 private:
  [[nodiscard]] std::int64_t count() const override { return static_cast<std::int64_t>(experts_.size()); }
  void apply(std::int64_t expert, std::byte* rows, std::int64_t count) override {
    experts_[static_cast<std::size_t>(expert)].apply(rows, count);
  }
  void run_shared(davit::Received& received) const;

  std::vector<Expert> experts_;
};

/// By how much results may differ from Expert's.
struct ExpertError {
  bool differs = false;
  int roundings = 0;    ///< of a result, to the rows' dtype
  double absolute = 0;  ///< of a result
};

/// What experts made of rows that each chose several of them.
struct Results {
  std::vector<std::byte> rows;   ///< one a choice, one expert after the other
  std::vector<std::int64_t> at;  ///< for each of the choices [rows, K] its result in `rows`; -1: none
};

/// Applies each of `experts` experts to the rows that chose it. `ids` [rows, K]: 0 to experts - 1, or -1.
/// @param apply as Expert::apply, for the expert with that number.
[[nodiscard]] Results run_chosen(
    std::byte const* rows, std::size_t row_bytes, std::span<std::int32_t const> ids, std::int64_t top_k,
    std::int64_t experts, std::function<void(std::int64_t expert, std::byte* rows, std::int64_t count)> const& apply);

}  // namespace moe
