// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes what a communicator stands on: the one place that knows the backends.
#pragma once

#include <memory>

#include "runtime/communicator_state.hpp"

namespace davit::detail {

/// The GPUs of this process; null where davit was built without a backend.
[[nodiscard]] DeviceBackend* device_backend() noexcept;

/// Where this rank sits, and which GPUs it may use, in the order that its seat counts them.
struct OwnSeat {
  Seat seat;
  std::vector<PciAddress> gpus;
};
/// `host` is left to the caller. Loads no driver unless the program has, or CUDA_VISIBLE_DEVICES is set.
[[nodiscard]] OwnSeat own_seat(DeviceBackend* backend, Options const& options);

/// What ranks on several nodes send their messages over. Collective. @throws SystemError where the bootstrap does not
/// stand on MPI, else as Bootstrap::allgather.
[[nodiscard]] std::unique_ptr<Link> link_over_mpi(Bootstrap& bootstrap, Deadline deadline);

/// Collective. @param start where numbers begin; anything but the defaults is for tests of the wrap. @param backend
/// anything but the process's own is for tests without GPUs. @param links as backend, for tests without MPI.
/// @throws as the constructor of Communicator.
[[nodiscard]] std::shared_ptr<CommunicatorState> make_communicator(std::shared_ptr<Bootstrap> bootstrap,
                                                                   Options options, Mesh::Start start = {},
                                                                   DeviceBackend* backend = device_backend(),
                                                                   LinkMaker links = link_over_mpi);

/// Shape of a communicator's outboxes; with automatic sizes the machine is asked.
[[nodiscard]] Geometry geometry_of(int ranks, Options const& options, std::uint64_t cache_bytes,
                                   std::uint32_t rings = 1);

}  // namespace davit::detail
