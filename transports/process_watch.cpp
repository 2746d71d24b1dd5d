// SPDX-License-Identifier: Apache-2.0
#include "transports/process_watch.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>

namespace davit {

std::shared_ptr<ProcessWatch const> ProcessWatch::of(pid_t pid) {
  static std::mutex mutex;
  static std::map<pid_t, std::weak_ptr<ProcessWatch const>> open;
  if (pid == getpid()) return nullptr;
  std::lock_guard const lock(mutex);
  std::erase_if(open, [](auto const& entry) { return entry.second.expired(); });
  if (auto const found = open.find(pid); found != open.end()) {
    if (auto watch = found->second.lock(); watch && !watch->is_dead()) return watch;
  }
  auto const descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor < 0) return nullptr;
  std::shared_ptr<ProcessWatch const> watch(new ProcessWatch(descriptor));
  open[pid] = watch;
  return watch;
}

ProcessWatch::~ProcessWatch() { close(descriptor_); }

bool ProcessWatch::is_dead() const noexcept {
  pollfd request{descriptor_, POLLIN, 0};
  return poll(&request, 1, 0) == 1;
}

}  // namespace davit
