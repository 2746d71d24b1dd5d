// SPDX-License-Identifier: Apache-2.0
#include "tests/support/files.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace davit::test {

namespace fs = std::filesystem;

SharedDirectory::SharedDirectory() : path_("/dev/shm/test-of-davit-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) std::abort();
}

SharedDirectory::~SharedDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> SharedDirectory::names() const {
  std::vector<std::string> names;
  for (auto const& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename().string());
  return names;
}

std::size_t more_than_free() { return (fs::space("/dev/shm").available / 4096 + (1 << 18)) * 4096; }

std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    auto const flags = line.find(' ');
    count += flags != std::string::npos && line.substr(flags + 1, 4) == "rw-s" ? 1U : 0U;
  }
  return count;
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::vector<std::string> segment_names(int pid) {
  std::vector<std::string> names;
  for (auto const& entry : fs::directory_iterator("/dev/shm")) {
    auto const name = entry.path().filename().string();
    auto const number = name.find('-', sizeof "davit-" - 1);
    if (!name.starts_with("davit-") || number == std::string::npos) continue;
    if (std::atoi(name.c_str() + number + 1) == pid) names.push_back(name);
  }
  return names;
}

}  // namespace davit::test
