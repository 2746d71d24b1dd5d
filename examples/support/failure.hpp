// SPDX-License-Identifier: Apache-2.0
/// @file
/// What ends a program, and with which exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace support {

/// Exit codes of all programs.
enum class Exit : int {
  ok = 0,
  check_failed = 1,
  usage = 2,
  failed = 3  ///< system, peer or time-out
};

/// Who prints a failure's text.
enum class Told {
  by_root,   ///< all ranks raise the same: rank 0 speaks for them
  by_itself  ///< this rank alone knows: it prints, with its rank
};

class Failure : public std::runtime_error {
 public:
  Failure(Exit code, std::string const& text, Told told = Told::by_itself)
      : std::runtime_error(text), code_(code), told_(told) {}
  [[nodiscard]] Exit code() const noexcept { return code_; }
  [[nodiscard]] Told told() const noexcept { return told_; }

 private:
  Exit code_;
  Told told_;
};

}  // namespace support
