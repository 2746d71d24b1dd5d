// SPDX-License-Identifier: Apache-2.0
#include "runtime/agree.hpp"

#include "davit/options.hpp"

namespace davit::detail {
namespace {

/// Maps all that can be mapped. @returns the first rank whose segment cannot be, -1 if none.
int attach_all(SharedSegments& shared, Segment const& mine, int rank) {
  int missing = -1;
  shared.mappings.assign(shared.tickets.size(), nullptr);
  for (std::size_t peer = 0; peer < shared.tickets.size(); ++peer) {
    shared.mappings[peer] = static_cast<int>(peer) == rank ? mine.mapping() : Segment::attach(shared.tickets[peer]);
    if (shared.mappings[peer] == nullptr && missing < 0) missing = static_cast<int>(peer);
  }
  return missing;
}

/// @returns "rank 1 cannot map rank 0's", or nothing if every rank has all.
std::string first_failure(Bootstrap& bootstrap, int missing, Deadline deadline) {
  auto const all = gather(bootstrap, missing, deadline);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] >= 0) return "rank " + std::to_string(rank) + " cannot map rank " + std::to_string(all[rank]) + "'s";
  }
  return {};
}

}  // namespace

SharedSegments share(Bootstrap& bootstrap, std::string const& what, Segment& mine, Deadline deadline) {
  auto const& mode = environment().segment;
  SharedSegments shared;
  std::string failure = "names are asked for";
  if (mode != "name") {
    shared.tickets = gather(bootstrap, mine.ticket(), deadline);
    failure = first_failure(bootstrap, attach_all(shared, mine, bootstrap.rank()), deadline);
  }
  if (!failure.empty() && mode != "descriptor") {
    Segment::sweep(environment().shm_dir);
    shared.tickets = gather_results(bootstrap, what, deadline, [&mine] {
      mine.publish_name();
      return mine.ticket();
    });
    failure = first_failure(bootstrap, attach_all(shared, mine, bootstrap.rank()), deadline);
    mine.withdraw_name();
  }
  if (failure.empty()) return shared;
  throw SystemError("davit: " + what + ": " + failure + " shared memory; are they on one host, with one " +
                    environment().shm_dir + "?");
}

}  // namespace davit::detail
