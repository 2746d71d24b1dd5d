// SPDX-License-Identifier: Apache-2.0
/// @file
/// main() of tests that need a GPU: without one they end with 77, which ctest shows as skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>

#include "transports/cuda/cuda_backend.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    int const devices = davit::cuda::backend().device_count();
    if (devices == 0) {
      std::fprintf(stderr, "SKIPPED: NO GPU HERE, nothing was tested\n");
      return 77;
    }
    auto const facts = davit::cuda::backend().facts(0);
    std::printf("%d GPU(s), the first: %s at %s, compute capability %d.%d\n", devices, facts.name.c_str(),
                facts.pci_address.c_str(), facts.major, facts.minor);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return RUN_ALL_TESTS();
}
