// SPDX-License-Identifier: Apache-2.0
/// @file
/// dispatch and combine on streams, and choices that lie on the GPU.
#include <gtest/gtest.h>

#include "davit/error.hpp"
#include "tests/moe/player.hpp"
#include "tests/runtime/streams.hpp"

namespace davit::test {
namespace {

constexpr int kRanks = 4;

/// Experts that give back what they get, so that received rows go to combine as they are.
Batch identity_batch(Random& random, ExpertGroupOptions const& options) {
  auto batch = random_batch(random, kRanks, options);
  batch.identity = true;
  batch.x = [salt = batch.salt % 97](int source, std::int64_t token, std::int64_t column) {
    return static_cast<float>((static_cast<std::int64_t>(salt) + 7 * source + 3 * token + column) % 61);
  };
  return batch;
}

/// x is overwritten, received rows and the routing are dropped, as soon as the calls are enqueued.
void play_back_to_back(ExpertGroupOptions const& options, Making const& making, int turns) {
  run_on_streams(kRanks, making, [&](int rank, Communicator& comm, TestStream& stream) {
    ExpertGroup group(comm, options);
    Random same(11);
    struct Open {
      std::unique_ptr<Batch> batch;
      Memory x;
      Guarded out;
    };
    std::vector<Open> open;
    for (int turn = 0; turn < turns; ++turn) {
      auto batch = std::make_unique<Batch>(identity_batch(same, options));
      Player const player(*batch, rank, group);
      auto routing = player.route();
      auto const x = player.rows(0, batch->row_bytes());
      open.push_back({std::move(batch), Memory(x), Guarded(x.size())});
      auto const& mine = open.back();
      DispatchOptions dispatch;
      dispatch.layout = turn % 3 == 0 ? Layout::expert_slots : Layout::by_expert;
      dispatch.stream = Stream(stream.handle());
      CombineOptions combine;
      combine.stream = dispatch.stream;
      combine.reduce = turn % 4 == 1 ? Reduce::by_k : Reduce::grouped;
      auto const received = group.dispatch(routing, mine.x.data(), dispatch);
      stream.write(mine.x.data(), std::vector<std::byte>(mine.x.size(), kUntouched));
      group.combine(routing, received.data(), mine.out.data(), combine);
    }
    ASSERT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
    for (std::size_t turn = 0; turn < open.size(); ++turn) {
      Sum sum;
      sum.layout = turn % 3 == 0 ? Layout::expert_slots : Layout::by_expert;
      sum.out = bf16;
      sum.reduce = turn % 4 == 1 ? Reduce::by_k : Reduce::grouped;
      EXPECT_TRUE(open[turn].out.intact());
      expect_bytes(open[turn].out.read(), reference_combine(*open[turn].batch, rank, sum),
                   "batch " + std::to_string(turn) + " on rank " + std::to_string(rank));
    }
  });
}

TEST(MoeStreams, BatchesBackToBackWithoutTheHost) {
  play_back_to_back({.experts = 10, .top_k = 3, .hidden = 96, .max_tokens = 40, .dtype = bf16}, small_slots(),
                    fewer(12));
}

/// Chunks that pass through packed memory of the GPU, several a call, whole ones and those of which a rank needs less.
TEST(MoeStreams, LongRowsBackToBack) {
  auto making = small_slots();
  making.options.slot_bytes = 256 << 10;
  for (std::int64_t const top_k : {4, 1}) {
    play_back_to_back({.experts = 8, .top_k = top_k, .hidden = 4096, .max_tokens = 100, .dtype = bf16}, making,
                      fewer(6));
  }
}

TEST(MoeStreams, ChoicesOnTheGpu) {
  ExpertGroupOptions const options{.experts = 6, .top_k = 2, .hidden = 32, .max_tokens = 30, .dtype = f32};
  run_on_streams(kRanks, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    ExpertGroup group(comm, options);
    Random same(12);
    for (int turn = 0; turn < 8; ++turn) {
      auto const batch = random_batch(same, kRanks, options);
      auto const me = static_cast<std::size_t>(rank);
      Memory const weights(bytes_of(batch.weights[me]));
      std::vector<std::int32_t> const narrow(batch.ids[me].begin(), batch.ids[me].end());
      bool const is_wide = turn % 2 == 0;
      Memory const ids(is_wide ? bytes_of(batch.ids[me]) : std::span<std::byte const>());
      Memory const narrow_ids(bytes_of(narrow));
      DeviceChoices const choices{is_wide ? ids.data() : narrow_ids.data(), is_wide ? i64 : i32,
                                  reinterpret_cast<float const*>(weights.data()), batch.tokens(rank)};
      auto routing = turn < 4 ? group.route(choices) : group.route(choices, Stream(stream.handle()));
      Player const player(batch, rank, group);
      player.dispatch(routing);
      player.combine(routing);
    }
  });
}

TEST(MoeStreams, WrongChoicesOnTheGpuAreRefused) {
  ExpertGroupOptions const options{.experts = 6, .top_k = 2, .hidden = 32, .max_tokens = 4, .dtype = f32};
  run_on_streams(2, small_slots(), [&](int rank, Communicator& comm, TestStream&) {
    ExpertGroup group(comm, options);
    std::vector<std::int32_t> const numbers{0, 6, 1, 2};
    Memory const ids(bytes_of(numbers));
    Memory const weights(bytes_of(numbers));
    auto const* const given = reinterpret_cast<float const*>(weights.data());
    auto const refused = [&](DeviceChoices const& choices, std::vector<std::string> const& parts) {
      expect_parts(raised<UsageError>([&] { static_cast<void>(group.route(choices)); }), parts);
    };
    refused({ids.data(), i32, given, 2}, {"ids[0, 1] is 6"});
    refused({ids.data(), f32, given, 2}, {"id_dtype is f32"});
    refused({ids.data(), i32, given, 5}, {"tokens is 5", "max_tokens 4"});
    refused({nullptr, i32, given, 2}, {"ids is null"});
    refused({numbers.data(), i32, given, 2}, {"ids is host memory that the GPU cannot reach"});
    play_ordinary(2, rank, group);
  });
}

TEST(MoeStreams, RowsStayOnTheHostUnlessAskedFor) {
  ExpertGroupOptions const options{.experts = 2, .top_k = 1, .hidden = 8, .max_tokens = 4, .dtype = f32};
  run_on_streams(2, small_slots(), [&](int rank, Communicator& comm, TestStream&) {
    ExpertGroup group(comm, options);
    std::vector<std::int32_t> const ids{0, 1};
    std::vector<float> const weights{1, 1};
    // Rank 1 has no tokens: nothing of its own says where it wants rows.
    auto const count = rank == 0 ? std::size_t{2} : 0;
    auto routing = group.route(std::span(ids).first(count), std::span(weights).first(count));
    Memory const x(std::size_t{2} * 8 * sizeof(float));
    auto const kind = [&](Space space) {
      DispatchOptions dispatch;
      dispatch.space = space;
      auto const received = group.dispatch(routing, rank == 0 ? x.data() : nullptr, dispatch);
      return test_device().backend().place(received.data()).kind;
    };
    EXPECT_EQ(kind(Space::automatic), rank == 0 ? MemoryKind::device : MemoryKind::pageable);
    EXPECT_EQ(kind(Space::device), MemoryKind::device);
    auto const text = [&] {
      try {
        static_cast<void>(kind(Space::host));
        return std::string();
      } catch (Error const& error) {
        return std::string(error.what());
      }
    }();
    expect_parts(text, {"space is host, but the rows are on a GPU"});
  });
}

}  // namespace
}  // namespace davit::test
