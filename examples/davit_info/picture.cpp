// SPDX-License-Identifier: Apache-2.0
// The picture: sockets side by side; in each its NUMA nodes as lanes; in a lane the memory with its slots above, the
// root complexes below it, in those the switches and GPUs, and under a GPU its ranks.
#include <algorithm>
#include <map>

#include "examples/davit_info/survey.hpp"
#include "examples/davit_info/svg.hpp"

namespace info {
namespace {

constexpr Style kSocket{"#eef2f6", "#c3ced9"};
constexpr Style kMemory{"#dcefe3", "#5fa77b"};
constexpr Style kOther{"#e6e8eb", "#a4adb6"};
constexpr Style kRoot{"#fdf4df", "#d3a53f"};
constexpr Style kSwitch{"#f6dfa6", "#d3a53f"};
constexpr Style kGpu{"#d9e7fb", "#4d82c4"};
constexpr Style kRank{"#4d5fb5", "#3b4b96"};
constexpr Style kSlots{"#ffffff", "#5fa77b"};
constexpr char const* kQuiet = "#5b6875";
constexpr char const* kWire = "#b58a2b";

constexpr double kGap = 14;
constexpr double kGpuWidth = 132;
constexpr double kGpuHeight = 62;
constexpr double kChip = 24;
constexpr double kMemoryHeight = 96;
constexpr double kLeastLane = 168;
constexpr double kWidest = 1500;

std::string list(std::vector<int> const& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    auto last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(numbers[last]);
    i = last;
  }
  return text;
}

struct Device {
  davit::Gpu const* gpu;
  std::vector<int> ranks;
};

/// GPUs below one bridge.
struct Branch {
  davit::PciAddress bridge;
  bool is_switch = false;
  std::vector<Device> devices;
};

struct Root {
  std::string name;
  std::vector<Branch> branches;

  [[nodiscard]] double width() const {
    std::size_t count = 0;
    for (auto const& branch : branches) count += branch.devices.size();
    return std::max(kGpuWidth, static_cast<double>(count) * (kGpuWidth + kGap) - kGap) + 2 * kGap;
  }
};

struct Lane {
  std::vector<davit::NumaNode const*> nodes;  ///< more than one: GPUs that are near to all of these
  std::vector<Root> roots;
  std::vector<int> ranks;  ///< without a GPU

  [[nodiscard]] double width() const {
    double sum = 0;
    for (auto const& root : roots) sum += root.width() + kGap;
    return std::max(kLeastLane, sum - kGap);
  }
};

struct Panel {
  std::string title;
  std::string note;
  std::vector<Lane> lanes;

