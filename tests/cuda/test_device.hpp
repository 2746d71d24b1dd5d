// SPDX-License-Identifier: Apache-2.0
/// @file
/// Real GPUs in place of the tests' stand-ins.
#pragma once

#include "tests/support/memory.hpp"

namespace davit::test {

/// Ranks take the GPUs of the process in turn.
[[nodiscard]] TestDevice& cuda_device();

}  // namespace davit::test
