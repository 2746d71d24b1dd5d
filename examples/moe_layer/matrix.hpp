// SPDX-License-Identifier: Apache-2.0
/// @file
/// The one product that the layer is made of.
#pragma once

#include <cstddef>
#include <span>

namespace moe {

/// `y` [rows, n] = `x` [rows, m] times `w` [m, n]. Each element is added in f32, m rising, whatever the other rows are.
void multiply(std::span<float const> x, std::span<float const> w, std::span<float> y, std::size_t rows);

}  // namespace moe
