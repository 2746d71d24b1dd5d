// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "examples/davit_info/survey.hpp"

namespace info {
namespace {

using Row = std::vector<std::string>;

/// Columns as wide as their widest text, two blanks between.
std::string aligned(std::vector<Row> const& rows) {
  std::vector<std::size_t> widths;
  for (auto const& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (auto const& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) line += " " + row[i] + std::string(widths[i] - row[i].size() + 1, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string list(std::vector<int> const& numbers) {
  std::string text;
  for (int const number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text.empty() ? "?" : text;
}

std::string number_or(int number, char const* otherwise) { return number < 0 ? otherwise : std::to_string(number); }

std::string link_of(davit::Gpu const& gpu) {
  std::array<char, 32> speed{};
  std::snprintf(speed.data(), speed.size(), "%.0f GB/s", gpu.link_gigabytes);
  std::string text = gpu.link_gigabytes > 0 ? speed.data() : "";
  if (gpu.link_width > 0) text += (text.empty() ? "x" : " x") + std::to_string(gpu.link_width);
  return text.empty() ? "?" : text;
}

/// Nodes that hold this rank's slots.
std::string slots_of(Survey const& survey, int rank) {
  if (survey.plan.policy == davit::Placement::interleave) return list(survey.plan.nodes);
  std::vector<int> nodes;
  for (int reader = 0; reader < survey.ranks(); ++reader) {
    if (reader != rank || survey.ranks() == 1) nodes.push_back(survey.plan.slots_for(rank, reader));
  }
  std::erase_if(nodes, [](int node) { return node < 0; });
  std::ranges::sort(nodes);
  nodes.erase(std::ranges::unique(nodes).begin(), nodes.end());
  return list(nodes);
}

}  // namespace

std::string as_table(Survey const& survey) {
  auto const& machine = survey.machine;
  std::string text = survey.built + "\n\nMachine: " + machine.source + ", " + std::to_string(machine.packages.size()) +
                     " sockets, " + std::to_string(machine.cpus) + " CPUs\n";
  std::vector<Row> rows{{"NUMA", "socket", "memory", "what", "CPUs"}};
  for (auto const& node : machine.nodes) {
    rows.push_back({std::to_string(node.os_index), number_or(node.package, "-"), size_text(node.bytes),
                    node.holds_slots ? "host memory" : node.kind + ", holds no slots", ranges(node.cpus)});
  }
  text += "\n" + aligned(rows);
  rows = {{"GPU", "NUMA", "root complex", "bridges", "link", "name"}};
  for (auto const& gpu : machine.gpus) {
    auto const known = gpu.root_complex >= 0;
    rows.push_back({gpu.pci.text(), list(gpu.numa),
                    known ? machine.root_complexes[static_cast<std::size_t>(gpu.root_complex)].name : "?",
                    std::to_string(gpu.bridges.size()), link_of(gpu), gpu.name});
  }
  text += "\n" + (machine.gpus.empty() ? "  No GPU.\n" : aligned(rows));
  if (survey.seats.empty()) return text;

  rows = {{"rank", "host", "GPU", "NUMA", "root complex", "slots on NUMA", "bytes", "CPUs"}};
  for (int rank = 0; rank < survey.ranks(); ++rank) {
    auto const gpu = survey.gpu_of(rank);
    auto const root = survey.root_complex_of(rank);
    rows.push_back({std::to_string(rank), survey.hosts[static_cast<std::size_t>(rank)], gpu ? gpu->text() : "none",
                    number_or(survey.place(rank).node, "?"), root.empty() ? "-" : root, slots_of(survey, rank),
                    size_text(survey.bytes()), ranges(survey.seats[static_cast<std::size_t>(rank)].cpus)});
  }
  text += "\nRanks, placement " + std::string(davit::detail::name_of(survey.plan.policy)) + "\n" + aligned(rows);
  if (survey.ranks() > 1) {
    rows = {{"from \\ to"}};
    for (int to = 0; to < survey.ranks(); ++to) rows[0].push_back(std::to_string(to));
    for (int from = 0; from < survey.ranks(); ++from) {
      Row row{std::to_string(from)};
      for (int to = 0; to < survey.ranks(); ++to) {
        auto const how = davit::detail::relation(survey.seats, survey.plan, from, to);
        row.emplace_back(from == to ? "." : davit::detail::name_of(how));
      }
      rows.push_back(std::move(row));
    }
    text += "\nPaths: up into slots in host memory, down from there; how near the two ends are\n" + aligned(rows);
  }
  for (auto const& warning : survey.plan.warnings) text += "\nWarning: " + warning + "\n";
  return text;
}

}  // namespace info
