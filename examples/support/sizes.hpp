// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sizes as people write them: 4096, 64K, 4M, 1G (powers of 1024).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace support {

/// Nothing where the text is no size, or one above 2^60.
[[nodiscard]] std::optional<std::int64_t> parse_size(std::string_view text);
/// The shortest exact form: 65536 is "64K", 1000 is "1000".
[[nodiscard]] std::string format_size(std::int64_t bytes);

}  // namespace support
