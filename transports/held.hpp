// SPDX-License-Identifier: Apache-2.0
/// @file
/// The holds that a lane's stream has yet to pass. A stream does not say what it waits for, so the host remembers what
/// it put there and looks at the counters itself: for messages, and to let a stream run out whose peers are gone.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

#include "transports/engine.hpp"

namespace davit {

/// Safe to use from several threads: a watcher releases what another thread is stuck in submitting.
class Held {
 public:
  /// Call before the stream is told, or a submission that blocks could not be released.
  void add(HoldOp const& hold);
  /// The oldest hold that is not open yet. Counters only rise, so all before it are behind the stream.
  [[nodiscard]] std::optional<Blocked> first_closed() const noexcept;
  /// Writes to each counter the last value that is waited for.
  void release() noexcept;
  /// The stream is known to have passed all.
  void clear() noexcept;

 private:
  static constexpr std::size_t kFirstPrune = 64;

  mutable std::mutex mutex_;
  std::deque<HoldOp> holds_;
  std::size_t prune_at_ = kFirstPrune;
};

}  // namespace davit
