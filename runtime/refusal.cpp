// SPDX-License-Identifier: Apache-2.0
#include "runtime/refusal.hpp"

#include <string_view>

namespace davit::detail {

Refusal::Refusal(CommunicatorState& comm, std::uint32_t call, std::string text) : comm_(comm), text_(std::move(text)) {
  constexpr std::string_view prefix = "davit: ";  // the peers' own message begins with it
  if (text_.starts_with(prefix)) text_.erase(0, prefix.size());
  number = call;
}

bool Refusal::advance() {
  moved_ = false;
  if (comm_.has_enqueued()) return false;  // the peers will write this rank's credits
  auto& mesh = *comm_.mesh;
  for (int peer = 0; peer < comm_.size; ++peer) {
    // All rings before the reason is written: it is shared by them.
    if (peer != comm_.rank && !mesh.can_post(peer, number)) return false;
  }
  moved_ = true;
  ++comm_.stats.calls;
  mesh.set_reason(number, text_);
  for (int peer = 0; peer < comm_.size; ++peer) {
    if (peer == comm_.rank) continue;
    Card card{};
    card.flags = kCardRefused;
    mesh.post(peer, number, card);
    mesh.lose_step(peer);
    mesh.done_with_card(peer, number);  // the peer's own card of this call will not be looked at
    comm_.stats.bytes_cards += sizeof(Card);
  }
  return true;
}

void Refusal::awaited(std::vector<int>& peers) const {
  comm_.awaited_by_enqueued(peers);
  for (int peer = 0; peer < comm_.size; ++peer) {
    if (peer != comm_.rank && !comm_.mesh->can_post(peer, number)) peers.push_back(peer);
  }
}

}  // namespace davit::detail
