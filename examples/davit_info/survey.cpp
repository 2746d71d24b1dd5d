// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_info/survey.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <type_traits>

#include "davit/davit.hpp"

namespace info {
namespace {

std::vector<davit::PciAddress> all_gpus(davit::Machine const& machine) {
  std::vector<davit::PciAddress> all;
  for (auto const& gpu : machine.gpus) all.push_back(gpu.pci);
  return all;
}

void finish(Survey& survey, davit::Placement placement) {
  survey.plan = davit::detail::place(survey.seats, placement);
  if (!survey.seats.empty()) {
    auto const caches = survey.machine.last_level_cache_bytes;
    survey.slots = davit::detail::geometry_of(survey.ranks(), {}, caches, survey.plan.rings());
  }
  survey.built = davit::build_info();
}

}  // namespace

std::optional<davit::PciAddress> Survey::gpu_of(int rank) const {
  auto const gpu = place(rank).gpu;
  if (gpu < 0) return std::nullopt;
  return seats[static_cast<std::size_t>(rank)].gpu[static_cast<std::size_t>(gpu)].pci;
}

std::string Survey::root_complex_of(int rank) const {
  auto const pci = gpu_of(rank);
  auto const* const gpu = pci ? machine.gpu(*pci) : nullptr;
  if (gpu == nullptr || gpu->root_complex < 0) return "";
  return machine.root_complexes[static_cast<std::size_t>(gpu->root_complex)].name;
}

Survey survey_job(support::World const& world, davit::Placement placement) {
  using davit::Topology;
  Survey survey;
  survey.machine = Topology::of_this_machine().machine();
  struct Message {
    davit::detail::Seat seat;
    std::array<char, 64> host;
  };
  static_assert(std::is_trivially_copyable_v<Message>);
  MPI_Comm node{};
  support::check(MPI_Comm_split_type(world.comm(), MPI_COMM_TYPE_SHARED, world.rank(), MPI_INFO_NULL, &node),
                 "MPI_Comm_split_type");
  Message mine{davit::detail::own_seat(davit::detail::device_backend(), {}).seat, {}};
  int first = world.rank();
  support::check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, node), "MPI_Allreduce");
  MPI_Comm_free(&node);
  mine.seat.host = first;
  gethostname(mine.host.data(), mine.host.size() - 1);
  std::vector<Message> all(static_cast<std::size_t>(world.size()));
  constexpr int bytes = sizeof(Message);
  support::check(MPI_Allgather(&mine, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, world.comm()), "MPI_Allgather");
  for (auto const& message : all) {
    survey.seats.push_back(message.seat);
    survey.hosts.emplace_back(message.host.data());
  }
  finish(survey, placement);
  return survey;
}

Survey survey_file(std::string const& file, int ranks, davit::Placement placement) {
  davit::try_topology_file(file);
  Survey survey;
  survey.machine = davit::Topology(file).machine();
  davit::CpuMask cpus;
  for (auto const& node : survey.machine.nodes) cpus |= node.cpus;
  auto const gpus = all_gpus(survey.machine);
  auto const count = ranks < 0 ? gpus.size() : static_cast<std::size_t>(ranks);
  survey.seats.assign(count, davit::detail::seat_of(survey.machine, cpus, gpus, -1));
  survey.hosts.assign(count, "file");
  finish(survey, placement);
  return survey;
}

std::string ranges(davit::CpuMask const& cpus) {
  std::string text;
  for (std::size_t cpu = 0; cpu < cpus.size(); ++cpu) {
    if (!cpus[cpu]) continue;
    std::size_t last = cpu;
    while (last + 1 < cpus.size() && cpus[last + 1]) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpu);
    if (last > cpu) text += "-" + std::to_string(last);
    cpu = last;
  }
  return text.empty() ? "none" : text;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<char const*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < units.size(); ++unit) size /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), size < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", size, units.at(unit));
  return text.data();
}

}  // namespace info
