// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writing to the log sink.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "davit/log.hpp"

namespace davit::detail {

/// Hands a line to the sink if the level of DAVIT_LOG lets it through. Never throws.
void log(LogLevel level, std::string_view line) noexcept;
/// What an error says, without the "davit: " that begins it, and that a line of the log has anyway.
[[nodiscard]] std::string_view without_prefix(std::exception const& error) noexcept;
/// A warning that each process says once, however many communicators meet it. Never throws.
void warn_once(std::string const& line) noexcept;

}  // namespace davit::detail
