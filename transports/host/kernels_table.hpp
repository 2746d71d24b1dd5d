// SPDX-License-Identifier: Apache-2.0
/// @file
/// Private to the row kernels and their tests: one table of entry points for each instruction set.
#pragma once

#include <cstddef>

#include "transports/host/kernels.hpp"

namespace davit::host {

/// Instruction sets that have kernels of their own, narrowest first.
enum class Variant { baseline, avx2, avx512 };

/// The kernels of one variant. Spans are passed as pointer and count: the wide files must not instantiate anything that
/// baseline code instantiates too, or the linker might keep the wide copy for both.
struct KernelTable {
  char const* name;
  void (*move_rows)(std::byte* to, std::byte const* from, std::size_t row_bytes, RowMove const* moves,
                    std::size_t count, Stores stores);
  void (*sum_row)(RowSum const& sum, Term const* terms, std::size_t count, std::byte const* bias, std::byte* out,
                  std::size_t columns);
};

extern KernelTable const baseline_kernels;
extern KernelTable const avx2_kernels;  // defined, like avx512_kernels, only in x86 builds
extern KernelTable const avx512_kernels;

/// Kernels of `variant`; null if this build or this machine lacks them.
[[nodiscard]] KernelTable const* table(Variant variant) noexcept;

}  // namespace davit::host
