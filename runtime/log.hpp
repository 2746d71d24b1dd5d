// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writing to the log sink.
#pragma once

#include <string_view>

#include "davit/log.hpp"

namespace davit::detail {

/// Hands a line to the sink if the level of DAVIT_LOG lets it through. Never throws.
void log(LogLevel level, std::string_view line) noexcept;

}  // namespace davit::detail