  [[nodiscard]] double width() const {
    double sum = kGap;
    for (auto const& lane : lanes) sum += lane.width() + kGap;
    return std::max(sum, kLeastLane + 2 * kGap);
  }
};

void add_gpu(Lane& lane, Survey const& survey, davit::Gpu const& gpu) {
  auto const& machine = survey.machine;
  auto const name = gpu.root_complex < 0 ? std::string("unknown")
                                         : machine.root_complexes[static_cast<std::size_t>(gpu.root_complex)].name;
  auto root = std::ranges::find(lane.roots, name, &Root::name);
  if (root == lane.roots.end()) root = lane.roots.insert(root, Root{name, {}});
  bool const below_switch = gpu.bridges.size() > 1;
  auto const bridge = below_switch ? gpu.bridges[gpu.bridges.size() - 2].pci : gpu.pci;
  auto branch = std::ranges::find(root->branches, bridge, &Branch::bridge);
  if (branch == root->branches.end()) branch = root->branches.insert(branch, Branch{bridge, below_switch, {}});
  Device device{&gpu, {}};
  for (int rank = 0; rank < survey.ranks(); ++rank) {
    bool const is_here = survey.seats[static_cast<std::size_t>(rank)].host == survey.seats[0].host;
    if (is_here && survey.gpu_of(rank) == gpu.pci) device.ranks.push_back(rank);
  }
  branch->devices.push_back(std::move(device));
}

std::vector<Panel> panels_of(Survey const& survey) {
  auto const& machine = survey.machine;
  std::map<int, Panel> panels;
  for (auto const& node : machine.nodes)
    panels[node.package < 0 ? 1 << 20 : node.package].lanes.push_back({{&node}, {}, {}});
  for (auto const& gpu : machine.gpus) {
    std::vector<davit::NumaNode const*> near;
    for (int const index : gpu.numa) near.push_back(machine.node(index));
    int const package = near.empty() ? -1 : near.front()->package;
    int key = package < 0 ? 1 << 20 : package;
    for (auto const* const node : near) key = node->package == package ? key : 1 << 20;
    if (near.empty()) key = 1 << 21;
    auto& lanes = panels[key].lanes;
    auto lane = std::ranges::find(lanes, near, &Lane::nodes);
    if (lane == lanes.end()) lane = lanes.insert(lane, Lane{near, {}, {}});
    add_gpu(*lane, survey, gpu);
  }
  for (int rank = 0; rank < survey.ranks(); ++rank) {
    if (survey.seats[static_cast<std::size_t>(rank)].host != survey.seats[0].host || survey.gpu_of(rank)) continue;
    auto const* const node = machine.node(survey.place(rank).node);
    int const key = node == nullptr ? 1 << 22 : node->package < 0 ? 1 << 20 : node->package;
    auto& lanes = panels[key].lanes;
    auto lane = std::ranges::find_if(lanes, [&](Lane const& one) {
      return node == nullptr || (one.nodes.size() == 1 && one.nodes.front() == node);
    });
    if (lane == lanes.end()) lane = lanes.insert(lane, Lane{});
    lane->ranks.push_back(rank);
  }
  std::vector<Panel> all;
  for (auto& [key, panel] : panels) {
    if (key == 1 << 22) {
      panel.title = "Ranks bound to no node";
    } else if (key == 1 << 21) {
      panel.title = "Place unknown";
    } else if (key == 1 << 20) {
      panel.title = "Whole machine";
      panel.note = std::to_string(machine.packages.size()) + " sockets, " + std::to_string(machine.cpus) + " CPUs";
    } else {
      auto const& package = machine.packages[static_cast<std::size_t>(key)];
      panel.title = "Socket " + std::to_string(package.os_index);
      panel.note = std::to_string(package.cpus) + " CPUs";
    }
    all.push_back(std::move(panel));
  }
  return all;
}

class Drawing {
 public:
  explicit Drawing(Survey const& survey) : survey_(survey), panels_(panels_of(survey)) {
    for (auto const& panel : panels_) {
      for (auto const& lane : panel.lanes) {
        has_gpus_ = has_gpus_ || !lane.roots.empty();
        most_ranks_ = std::max(most_ranks_, lane.ranks.size());
        for (auto const& root : lane.roots) {
          for (auto const& branch : root.branches) {
            for (auto const& device : branch.devices) most_ranks_ = std::max(most_ranks_, device.ranks.size());
          }
        }
      }
    }
    most_ranks_ = std::min<std::size_t>(most_ranks_, 4);  // more are named in one chip
  }

  std::string draw() {
    double x = 2 * kGap;
    double y = 96;
    double widest = std::max(640.0, width_of(summary(), 14) + 4 * kGap + 1);
    double const height = panel_height();
    double last_end = 0;
    for (auto const& panel : panels_) {
      if (x > 2 * kGap && x + panel.width() > kWidest) {
        x = 2 * kGap;
        y += height + 2 * kGap;
        last_end = 0;
      }
      if (last_end > 0 && panel.title.starts_with("Socket")) {
        svg_.line(last_end, y + 92, x, y + 92, "#8fa0b0", 6);
      }
      draw_panel(panel, x, y, height);
      last_end = x + panel.width();
      x = last_end + 2 * kGap;
      widest = std::max(widest, x);
    }
    y += height + 2 * kGap;
    auto const source = survey_.machine.source;
    svg_.text(2 * kGap, 42, source.substr(source.find_last_of('/') + 1), 24, widest - 4 * kGap, "#1f2933",
              Svg::Anchor::start, true);
    svg_.text(2 * kGap, 70, summary(), 14, widest - 4 * kGap, kQuiet);
    for (auto const& warning : survey_.plan.warnings) {
      svg_.text(2 * kGap, y + 8, "Warning: " + warning, 12, widest - 4 * kGap, "#a33b20");
      y += 20;
    }
    draw_legend(2 * kGap, y);
    return svg_.file(widest, y + 56, "davit_info: " + source);
  }

 private:
  [[nodiscard]] double ranks_height() const { return static_cast<double>(most_ranks_) * (kChip + 6); }
  [[nodiscard]] double panel_height() const {
    double const gpus = has_gpus_ ? 22 + 34 + 40 + kGpuHeight + kGap : 8;
    return 48 + kMemoryHeight + gpus + ranks_height() + kGap;
  }

