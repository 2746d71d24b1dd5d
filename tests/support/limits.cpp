// SPDX-License-Identifier: Apache-2.0
#include "tests/support/limits.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/random.hpp"

namespace davit::test {
namespace {

std::string current_test() {
  auto const* const info = testing::UnitTest::GetInstance()->current_test_info();
  return info == nullptr ? "outside of a test" : std::string(info->test_suite_name()) + "." + info->name();
}

}  // namespace

std::chrono::milliseconds stretched(std::chrono::milliseconds time) noexcept {
#if defined(__SANITIZE_THREAD__)
  return 6 * time;
#elif defined(__SANITIZE_ADDRESS__)
  return 3 * time;
#else
  return time;
#endif
}

int fewer(int rounds) noexcept {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return (rounds + 4) / 5;
#else
  return rounds;
#endif
}

Watchdog::Watchdog(std::chrono::milliseconds limit, std::function<std::string()> state) {
  thread_ = std::thread([this, limit = stretched(limit), state = std::move(state), name = current_test()] {
    std::unique_lock lock(mutex_);
    if (ended_.wait_for(lock, limit, [this] { return over_; })) return;
    std::fprintf(stderr, "\n%s: hangs: not over after %lld ms; %sDAVIT_TEST_SEED=%llu\n", name.c_str(),
                 static_cast<long long>(limit.count()), state ? (state() + "; ").c_str() : "",
                 static_cast<unsigned long long>(process_seed()));
    std::fflush(nullptr);
    std::abort();
  });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard const lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

}  // namespace davit::test
