// SPDX-License-Identifier: Apache-2.0
/// @file
/// A program that holds the CUDA backend and starts anywhere: no driver is needed to load it, none is loaded before it
/// is asked for, and where none is, there are simply no GPUs.
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "transports/cuda/cuda_backend.hpp"

namespace {

bool has_loaded_driver() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libcuda.so") != std::string::npos) return true;
  }
  return false;
}

bool expect(bool holds, char const* what) {
  if (!holds) std::fprintf(stderr, "failed: %s\n", what);
  return holds;
}

}  // namespace

int main() {
  namespace cuda = davit::cuda;
  int local = 0;
  std::vector<int> const heap(100);
  bool fine = true;
  auto const are_pageable = [&] {
    return cuda::backend().place(&local).kind == davit::MemoryKind::pageable &&
           cuda::backend().place(heap.data()).kind == davit::MemoryKind::pageable;
  };
  fine = expect(are_pageable(), "host memory is pageable") && fine;
  fine = expect(cuda::backend().current_device_if_chosen() == -1, "nobody has chosen a GPU") && fine;
  fine = expect(!has_loaded_driver(), "asking about memory does not load the driver") && fine;
  try {
    int const devices = cuda::backend().device_count();
    std::printf("%d GPU(s); the driver is %s\n", devices, has_loaded_driver() ? "loaded now" : "not there");
    fine = expect(devices > 0 || cuda::backend().device_count() == 0, "no GPU stays no GPU") && fine;
    fine = expect(are_pageable(), "host memory is pageable, still") && fine;
    fine = expect(cuda::backend().current_device_if_chosen() == -1, "counting GPUs chooses none") && fine;
    if (devices == 0) {
      try {
        static_cast<void>(cuda::backend().make_engine(0, {}));
        fine = expect(false, "an engine without a GPU is refused");
      } catch (std::exception const& error) {
        std::printf("an engine is refused: %s\n", error.what());
      }
    }
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return fine ? 0 : 1;
}
