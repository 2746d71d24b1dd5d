// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a test may take. A test that hangs ends its program with a message that names it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace davit::test {

/// Time, stretched where a sanitizer slows everything down.
[[nodiscard]] std::chrono::milliseconds stretched(std::chrono::milliseconds time) noexcept;

/// Rounds of a test, fewer where a sanitizer slows everything down.
[[nodiscard]] int fewer(int rounds) noexcept;

/// From its making to its end `limit` (stretched) may pass, else the program is aborted.
class Watchdog {
 public:
  /// @param state what is still going on, asked for when time is up.
  explicit Watchdog(std::chrono::milliseconds limit = std::chrono::seconds(30),
                    std::function<std::string()> state = nullptr);
  ~Watchdog();
  Watchdog(Watchdog const&) = delete;
  Watchdog& operator=(Watchdog const&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace davit::test
