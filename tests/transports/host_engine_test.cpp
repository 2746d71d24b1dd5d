// SPDX-License-Identifier: Apache-2.0
/// @file
/// The host engine: what every engine does, in all its orders; then what is its own.
#include "transports/host/host_engine.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "davit/error.hpp"
#include "tests/transports/engine_conformance.hpp"

namespace davit::test {
namespace {

class HostBench final : public EngineBench {
 public:
  explicit HostBench(HostOrder order) : engine_(order, host::DirectCopy({0, 0})) {}
  Engine& engine() override { return engine_; }
  std::byte* buffer(std::size_t bytes) override { return shared(bytes); }
  std::byte* shared(std::size_t bytes) override {
    memory_.push_back(std::make_unique<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 1));
    return reinterpret_cast<std::byte*>(memory_.back().get());
  }
  void write(std::byte* to, std::vector<std::byte> const& data) override { std::copy(data.begin(), data.end(), to); }
  std::vector<std::byte> read(std::byte const* from, std::size_t bytes) override { return {from, from + bytes}; }

 private:
  std::vector<std::unique_ptr<std::max_align_t[]>> memory_;
  host::HostEngine engine_;
};

EngineKind kind(char const* name, HostOrder order) {
  return {name, [order] { return std::make_unique<HostBench>(order); }, order == HostOrder::submission};
}

INSTANTIATE_TEST_SUITE_P(Host, EngineConformance,
                         testing::Values(kind("eager", HostOrder::eager), kind("queues", HostOrder::queues),
                                         kind("submission", HostOrder::submission)),
                         kind_name);

/// A few bytes, a slot, and counters around them.
struct Slot {
  std::byte source[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  std::byte slot[4] = {};
  Counter flag = 0;
  Counter other = 0;
  [[nodiscard]] bool is_filled() const { return std::memcmp(source, slot, sizeof slot) == 0; }
};

TEST(HostEngine, EagerRunsAtSubmission) {
  host::HostEngine engine(HostOrder::eager, {});
  Slot s;
  EXPECT_FALSE(engine.submits_whole_calls());
  engine.submit(Lane::up, CopyOp{s.slot, s.source, 4});
  EXPECT_TRUE(s.is_filled());
  engine.submit(Lane::up, RaiseOp{&s.flag, 1});
  EXPECT_EQ(s.flag, 1U);
  EXPECT_TRUE(engine.idle());
}

TEST(HostEngine, EagerKeepsOrderBehindAHold) {
  host::HostEngine engine(HostOrder::eager, {});
  Slot s;
  engine.submit(Lane::up, HoldOp{&s.flag, 1, 0, Awaited::credit});
  engine.submit(Lane::up, CopyOp{s.slot, s.source, 4});
  EXPECT_FALSE(s.is_filled());
  s.flag = 1;
  engine.submit(Lane::up, RaiseOp{&s.other, 1});  // behind what waits, even if that could run by now
  EXPECT_EQ(s.other, 0U);
  EXPECT_TRUE(engine.progress());
  EXPECT_TRUE(s.is_filled());
  EXPECT_EQ(s.other, 1U);
}

class StrictOrder : public testing::TestWithParam<HostOrder> {};
INSTANTIATE_TEST_SUITE_P(HostEngine, StrictOrder, testing::Values(HostOrder::queues, HostOrder::submission));

TEST_P(StrictOrder, NothingRunsBeforeTheSeal) {
  host::HostEngine engine(GetParam(), {});
  Slot s;
  EXPECT_TRUE(engine.submits_whole_calls());
  EXPECT_FALSE(engine.can_fetch());
  engine.submit(Lane::up, RaiseOp{&s.flag, 1});
  EXPECT_FALSE(engine.progress());
  EXPECT_EQ(s.flag, 0U);
  EXPECT_FALSE(engine.idle());
  engine.seal();
  EXPECT_TRUE(engine.progress());
  EXPECT_EQ(s.flag, 1U);
  // Each call has a seal of its own.
  engine.submit(Lane::up, RaiseOp{&s.flag, 2});
  EXPECT_FALSE(engine.progress());
  EXPECT_EQ(s.flag, 1U);
}

TEST_P(StrictOrder, CopiesLandWithTheNextRaise) {
  host::HostEngine engine(GetParam(), {});
  Slot s;
  engine.submit(Lane::up, CopyOp{s.slot, s.source, 4});
  engine.submit(Lane::up, HoldOp{&s.other, 1, 0, Awaited::credit});
  engine.submit(Lane::up, RaiseOp{&s.flag, 1});
  ASSERT_TRUE(engine.step(Lane::up));
  EXPECT_FALSE(s.is_filled()) << "a copy has landed early";
  ASSERT_FALSE(engine.step(Lane::up));
  s.other = 1;
  ASSERT_TRUE(engine.step(Lane::up));
  EXPECT_FALSE(s.is_filled()) << "a hold has made a copy land";
  ASSERT_TRUE(engine.step(Lane::up));
  EXPECT_TRUE(s.is_filled());
  EXPECT_EQ(s.flag, 1U);
}

TEST_P(StrictOrder, RaiseBeforeItsCopyIsSeenAsDamage) {
  host::HostEngine writer(GetParam(), {});
  host::HostEngine reader(GetParam(), {});
  Slot s;
  std::byte received[4] = {};
  writer.submit(Lane::up, RaiseOp{&s.flag, 1});  // the mistake
  writer.submit(Lane::up, CopyOp{s.slot, s.source, 4});
  writer.submit(Lane::up, HoldOp{&s.other, 1, 0, Awaited::credit});
  reader.submit(Lane::down, HoldOp{&s.flag, 1, 0, Awaited::data});
  reader.submit(Lane::down, CopyOp{received, s.slot, 4});
  reader.submit(Lane::down, RaiseOp{&s.other, 1});
  writer.seal();
  reader.seal();
  while (writer.progress() || reader.progress()) continue;
  ASSERT_TRUE(reader.idle());
  EXPECT_NE(std::memcmp(received, s.source, 4), 0) << "the wrong order went unseen";
}

TEST_P(StrictOrder, CreditBeforeTheCopyOutIsSeenAsDamage) {
  host::HostEngine writer(GetParam(), {});
  host::HostEngine reader(GetParam(), {});
  Slot s;
  std::byte const second[4] = {};
  std::byte received[4] = {};
  Counter credit = 0;
  writer.submit(Lane::up, CopyOp{s.slot, s.source, 4});
  writer.submit(Lane::up, RaiseOp{&s.flag, 1});
  writer.submit(Lane::up, HoldOp{&credit, 1, 0, Awaited::credit});
  writer.submit(Lane::up, CopyOp{s.slot, second, 4});
  writer.submit(Lane::up, RaiseOp{&s.flag, 2});
  reader.submit(Lane::down, HoldOp{&s.flag, 1, 0, Awaited::data});
  reader.submit(Lane::down, RaiseOp{&credit, 1});  // the mistake
  reader.submit(Lane::down, CopyOp{received, s.slot, 4});
  reader.submit(Lane::down, HoldOp{&s.flag, 2, 0, Awaited::data});
  writer.seal();
  reader.seal();
  while (writer.progress() || reader.progress()) continue;
  ASSERT_TRUE(reader.idle());
  EXPECT_NE(std::memcmp(received, s.source, 4), 0) << "the wrong order went unseen";
}

TEST(HostEngine, SubmissionOrderIsOneQueue) {
  host::HostEngine engine(HostOrder::submission, {});
  Slot s;
  engine.submit(Lane::down, HoldOp{&s.other, 1, 5, Awaited::data});
  engine.submit(Lane::up, RaiseOp{&s.flag, 1});
  engine.seal();
  EXPECT_FALSE(engine.progress());
  EXPECT_EQ(s.flag, 0U);
  for (auto const lane : {Lane::up, Lane::down}) {
    ASSERT_TRUE(engine.blocked(lane));
    EXPECT_EQ(engine.blocked(lane)->peer, 5);
  }
  s.other = 1;
  EXPECT_TRUE(engine.progress());
  EXPECT_EQ(s.flag, 1U);
}

/// What a fetch needs of rank 1's outbox.
struct Outboxlike {
  OutboxHeader header{};
  CreditLine line{};

