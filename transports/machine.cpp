// SPDX-License-Identifier: Apache-2.0
#include "transports/machine.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>

namespace davit {
namespace {

/// A hexadecimal number up to `end`; takes it and the character off the text.
std::optional<std::uint32_t> take(std::string_view& text, char end, std::uint32_t most) noexcept {
  auto const length = end == '\0' ? text.size() : text.find(end);
  if (length == std::string_view::npos || length == 0) return std::nullopt;
  std::uint32_t number = 0;
  auto const* const last = text.data() + length;
  auto const [stop, error] = std::from_chars(text.data(), last, number, 16);
  if (error != std::errc{} || stop != last || number > most) return std::nullopt;
  text.remove_prefix(std::min(text.size(), length + 1));
  return number;
}

}  // namespace

std::string PciAddress::text() const {
  char buffer[24];
  std::snprintf(buffer, sizeof buffer, "%04x:%02x:%02x.%x", static_cast<unsigned>(domain), unsigned{bus},
                unsigned{device}, unsigned{function});
  return buffer;
}

std::optional<PciAddress> PciAddress::parse(std::string_view text) noexcept {
  std::optional<std::uint32_t> domain = 0;
  if (std::count(text.begin(), text.end(), ':') == 2) {
    domain = take(text, ':', std::numeric_limits<std::uint32_t>::max());
  }
  auto const bus = take(text, ':', 0xff);
  auto const device = take(text, '.', 0x1f);
  auto const function = take(text, '\0', 7);
  if (!domain || !bus || !device || !function) return std::nullopt;
  return PciAddress{*domain, static_cast<std::uint8_t>(*bus), static_cast<std::uint8_t>(*device),
                    static_cast<std::uint8_t>(*function)};
}

NumaNode const* Machine::node(int os_index) const noexcept {
  auto const found = std::ranges::find(nodes, os_index, &NumaNode::os_index);
  return found == nodes.end() ? nullptr : &*found;
}

Gpu const* Machine::gpu(PciAddress const& pci) const noexcept {
  auto const found = std::ranges::find(gpus, pci, &Gpu::pci);
  return found == gpus.end() ? nullptr : &*found;
}

}  // namespace davit
