// SPDX-License-Identifier: Apache-2.0
// davit_info: where GPUs, memory and ranks sit, and what davit makes of it. See --help.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>

#include "davit/davit.hpp"
#include "examples/davit_info/survey.hpp"
#include "examples/support/program.hpp"

namespace {

using support::Exit;

struct Wishes {
  std::string xml;
  std::string svg;
  bool json = false;
  int ranks = -1;
  std::string placement;
};

davit::Placement placement_of(Wishes const& wishes) {
  std::map<std::string, davit::Placement> const names{{"near-reader", davit::Placement::near_reader},
                                                      {"near-writer", davit::Placement::near_writer},
                                                      {"interleave", davit::Placement::interleave}};
  return wishes.placement.empty() ? davit::environment().placement : names.at(wishes.placement);
}

Exit show(info::Survey const& survey, Wishes const& wishes) {
  if (!wishes.svg.empty()) {
    std::ofstream file(wishes.svg);
    file << info::as_picture(survey);
    file.close();
    if (!file) throw support::Failure(Exit::failed, "--svg '" + wishes.svg + "' cannot be written");
  }
  if (wishes.json || wishes.svg.empty()) std::cout << (wishes.json ? info::as_json(survey) : info::as_table(survey));
  std::cout.flush();
  return std::cout ? Exit::ok : Exit::failed;
}

/// hwloc itself may crash on a damaged file that the environment names.
Exit check_environment() {
  char const* const file = std::getenv("HWLOC_XMLFILE");
  try {
    if (file != nullptr) davit::try_topology_file(file);
    return Exit::ok;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "davit_info: HWLOC_XMLFILE: %s\n", error.what());
    return Exit::failed;
  }
}

Exit show_file(Wishes const& wishes) {
  try {
    return show(info::survey_file(wishes.xml, wishes.ranks, placement_of(wishes)), wishes);
  } catch (davit::UsageError const& error) {
    std::fprintf(stderr, "davit_info: %s\n", error.what());
    return Exit::usage;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "davit_info: %s\n", error.what());
    return Exit::failed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Wishes wishes;
  CLI::App app("Where GPUs, memory and ranks sit, and where davit puts slots. Alone, or under mpirun.", "davit_info");
  auto* const xml =
      app.add_option("--xml", wishes.xml, "Show the machine in this hwloc XML file (lstopo FILE.xml); no MPI");
  app.add_option("--ranks", wishes.ranks, "With --xml: plan for this many unbound ranks (default: one a GPU)")
      ->needs(xml)
      ->check(CLI::Range(0, 1024));
  app.add_flag("--json", wishes.json, "Print JSON");
  app.add_option("--svg", wishes.svg, "Draw into this file, instead of the table");
  app.add_option("--placement", wishes.placement, "Plan as with this DAVIT_PLACEMENT")
      ->check(CLI::IsMember({"near-reader", "near-writer", "interleave"}));
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& error) {
    return static_cast<int>(app.exit(error) == 0 ? Exit::ok : Exit::usage);
  }
  if (!wishes.xml.empty()) return static_cast<int>(show_file(wishes));
  if (auto const code = check_environment(); code != Exit::ok) return static_cast<int>(code);
  return support::run_program("davit_info", argc, argv, [&](support::World const& world) {
    auto const survey = info::survey_job(world, placement_of(wishes));
    return world.is_root() ? show(survey, wishes) : Exit::ok;
  });
}
