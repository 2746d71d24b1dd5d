// SPDX-License-Identifier: Apache-2.0
/// @file
/// Agreement at creation, over the bootstrap: every rank tells what it has or why it cannot, and all raise or none
/// does.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "davit/bootstrap.hpp"
#include "davit/error.hpp"
#include "transports/segment.hpp"
#include "transports/wire.hpp"

namespace davit::detail {

/// Every rank's `value`, rank rising. Collective.
template <class T>
std::vector<T> gather(Bootstrap& bootstrap, T const& value, Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(bootstrap.size()));
  bootstrap.allgather(std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(all)), deadline);
  return all;
}

/// Every rank's result of `work()`, rank rising. Collective: where it throws on one rank, that rank rethrows and the
/// others raise PeerError that names it and its reason.
template <class Work>
auto gather_results(Bootstrap& bootstrap, std::string const& what, Deadline deadline, Work const& work) {
  using Result = decltype(work());
  struct Message {
    Result result;
    char refusal[256];
  };
  Message mine{};
  std::exception_ptr refused;
  try {
    mine.result = work();
  } catch (std::exception const& error) {
    refused = std::current_exception();
    std::string_view text = error.what();
    if (text.starts_with("davit: ")) text.remove_prefix(7);
    std::snprintf(mine.refusal, sizeof mine.refusal, "%.*s", static_cast<int>(text.size()), text.data());
  }
  auto const messages = gather(bootstrap, mine, deadline);
  if (refused) std::rethrow_exception(refused);
  std::vector<Result> results;
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    auto const& message = messages[static_cast<std::size_t>(rank)];
    if (message.refusal[0] != '\0') {
      throw PeerError("davit: " + what + ": rank " + std::to_string(rank) + " refused: " + message.refusal, rank);
    }
    results.push_back(message.result);
  }
  return results;
}

/// @throws MismatchError on all ranks alike, naming `field` and the two values, if a rank's differs from rank 0's.
/// @param value of a rank. @param text of a value.
template <class Value, class Text>
void check_equal(std::string const& what, char const* field, int ranks, Value const& value, Text const& text) {
  for (int rank = 1; rank < ranks; ++rank) {
    if (value(rank) == value(0)) continue;
    throw MismatchError("davit: " + what + ": " + field + " is " + text(value(0)) + " on rank 0 and " +
                        text(value(rank)) + " on rank " + std::to_string(rank));
  }
}

/// Every rank's `values`, as many on each, rank rising. Collective.
template <class T>
std::vector<T> gather_all(Bootstrap& bootstrap, std::vector<T> const& values, Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(values.size() * static_cast<std::size_t>(bootstrap.size()));
  bootstrap.allgather(std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(all)), deadline);
  return all;
}

/// Segments of one kind as one rank maps them: of each rank of its node its own, of a rank elsewhere the mirror that is
/// kept here; null where there is none.
struct SharedSegments {
  std::vector<SegmentTicket> tickets;
  std::vector<Mapping> mappings;
};

/// Collective: tells the others of `mine` and maps theirs; by descriptor, else by a name that is gone on return.
/// @param mirrors of the ranks that this one takes in, or empty on all ranks.
/// @throws SystemError on all ranks, naming the ranks, where one cannot map another's.
[[nodiscard]] SharedSegments share(Bootstrap& bootstrap, std::string const& what, NodeMap const& nodes, Segment& mine,
                                   std::span<Mirror> mirrors, Deadline deadline);

}  // namespace davit::detail
