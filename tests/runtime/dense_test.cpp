// SPDX-License-Identifier: Apache-2.0
/// @file
/// allgatherv against a naive copy, reduce_scatterv against a plain sum, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/runtime/circumstances.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/random.hpp"
#include "transports/host/kernels.hpp"

namespace davit::test {
namespace {

using Numbers = std::vector<std::int64_t>;

std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

class Dense : public UnderCircumstances {
 protected:
  [[nodiscard]] static Making random_setup(Random& random) {
    auto with = setup();
    with.options.slot_bytes = random.one_of<std::size_t>({4096, 8192});
    with.options.slots = random.one_of({1, 2});
    with.options.direct_bytes = random.one_of<std::size_t>({1, 4096, 12000});
    if (is_eager()) with.options.path = random.one_of({Path::automatic, Path::slots, Path::direct});
    return with;
  }
  /// A count a rank, zeros among them.
  [[nodiscard]] static Numbers random_counts(Random& random, std::int64_t most) {
    Numbers counts;
    for (int rank = 0; rank < ranks(); ++rank) {
      auto const small = random.between(0, 20);
      counts.push_back(random.one_of<std::int64_t>({0, small, most / 3, random.between(0, most)}));
    }
    return counts;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Dense, testing::ValuesIn(circumstances({1, 2, 3, 4, 8})), circumstances_name);

float element(std::uint64_t salt, int rank, std::int64_t at) {
  return static_cast<float>((salt + static_cast<std::uint64_t>(rank * 7919) + static_cast<std::uint64_t>(at) * 31) %
                            65521);
}

TEST_P(Dense, AllgathervEqualsANaiveCopy) {
  Random random;
  run_ranks(ranks(), random_setup(random), [&](int rank, Communicator& comm) {
    Random same(1);
    for (int round = 0; round < fewer(15); ++round) {
      auto const counts = random_counts(same, 6000);
      auto const salt = same.word() % 100000;
      bool const in_place = same.chance(0.3);
      Numbers displs(counts.size());
      std::vector<std::size_t> order(counts.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), same.engine());
      std::int64_t end = 0;
      for (auto const peer : order) {
        end += same.between(0, 3);
        displs[peer] = counts[peer] == 0 ? -9 : end;
        end += counts[peer];
      }
      auto const bytes = index(end + 2) * sizeof(float);
      std::vector<std::byte> expected(bytes, kUntouched);
      auto const put = [&](std::byte* base, int from) {
        for (std::int64_t i = 0; i < counts[index(from)]; ++i) {
          auto const value = element(salt, from, i);
          std::memcpy(base + index(displs[index(from)] + i) * sizeof value, &value, sizeof value);
        }
      };
      for (int from = 0; from < ranks(); ++from) put(expected.data(), from);
      Guarded recv(bytes);
      std::vector<float> send;
      for (std::int64_t i = 0; i < counts[index(rank)]; ++i) send.push_back(element(salt, rank, i));
      if (in_place) {
        std::vector<std::byte> before(bytes, kUntouched);
        put(before.data(), rank);
        recv.write(before);
        comm.allgatherv(davit::in_place, 0, {}, recv.data(), counts, displs, f32);
      } else {  // the same bytes by another type
        comm.allgatherv(Memory(bytes_of(send)).data(), 2 * counts[index(rank)], u16, recv.data(), counts, displs, f32);
      }
      ASSERT_TRUE(recv.read() == expected) << "rank " << rank << ", round " << round;
      ASSERT_TRUE(recv.intact());
    }
  });
}

/// What rank `rank` holds at `at`: in rank order the large ones cancel what was added between.
float addend(int rank, std::int64_t at, std::uint64_t salt) {
  switch ((rank + at) % 5) {
    case 0:
      return 16777216.0F;
    case 1:
      return 1.0F;
    case 2:
      return -16777216.0F;
    default:
      return element(salt, rank, at) / 16.0F - 2000.0F;
  }
}

std::vector<std::byte> input(int rank, std::int64_t total, Dtype dtype, std::uint64_t salt) {
  std::vector<std::byte> bytes(index(total) * size_of(dtype));
  for (std::int64_t i = 0; i < total; ++i) {
    // f16 ends at 65504, so its large numbers are smaller; they lose a 1 as well.
    auto const value = addend(rank, i, salt) / (dtype == f16 ? 4096.0F : 1.0F);
    host::store_element(dtype, value, bytes.data() + index(i) * size_of(dtype));
  }
  return bytes;
}

TEST_P(Dense, ReduceScattervAddsInRankOrder) {
  Random random;
  run_ranks(ranks(), random_setup(random), [&](int rank, Communicator& comm) {
    Random same(2);
    for (int round = 0; round < fewer(15); ++round) {
      auto const dtype = same.one_of({f32, f16, bf16});
      auto const counts = random_counts(same, 5000);
      auto const salt = same.word() % 100000;
      bool const in_place = same.chance(0.4);
      auto const total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      auto const first = std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
      auto const size = size_of(dtype);
      std::vector<std::vector<std::byte>> inputs;
      for (int r = 0; r < ranks(); ++r) inputs.push_back(input(r, total, dtype, salt));
      std::vector<std::byte> expected(index(counts[index(rank)]) * size);
      for (std::int64_t i = 0; i < counts[index(rank)]; ++i) {
        float sum = 0;
        for (int r = 0; r < ranks(); ++r) {
          auto const value = host::load_element(dtype, inputs[index(r)].data() + index(first + i) * size);
          sum = r == 0 ? value : sum + value;
        }
        host::store_element(dtype, sum, expected.data() + index(i) * size);
      }
      auto const& mine = inputs[index(rank)];
      Guarded recv(in_place ? mine.size() : expected.size());
      Memory const send(mine);
      if (in_place) recv.write(mine);
      comm.reduce_scatterv(in_place ? davit::in_place : send.data(), recv.data(), counts, dtype);
      auto const result = recv.read();
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), result.begin()))
          << "rank " << rank << ", round " << round << ", " << name_of(dtype);
      ASSERT_TRUE(recv.intact());
      if (in_place) {  // only the start of recv is the result
        auto const behind = static_cast<std::ptrdiff_t>(expected.size());
        ASSERT_TRUE(std::equal(result.begin() + behind, result.end(), mine.begin() + behind));
      }
    }
  });
}

TEST(ReduceScatterv, OrderMatters) {
  // By any other order than 0, 1, 2 this is 1.
  run_ranks(3, [](int rank, Communicator& comm) {
    float const values[] = {16777216.0F, 1.0F, -16777216.0F};
    std::vector<float> const send(3, values[rank]);
    float recv = 9;
    comm.reduce_scatterv(send.data(), &recv, Numbers{1, 1, 1}, f32);
    EXPECT_EQ(recv, 0.0F);
  });
}

TEST_P(Dense, NothingAtAllWithNullPointers) {
  run_ranks(ranks(), setup(), [&](int, Communicator& comm) {
    Numbers const zeros(index(comm.size()));
    Numbers const garbage(zeros.size(), INT64_MIN);
    for (int round = 0; round < 20; ++round) {
      comm.allgatherv(nullptr, 0, f32, nullptr, zeros, garbage, u8);
      comm.reduce_scatterv(nullptr, nullptr, zeros, f32);
      comm.reduce_scatterv(davit::in_place, nullptr, zeros, bf16);
    }
  });
}

}  // namespace
}  // namespace davit::test
