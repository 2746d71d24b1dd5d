// SPDX-License-Identifier: Apache-2.0
#include "runtime/staging.hpp"

namespace davit::detail {

void Staging::prepare(Side& side, std::size_t bytes) {
  bytes_ = (bytes + 255) / 256 * 256;
  memory_ = side.pool()->take((kUp + kDown) * bytes_);
}

std::byte* Staging::up(std::uint64_t index) const noexcept {
  return static_cast<std::byte*>(memory_.get()) + index % kUp * bytes_;
}

std::byte* Staging::next_down(Engine& engine) {
  auto const turn = turns_++ % kDown;
  if (turn == 0 && turns_ > 1) engine.join_aside(Lane::down);
  return static_cast<std::byte*>(memory_.get()) + (kUp + turn) * bytes_;
}

}  // namespace davit::detail
