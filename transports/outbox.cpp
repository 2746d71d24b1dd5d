// SPDX-License-Identifier: Apache-2.0
#include "transports/outbox.hpp"

#include <cstring>
#include <new>

namespace davit {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;

std::size_t lines_offset(int peer) noexcept { return kPage + static_cast<std::size_t>(peer) * 2 * kLine; }

std::size_t rings_offset(Geometry const& g) noexcept { return lines_offset(static_cast<int>(g.ranks)); }

std::size_t reasons_offset(Geometry const& g) noexcept {
  return rings_offset(g) + g.ranks * std::size_t{kCardRing} * sizeof(Card);
}

}  // namespace

std::size_t Geometry::control_bytes() const noexcept {
  auto const end = reasons_offset(*this) + std::size_t{kCardRing} * kReasonBytes;
  return (end + kPage - 1) / kPage * kPage;
}

Trouble failure_of(int peer, OutboxHeader const& header) {
  std::string const text(header.reason, strnlen(header.reason, kReasonBytes));
  return {header.culprit < 0 ? peer : header.culprit, "rank " + std::to_string(peer) + " has failed: " + text};
}

void Outbox::initialise(std::uint64_t nonce, std::uint32_t first_number, std::uint32_t first_chunk) noexcept {
  auto* const header = new (at(0)) OutboxHeader{};
  header->magic = kMagic;
  header->geometry = geometry_;
  header->culprit = -1;
  header->settled = first_number - 1;
  for (int peer = 0; peer < static_cast<int>(geometry_.ranks); ++peer) {
    store_release(data(peer), first_chunk);
    store_release(credit(peer).chunks, first_chunk);
    store_release(credit(peer).cards, first_number - 1);
    store_release(credit(peer).reading, first_number - 1);
    store_release(credit(peer).read, first_number - 1);
    for (std::uint32_t number = first_number - kCardRing; number != first_number; ++number) {
      card(peer, number).number = number;
    }
  }
  header->nonce = nonce;
  set_state(OutboxState::created);
}

OutboxHeader& Outbox::header() const noexcept { return *reinterpret_cast<OutboxHeader*>(at(0)); }

Counter& Outbox::data(int peer) const noexcept { return *reinterpret_cast<Counter*>(at(lines_offset(peer))); }

CreditLine& Outbox::credit(int peer) const noexcept {
  return *reinterpret_cast<CreditLine*>(at(lines_offset(peer) + kLine));
}

Card& Outbox::card(int peer, std::uint32_t number) const noexcept {
  auto const index = static_cast<std::size_t>(peer) * kCardRing + number % kCardRing;
  return *reinterpret_cast<Card*>(at(rings_offset(geometry_) + index * sizeof(Card)));
}

char* Outbox::reason(std::uint32_t number) const noexcept {
  auto const offset = reasons_offset(geometry_) + std::size_t{number % kCardRing} * kReasonBytes;
  return reinterpret_cast<char*>(at(offset));
}

std::byte* Outbox::slot(std::uint32_t index) const noexcept {
  return at(geometry_.control_bytes() + index * geometry_.slot_stride());
}

}  // namespace davit
