// SPDX-License-Identifier: Apache-2.0
/// @file
/// Log sink. The library writes warnings once a node and, at higher levels, what it chose; programs may take the lines
/// themselves. The level is `DAVIT_LOG` (error, warn, info, debug; default warn).
#pragma once

#include <functional>
#include <string_view>

#include "davit/export.hpp"

namespace davit {

/// How much a line matters; a sink sees lines up to the level of `DAVIT_LOG`.
enum class LogLevel { error, warn, info, debug };

/// Receives one line without its newline. May be called from any thread, davit's helper thread included.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Replaces the sink of the process; an empty function restores the default, which writes to stderr.
DAVIT_EXPORT void set_log_sink(LogSink sink);

}  // namespace davit
