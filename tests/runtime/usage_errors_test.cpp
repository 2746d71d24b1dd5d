// SPDX-License-Identifier: Apache-2.0
/// @file
/// Each argument that cannot be: named with its value and its bound on the rank that gave it, told to the others with
/// the rank and the reason; and the next call is right.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>

#include "tests/runtime/arguments.hpp"

namespace davit::test {
namespace {

constexpr auto kMost = std::numeric_limits<std::int64_t>::max();

struct Bad {
  std::string name;
  std::function<void(Arguments&)> spoil;
  std::vector<std::string> parts;
};

std::vector<Bad> const kBad{
    {"SendCountsShort", [](Arguments& a) { a.send_counts.pop_back(); }, {"send_counts has 2 entries", "must have 3"}},
    {"SendDisplsLong", [](Arguments& a) { a.send_displs.push_back(0); }, {"send_displs has 4 entries", "must have 3"}},
    {"RecvCountsNone", [](Arguments& a) { a.recv_counts.clear(); }, {"recv_counts has 0 entries", "must have 3"}},
    {"RecvDisplsShort", [](Arguments& a) { a.recv_displs.pop_back(); }, {"recv_displs has 2 entries", "must have 3"}},
    {"SendCountNegative", [](Arguments& a) { a.send_counts[2] = -7; }, {"send_counts[2] is -7", "0 or more"}},
    {"RecvCountNegative",
     [](Arguments& a) { a.recv_counts[0] = INT64_MIN; },
     {"recv_counts[0] is -9223372036854775808", "0 or more"}},
    {"SendDisplNegative", [](Arguments& a) { a.send_displs[1] = -3; }, {"send_displs[1] is -3", "0 or more"}},
    {"RecvDisplNegative", [](Arguments& a) { a.recv_displs[1] = -1; }, {"recv_displs[1] is -1", "0 or more"}},
    {"SendCountHuge",
     [](Arguments& a) { a.send_counts[0] = kMost; },
     {"send_counts[0] is 9223372036854775807", "at most " + std::to_string(kMost / 4)}},
    {"RecvCountHuge",
     [](Arguments& a) { a.recv_counts[1] = kMost / 4 + 1; },
     {"recv_counts[1] is " + std::to_string(kMost / 4 + 1), "at most " + std::to_string(kMost / 4)}},
    {"SendDisplHuge",
     [](Arguments& a) { a.send_displs[0] = kMost; },
     {"send_displs[0] is 9223372036854775807", "at most " + std::to_string(kMost / 4 - 4), "count of 4"}},
    {"RecvDisplHuge",
     [](Arguments& a) { a.recv_displs[2] = kMost / 4 - 3; },
     {"recv_displs[2] is " + std::to_string(kMost / 4 - 3), "at most " + std::to_string(kMost / 4 - 4)}},
    {"SendNull", [](Arguments& a) { a.send = nullptr; }, {"send is null", "send_counts are not all 0"}},
    {"RecvNull", [](Arguments& a) { a.recv = nullptr; }, {"recv is null", "recv_counts are not all 0"}},
    {"SendDtypeUnknown",
     [](Arguments& a) { a.send_dtype = static_cast<Dtype>(99); },
     {"send_dtype is 99", "davit::Dtype"}},
    {"RecvDtypeUnknown",
     [](Arguments& a) { a.recv_dtype = static_cast<Dtype>(255); },
     {"recv_dtype is 255", "davit::Dtype"}},
    {"RecvOverlap",
     [](Arguments& a) { a.recv_displs[1] = 3; },
     {"recv_displs[1] is 3", "block of rank 0", "ends at 4", "overlap"}},
    {"RecvOverlapUnsorted",
     [](Arguments& a) {
       a.recv_displs = {8, 0, 9};
     },
     {"recv_displs[2] is 9", "block of rank 0", "ends at 12", "overlap"}},
    {"RecvSame", [](Arguments& a) { a.recv_displs[2] = 0; }, {"recv_displs[", "overlap"}},
};

class BadArgument : public testing::TestWithParam<Bad> {
 protected:
  /// The operations that take these arguments; each with what its messages begin with.
  struct Form {
    std::string name;
    std::function<void(Communicator&, Arguments&)> run;
  };
  static std::vector<Form> forms() {
    return {{"alltoallv", [](Communicator& comm, Arguments& a) { a.run(comm); }},
            {"ialltoallv", [](Communicator& comm, Arguments& a) { a.post(comm).wait(); }},
            {"alltoallv_init", [](Communicator& comm, Arguments& a) { static_cast<void>(a.plan(comm)); }}};
  }
};
INSTANTIATE_TEST_SUITE_P(All, BadArgument, testing::ValuesIn(kBad), [](auto const& bad) { return bad.param.name; });

TEST_P(BadArgument, IsNamedHereAndToldThere) {
  auto const& bad = GetParam();
  run_ranks(3, [&](int rank, Communicator& comm) {
    comm.prepare();
    for (int culprit = 0; culprit < 3; ++culprit) {
      for (auto const& form : forms()) {
        Arguments arguments(comm);
        if (rank == culprit) bad.spoil(arguments);
        auto const call = [&] { form.run(comm, arguments); };
        auto const text = rank == culprit ? raised<UsageError>(call) : peer_error(call, culprit);
        auto parts = bad.parts;
        parts.push_back(form.name + ": ");
        if (rank != culprit) {
          parts.push_back("rank " + std::to_string(culprit) + " refused");
          parts.push_back("[communicator 'test', call " + std::to_string(comm.calls()) + "]");
        }
        expect_parts(text, parts);
        EXPECT_EQ(text.find("davit: "), 0U) << text;
        EXPECT_EQ(text.find("davit: ", 1), std::string::npos) << "said twice: " << text;
        EXPECT_TRUE(comm.usable());
        exchange_is_right(comm, form.name);
      }
    }
  });
}

TEST(BadArguments, DisplacementsMeanNothingWhereTheCountIsZero) {
  run_ranks(3, [](int rank, Communicator& comm) {
    Arguments a(comm);
    if (rank == 1) {
      a.send_counts = a.recv_counts = {0, 4, 0};
      a.send_displs = a.recv_displs = {-1, 4, kMost};
    } else {
      a.send_counts[1] = a.recv_counts[1] = 0;
      a.send_displs[1] = a.recv_displs[1] = rank == 0 ? 2 : -9;  // inside another block, below zero
    }
    a.run(comm);
    for (int from = 0; from < 3; ++from) {
      if ((from == 1) == (rank == 1)) a.check_from(from);
    }
  });
}

// --- The other collectives.

struct Refused {
  std::string name;
  std::function<void(Communicator&, bool)> call;  ///< the second: whether to do it wrong
  std::vector<std::string> parts;
};

/// Buffers that are long enough for what follows.
struct Memory {
  std::vector<float> send = std::vector<float>(64, 1.0F);
  std::vector<float> recv = std::vector<float>(64);
};

std::vector<std::int64_t> three(std::int64_t a, std::int64_t b, std::int64_t c) { return {a, b, c}; }

void gather(Communicator& comm, std::int64_t count, Dtype dtype, std::vector<std::int64_t> const& counts,
            std::vector<std::int64_t> const& displs, bool null_send = false, bool null_recv = false,
            Dtype recv_dtype = f32) {
  Memory memory;
  comm.allgatherv(null_send ? nullptr : memory.send.data(), count, dtype, null_recv ? nullptr : memory.recv.data(),
                  counts, displs, recv_dtype);
}

void reduce(Communicator& comm, std::vector<std::int64_t> const& counts, Dtype dtype = f32, bool null_send = false,
            bool null_recv = false) {
  Memory memory;
  comm.reduce_scatterv(null_send ? nullptr : memory.send.data(), null_recv ? nullptr : memory.recv.data(), counts,
                       dtype);
}

auto const kCounts = three(4, 4, 4);
auto const kDispls = three(0, 4, 8);

std::vector<Refused> const kRefused{
    {"GatherSendCountNegative",
     [](auto& c, bool bad) { gather(c, bad ? -2 : 4, f32, kCounts, kDispls); },
     {"allgatherv", "send_count", "-2", "0 or more"}},
    {"GatherSendCountOther",
     [](auto& c, bool bad) { gather(c, bad ? 5 : 4, f32, kCounts, kDispls); },
     {"allgatherv", "send_count is 20 bytes (5 x f32)", "16 bytes (4 x f32)"}},
    {"GatherSendDtypeOther",
     [](auto& c, bool bad) { gather(c, 4, bad ? f64 : f32, kCounts, kDispls); },
     {"allgatherv", "send_count is 32 bytes (4 x f64)", "16 bytes (4 x f32)"}},
    {"GatherSendDtypeUnknown",
     [](auto& c, bool bad) { gather(c, 4, bad ? static_cast<Dtype>(77) : f32, kCounts, kDispls); },
     {"allgatherv", "send_dtype is 77"}},
    {"GatherSendNull",
     [](auto& c, bool bad) { gather(c, 4, f32, kCounts, kDispls, bad); },
     {"allgatherv", "send is null"}},
    {"GatherRecvNull",
     [](auto& c, bool bad) { gather(c, 4, f32, kCounts, kDispls, false, bad); },
     {"allgatherv", "recv is null"}},
    {"GatherRecvCountNegative",
     [](auto& c, bool bad) { gather(c, 4, f32, three(4, 4, bad ? -4 : 4), kDispls); },
     {"allgatherv", "recv_counts[2] is -4", "0 or more"}},
    {"GatherRecvOverlap",
     [](auto& c, bool bad) { gather(c, 4, f32, kCounts, three(0, bad ? 2 : 4, 8)); },
     {"allgatherv", "recv_displs[1] is 2", "overlap"}},
    {"GatherRecvCountsShort",
     [](auto& c, bool bad) {
       gather(c, 4, f32, bad ? std::vector<std::int64_t>{4, 4} : kCounts, kDispls);
     },
     {"allgatherv", "recv_counts has 2 entries", "must have 3"}},
    {"GatherRecvDtypeUnknown",
     [](auto& c, bool bad) { gather(c, 4, f32, kCounts, kDispls, false, false, bad ? static_cast<Dtype>(14) : f32); },
     {"allgatherv", "recv_dtype is 14"}},
    {"ReduceDtype",
     [](auto& c, bool bad) { reduce(c, kCounts, bad ? i32 : f32); },
     {"reduce_scatterv", "dtype is i32", "f32, f16 or bf16"}},
    {"ReduceCountNegative",
     [](auto& c, bool bad) { reduce(c, three(4, bad ? -1 : 4, 4)); },
     {"reduce_scatterv", "counts[1] is -1", "0 or more"}},
    {"ReduceCountsLong",
     [](auto& c, bool bad) {
       reduce(c, bad ? std::vector<std::int64_t>{4, 4, 4, 4} : kCounts);
     },
     {"reduce_scatterv", "counts has 4 entries", "must have 3"}},
    {"ReduceCountsOverflow",
     [](auto& c, bool bad) { reduce(c, bad ? three(kMost, kMost, 4) : kCounts); },
     {"reduce_scatterv", "counts"}},
    {"ReduceSendNull", [](auto& c, bool bad) { reduce(c, kCounts, f32, bad); }, {"reduce_scatterv", "send is null"}},
    {"ReduceRecvNull",
     [](auto& c, bool bad) { reduce(c, kCounts, f32, false, bad); },
     {"reduce_scatterv", "recv is null"}},
};

class DenseRefused : public testing::TestWithParam<Refused> {};
INSTANTIATE_TEST_SUITE_P(All, DenseRefused, testing::ValuesIn(kRefused), [](auto const& r) { return r.param.name; });

TEST_P(DenseRefused, IsNamedHereAndToldThere) {
  auto const& refused = GetParam();
  run_ranks(3, [&](int rank, Communicator& comm) {
    for (int culprit = 0; culprit < 3; ++culprit) {
      auto const call = [&] { refused.call(comm, rank == culprit); };
      auto const text = rank == culprit ? raised<UsageError>(call) : peer_error(call, culprit);
      auto parts = refused.parts;
      if (rank != culprit) parts.push_back("rank " + std::to_string(culprit) + " refused");
      expect_parts(text, parts);
      exchange_is_right(comm);
    }
    refused.call(comm, false);
  });
}

}  // namespace
}  // namespace davit::test
