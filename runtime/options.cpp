// SPDX-License-Identifier: Apache-2.0
#include "davit/options.hpp"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "davit/error.hpp"

namespace davit {
namespace {

[[noreturn]] void refuse(char const* name, std::string_view value, std::string const& bound) {
  throw UsageError("davit: environment variable " + std::string(name) + " is '" + std::string(value) + "', must be " +
                   bound);
}

std::string_view text_of(char const* name, std::string_view fallback) {
  char const* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? fallback : value;
}

template <class T>
struct Choice {
  std::string_view name;
  T value;
};

template <class T>
T one_of(char const* name, std::initializer_list<Choice<T>> choices, T fallback) {
  auto const text = text_of(name, {});
  if (text.empty()) return fallback;
  std::string bound;
  for (auto const& choice : choices) {
    if (choice.name == text) return choice.value;
    bound += (bound.empty() ? "" : ", ") + std::string(choice.name);
  }
  refuse(name, text, "one of " + bound);
}

std::uint64_t whole(char const* name, std::string_view text, std::uint64_t low, std::uint64_t high,
                    std::string const& bound) {
  std::uint64_t number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view const suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  int shift = 0;
  if (suffix == "K")
    shift = 10;
  else if (suffix == "M")
    shift = 20;
  else if (suffix == "G")
    shift = 30;
  else if (!suffix.empty())
    refuse(name, text, bound);
  if (error != std::errc{} || number > high >> shift || number << shift < low) refuse(name, text, bound);
  return number << shift;
}

std::chrono::milliseconds timeout() {
  constexpr char const* name = "DAVIT_TIMEOUT";
  constexpr char const* bound = "seconds above 0.001 and below 1000000";
  auto const text = text_of(name, "60");
  double seconds = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || !(seconds >= 0.001) || !(seconds < 1e6)) {
    refuse(name, text, bound);
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::size_t slot_bytes() {
  constexpr char const* name = "DAVIT_SLOT_BYTES";
  constexpr char const* bound = "0 or a power of two from 4K to 1G";
  auto const text = text_of(name, "0");
  if (text == "0") return 0;
  auto const bytes = whole(name, text, 4096, std::uint64_t{1} << 30, bound);
  if ((bytes & (bytes - 1)) != 0) refuse(name, text, bound);
  return bytes;
}

std::vector<int> nodes() {
  constexpr char const* name = "DAVIT_NODES";
  auto const text = text_of(name, {});
  std::vector<int> numbers;
  for (std::size_t at = 0; at < text.size();) {
    auto const comma = std::min(text.find(',', at), text.size());
    numbers.push_back(static_cast<int>(
        whole(name, text.substr(at, comma - at), 0, 1'000'000, "node numbers with commas between, such as 0,0,1,1")));
    at = comma + 1;
  }
  return numbers;
}

Environment read() {
  return {
      .timeout = timeout(),
      .path = one_of<Path>("DAVIT_PATH", {{"auto", Path::automatic}, {"slots", Path::slots}, {"direct", Path::direct}},
                           Path::automatic),
      .direct_bytes = whole("DAVIT_DIRECT_BYTES", text_of("DAVIT_DIRECT_BYTES", "32K"), 1, std::uint64_t{1} << 60,
                            "bytes from 1 up"),
      .slot_bytes = slot_bytes(),
      .slots = static_cast<int>(whole("DAVIT_SLOTS", text_of("DAVIT_SLOTS", "0"), 0, 1024, "0 to 1024")),
      .shm_dir = std::string(text_of("DAVIT_SHM_DIR", "/dev/shm")),
      .segment = one_of<std::string>("DAVIT_SEGMENT",
                                     {{"auto", "auto"}, {"descriptor", "descriptor"}, {"name", "name"}}, "auto"),
      .host_order = one_of<HostOrder>(
          "DAVIT_HOST_ORDER",
          {{"eager", HostOrder::eager}, {"queues", HostOrder::queues}, {"submission", HostOrder::submission}},
          HostOrder::eager),
      .placement = one_of<Placement>("DAVIT_PLACEMENT",
                                     {{"near-reader", Placement::near_reader},
                                      {"near-writer", Placement::near_writer},
                                      {"interleave", Placement::interleave}},
                                     Placement::near_reader),
      .nodes = nodes(),
      .allow_shared_gpu = one_of<bool>("DAVIT_ALLOW_SHARED_GPU", {{"0", false}, {"1", true}}, false),
      .log = one_of<LogLevel>(
          "DAVIT_LOG",
          {{"error", LogLevel::error}, {"warn", LogLevel::warn}, {"info", LogLevel::info}, {"debug", LogLevel::debug}},
          LogLevel::warn),
  };
}

}  // namespace

Environment const& environment() {
  // A throwing initialiser is run again at the next call. Never destroyed: communicators may end at exit.
  static auto const& instance = *new Environment const(read());
  return instance;
}

}  // namespace davit
