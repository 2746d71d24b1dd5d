// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that the program has dropped while a stream of its own may still use it. It goes back once the stream has
/// passed, on a thread of the program: the user's allocator may be what takes it.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>

#include "transports/device_backend.hpp"

namespace davit::detail {

class Leaving {
 public:
  Leaving() = default;
  /// Waits for the streams, ten seconds at most; what they may still use then stays to the process's end.
  ~Leaving();
  Leaving(Leaving const&) = delete;
  Leaving& operator=(Leaving const&) = delete;

  /// @param mark where the stream stood at the drop; null: nothing is waited for.
  void add(std::shared_ptr<void> memory, std::unique_ptr<StreamMark> mark);
  /// Lets go of what can go. Not under a lock that what takes the memory may want.
  void sweep() noexcept;

 private:
  struct Item {
    std::shared_ptr<void> memory;
    std::unique_ptr<StreamMark> mark;
  };
  static void keep_to_the_end(std::list<Item>& items);

  std::mutex mutex_;
  std::list<Item> items_;
  std::atomic<bool> any_{false};
};

}  // namespace davit::detail
