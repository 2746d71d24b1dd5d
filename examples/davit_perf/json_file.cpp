// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/json_file.hpp"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace perf {

JsonFile::JsonFile(support::World const& world, std::string path) : path_(std::move(path)) {
  std::string reason;
  if (world.is_root() && !path_.empty()) {
    errno = 0;
    file_.open(path_, std::ios::app);
    if (!file_) reason = errno != 0 ? std::strerror(errno) : "it cannot be opened";
  }
  if (!world.all(reason.empty())) {
    throw support::Failure(support::Exit::failed, "--json " + path_ + ": " + reason, support::Told::by_root);
  }
}

void JsonFile::add(nlohmann::ordered_json const& object) {
  if (!file_.is_open()) return;
  file_ << object.dump() << std::endl;
  if (!file_) throw support::Failure(support::Exit::failed, "--json " + path_ + ": " + std::strerror(errno));
}

}  // namespace perf
