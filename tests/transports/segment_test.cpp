// SPDX-License-Identifier: Apache-2.0
/// @file
/// Segments: made, reserved, attached by descriptor and by name, swept, and gone.
#include "transports/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "davit/error.hpp"
#include "tests/support/child.hpp"
#include "tests/support/files.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/ranks.hpp"

namespace davit::test {
namespace {

std::string encoded(SegmentTicket const& ticket) {
  std::string text(2 * sizeof ticket, '0');
  auto const* const bytes = reinterpret_cast<unsigned char const*>(&ticket);
  for (std::size_t i = 0; i < sizeof ticket; ++i) std::snprintf(text.data() + 2 * i, 3, "%02x", unsigned{bytes[i]});
  return text;
}

SegmentTicket decoded(std::string const& text) {
  SegmentTicket ticket;
  auto* const bytes = reinterpret_cast<unsigned char*>(&ticket);
  for (std::size_t i = 0; i < sizeof ticket; ++i) {
    bytes[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
  return ticket;
}

/// A segment whose first words its user has written, as all users do.
Segment made(std::string const& directory, std::size_t bytes = 3 * 4096) {
  auto segment = Segment::create(directory, bytes);
  segment.reserve(0, segment.ticket().bytes);
  std::memcpy(segment.mapping().get(), &segment.ticket().nonce, sizeof(std::uint64_t));
  return segment;
}

class SegmentTest : public testing::Test {
 protected:
  Watchdog watchdog_;
  SharedDirectory directory_;
};

TEST_F(SegmentTest, IsMadeInWholePagesWithoutAName) {
  auto const segment = Segment::create(directory_.path(), 4097);
  EXPECT_EQ(segment.ticket().bytes, 8192U);
  EXPECT_EQ(segment.ticket().pid, getpid());
  EXPECT_EQ(segment.ticket().name[0], '\0');
  EXPECT_TRUE(directory_.names().empty());
  for (std::size_t i = 0; i < 8192; ++i) ASSERT_EQ(segment.mapping().get()[i], std::byte{0});
  EXPECT_NE(segment.ticket().nonce, Segment::create(directory_.path(), 4096).ticket().nonce);
}

TEST_F(SegmentTest, ReserveAllocatesItsPartAndNoMore) {
  auto segment = Segment::create(directory_.path(), 64 * 4096);
  struct stat status {};
  ASSERT_EQ(fstat(segment.ticket().descriptor, &status), 0);
  EXPECT_EQ(status.st_blocks, 0);
  segment.reserve(4096, 8 * 4096);
  ASSERT_EQ(fstat(segment.ticket().descriptor, &status), 0);
  EXPECT_EQ(status.st_blocks * 512, 8 * 4096);
  segment.reserve(4096, 8 * 4096);
  ASSERT_EQ(fstat(segment.ticket().descriptor, &status), 0);
  EXPECT_EQ(status.st_blocks * 512, 8 * 4096);
}

TEST_F(SegmentTest, MoreThanIsFreeIsRefusedWithBothFigures) {
  auto const bytes = more_than_free();
  auto segment = Segment::create(directory_.path(), bytes);
  auto const text = raised<SystemError>([&] { segment.reserve(0, bytes); });
  expect_parts(text, {directory_.path(), "needed " + std::to_string(bytes) + " bytes", "free ", "DAVIT_SLOT_BYTES"});
  struct stat status {};
  ASSERT_EQ(fstat(segment.ticket().descriptor, &status), 0);
  EXPECT_EQ(status.st_blocks, 0);
  segment.reserve(0, 4096);
}

TEST_F(SegmentTest, DISABLED_ChildFillsASmallFileSystem) {
  std::string const directory(std::getenv("DAVIT_TEST_DIRECTORY"));
  if (!mount_small_tmpfs(directory, 64 * 4096)) {
    say("result: ", "no namespace");
    return;
  }
  auto first = Segment::create(directory, 40 * 4096);
  first.reserve(0, first.ticket().bytes);
  auto second = Segment::create(directory, 40 * 4096);
  auto const text = raised<SystemError>([&] { second.reserve(0, second.ticket().bytes); });
  expect_parts(text,
               {directory, "needed " + std::to_string(40 * 4096) + " bytes", "free " + std::to_string(24 * 4096)});
  // What is reserved may be written to the last byte, however full it is.
  second.reserve(0, 24 * 4096);
  std::memset(first.mapping().get(), 1, 40 * 4096);
  std::memset(second.mapping().get(), 1, 24 * 4096);
  EXPECT_FALSE(raised<SystemError>([&] { second.reserve(24 * 4096, 4096); }).empty());
  // And a refusal is not for ever.
  { auto const gone = std::move(first); }
  second.reserve(0, second.ticket().bytes);
  say("result: ", HasFailure() ? "failed" : "ok");
}

TEST_F(SegmentTest, FullFileSystemIsAnErrorWithBothFigures) {
  Child child("SegmentTest.DISABLED_ChildFillsASmallFileSystem", {"DAVIT_TEST_DIRECTORY=" + directory_.path()});
  auto const result = child.line("result: ");
  EXPECT_EQ(child.wait(), 0) << child.output();
  if (result == "no namespace") {
    std::cerr << "*** A FULL FILE SYSTEM WAS NOT TESTED: this user may not mount one ***\n";
    GTEST_SKIP() << "no mount namespace";
  }
  EXPECT_EQ(result, "ok") << child.output();
}

TEST_F(SegmentTest, DirectoryThatCannotHoldOneIsNamed) {
  for (std::string const directory : {"/nowhere/at/all", "/proc"}) {
    auto const text = raised<SystemError>([&] { static_cast<void>(Segment::create(directory, 4096)); });
    expect_parts(text, {directory, "DAVIT_SHM_DIR"});
  }
}

TEST_F(SegmentTest, ThreadsOfOneProcessShareTheMapping) {
  auto segment = std::make_unique<Segment>(made(directory_.path()));
  auto const ticket = segment->ticket();
  auto const mapping = Segment::attach(ticket);
  EXPECT_EQ(mapping, segment->mapping());
  segment.reset();
  EXPECT_EQ(Segment::attach(ticket), nullptr) << "its maker is gone";
  mapping.get()[4096] = std::byte{1};  // who holds it may go on
  auto stranger = ticket;
  ++stranger.nonce;
  EXPECT_EQ(Segment::attach(stranger), nullptr);
}

TEST_F(SegmentTest, DISABLED_ChildAttaches) {
  for (std::string line; std::getline(std::cin, line);) {
    auto const mapping = Segment::attach(decoded(line));
    if (mapping != nullptr) mapping.get()[4096] = static_cast<std::byte>(std::to_integer<int>(mapping.get()[4096]) + 1);
    say("attached: ", mapping == nullptr ? "no" : "yes");
  }
}

TEST_F(SegmentTest, AnotherProcessAttachesByDescriptor) {
  auto segment = made(directory_.path());
  Child child("SegmentTest.DISABLED_ChildAttaches");
  auto const attaches = [&child](SegmentTicket const& ticket) {
    child.write(encoded(ticket) + "\n");
    return child.line("attached: ") == "yes";
  };
  auto& byte = segment.mapping().get()[4096];
  byte = std::byte{41};
  EXPECT_TRUE(attaches(segment.ticket()));
  EXPECT_EQ(byte, std::byte{42});

  auto wrong = segment.ticket();
  ++wrong.nonce;
  EXPECT_FALSE(attaches(wrong)) << "a wrong nonce";
  wrong = segment.ticket();
  wrong.bytes += 4096;
  EXPECT_FALSE(attaches(wrong)) << "a wrong length";
  wrong = segment.ticket();
  ++wrong.pid_namespace;
  EXPECT_FALSE(attaches(wrong)) << "another host's process numbers";
  wrong = segment.ticket();
  wrong.descriptor = 0;
  EXPECT_FALSE(attaches(wrong)) << "another descriptor";
  wrong.descriptor = 999;
  EXPECT_FALSE(attaches(wrong)) << "no descriptor";
  auto const ticket = segment.ticket();
  segment.close_descriptor();
  EXPECT_FALSE(attaches(ticket)) << "closed";
  EXPECT_EQ(byte, std::byte{42});
  EXPECT_EQ(child.wait(), 0) << child.output();
}

TEST_F(SegmentTest, AnotherProcessAttachesByNameWhileThereIsOne) {
  auto segment = made(directory_.path());
  segment.publish_name();
  ASSERT_EQ(directory_.names().size(), 1U);
  EXPECT_EQ(directory_.path() + "/" + directory_.names().front(), segment.ticket().name);
  struct stat status {};
  ASSERT_EQ(stat(segment.ticket().name, &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  auto const ticket = segment.ticket();
  auto nameless = ticket;
  nameless.descriptor = -1;  // the name must do
  Child child("SegmentTest.DISABLED_ChildAttaches");
  child.write(encoded(nameless) + "\n");
  EXPECT_EQ(child.line("attached: "), "yes");
  EXPECT_EQ(segment.mapping().get()[4096], std::byte{1});
  segment.withdraw_name();
  EXPECT_TRUE(directory_.names().empty());
  child.write(encoded(ticket) + "\n");
  EXPECT_EQ(child.line("attached: "), "no");
}

TEST_F(SegmentTest, NameGoesWithItsSegment) {
  {
    auto segment = made(directory_.path());
    segment.publish_name();
    EXPECT_EQ(directory_.names().size(), 1U);
  }
  EXPECT_TRUE(directory_.names().empty());
}

TEST_F(SegmentTest, DISABLED_ChildPublishesAndStays) {
  auto segment = made(std::getenv("DAVIT_TEST_DIRECTORY"));
  segment.publish_name();
  say("name: ", std::filesystem::path(segment.ticket().name).filename().string());
  std::string line;
  std::getline(std::cin, line);
}

TEST_F(SegmentTest, SweepRemovesNamesOfTheDeadAndNoOthers) {
  std::vector<std::string> const environment{"DAVIT_TEST_DIRECTORY=" + directory_.path()};
  Child dead("SegmentTest.DISABLED_ChildPublishesAndStays", environment);
  Child live("SegmentTest.DISABLED_ChildPublishesAndStays", environment);
  auto const dead_name = dead.line("name: ");
  auto const live_name = live.line("name: ");
  auto const exists = [this](std::string const& name) {
    return access((directory_.path() + "/" + name).c_str(), F_OK) == 0;
  };
  ASSERT_TRUE(exists(dead_name));
  // Not ours: another namespace's, another program's, and a directory.
  std::vector<std::string> const others{"davit-1-1-1-1", "davit-notes", "something"};
  for (auto const& name : others) std::ofstream(directory_.path() + "/" + name) << "keep";

  Segment::sweep(directory_.path());
  EXPECT_TRUE(exists(dead_name)) << "it still lives";
  dead.kill();
  dead.wait();
  Segment::sweep(directory_.path());
  EXPECT_FALSE(exists(dead_name));
  EXPECT_TRUE(exists(live_name));
  for (auto const& name : others) EXPECT_TRUE(exists(name)) << name;
  live.write("\n");
  EXPECT_EQ(live.wait(), 0);
  EXPECT_FALSE(exists(live_name));
  Segment::sweep("/nowhere/at/all");
}

TEST_F(SegmentTest, NothingIsLeftInTheProcess) {
  auto const turn = [this] {
    auto segment = made(directory_.path());
    segment.publish_name();
    auto const mapping = Segment::attach(segment.ticket());
    auto const moved = std::move(segment);
    static_cast<void>(raised<SystemError>([&] { static_cast<void>(Segment::create("/nowhere", 4096)); }));
  };
  turn();
  auto const descriptors = open_descriptors();
  auto const mappings = shared_mappings();
  for (int i = 0; i < 200; ++i) turn();
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(shared_mappings(), mappings);
  EXPECT_TRUE(directory_.names().empty());
}

}  // namespace
}  // namespace davit::test
