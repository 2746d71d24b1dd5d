// SPDX-License-Identifier: Apache-2.0
#include "transports/host/direct_copy.hpp"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "davit/error.hpp"

namespace davit::host {

std::size_t DirectCopy::read(int peer, std::uint64_t address, std::byte* to, std::size_t bytes) const {
  if (bytes == 0) return 0;
  int const pid = pids_[static_cast<std::size_t>(peer)];
  if (pid == 0) {
    std::memcpy(to, reinterpret_cast<std::byte const*>(address), bytes);
    return bytes;
  }
  iovec const local{to, bytes};
  iovec const remote{reinterpret_cast<void*>(address), bytes};
  auto const copied = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  if (copied > 0) return static_cast<std::size_t>(copied);
  throw PeerError("davit: " + std::to_string(bytes) + " bytes of rank " + std::to_string(peer) +
                      " cannot be read: " + (copied == 0 ? "nothing came" : std::strerror(errno)),
                  peer);
}

}  // namespace davit::host
