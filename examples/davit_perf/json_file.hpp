// SPDX-License-Identifier: Apache-2.0
/// @file
/// --json FILE: one object a line, written by rank 0.
#pragma once

#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "examples/support/world.hpp"

namespace perf {

class JsonFile {
 public:
  /// Collective. @param path empty: nothing is written. @throws Failure if the file cannot be.
  JsonFile(support::World const& world, std::string path);
  /// Local, and nothing on other ranks. @throws Failure.
  void add(nlohmann::ordered_json const& object);
  [[nodiscard]] bool is_open() const { return file_.is_open(); }

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace perf
