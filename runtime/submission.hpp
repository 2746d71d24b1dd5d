// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a thread does that hands work to a GPU: its queues may be full, and then it blocks in the driver, with the
/// communicator's lock. The watcher looks at it from outside and may let it through, with an error.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>

namespace davit::detail {

class Submission {
 public:
  /// What the lanes wait for first.
  enum class Behind : std::uint8_t {
    nothing,  ///< the work begins when the lanes come to it
    stream    ///< work of the program, which takes as long as it takes
  };

  /// One thread at a time: does `work`, under the eyes of the watcher. @throws what `work` throws; what end_with() was
  /// given, if the watcher has let it through.
  template <class Work>
  auto run(Behind behind, Work const& work) {
    begin(behind);
    if constexpr (std::is_void_v<decltype(work())>) {
      guarded(work);
      end();
    } else {
      auto result = guarded(work);
      end();
      return result;
    }
  }

  // --- Of the watcher, one thread.

  struct Seen {
    std::uint64_t state;
    Behind behind;
    bool claimed;
  };
  /// The submission that is under way.
  [[nodiscard]] std::optional<Seen> under_way() const noexcept;
  /// From here on it can only end with an error. @returns false if it has ended meanwhile.
  [[nodiscard]] bool claim(Seen const& seen) noexcept;
  /// Once after claim().
  void end_with(std::exception_ptr error) noexcept;

 private:
  // The state: how many there were, and in the lowest bits what goes on.
  static constexpr std::uint64_t kIdle = 0;
  static constexpr std::uint64_t kBehindNothing = 1;
  static constexpr std::uint64_t kBehindStream = 2;
  static constexpr std::uint64_t kClaimed = 3;
  static constexpr std::uint64_t kMask = 3;

  void begin(Behind behind) noexcept;
  void end();
  template <class Work>
  auto guarded(Work const& work) {
    try {
      return work();
    } catch (...) {
      end();
      throw;
    }
  }

  std::atomic<std::uint64_t> state_{kIdle};
  std::exception_ptr error_;  ///< written before error_is_there_
  std::atomic<bool> error_is_there_{false};
};

}  // namespace davit::detail
