// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a collective must be indifferent to: the number of ranks, the order of the engine, where its numbers start.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/ranks.hpp"

namespace davit::test {

struct Circumstances {
  int ranks;
  HostOrder order = HostOrder::eager;
  Mesh::Start start{};

  [[nodiscard]] Making setup() const {
    Making setup;
    setup.options.host_order = order;
    setup.start = start;
    return setup;
  }
};

/// Call and chunk numbers that start at one, and where they wrap as signed and as unsigned numbers.
inline std::vector<Mesh::Start> const kStarts{{1, 0}, {0x7fff'fffd, 0x7fff'fffa}, {0xffff'fffd, 0xffff'fffa}};

/// All orders for each number of ranks; the wraps for 2 and 3 ranks, and in one order for the others.
inline std::vector<Circumstances> circumstances(std::vector<int> const& ranks) {
  std::vector<Circumstances> all;
  for (int const n : ranks) {
    for (auto const order : {HostOrder::eager, HostOrder::queues, HostOrder::submission}) {
      for (auto const& start : kStarts) {
        bool const wraps = start.number != 1;
        if (!wraps || n == 2 || n == 3 || order == HostOrder::eager) all.push_back({n, order, start});
      }
    }
  }
  return all;
}

inline std::string name_of(Circumstances const& c) {
  auto const order = c.order == HostOrder::eager ? "eager" : c.order == HostOrder::queues ? "queues" : "submission";
  auto const start = c.start.number == 1 ? "" : c.start.number < 0x8000'0000 ? "_from_2p31" : "_from_2p32";
  return std::to_string(c.ranks) + "_" + order + start;
}

/// A test under each of some circumstances.
class UnderCircumstances : public testing::TestWithParam<Circumstances> {
 protected:
  [[nodiscard]] static Making setup() { return GetParam().setup(); }
  [[nodiscard]] static int ranks() { return GetParam().ranks; }
  [[nodiscard]] static bool is_eager() { return GetParam().order == HostOrder::eager; }
};

inline std::string circumstances_name(testing::TestParamInfo<Circumstances> const& c) { return name_of(c.param); }

}  // namespace davit::test
