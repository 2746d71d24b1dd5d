// SPDX-License-Identifier: Apache-2.0
#include "transports/device_backend.hpp"

#include <thread>

namespace davit {

bool DeviceEngine::run_out_within(std::chrono::milliseconds patience) noexcept {
  auto const deadline = std::chrono::steady_clock::now() + patience;
  while (!run_out()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

}  // namespace davit