  [[nodiscard]] std::string summary() const {
    auto const& machine = survey_.machine;
    auto const count = [](std::size_t n, std::string const& what) {
      return std::to_string(n) + " " + what + (n == 1 ? "" : what.ends_with('x') ? "es" : "s");
    };
    auto text = count(machine.packages.size(), "socket") + "  |  " + count(machine.nodes.size(), "NUMA node") +
                "  |  " + count(machine.root_complexes.size(), "root complex") + "  |  " +
                count(machine.gpus.size(), "GPU");
    if (survey_.ranks() == 0) return text;
    return text + "  |  " + count(static_cast<std::size_t>(survey_.ranks()), "rank") + ", slots " +
           davit::detail::name_of(survey_.plan.policy);
  }

  void draw_panel(Panel const& panel, double x, double y, double height) {
    svg_.box(x, y, panel.width(), height, kSocket, 12);
    svg_.text(x + kGap, y + 29, panel.title, 16, panel.width() - 2 * kGap, "#1f2933", Svg::Anchor::start, true);
    auto const used = width_of(panel.title, 16, true) + 2 * kGap;
    svg_.text(x + used, y + 29, panel.note, 13, panel.width() - used - kGap, kQuiet);
    double at = x + kGap;
    for (auto const& lane : panel.lanes) {
      draw_lane(lane, at, y + 44);
      at += lane.width() + kGap;
    }
  }

  void draw_lane(Lane const& lane, double x, double y) {
    draw_memory(lane, x, y);
    double at = x;
    double const below = y + kMemoryHeight;
    // Root complexes stand in the middle of their memory.
    double roots = -kGap;
    for (auto const& root : lane.roots) roots += root.width() + kGap;
    if (!lane.roots.empty()) at += (lane.width() - roots) / 2;
    for (auto const& root : lane.roots) {
      auto const middle = at + root.width() / 2;
      if (!lane.nodes.empty()) svg_.line(middle, below, middle, below + 22, kWire, 3);
      draw_root(root, at, below + 22);
      at += root.width() + kGap;
    }
    auto const top = below + (has_gpus_ ? 22 + 34 + 40 + kGpuHeight + 6 : 8);
    draw_ranks(lane.ranks, x + kGap, top, lane.width() - 2 * kGap);
  }

  void draw_memory(Lane const& lane, double x, double y) {
    double const width = lane.width();
    double const room = width - 2 * 10;
    if (lane.nodes.size() != 1) {
      if (lane.nodes.empty()) return;
      std::vector<int> numbers;
      for (auto const* const node : lane.nodes) numbers.push_back(node->os_index);
      svg_.box(x, y, width, kMemoryHeight, {"#f4faf6", "#5fa77b"});
      svg_.text(x + 10, y + 23, "Near NUMA " + list(numbers), 14, room, "#1f2933", Svg::Anchor::start, true);
      return;
    }
    auto const& node = *lane.nodes.front();
    svg_.box(x, y, width, kMemoryHeight, node.holds_slots ? kMemory : kOther);
    svg_.text(x + 10, y + 23, "NUMA " + std::to_string(node.os_index), 14, room, "#1f2933", Svg::Anchor::start, true);
    svg_.text(x + width - 10, y + 23, size_text(node.bytes), 13, room / 2, kQuiet, Svg::Anchor::end);
    if (!node.holds_slots) {
      svg_.text(x + 10, y + 44, node.kind, 12, room, kQuiet);
      svg_.text(x + 10, y + 62, "holds no slots", 12, room, kQuiet);
      return;
    }
    svg_.text(x + 10, y + 43, "CPUs " + ranges(node.cpus), 12, room, kQuiet);
    auto const slots = slots_on(node.os_index);
    if (slots.empty()) return;
    svg_.box(x + 10, y + 56, room, 28, kSlots, 5);
    svg_.text(x + width / 2, y + 74, slots, 12, room - 8, "#2c6b47", Svg::Anchor::middle);
  }

