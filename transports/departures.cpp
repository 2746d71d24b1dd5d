// SPDX-License-Identifier: Apache-2.0
#include "transports/departures.hpp"

#include <chrono>
#include <list>
#include <mutex>
#include <utility>

#include "davit/error.hpp"
#include "transports/wait.hpp"

namespace davit {
namespace {

// Ranks that end together say goodbye in a moment; nobody waits for the others.
constexpr auto kGoodbyes = std::chrono::milliseconds(200);

struct Departure {
  std::unique_ptr<Link> link;
  std::vector<int> peers;
};

struct Departures {
  std::mutex mutex;
  std::list<Departure> leaving;
  std::list<Departure> left_behind;
};

Departures& departures() {
  static auto& instance = *new Departures;  // never destroyed: MPI is gone by then
  return instance;
}

}  // namespace

void part_with(std::unique_ptr<Link> link, std::vector<int> peers, bool is_sound) {
  auto const deadline = std::chrono::steady_clock::now() + kGoodbyes;
  Backoff backoff(Eagerness::rest);
  try {
    while (is_sound && link->allows_this_thread() && std::chrono::steady_clock::now() < deadline) {
      if (link->leave(peers)) return;
      backoff.idle();
    }
  } catch (Error const&) {
    is_sound = false;
  }
  auto& all = departures();
  std::lock_guard const held(all.mutex);
  (is_sound ? all.leaving : all.left_behind).push_back({std::move(link), std::move(peers)});
}

void sweep_links() {
  auto& all = departures();
  std::lock_guard const held(all.mutex);
  for (auto one = all.leaving.begin(); one != all.leaving.end();) {
    auto const next = std::next(one);
    try {
      if (one->link->allows_this_thread() && one->link->leave(one->peers)) all.leaving.erase(one);
    } catch (Error const&) {
      all.left_behind.splice(all.left_behind.end(), all.leaving, one);
    }
    one = next;
  }
}

}  // namespace davit
