// SPDX-License-Identifier: Apache-2.0
/// @file
/// What copies over this rank's link give.
#pragma once

#include <cstddef>
#include <memory>

#include "examples/support/world.hpp"

namespace perf {

/// GB/s a direction on this rank.
struct LinkRates {
  double up = 0;
  double down = 0;
  double both = 0;  ///< each
};

/// Memory on both ends of the link. On the host a segment as slots are, whose first bytes are used again as slots are.
class Links {
 public:
  /// Of the current GPU. @param largest copy in bytes.
  Links(support::World const& world, int device, std::size_t largest);
  ~Links();

  /// Collective: all ranks copy at once.
  [[nodiscard]] LinkRates rates(std::size_t bytes) const;
  [[nodiscard]] double both_ways(std::size_t bytes) const;

 private:
  struct Ends;
  support::World const& world_;
  std::unique_ptr<Ends> ends_;
};

}  // namespace perf
