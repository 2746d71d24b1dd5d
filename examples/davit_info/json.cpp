// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "davit/version.hpp"
#include "examples/davit_info/survey.hpp"

namespace info {
namespace {

using Json = nlohmann::ordered_json;

Json known(int number) { return number < 0 ? Json() : Json(number); }

Json indexes(davit::NodeMask const& nodes) {
  auto all = Json::array();
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node]) all.push_back(node);
  }
  return all;
}

}  // namespace

std::string as_json(Survey const& survey) {
  auto const& machine = survey.machine;
  Json all;
  all["version"] = DAVIT_VERSION;
  all["machine"] = machine.source;
  all["cpus"] = machine.cpus;
  for (auto const* const key : {"packages", "numa_nodes", "root_complexes", "gpus", "ranks", "pairs"}) {
    all[key] = Json::array();
  }
  for (auto const& package : machine.packages) {
    all["packages"].push_back({{"index", package.os_index}, {"cpus", package.cpus}});
  }
  for (auto const& node : machine.nodes) {
    all["numa_nodes"].push_back({{"index", node.os_index},
                                 {"bytes", node.bytes},
                                 {"kind", node.kind},
                                 {"holds_slots", node.holds_slots},
                                 {"package", known(node.package)},
                                 {"cpus", ranges(node.cpus)}});
  }
  for (auto const& root : machine.root_complexes) {
    all["root_complexes"].push_back({{"name", root.name}, {"numa", root.numa}});
  }
  for (auto const& gpu : machine.gpus) {
    auto bridges = Json::array();
    for (auto const& bridge : gpu.bridges) bridges.push_back(bridge.pci.text());
    auto const root = gpu.root_complex;
    all["gpus"].push_back(
        {{"pci", gpu.pci.text()},
         {"numa", gpu.numa},
         {"root_complex", root < 0 ? Json() : Json(machine.root_complexes[static_cast<std::size_t>(root)].name)},
         {"bridges", bridges},
         {"name", gpu.name},
         {"link_gigabytes", gpu.link_gigabytes > 0 ? Json(gpu.link_gigabytes) : Json()},
         {"link_width", gpu.link_width > 0 ? Json(gpu.link_width) : Json()}});
  }
  for (int rank = 0; rank < survey.ranks(); ++rank) {
    auto const gpu = survey.gpu_of(rank);
    auto const root = survey.root_complex_of(rank);
    auto const& place = survey.place(rank);
    auto const& seat = survey.seats[static_cast<std::size_t>(rank)];
    all["ranks"].push_back({{"rank", rank},
                            {"host", survey.hosts[static_cast<std::size_t>(rank)]},
                            {"cpus", ranges(seat.cpus)},
                            {"gpu", gpu ? Json(gpu->text()) : Json()},
                            {"numa", known(place.node)},
                            {"memory_policy", indexes(seat.policy)},
                            {"root_complex", root.empty() ? Json() : Json(root)},
                            {"shares_gpu", place.shares_gpu},
                            {"bytes", survey.bytes()}});
  }
  for (int from = 0; from < survey.ranks(); ++from) {
    for (int to = 0; to < survey.ranks(); ++to) {
      if (from == to) continue;
      auto const how = davit::detail::relation(survey.seats, survey.plan, from, to);
      all["pairs"].push_back({{"from", from},
                              {"to", to},
                              {"relation", davit::detail::name_of(how)},
                              {"slots_numa", known(survey.plan.slots_for(from, to))}});
    }
  }
  all["placement"] = davit::detail::name_of(survey.plan.policy);
  all["steps"] = survey.plan.steps;
  all["slots"] = {
      {"bytes", survey.slots.slot_bytes}, {"in_each_bank", survey.slots.slots / 2}, {"rings", survey.slots.rings}};
  all["warnings"] = survey.plan.warnings;
  // Names from a file may hold anything.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace info