  Outboxlike() {
    header.state = static_cast<std::uint32_t>(OutboxState::prepared);
    header.culprit = 3;
  }
  [[nodiscard]] FetchOp fetch(std::byte* to, std::byte const* from, std::size_t bytes) {
    return {to, 1, reinterpret_cast<std::uint64_t>(from), nullptr, bytes, 7, &line, &header, false};
  }
};

TEST(HostEngine, FetchFromAFailedRankReadsNothingAndNamesTheCulprit) {
  host::HostEngine engine(HostOrder::eager, host::DirectCopy({0, 0}));
  Outboxlike peer;
  peer.header.state = static_cast<std::uint32_t>(OutboxState::failed);
  std::byte const source[16] = {std::byte{7}};
  std::byte to[16] = {};
  try {
    engine.submit(Lane::down, peer.fetch(to, source, sizeof to));
    FAIL() << "nothing was thrown";
  } catch (PeerError const& error) {
    EXPECT_EQ(error.rank(), 3);
  }
  EXPECT_EQ(to[0], std::byte{0});
  EXPECT_EQ(peer.line.read, 7U) << "a failed rank waits for its readers";
}

/// A rank that fails while it is read may take its buffer back at once, so what was read counts for nothing.
TEST(HostEngine, FetchFromARankThatFailsMeanwhileIsRefused) {
  host::HostEngine engine(HostOrder::eager, host::DirectCopy({0, 0}));
  Outboxlike peer;
  std::vector<std::byte> const source(std::size_t{9} << 20, std::byte{7});
  std::vector<std::byte> to(source.size());
  engine.submit(Lane::down, peer.fetch(to.data(), source.data(), source.size()));
  EXPECT_EQ(peer.line.reading, 7U);
  EXPECT_NE(peer.line.read, 7U);
  peer.header.state = static_cast<std::uint32_t>(OutboxState::failed);
  EXPECT_THROW(
      {
        while (!engine.idle()) engine.progress();
      },
      PeerError);
  EXPECT_EQ(peer.line.read, 7U);
}

TEST(HostEngine, FetchesFromThisProcess) {
  host::HostEngine engine(HostOrder::eager, host::DirectCopy({0, 0}));
  EXPECT_TRUE(engine.can_fetch());
  std::vector<std::byte> const source(std::size_t{9} << 20, std::byte{7});  // more than one piece
  std::vector<std::byte> to(source.size());
  Outboxlike peer;
  engine.submit(Lane::down, peer.fetch(to.data(), source.data(), source.size()));
  for (int pieces = 0; !engine.idle(); ++pieces) {
    ASSERT_LT(pieces, 100);
    EXPECT_TRUE(engine.progress());
  }
  EXPECT_EQ(to, source);
}

TEST(HostEngine, FetchOfADeadProcessNamesTheRank) {
  pid_t const child = fork();
  if (child == 0) _exit(0);
  ASSERT_GT(child, 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  host::HostEngine engine(HostOrder::eager, host::DirectCopy({0, child}));
  std::byte to[16];
  try {
    Outboxlike peer;
    engine.submit(Lane::down, peer.fetch(to, to, sizeof to));
    FAIL() << "nothing was thrown";
  } catch (PeerError const& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_NE(std::string(error.what()).find("16 bytes of rank 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace davit::test
