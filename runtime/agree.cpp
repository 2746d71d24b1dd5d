// SPDX-License-Identifier: Apache-2.0
#include "runtime/agree.hpp"

#include <algorithm>

#include "davit/options.hpp"

namespace davit::detail {
namespace {

/// This rank's tickets: of its segment, then of its mirrors, as many as any rank has.
std::vector<SegmentTicket> tickets_of(NodeMap const& nodes, Segment const& mine, std::span<Mirror const> mirrors) {
  std::size_t most = 0;
  for (int rank = 0; rank < nodes.size(); ++rank) most = std::max(most, nodes.taken_in_by(rank).size());
  std::vector<SegmentTicket> tickets{mine.ticket()};
  for (auto const& mirror : mirrors) tickets.push_back(mirror.segment.ticket());
  tickets.resize(1 + most);
  return tickets;
}

/// Of each rank the ticket of what is mapped of it here.
std::vector<SegmentTicket> seen_from_here(NodeMap const& nodes, std::vector<SegmentTicket> const& all) {
  auto const each = all.size() / static_cast<std::size_t>(nodes.size());
  std::vector<SegmentTicket> seen;
  for (int rank = 0; rank < nodes.size(); ++rank) {
    if (nodes.is_here(rank)) {
      seen.push_back(all[static_cast<std::size_t>(rank) * each]);
      continue;
    }
    int const partner = nodes.partner(rank, nodes.here());
    auto const owners = nodes.taken_in_by(partner);
    auto const at = static_cast<std::size_t>(std::ranges::find(owners, rank) - owners.begin());
    seen.push_back(all[static_cast<std::size_t>(partner) * each + 1 + at]);
  }
  return seen;
}

/// Maps all that can be mapped. @returns the first rank whose segment cannot be, -1 if none.
int attach_all(SharedSegments& shared, NodeMap const& nodes, Segment const& mine, std::span<Mirror const> mirrors) {
  int missing = -1;
  shared.mappings.assign(shared.tickets.size(), nullptr);
  for (int peer = 0; peer < nodes.size(); ++peer) {
    auto const& ticket = shared.tickets[static_cast<std::size_t>(peer)];
    if (ticket.bytes == 0) continue;  // elsewhere, without a mirror
    auto& mapping = shared.mappings[static_cast<std::size_t>(peer)];
    auto const own = std::ranges::find(mirrors, peer, &Mirror::owner);
    mapping = peer == nodes.rank()   ? mine.mapping()
              : own != mirrors.end() ? own->segment.mapping()
                                     : Segment::attach(ticket);
    if (mapping == nullptr && missing < 0) missing = peer;
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

SharedSegments share(Bootstrap& bootstrap, std::string const& what, NodeMap const& nodes, Segment& mine,
                     std::span<Mirror> mirrors, Deadline deadline) {
  auto const& mode = environment().segment;
  SharedSegments shared;
  auto const attach = [&] {
    shared.tickets = seen_from_here(nodes, gather_all(bootstrap, tickets_of(nodes, mine, mirrors), deadline));
    return first_failure(bootstrap, attach_all(shared, nodes, mine, mirrors), deadline);
  };
  std::string failure = "names are asked for";
  if (mode != "name") failure = attach();
  if (!failure.empty() && mode != "descriptor") {
    Segment::sweep(environment().shm_dir);
    gather_results(bootstrap, what, deadline, [&] {
      mine.publish_name();
      for (auto& mirror : mirrors) mirror.segment.publish_name();
      return 0;
    });
    failure = attach();
    mine.withdraw_name();
    for (auto& mirror : mirrors) mirror.segment.withdraw_name();
  }
  if (failure.empty()) return shared;
  throw SystemError("davit: " + what + ": " + failure + " shared memory; are they on one host, with one " +
                    environment().shm_dir + "?");
}

}  // namespace davit::detail
