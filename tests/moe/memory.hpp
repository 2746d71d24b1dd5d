// SPDX-License-Identifier: Apache-2.0
/// @file
/// Settings of a group that no machine has the shared memory for.
#pragma once

#include <sys/statvfs.h>

#include <cstdint>

#include "davit/expert_group.hpp"
#include "davit/options.hpp"

namespace davit::test {

inline ExpertGroupOptions far_too_large() {
  return {.experts = 4, .top_k = 2, .hidden = 8, .max_tokens = INT32_MAX / 2, .routings = 1024};
}

/// Whether the tmpfs has a bound, well below what far_too_large() takes: else nobody dares ask for it.
inline bool shared_memory_is_bounded() {
  struct statvfs there {};
  if (statvfs(environment().shm_dir.c_str(), &there) != 0) return false;
  auto const bytes = static_cast<std::uint64_t>(there.f_blocks) * there.f_frsize;
  return bytes > 0 && bytes < std::uint64_t{1} << 42;
}

}  // namespace davit::test
