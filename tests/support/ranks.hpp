// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks as threads of the test's process, so that sanitizers see them all.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "davit/communicator.hpp"
#include "transports/mesh.hpp"

namespace davit::test {

/// What the communicators of a test are made of.
struct Making {
  Options options = patient();
  Mesh::Start start{};
  std::chrono::milliseconds limit = std::chrono::seconds(30);  ///< until the test is aborted

  /// Options whose deadline raises an error before the watchdog aborts.
  [[nodiscard]] static Options patient();
};

/// A communicator whose GPUs, if any, are those of the tests.
[[nodiscard]] Communicator made(std::shared_ptr<Bootstrap> bootstrap, Options options, Mesh::Start start = {});

using Play = std::function<void(int, std::shared_ptr<Bootstrap>)>;
/// Plays ranks in another way than as threads; see play_ranks.
using Stage = std::function<std::vector<std::exception_ptr>(int ranks, Play const& play)>;
/// From now on; at most `ranks` at once.
void set_stage(Stage stage, int ranks);
/// Most ranks that can be played.
[[nodiscard]] int most_ranks();

/// Runs `play(rank, bootstrap)` on a thread a rank. @returns what each threw, null where it returned.
[[nodiscard]] std::vector<std::exception_ptr> play_ranks(int ranks, Play const& play,
                                                         std::chrono::milliseconds limit = std::chrono::seconds(30));

/// Runs `play(rank, communicator)` on a thread a rank; what a rank throws fails the test.
void run_ranks(int ranks, Making const& setup, std::function<void(int, Communicator&)> const& play);
inline void run_ranks(int ranks, std::function<void(int, Communicator&)> const& play) { run_ranks(ranks, {}, play); }

/// "UsageError: davit: ..." of what was thrown; empty for null.
[[nodiscard]] std::string text_of(std::exception_ptr const& thrown);

/// Waits for the other ranks of a communicator, usable or not.
void meet(Communicator& comm);

/// Text of the `Raised` that `call` must throw; anything else fails the test. A child of `Raised` is something else.
template <class Raised, class Call>
std::string raised(Call&& call);

/// Fails the test unless `text` holds each of the parts.
void expect_parts(std::string const& text, std::vector<std::string> const& parts);

/// Fails the test.
void report_unexpected(std::string const& what);

template <class Raised, class Call>
std::string raised(Call&& call) {
  try {
    call();
  } catch (Raised const& error) {
    if (typeid(error) == typeid(Raised)) return error.what();
    report_unexpected(text_of(std::current_exception()));
    return {};
  } catch (...) {
    report_unexpected(text_of(std::current_exception()));
    return {};
  }
  report_unexpected("nothing");
  return {};
}

}  // namespace davit::test
