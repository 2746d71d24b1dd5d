// SPDX-License-Identifier: Apache-2.0
/// @file
/// A process of its own, for what a process does once (reading its environment), or dies of. It runs one test of this
/// very program, whose name begins with DISABLED_ so that it runs nowhere else, and talks through its standard streams.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace davit::test {

class Child {
 public:
  /// @param test "Suite.DISABLED_Name". @param environment "NAME=value" entries besides those of this process, whose
  /// own DAVIT_ variables are not passed on but for DAVIT_TEST_ ones.
  explicit Child(std::string const& test, std::vector<std::string> const& environment = {});
  /// Kills it if it still runs.
  ~Child();
  Child(Child const&) = delete;
  Child& operator=(Child const&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void write(std::string const& text) const;
  /// Reads on until a line begins with `mark`. @returns the rest of that line; fails the test at the end of output.
  [[nodiscard]] std::string line(std::string const& mark);
  /// Closes its input and waits for it. @returns its exit code, or 128 + signal.
  int wait();
  /// Ends it by SIGKILL, and waits until it is a zombie; not yet waited for.
  void kill();
  /// All that it has printed so far, as far as read.
  [[nodiscard]] std::string const& output() const noexcept { return output_; }

 private:
  void close_input() noexcept;

  pid_t pid_ = -1;
  int input_ = -1;
  int stream_ = -1;
  std::string output_;
  std::size_t looked_at_ = 0;
};

/// Runs a child to its end; fails the test unless it ends with `code`. @returns its output.
std::string run_child(std::string const& test, std::vector<std::string> const& environment = {},
                      std::string const& input = {}, int code = 0);

/// In a child: prints a line that Child::line finds.
void say(std::string const& mark, std::string const& text);

/// In a child: gives the process a mount namespace with a tmpfs of `bytes` on `directory`, which exists. @returns
/// whether the kernel lets it.
[[nodiscard]] bool mount_small_tmpfs(std::string const& directory, std::size_t bytes);

}  // namespace davit::test
