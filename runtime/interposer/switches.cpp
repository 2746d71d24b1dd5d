// SPDX-License-Identifier: Apache-2.0
#include "runtime/interposer/switches.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "runtime/log.hpp"

namespace davit::drop_in {
namespace {

constexpr std::array<char const*, kinds> names{"alltoallv",  "alltoall",       "ialltoallv",        "ialltoall",
                                               "allgatherv", "reduce_scatter", "neighbor_alltoallv"};

std::string_view text_of(char const* name) {
  char const* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string wrong(char const* name, std::string_view value, std::string const& bound) {
  return "environment variable " + std::string(name) + " is '" + std::string(value) + "', must be " + bound;
}

bool flag(char const* name, std::string_view yes, std::string_view no, bool otherwise, std::string& error) {
  auto const text = text_of(name);
  if (text.empty()) return otherwise;
  if (text != yes && text != no) error = wrong(name, text, std::string(yes) + " or " + std::string(no));
  return text == yes;
}

std::array<bool, kinds> takes(std::string_view text, std::string& error) {
  std::array<bool, kinds> result{};
  for (std::size_t at = 0; at <= text.size();) {
    auto const comma = std::min(text.find(',', at), text.size());
    auto const word = text.substr(at, comma - at);
    bool known = false;
    std::string all;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      if (word == names[kind]) result[kind] = known = true;
      all += (kind == 0 ? "" : ", ") + std::string(names[kind]);
    }
    if (!known) error = wrong("DAVIT_MPI_CALLS", text, "some of " + all + ", with commas between");
    at = comma + 1;
  }
  return result;
}

Switches read() {
  Switches all;
  all.on = flag("DAVIT_MPI", "on", "off", true, all.error);
  if (auto const text = text_of("DAVIT_MPI_CALLS"); !text.empty()) all.takes = takes(text, all.error);
  all.verbose = flag("DAVIT_MPI_VERBOSE", "1", "0", false, all.error);
  all.claims_cuda = flag("DAVIT_MPI_CUDA", "1", "0", false, all.error);
  if (auto const text = text_of("DAVIT_MPI_SAMPLE"); !text.empty()) {
    auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), all.sample);
    if (code != std::errc{} || end != text.data() + text.size()) {
      all.error = wrong("DAVIT_MPI_SAMPLE", text, "a number of calls");
    }
  }
  if (!all.error.empty()) {
    detail::log(LogLevel::error, "davit: every call is left to MPI: " + all.error);
    all.on = false;
  }
  return all;
}

}  // namespace

char const* name_of(Kind kind) noexcept { return names[static_cast<std::size_t>(kind)]; }

Switches const& switches() noexcept {
  static Switches const instance = read();
  return instance;
}

}  // namespace davit::drop_in
