// SPDX-License-Identifier: Apache-2.0
#include "runtime/staging.hpp"

namespace davit::detail {

void Staging::prepare(Side& side, std::size_t bytes) {
  bytes_ = (bytes + 255) / 256 * 256;
  memory_ = side.pool()->take(4 * bytes_);
}

std::byte* Staging::next(Side& side, Lane lane) {
  side.engine().begin_piece(lane);
  auto const index = static_cast<std::size_t>(lane);
  return static_cast<std::byte*>(memory_.get()) + (2 * index + turns_[index]++ % 2) * bytes_;
}

}  // namespace davit::detail
