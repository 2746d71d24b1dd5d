// SPDX-License-Identifier: Apache-2.0
/// @file
/// Machines of a folder outside the tree, against the answers beside them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "davit/error.hpp"
#include "transports/topology.hpp"

namespace davit::test {
namespace {

std::filesystem::path folder() {
  char const* const named = std::getenv("DAVIT_TOPOLOGIES");
  return named != nullptr && *named != '\0' ? named : DAVIT_TEST_TOPOLOGIES;
}

nlohmann::json found_in(Machine const& machine) {
  auto gpus = nlohmann::json::array();
  for (auto const& gpu : machine.gpus) {
    auto const root = gpu.root_complex;
    gpus.push_back({{"pci", gpu.pci.text()},
                    {"numa", gpu.numa},
                    {"root_complex", root < 0 ? "" : machine.root_complexes[static_cast<std::size_t>(root)].name}});
  }
  return gpus;
}

TEST(Answers, EveryMachineHasItsGpusWhereTheAnswersSay) {
  std::ifstream file(folder() / "expected.json");
  if (!file) {
    std::cout << "SKIPPED: no expected.json in " << folder() << "; name the folder by DAVIT_TOPOLOGIES\n";
    GTEST_SKIP();
  }
  auto const expected = nlohmann::json::parse(file);
  EXPECT_GT(expected.size(), 0U);
  for (auto const& [name, answer] : expected.items()) {
    SCOPED_TRACE(name);
    auto const path = (folder() / name).string();
    if (answer.at("loads").get<bool>()) {
      EXPECT_EQ(found_in(Topology(path).machine()), answer.at("gpus"));
      continue;
    }
    try {
      Topology const topology(path);
      ADD_FAILURE() << "was taken";
    } catch (SystemError const& error) {
      EXPECT_NE(std::string(error.what()).find("written by hwloc 3"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace davit::test
