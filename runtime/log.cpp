// SPDX-License-Identifier: Apache-2.0
#include "runtime/log.hpp"

#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "davit/options.hpp"

namespace davit {
namespace {

struct Sink {
  std::mutex mutex;
  LogSink write;
};

Sink& sink() {
  static auto& instance = *new Sink;  // never destroyed: communicators may end at exit
  return instance;
}

}  // namespace

void set_log_sink(LogSink write) {
  std::lock_guard const lock(sink().mutex);
  sink().write = std::move(write);
}

void detail::log(LogLevel level, std::string_view line) noexcept {
  try {
    if (level > environment().log) return;
    std::lock_guard const lock(sink().mutex);
    if (sink().write) {
      sink().write(level, line);
    } else {
      std::fprintf(stderr, "davit: %.*s\n", static_cast<int>(line.size()), line.data());
    }
  } catch (...) {
    // A sink that throws, or an environment that cannot be read, must not turn a message into a failure.
  }
}

std::string_view detail::without_prefix(std::exception const& error) noexcept {
  std::string_view text = error.what();
  if (constexpr std::string_view prefix = "davit: "; text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return text;
}

void detail::warn_once(std::string const& line) noexcept {
  try {
    static std::mutex mutex;
    static std::set<std::string> said;
    {
      std::lock_guard const lock(mutex);
      if (!said.insert(line).second) return;
    }
    log(LogLevel::warn, line);
  } catch (...) {
    // Out of memory: the warning is lost.
  }
}

}  // namespace davit
