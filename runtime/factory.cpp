// SPDX-License-Identifier: Apache-2.0
#include "runtime/factory.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "bootstrap/mpi_bootstrap.hpp"
#include "davit/version.hpp"
#include "runtime/agree.hpp"
#include "runtime/log.hpp"
#include "runtime/placement.hpp"
#ifdef DAVIT_HAS_CUDA
#include "transports/cuda/cuda_backend.hpp"
#endif
#include "transports/host/direct_copy.hpp"
#include "transports/host/host_engine.hpp"
#include "transports/mpi/mpi_link.hpp"
#include "transports/topology.hpp"

namespace davit {
namespace detail {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;  // PCI vendor
constexpr std::uint64_t kLeastSlot = 4096;
constexpr std::uint64_t kMostSlot = std::uint64_t{1} << 30;
constexpr std::uint64_t kLeastAutomaticSlot = std::uint64_t{128} << 10;
constexpr std::uint64_t kMostAutomaticSlot = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostAutomaticSlotOfGpus = std::uint64_t{4} << 20;  // a hand-over costs 10 microseconds there
constexpr std::chrono::milliseconds kMostTimeout{
    1'000'000'000};  // as DAVIT_TIMEOUT; a clock can add it without overflow

bool is_timeout(std::chrono::milliseconds time) noexcept { return time.count() >= 1 && time <= kMostTimeout; }

void check_options(Options const& options) {
  auto const refuse = [](char const* name, auto value, char const* bound) {
    throw UsageError("davit: option " + std::string(name) + " is " + std::to_string(value) + ", must be " + bound);
  };
  if (!is_timeout(options.timeout)) refuse("timeout", options.timeout.count(), "1 to 1000000000 ms");
  if (options.first_timeout && !is_timeout(*options.first_timeout)) {
    refuse("first_timeout", options.first_timeout->count(), "1 to 1000000000 ms");
  }
  auto const slot = options.slot_bytes;
  if (slot != 0 && (slot < kLeastSlot || slot > kMostSlot || (slot & (slot - 1)) != 0)) {
    refuse("slot_bytes", slot, "0 or a power of two from 4096 to 1073741824");
  }
  if (options.slots < 0 || options.slots > 1024) refuse("slots", options.slots, "0 to 1024");
  if (static_cast<unsigned>(options.path) > static_cast<unsigned>(Path::direct)) {
    refuse("path", static_cast<int>(options.path), "one of davit::Path");
  }
  if (static_cast<unsigned>(options.host_order) > static_cast<unsigned>(HostOrder::submission)) {
    refuse("host_order", static_cast<int>(options.host_order), "one of davit::HostOrder");
  }
  if (options.device < -1) refuse("device", options.device, "-1 or the number of a GPU");
  if (static_cast<unsigned>(options.placement) > static_cast<unsigned>(Placement::interleave)) {
    refuse("placement", static_cast<int>(options.placement), "one of davit::Placement");
  }
  if (options.direct_bytes < 1) refuse("direct_bytes", options.direct_bytes, "1 or more");
}

/// What ranks must agree on.
struct Proposal {
  Geometry geometry;
  std::uint64_t direct_bytes;
  Path path;
  HostOrder host_order;
  Placement placement;
  std::uint64_t cache_bytes;  ///< of this rank's machine
  Seat seat;
};

/// What came of it.
struct Agreement {
  Geometry geometry;
  Eagerness eagerness;
  PlacementPlan plan;
  std::optional<PciAddress> gpu;  ///< of this rank by the plan
};

/// Whether mpirun says that ranks share cores, of which a rank sees only its own node's.
bool shares_cores() noexcept {
  char const* const yields = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  return yields != nullptr && yields[0] == '1';
}

Agreement agree(Bootstrap& bootstrap, std::string const& what, Options const& options, DeviceBackend* backend,
                Deadline deadline) {
  OwnSeat own;
  auto const all = gather_results(bootstrap, what, deadline, [&] {
    check_options(options);
    own = own_seat(backend, options);
    own.seat.host = bootstrap.nodes()[static_cast<std::size_t>(bootstrap.rank())];
    auto const cache_bytes = Topology::of_this_machine().machine().last_level_cache_bytes;
    return Proposal{geometry_of(bootstrap.size(), options, cache_bytes),
                    options.direct_bytes,
                    options.path,
                    options.host_order,
                    options.placement,
                    cache_bytes,
                    own.seat};
  });
  auto const check = [&](char const* field, auto value) {
    check_equal(
        what, field, bootstrap.size(),
        [&](int rank) { return static_cast<std::uint64_t>(value(all[static_cast<std::size_t>(rank)])); },
        [](std::uint64_t number) { return std::to_string(number); });
  };
  check("option slot_bytes", [](Proposal const& p) { return p.geometry.slot_bytes; });
  check("option slots", [](Proposal const& p) { return p.geometry.slots / 2; });
  check("option direct_bytes", [](Proposal const& p) { return p.direct_bytes; });
  auto const check_names = [&](char const* field, auto value, auto name) {
    check_equal(
        what, field, bootstrap.size(), [&](int rank) { return value(all[static_cast<std::size_t>(rank)]); }, name);
  };
  check_names(
      "option path", [](Proposal const& p) { return p.path; },
      [](Path path) {
        return std::string(path == Path::automatic ? "auto" : path == Path::slots ? "slots" : "direct");
      });
  check_names(
      "option host_order", [](Proposal const& p) { return p.host_order; },
      [](HostOrder order) {
        return std::string(order == HostOrder::eager ? "eager" : order == HostOrder::queues ? "queues" : "submission");
      });
  check_names(
      "option placement", [](Proposal const& p) { return p.placement; },
      [](Placement placement) { return std::string(name_of(placement)); });
  CpuMask cpus;
  std::size_t ranks_here = 0;
  std::vector<Seat> seats;
  for (auto const& proposal : all) {
    seats.push_back(proposal.seat);
    if (proposal.seat.host != own.seat.host) continue;
    cpus |= proposal.seat.cpus;
    ++ranks_here;
  }
  auto plan = place(seats, options.placement);
  // A rank that has chosen no GPU may never use one: warnings about GPUs are for those that have.
  for (auto& seat : seats) seat.gpus = seat.chosen < 0 ? 0 : seat.gpus;
  plan.warnings = place(seats, options.placement).warnings;
  auto const geometry = geometry_of(bootstrap.size(), options, all.front().cache_bytes, plan.rings());
  auto const eagerness = cpus.count() < ranks_here || shares_cores() ? Eagerness::yield : Eagerness::spin;
  std::optional<PciAddress> gpu;
  if (int const index = plan.ranks[static_cast<std::size_t>(bootstrap.rank())].gpu; index >= 0) {
    gpu = own.gpus[static_cast<std::size_t>(index)];
  }
  return {geometry, eagerness, std::move(plan), gpu};
}

/// Whether ranks of a node can read each other's memory, on every node: each reads the others' nonces from where they
/// lie.
bool probe_direct(Bootstrap& bootstrap, NodeMap const& nodes, host::DirectCopy const& direct,
                  SharedSegments const& outboxes, Deadline deadline) {
  auto const& own = outboxes.mappings[static_cast<std::size_t>(bootstrap.rank())];
  auto const addresses = gather(bootstrap, reinterpret_cast<std::uint64_t>(own.get()), deadline);
  std::uint8_t can = 1;
  for (int peer = 0; peer < bootstrap.size() && can != 0; ++peer) {
    if (!nodes.is_here(peer)) continue;
    std::uint64_t nonce = 0;
    try {
      direct.read(peer, addresses[static_cast<std::size_t>(peer)], reinterpret_cast<std::byte*>(&nonce), sizeof nonce);
    } catch (PeerError const& error) {
      log(LogLevel::info, error.what());
    }
    can = nonce == outboxes.tickets[static_cast<std::size_t>(peer)].nonce ? 1 : 0;
  }
  auto const all = gather(bootstrap, can, deadline);
  return std::all_of(all.begin(), all.end(), [](std::uint8_t one) { return one != 0; });
}

}  // namespace

namespace {

/// GPUs that this rank may use.
struct VisibleGpus {
  std::vector<PciAddress> pci;
  int chosen = -1;  ///< index into `pci`
};

/// Loads no driver unless the program has, or has to be asked what an environment variable means: hwloc sees GPUs too.
VisibleGpus visible_gpus(DeviceBackend* backend, Options const& options, Machine const& machine) {
  VisibleGpus visible;
  if (backend == nullptr || !backend->shows_a_device()) return visible;
  visible.chosen = options.device >= 0 ? options.device : backend->current_device_if_chosen();
  if (visible.chosen < 0 && std::getenv("CUDA_VISIBLE_DEVICES") == nullptr) {
    for (auto const& gpu : machine.gpus) {
      if (gpu.vendor == kNvidia) visible.pci.push_back(gpu.pci);
    }
    return visible;
  }
  try {
    for (int device = 0; device < backend->device_count(); ++device) {
      visible.pci.push_back(PciAddress::parse(backend->facts(device).pci_address).value_or(PciAddress{}));
    }
  } catch (SystemError const& error) {  // whoever gives davit a GPU's buffer will hear of it
    log(LogLevel::info, error.what());
    return {};
  }
  if (visible.chosen >= static_cast<int>(visible.pci.size())) visible.chosen = -1;  // refused where it is used
  return visible;
}

}  // namespace

OwnSeat own_seat(DeviceBackend* backend, Options const& options) {
  auto const& topology = Topology::of_this_machine();
  auto visible = visible_gpus(backend, options, topology.machine());
  auto seat = seat_of(topology.machine(), Topology::usable_cpus(), visible.pci, visible.chosen);
  seat.policy = topology.memory_policy();
  return {seat, std::move(visible.pci)};
}

std::unique_ptr<Link> link_over_mpi(Bootstrap& bootstrap, Deadline deadline) {
  auto* const over_mpi = dynamic_cast<bootstrap::OverMpi*>(&bootstrap);
  if (over_mpi == nullptr) {
    throw SystemError(
        "davit: ranks are on several nodes, but the bootstrap is not over MPI, which carries their bytes");
  }
  return make_mpi_link(over_mpi->duplicate(deadline));
}

DeviceBackend* device_backend() noexcept {
#ifdef DAVIT_HAS_CUDA
  return &cuda::backend();
#else
  return nullptr;
#endif
}

Geometry geometry_of(int ranks, Options const& options, std::uint64_t cache_bytes, std::uint32_t rings) {
  Geometry geometry;
  geometry.ranks = static_cast<std::uint32_t>(ranks);
  geometry.rings = rings;
  // One free slot for each peer at least, so that short blocks of one call never wait for each other.
  geometry.slots = 2 * static_cast<std::uint32_t>(options.slots != 0 ? options.slots : std::max(4, ranks / 2));
  geometry.slot_bytes = options.slot_bytes;
  if (geometry.slot_bytes == 0) {
    // So that all slots of a node fit in half its last-level caches.
    auto const share = cache_bytes / 2 / geometry.ranks / geometry.slots / rings;
    auto const* const backend = device_backend();
    geometry.slot_bytes =
        backend != nullptr && backend->shows_a_device() ? kMostAutomaticSlotOfGpus : kMostAutomaticSlot;
    while (geometry.slot_bytes > kLeastAutomaticSlot && geometry.slot_bytes > share) geometry.slot_bytes /= 2;
  }
  return geometry;
}

std::shared_ptr<CommunicatorState> make_communicator(std::shared_ptr<Bootstrap> bootstrap, Options options,
                                                     Mesh::Start start, DeviceBackend* backend, LinkMaker links) {
  if (bootstrap == nullptr) throw UsageError("davit: bootstrap is null, must be one of davit::mpi or davit::threads");
  auto const what = "communicator '" + options.name + "'";
  // Where the option cannot be a deadline its refusal must still reach the others.
  auto const timeout = is_timeout(options.timeout) ? options.timeout : environment().timeout;
  auto const deadline = std::chrono::steady_clock::now() + timeout;
  auto const agreement = agree(*bootstrap, what, options, backend, deadline);
  if (options.path == Path::direct) options.direct_bytes = 1;
  NodeMap const nodes(bootstrap->rank(), {bootstrap->nodes().begin(), bootstrap->nodes().end()});
  std::unique_ptr<Mesh> mesh;
  std::vector<Mirror> mirrors;
  gather_results(*bootstrap, what, deadline, [&] {
    mesh = std::make_unique<Mesh>(nodes, agreement.geometry, environment().shm_dir, start,
                                  Arrangement{agreement.plan.sites(), agreement.plan.steps});
    for (int const owner : nodes.taken_in_by(nodes.rank())) {
      mirrors.push_back(mesh->make_mirror(owner, environment().shm_dir));
    }
    return 0;
  });
  auto outboxes = share(*bootstrap, what, nodes, mesh->segment(), mirrors, deadline);
  std::vector<int> pids;
  for (int peer = 0; peer < nodes.size(); ++peer) {
    auto const& ticket = outboxes.tickets[static_cast<std::size_t>(peer)];
    pids.push_back(ticket.process == mesh->segment().ticket().process ? 0 : ticket.pid);
    mesh->adopt(peer, outboxes.mappings[static_cast<std::size_t>(peer)], ticket);
  }
  std::unique_ptr<Wire> wire;
  if (nodes.nodes() > 1) {
    wire = std::make_unique<Wire>(links(*bootstrap, deadline), nodes);
    mesh->connect(*wire, wire->add(mesh->segment().mapping(), mesh->segment().ticket().bytes, std::move(mirrors)));
    bootstrap->barrier(deadline);  // nobody sends before all can take it in
  }
  host::DirectCopy const copier(std::move(pids));
  bool direct = false;
  if (options.path != Path::slots && options.host_order == HostOrder::eager) {
    direct = probe_direct(*bootstrap, nodes, copier, outboxes, deadline);
    if (!direct && bootstrap->rank() == 0) {
      log(LogLevel::info,
          "ranks cannot read each other's memory (see kernel.yama.ptrace_scope); large blocks go by slots");
    }
  }
  if (options.path == Path::direct && (!direct || wire != nullptr)) {
    throw SystemError("davit: " + what + ": path 'direct' is asked for, but ranks cannot read each other's memory" +
                      (wire != nullptr                          ? " across nodes"
                       : options.host_order == HostOrder::eager ? " (see kernel.yama.ptrace_scope)"
                                                                : " in a strict order"));
  }
  if (bootstrap->rank() == 0) {
    for (auto const& warning : agreement.plan.warnings) warn_once(warning);
  }
  auto engine = std::make_unique<host::HostEngine>(options.host_order, copier);
  auto state = std::make_shared<CommunicatorState>(std::move(bootstrap), std::move(options), std::move(wire), links,
                                                   std::move(mesh), std::move(engine), backend, direct,
                                                   agreement.eagerness, start.number, agreement.plan, agreement.gpu);
  state->start_wire();
  return state;
}

}  // namespace detail

std::string_view version() noexcept { return DAVIT_VERSION; }

std::string build_info() {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(mpi, &length);
  std::string library(mpi, static_cast<std::size_t>(length));
  library = library.substr(0, library.find_first_of(",\n"));
  return "davit " DAVIT_VERSION ", g++ " __VERSION__ ", " + library + ", " + Topology::library() +
         ", " DAVIT_BUILD_TYPE ", kernels " + host::kernel_variant() +
         (detail::device_backend() == nullptr ? ", without CUDA" : ", with CUDA");
}

}  // namespace davit
