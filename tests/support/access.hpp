// SPDX-License-Identifier: Apache-2.0
/// @file
/// A back door into Communicator: where numbers start, and what it stands on.
#pragma once

#include <memory>
#include <utility>

#include "davit/communicator.hpp"
#include "runtime/factory.hpp"

namespace davit::detail {

struct Access {
  /// As the constructor of Communicator, with call and chunk numbers that start at `start`, and GPUs of a backend.
  static Communicator make(std::shared_ptr<Bootstrap> bootstrap, Options options, Mesh::Start start,
                           DeviceBackend* backend = device_backend(), LinkMaker links = link_over_mpi) {
    return Communicator(make_communicator(std::move(bootstrap), std::move(options), start, backend, links));
  }
  static CommunicatorState& state(Communicator& comm) { return *comm.state_; }
};

}  // namespace davit::detail
