// SPDX-License-Identifier: Apache-2.0
#include "runtime/submission.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace davit::detail {
namespace {

using Behind = Submission::Behind;

TEST(Submission, ReturnsAndThrowsWhatItsWorkDoes) {
  Submission submission;
  EXPECT_EQ(submission.run(Behind::nothing, [] { return 7; }), 7);
  EXPECT_THROW(submission.run(Behind::stream, [] { throw std::out_of_range("x"); }), std::out_of_range);
  EXPECT_FALSE(submission.under_way());
}

TEST(Submission, IsSeenWhileItGoesOn) {
  Submission submission;
  std::uint64_t first = 0;
  submission.run(Behind::stream, [&] {
    auto const seen = submission.under_way();
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->behind, Behind::stream);
    first = seen->state;
  });
  submission.run(Behind::nothing, [&] {
    auto const seen = submission.under_way();
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->behind, Behind::nothing);
    EXPECT_NE(seen->state, first);
  });
}

TEST(Submission, ThatIsClaimedEndsWithTheError) {
  Submission submission;
  auto const claim = [&] {
    auto const seen = submission.under_way();
    ASSERT_TRUE(submission.claim(*seen));
    EXPECT_TRUE(submission.under_way()->claimed);
    submission.end_with(std::make_exception_ptr(std::runtime_error("let through")));
  };
  EXPECT_THROW(submission.run(Behind::nothing, claim), std::runtime_error);
}

TEST(Submission, ThatHasEndedIsNotClaimed) {
  Submission submission;
  std::optional<Submission::Seen> seen;
  submission.run(Behind::nothing, [&] { seen = submission.under_way(); });
  EXPECT_FALSE(submission.claim(*seen));
  submission.run(Behind::nothing, [&] { EXPECT_FALSE(submission.claim(*seen)) << "it is another by now"; });
}

/// Whoever claims and whoever ends: the watcher's success and the thread's error go together.
TEST(Submission, EndsOneWayWhoeverIsFirst) {
  for (int round = 0; round < 2000; ++round) {
    Submission submission;
    std::atomic<bool> is_under_way = false;
    bool claimed = false;
    std::thread watcher([&] {
      while (!is_under_way) std::this_thread::yield();
      auto const seen = submission.under_way();
      claimed = seen && submission.claim(*seen);
      if (claimed) submission.end_with(std::make_exception_ptr(std::runtime_error("let through")));
    });
    bool threw = false;
    try {
      submission.run(Behind::nothing, [&] { is_under_way = true; });
    } catch (std::runtime_error const&) {
      threw = true;
    }
    watcher.join();
    ASSERT_EQ(threw, claimed);
  }
}

}  // namespace
}  // namespace davit::detail