  [[nodiscard]] std::string slots_on(int node) const {
    auto const& plan = survey_.plan;
    if (plan.policy == davit::Placement::interleave) {
      return std::ranges::count(plan.nodes, node) > 0 && survey_.ranks() > 0 ? "slots of all, in turn" : "";
    }
    std::vector<int> ranks;
    for (int rank = 0; rank < survey_.ranks(); ++rank) {
      bool const is_here = survey_.seats[static_cast<std::size_t>(rank)].host == survey_.seats[0].host;
      if (is_here && survey_.place(rank).node == node) ranks.push_back(rank);
    }
    if (ranks.empty()) return "";
    return (plan.policy == davit::Placement::near_reader ? "slots for " : "slots of ") +
           std::string(ranks.size() == 1 ? "rank " : "ranks ") + list(ranks);
  }

  void draw_root(Root const& root, double x, double y) {
    auto const middle = x + root.width() / 2;
    svg_.box(x, y, root.width(), 34 + 40 + kGpuHeight + 8, kRoot);
    svg_.text(middle, y + 21, "root complex " + root.name, 12, root.width() - 12, "#7a5a10", Svg::Anchor::middle, true);
    double at = x + kGap;
    for (auto const& branch : root.branches) {
      auto const span = static_cast<double>(branch.devices.size()) * (kGpuWidth + kGap) - kGap;
      if (branch.is_switch) {
        svg_.box(at, y + 34, span, 24, kSwitch, 4);
        svg_.text(at + span / 2, y + 50, "bridge " + branch.bridge.text(), 11, span - 6, "#7a5a10",
                  Svg::Anchor::middle);
      }
      for (auto const& device : branch.devices) {
        svg_.line(at + kGpuWidth / 2, y + (branch.is_switch ? 58 : 32), at + kGpuWidth / 2, y + 74, kWire);
        draw_gpu(device, at, y + 74);
        at += kGpuWidth + kGap;
      }
    }
  }

  void draw_gpu(Device const& device, double x, double y) {
    auto const& gpu = *device.gpu;
    svg_.box(x, y, kGpuWidth, kGpuHeight, kGpu);
    double const room = kGpuWidth - 12;
    double const middle = x + kGpuWidth / 2;
    auto const open = gpu.name.find('[');
    auto const close = gpu.name.find(']');
    auto const short_name =
        open != std::string::npos && close > open ? gpu.name.substr(open + 1, close - open - 1) : gpu.name;
    svg_.text(middle, y + 19, short_name, 12, room, "#1f2933", Svg::Anchor::middle, true);
    svg_.text(middle, y + 36, gpu.pci.text(), 12, room, "#1f2933", Svg::Anchor::middle);
    auto link = gpu.link_gigabytes > 0 ? std::to_string(static_cast<int>(gpu.link_gigabytes + 0.5)) + " GB/s" : "";
    if (gpu.link_width > 0) link += (link.empty() ? "x" : "  x") + std::to_string(gpu.link_width);
    svg_.text(middle, y + 53, link, 11, room, kQuiet, Svg::Anchor::middle);
    draw_ranks(device.ranks, x, y + kGpuHeight + 15, kGpuWidth);
  }

  void draw_ranks(std::vector<int> const& ranks, double x, double y, double width) {
    auto const chip = [&](std::string const& words) {
      svg_.box(x, y, width, kChip, kRank, 12);
      svg_.text(x + width / 2, y + 16.5, words, 12, width - 16, "#ffffff", Svg::Anchor::middle, true);
      y += kChip + 6;
    };
    if (ranks.size() > 4) return chip("ranks " + list(ranks));
    for (int const rank : ranks) chip("rank " + std::to_string(rank));
  }

  void draw_legend(double x, double y) {
    auto const entry = [&](Style style, char const* words) {
      svg_.box(x, y, 18, 18, style, 4);
      svg_.text(x + 25, y + 13.5, words, 12, 300, kQuiet);
      x += 25 + width_of(words, 12) + 18;
    };
    entry(kMemory, "host memory");
    entry(kSlots, "slots");
    if (std::ranges::any_of(survey_.machine.nodes, [](auto const& node) { return !node.holds_slots; })) {
      entry(kOther, "other memory");
    }
    entry(kRoot, "root complex");
    entry(kSwitch, "PCIe bridge");
    entry(kGpu, "GPU");
    entry(kRank, "rank");
  }

  Survey const& survey_;
  std::vector<Panel> panels_;
  Svg svg_;
  bool has_gpus_ = false;
  std::size_t most_ranks_ = 0;
};

}  // namespace

std::string as_picture(Survey const& survey) { return Drawing(survey).draw(); }

}  // namespace info
