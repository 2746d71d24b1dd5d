// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "davit/error.hpp"
#include "tests/support/access.hpp"
#include "tests/support/limits.hpp"
#include "tests/support/memory.hpp"
#include "tests/support/nodes.hpp"

namespace davit::test {
namespace {

struct TheStage {
  Stage play;
  int ranks = 8;
};

TheStage& stage() {
  static TheStage instance;
  return instance;
}

}  // namespace

void set_stage(Stage play, int ranks) { stage() = {std::move(play), ranks}; }
int most_ranks() { return stage().ranks; }

void meet(Communicator& comm) {
  davit::detail::Access::state(comm).bootstrap->barrier(std::chrono::steady_clock::now() +
                                                        stretched(std::chrono::seconds(30)));
}

Options Making::patient() {
  Options options;
  options.timeout = stretched(std::chrono::seconds(20));
  options.name = "test";
  return options;
}

Communicator made(std::shared_ptr<Bootstrap> bootstrap, Options options, Mesh::Start start) {
  if (options.path == Path::direct && std::ranges::any_of(bootstrap->nodes(), [](int node) { return node != 0; })) {
    options.path = Path::automatic;  // as much of it as there can be
    options.direct_bytes = 1;
  }
  return davit::detail::Access::make(std::move(bootstrap), std::move(options), start, test_backend(),
                                     stage().play ? davit::detail::link_over_mpi : link_of_threads);
}

std::vector<std::exception_ptr> play_ranks(int ranks, Play const& play, std::chrono::milliseconds limit) {
  if (stage().play) {
    Watchdog const watchdog(limit);
    return stage().play(ranks, play);
  }
  auto bootstraps = threads(ranks);
  auto const count = static_cast<std::size_t>(ranks);
  std::vector<std::exception_ptr> thrown(count);
  std::vector<std::atomic<bool>> over(count);
  Watchdog const watchdog(limit, [&over] {
    std::string text = "ranks still at it:";
    for (std::size_t rank = 0; rank < over.size(); ++rank) {
      if (!over[rank].load()) text += " " + std::to_string(rank);
    }
    return text;
  });
  std::vector<std::thread> running;
  for (std::size_t rank = 0; rank < count; ++rank) {
    running.emplace_back([&, rank, bootstrap = std::move(bootstraps[rank])]() mutable {
      enter_rank(static_cast<int>(rank));
      try {
        play(static_cast<int>(rank), on_nodes(std::move(bootstrap)));
      } catch (...) {
        thrown[rank] = std::current_exception();
      }
      over[rank] = true;
    });
  }
  for (auto& thread : running) thread.join();
  return thrown;
}

void run_ranks(int ranks, Making const& setup, std::function<void(int, Communicator&)> const& play) {
  auto const thrown = play_ranks(
      ranks,
      [&](int rank, std::shared_ptr<Bootstrap> bootstrap) {
        auto comm = made(std::move(bootstrap), setup.options, setup.start);
        play(rank, comm);
      },
      setup.limit);
  for (std::size_t rank = 0; rank < thrown.size(); ++rank) {
    if (thrown[rank]) ADD_FAILURE() << "rank " << rank << " threw " << text_of(thrown[rank]);
  }
}

std::string text_of(std::exception_ptr const& thrown) {
  if (!thrown) return {};
  try {
    std::rethrow_exception(thrown);
  } catch (MismatchError const& error) {
    return std::string("MismatchError: ") + error.what();
  } catch (UsageError const& error) {
    return std::string("UsageError: ") + error.what();
  } catch (PeerError const& error) {
    return std::string("PeerError: ") + error.what();
  } catch (TimeoutError const& error) {
    return std::string("TimeoutError: ") + error.what();
  } catch (SystemError const& error) {
    return std::string("SystemError: ") + error.what();
  } catch (std::exception const& error) {
    return error.what();
  } catch (...) {
    return "something unknown";
  }
}

void expect_parts(std::string const& text, std::vector<std::string> const& parts) {
  for (auto const& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in '" << text << "'";
  }
}

void report_unexpected(std::string const& what) { ADD_FAILURE() << "another error was expected, got: " << what; }

}  // namespace davit::test
