// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random wishes for dispatch and combine.
#pragma once

#include "tests/moe/player.hpp"

namespace davit::test {

inline DispatchWish random_dispatch(Random& random) {
  DispatchWish wish;
  wish.layout = random.one_of({Layout::by_source, Layout::by_expert, Layout::expert_slots});
  wish.alignment = random.one_of<std::int64_t>({1, 1, 3, 8, 128});
  wish.row_bytes =
      random.chance(0.5) ? 0 : static_cast<std::size_t>(random.between(1, random.chance(0.2) ? 9000 : 300));
  for (auto payloads = random.chance(0.4) ? random.between(1, 7) : 0; payloads > 0; --payloads) {
    wish.payloads.push_back(static_cast<std::size_t>(random.between(1, 100)));
  }
  wish.global_ids = random.chance(0.3);
  wish.into = random.chance(0.4);
  return wish;
}

/// After a dispatch; half of them take its layout.
inline CombineWish random_combine(Random& random, DispatchWish const& dispatch) {
  CombineWish wish;
  wish.told = random.chance(0.5);
  wish.sum.layout =
      wish.told ? random.one_of({Layout::by_source, Layout::by_expert, Layout::expert_slots}) : dispatch.layout;
  wish.alignment = wish.told ? random.one_of<std::int64_t>({1, 3, 8}) : dispatch.alignment;
  bool const by_source = wish.sum.layout == Layout::by_source;
  if (by_source || (wish.told && random.chance(0.3))) wish.sum.weighting = Weighting::by_caller;
  if (!by_source && random.chance(0.35)) wish.sum.reduce = Reduce::by_k;
  wish.sum.out = random.one_of({f32, f16, bf16});
  wish.sum.bias = random.chance(0.3);
  return wish;
}

}  // namespace davit::test
