// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CUDA backend's face, without a CUDA header. The folder is built or not; whoever includes this file must know
/// that it is. Nothing here needs a driver to be linked or loaded: on a machine without one there are simply no
/// devices.
#pragma once

#include "transports/device_backend.hpp"

namespace davit::cuda {

/// The one of this process; never destroyed.
[[nodiscard]] DeviceBackend& backend() noexcept;

}  // namespace davit::cuda
