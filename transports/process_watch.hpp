// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether another process of this host still lives, by its pidfd: no signal, no polling of /proc, no reuse of numbers.
#pragma once

#include <sys/types.h>

#include <memory>

namespace davit {

/// One watched process. Shared by all communicators of this process that have ranks in it.
class ProcessWatch {
 public:
  /// The watch of `pid`, opened on first use. Null for this process itself and where the kernel gives no pidfd, in
  /// which case only deadlines notice a death.
  [[nodiscard]] static std::shared_ptr<ProcessWatch const> of(pid_t pid);

  ~ProcessWatch();
  ProcessWatch(ProcessWatch const&) = delete;
  ProcessWatch& operator=(ProcessWatch const&) = delete;

  /// One system call; also true of a process that is gone but not yet waited for by its parent.
  [[nodiscard]] bool is_dead() const noexcept;

 private:
  explicit ProcessWatch(int descriptor) noexcept : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace davit
