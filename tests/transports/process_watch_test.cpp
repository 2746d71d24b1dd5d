// SPDX-License-Identifier: Apache-2.0
/// @file
/// Watches of processes: a death is seen at once, also before the parent has asked for it.
#include "transports/process_watch.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/files.hpp"
#include "tests/support/limits.hpp"

namespace davit::test {
namespace {

/// A process that does nothing.
class Sleeper {
 public:
  Sleeper() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Sleeper(Sleeper const&) = delete;
  Sleeper& operator=(Sleeper const&) = delete;
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Returns when it is dead, though not waited for.
  void end() const {
    kill(pid_, SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  pid_t pid_;
};

TEST(ProcessWatch, SeesADeath) {
  Sleeper const sleeper;
  auto const watch = ProcessWatch::of(sleeper.pid());
  ASSERT_NE(watch, nullptr);
  EXPECT_FALSE(watch->is_dead());
  kill(sleeper.pid(), SIGSTOP);
  EXPECT_FALSE(watch->is_dead()) << "a stopped process is not dead";
  sleeper.end();
  EXPECT_TRUE(watch->is_dead()) << "not waited for";
  EXPECT_EQ(waitpid(sleeper.pid(), nullptr, 0), sleeper.pid());
  EXPECT_TRUE(watch->is_dead()) << "waited for";
}

TEST(ProcessWatch, SeesADeathWithinATenthOfASecond) {
  Watchdog const watchdog;
  Sleeper const sleeper;
  auto const watch = ProcessWatch::of(sleeper.pid());
  ASSERT_NE(watch, nullptr);
  kill(sleeper.pid(), SIGKILL);
  // The kernel has a tenth of a second for the killing; the test has more, since the machine may be busy.
  auto const end = std::chrono::steady_clock::now() + stretched(std::chrono::milliseconds(1000));
  while (!watch->is_dead() && std::chrono::steady_clock::now() < end) usleep(1000);
  EXPECT_TRUE(watch->is_dead());
}

TEST(ProcessWatch, IsSharedAndGivesItsDescriptorBack) {
  Sleeper const sleeper;
  auto const before = open_descriptors();
  {
    auto const one = ProcessWatch::of(sleeper.pid());
    auto const two = ProcessWatch::of(sleeper.pid());
    EXPECT_EQ(one, two);
    EXPECT_EQ(open_descriptors(), before + 1);
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_NE(ProcessWatch::of(sleeper.pid()), nullptr);
}

TEST(ProcessWatch, DoesNotReuseAWatchOfTheDead) {
  Sleeper const sleeper;
  auto const watch = ProcessWatch::of(sleeper.pid());
  sleeper.end();
  ASSERT_TRUE(watch->is_dead());
  // The number may be somebody else's by the next call.
  EXPECT_NE(ProcessWatch::of(sleeper.pid()), watch);
}

TEST(ProcessWatch, ThereIsNoneOfThisProcessNorOfNobody) {
  EXPECT_EQ(ProcessWatch::of(getpid()), nullptr);
  pid_t gone = 0;
  {
    Sleeper const sleeper;
    gone = sleeper.pid();
  }
  EXPECT_EQ(ProcessWatch::of(gone), nullptr);
}

}  // namespace
}  // namespace davit::test
