// SPDX-License-Identifier: Apache-2.0
/// @file
/// A batch written and read by warps whose lanes have come apart on purpose.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "transports/cuda/words_layout.hpp"

namespace davit::test {

/// Which lanes are late at each batch, by some 20 microseconds.
enum class Apart : std::uint32_t { none, those_with_flags, those_without, every_other };

struct ApartVerdict {
  std::uint32_t received;  ///< batches
  std::uint32_t wrong;     ///< of their vectors
};

/// One warp writes `rounds` batches to one and the same place, new data each time, and another reads them; each waits
/// for the other by a credit. Gives up after two seconds. All memory is host memory that the GPU reaches.
/// @param region one batch, zeros. @param credit a word in a line of its own, 0
void launch_apart(cudaStream_t stream, cuda::WordsForm form, std::byte* region, std::uint32_t* credit,
                  std::uint32_t rounds, Apart writer, Apart reader, ApartVerdict* verdict);

}  // namespace davit::test
