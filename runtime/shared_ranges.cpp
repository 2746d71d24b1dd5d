// SPDX-License-Identifier: Apache-2.0
#include "runtime/shared_ranges.hpp"

#include <utility>

#include "transports/counter.hpp"

namespace davit::detail {
namespace {

bool is_dropped(Mapping const& mapping) noexcept {
  return load_acquire(reinterpret_cast<SharedHeader const*>(mapping.get())->dropped) != 0;
}

}  // namespace

void SharedRanges::add(int peer, std::uint64_t there, std::size_t bytes, Mapping mapping) {
  ranges_.push_back({peer, there, bytes, std::move(mapping)});
}

std::byte const* SharedRanges::find(int peer, std::uint64_t address, std::uint64_t bytes) const noexcept {
  for (auto const& range : ranges_) {
    if (range.peer != peer || address < range.there || address - range.there > range.bytes) continue;
    auto const offset = address - range.there;
    if (bytes <= range.bytes - offset && !is_dropped(range.mapping)) {
      return range.mapping.get() + kSharedHeaderBytes + offset;
    }
  }
  return nullptr;
}

void SharedRanges::sweep() noexcept {
  std::erase_if(ranges_, [](Range const& range) { return is_dropped(range.mapping); });
}

}  // namespace davit::detail
