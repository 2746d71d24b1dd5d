// SPDX-License-Identifier: Apache-2.0
#include "examples/support/sizes.hpp"

#include <charconv>
#include <system_error>

namespace support {
namespace {

constexpr std::string_view suffixes = "KMG";
constexpr std::int64_t most = std::int64_t{1} << 60;

}  // namespace

std::optional<std::int64_t> parse_size(std::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    auto const suffix = suffixes.find(static_cast<char>(text.back() & ~0x20));  // k is K
    if (suffix != std::string_view::npos) {
      shift = 10 * (static_cast<int>(suffix) + 1);
      text.remove_suffix(1);
    }
  }
  std::int64_t number = 0;
  auto const* const last = text.data() + text.size();
  auto const [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc{} || end != last || number < 0 || number > most >> shift) return std::nullopt;
  return number << shift;
}

std::string format_size(std::int64_t bytes) {
  std::string suffix;
  for (char const next : suffixes) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    suffix = next;
  }
  return std::to_string(bytes) + suffix;
}

}  // namespace support
