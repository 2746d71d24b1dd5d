// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/pair.hpp"

#include <mpi.h>

#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "transports/cuda/driver.hpp"
#include "transports/wait.hpp"

namespace davit::test {
namespace {

bool is_set(char const* name) {
  char const* const value = std::getenv(name);
  return value != nullptr && std::string_view(value) == "1";
}

Seat find_seat() {
  Seat seat;
  MPI_Comm_rank(MPI_COMM_WORLD, &seat.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &seat.ranks);
  int const devices = cuda::backend().device_count();
  if (devices == 0) {
    seat.why_not = "NO GPU HERE";
    return seat;
  }
  seat.device = seat.rank % devices;
  seat.is_shared = devices < seat.ranks;
  if (seat.is_shared && !is_set("DAVIT_ALLOW_SHARED_GPU")) {
    seat.why_not = std::to_string(seat.ranks) + " ranks, " + std::to_string(devices) +
                   " GPU(s), and DAVIT_ALLOW_SHARED_GPU is not 1";
  }
  return seat;
}

}  // namespace

Seat const& seat() {
  static Seat const found = find_seat();
  return found;
}

bool launches_block() { return is_set("CUDA_LAUNCH_BLOCKING"); }

Segments exchange_segments(Segment const& own) {
  Segments segments;
  SegmentTicket const ticket = own.ticket();
  MPI_Allgather(&ticket, sizeof ticket, MPI_BYTE, segments.tickets, sizeof ticket, MPI_BYTE, MPI_COMM_WORLD);
  for (int rank = 0; rank < 2; ++rank) {
    auto& mapping = segments.mappings[rank];
    mapping = rank == seat().rank ? own.mapping() : Segment::attach(segments.tickets[rank]);
    if (mapping == nullptr) throw std::runtime_error("cannot map the other rank's segment");
  }
  return segments;
}

Pair::Pair(std::uint32_t slots, std::uint64_t slot_bytes, Mesh::Start start)
    : start_(start),
      mesh_(NodeMap(seat().rank, 2), Geometry{2, slots, slot_bytes}, "/dev/shm", start),
      segments_(exchange_segments(mesh_.segment())) {
  for (int rank = 0; rank < 2; ++rank) mesh_.adopt(rank, segments_.mappings[rank], segments_.tickets[rank]);
  barrier();  // both have mapped; preparing closes the descriptors
  mesh_.prepare([](std::byte*, std::size_t, std::uint32_t) {});
  barrier();  // all pages are there
  for (int rank = 0; rank < 2; ++rank) {
    registrations_[rank] =
        cuda::backend().register_memory(seat().device, segments_.mappings[rank], segments_.tickets[rank].bytes);
  }
  own_ = Outbox(segments_.mappings[mesh_.rank()], mesh_.geometry());
  peers_ = Outbox(segments_.mappings[1 - mesh_.rank()], mesh_.geometry());
  engine_ = cuda::backend().make_engine(seat().device, {});
  barrier();
}

bool wait_for(std::function<bool()> const& done, std::chrono::milliseconds limit) {
  auto const deadline = std::chrono::steady_clock::now() + limit;
  Backoff backoff(Eagerness::yield);
  while (!done()) {
    if (backoff.idle() && std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

std::string standing(Engine const& engine) {
  std::string text;
  for (Lane const lane : {Lane::up, Lane::down}) {
    text += lane == Lane::up ? "up " : "; down ";
    if (auto const blocked = engine.blocked(lane)) {
      text += std::string("waits for ") + (blocked->awaited == Awaited::data ? "data " : "credit ") +
              std::to_string(blocked->value) + " of rank " + std::to_string(blocked->peer) + ", there is " +
              std::to_string(blocked->actual);
    } else {
      text += "waits for nothing";
    }
  }
  return text;
}

void barrier() { MPI_Barrier(MPI_COMM_WORLD); }

}  // namespace davit::test
