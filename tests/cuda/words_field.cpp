// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/words_field.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "tests/cuda/patterns.hpp"

namespace davit::test {
namespace {

constexpr std::size_t kListBytes = std::size_t{4} << 20U;
constexpr std::byte kUntouched{0xA5};

std::size_t index_of(int rank) { return static_cast<std::size_t>(rank); }

std::string name_of(cuda::WordsForm form) {
  constexpr char const* names[] = {"line62", "line60", "unit12", "unit4"};
  return names[static_cast<std::size_t>(form)];
}

void copy(cudaStream_t stream, void* to, void const* from, std::size_t bytes) {
  DAVIT_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

/// Where row `row`, or block, of a message begins.
std::size_t begin_of(std::uint32_t row_bytes, std::vector<std::uint32_t> const& rows, std::uint32_t row) {
  return row_bytes == 0 ? 0 : std::size_t{rows[row]} * row_bytes;
}

}  // namespace

std::string text_of(FieldSetup const& setup) {
  auto const& plan = setup.plan;
  return std::to_string(setup.ranks) + " ranks, " + name_of(setup.form) + ", banks of " +
         std::to_string(setup.batches) + " batches from number " + std::to_string(setup.start) + ", " +
         std::to_string(plan.writers) +
         (plan.readers == 0 ? " self-clocked blocks" : " writers and " + std::to_string(plan.readers) + " readers") +
         " of " + std::to_string(setup.warps) + " warps, rate " + std::to_string(plan.rate) +
         (plan.peeks ? ", peeking" : "");
}

Field::Field(FieldSetup setup)
    : setup_(setup),
      device_(cuda::words_device(0)),
      channel_bytes_(cuda::words_region_bytes(setup.form, setup.batches) + 64),
      channels_(channel_bytes_ * index_of(setup.ranks * setup.ranks)),
      words_(128 * index_of(setup.ranks)),
      lists_(kListBytes),
      directions_(index_of(setup.ranks * setup.ranks), Direction{setup.start, setup.start}) {
  std::memset(words_.get(), 0, 128 * index_of(setup.ranks));
  for (int rank = 0; rank < setup.ranks; ++rank) {
    for (int peer = 0; peer < setup.ranks; ++peer) cuda::prepare_words(channel(rank, peer, setup.start));
    auto const bytes = area(setup.ranks);
    auto const arrival_bytes = index_of(setup.ranks) * 64;
    auto& side = sides_.emplace_back(Side{cuda::Stream(), cuda::DeviceMemory(bytes), cuda::DeviceMemory(bytes),
                                          cuda::DeviceMemory(arrival_bytes), std::vector<std::byte>(bytes),
                                          std::vector<std::byte>(bytes)});
    DAVIT_CUDA_CHECK(cudaMemsetAsync(side.arrivals.get(), 0, arrival_bytes, side.stream.get()));
    cuda::load_words_kernels(side.stream.get());
    // Loaded before any kernel waits: loading may wait for those that run.
    auto* const verdict = reinterpret_cast<Verdict*>(side.receive.get());
    fill(side.stream.get(), side.send.get(), 16, 1);
    check(side.stream.get(), side.send.get(), 16, 1, verdict);
    side.stream.wait();
  }
}

std::uint32_t* Field::word(int rank, int which) const {
  return reinterpret_cast<std::uint32_t*>(words_.get() + index_of(2 * rank + which) * 64);
}

Field::Direction& Field::direction(int from, int to) { return directions_[index_of(from * setup_.ranks + to)]; }

cuda::WordsChannel Field::channel(int from, int to, std::uint32_t generation) const {
  auto* const region = channels_.get() + channel_bytes_ * index_of(from * setup_.ranks + to);
  return {region, reinterpret_cast<std::uint32_t*>(region + channel_bytes_ - 64), setup_.batches, generation,
          setup_.form};
}

std::byte* Field::send_area(int rank, int peer) const { return sides_[index_of(rank)].send.get() + area(peer); }
std::byte* Field::receive_area(int rank, int peer) const { return sides_[index_of(rank)].receive.get() + area(peer); }

std::uint32_t const* Field::list(std::vector<std::uint32_t> const& values) {
  if (values.empty()) return nullptr;
  auto* const begin = lists_.get() + lists_used_;
  lists_used_ += (values.size() * sizeof(std::uint32_t) + 63) / 64 * 64;
  if (lists_used_ > kListBytes) throw std::length_error("the field has no more room for lists");
  std::memcpy(begin, values.data(), values.size() * sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t const*>(begin);
}

void Field::submit(int rank, std::vector<Message> const& messages) {
  auto& side = sides_[index_of(rank)];
  std::vector<cuda::WordsPair> pairs;
  for (int step = setup_.ranks == 1 ? 0 : 1; step < setup_.ranks; ++step) {
    int const peer = (rank + step) % setup_.ranks;
    cuda::WordsPair pair{};
    auto& out = direction(rank, peer);
    auto& in = direction(peer, rank);
    pair.out = channel(rank, peer, out.next_to_send);
    pair.in = channel(peer, rank, in.next_to_receive);
    for (auto const& message : messages) {
      if (message.from == rank && message.to == peer) {
        pair.from = {send_area(rank, peer) + kMargin + message.from_offset, list(message.from_rows), message.bytes,
                     message.from_row_bytes};
        out.next_to_send += cuda::words_generations(setup_.form, setup_.batches, message.bytes);
      }
      if (message.from == peer && message.to == rank) {
        pair.to = {receive_area(rank, peer) + kMargin + message.to_offset, list(message.to_rows),
                   list(message.to_first), message.bytes, message.to_row_bytes};
        in.next_to_receive += cuda::words_generations(setup_.form, setup_.batches, message.bytes);
      }
    }
    pair.arrivals = reinterpret_cast<std::uint32_t*>(side.arrivals.get() + index_of(peer) * 64);
    pair.peer = static_cast<std::uint32_t>(peer);
    pair.plan = setup_.plan;
    pairs.push_back(pair);
  }
  cuda::launch(side.stream.get(), device_, {pairs, setup_.warps, word(rank, 0), word(rank, 1)});
}

bool Field::finish(std::chrono::milliseconds limit) {
  auto const deadline = std::chrono::steady_clock::now() + limit;
  auto const all_done = [&] {
    return std::all_of(sides_.begin(), sides_.end(), [](Side const& side) { return side.stream.is_done(); });
  };
  while (!all_done()) {
    if (std::chrono::steady_clock::now() < deadline) continue;
    for (int rank = 0; rank < setup_.ranks; ++rank) say_failed(rank);
    for (auto const& side : sides_) side.stream.wait();
    return false;
  }
  return true;
}

/// What the message makes of the receiver's memory.
void Field::expect(Message const& message) {
  auto const& sent = sides_[index_of(message.from)].sent;
  auto& expected = sides_[index_of(message.to)].expected;
  auto const source = area(message.to) + kMargin + message.from_offset;
  auto const target = area(message.from) + kMargin + message.to_offset;
  for (std::uint32_t i = 0; i < message.bytes; ++i) {
    auto const from_row = message.from_row_bytes == 0 ? 0 : i / message.from_row_bytes;
    auto const from_column = i - from_row * message.from_row_bytes;
    auto const to_row = message.to_row_bytes == 0 ? 0 : i / message.to_row_bytes;
    auto const to_column = i - to_row * message.to_row_bytes;
    auto const byte = sent.at(source + begin_of(message.from_row_bytes, message.from_rows, from_row) + from_column);
    auto const begin = message.to_first.empty() ? to_row : message.to_first[to_row];
    auto const end = message.to_first.empty() ? to_row + 1 : message.to_first[to_row + 1];
    for (auto place = begin; place < end; ++place) {
      expected.at(target + begin_of(message.to_row_bytes, message.to_rows, place) + to_column) = byte;
    }
  }
}

void Field::compare(int rank) {
  auto& side = sides_[index_of(rank)];
  std::vector<std::byte> got(side.expected.size());
  copy(side.stream.get(), got.data(), side.receive.get(), got.size());
  side.stream.wait();
  if (got == side.expected) return;
  std::size_t wrong = 0;
  std::size_t first = got.size();
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == side.expected[i]) continue;
    ++wrong;
    first = std::min(first, i);
  }
  ADD_FAILURE() << text_of(setup_) << ": round " << round_ << ", rank " << rank << " has " << wrong
                << " wrong bytes, the first from rank " << first / setup_.area << " at byte "
                << static_cast<std::ptrdiff_t>(first % setup_.area) - static_cast<std::ptrdiff_t>(kMargin)
                << " of the area: " << static_cast<int>(got[first]) << ", expected "
                << static_cast<int>(side.expected[first])
                << (side.expected[first] == kUntouched ? " (untouched, perhaps)" : "")
                << (got[first] == kUntouched ? " (nothing came, perhaps)" : "");
}

void Field::begin_round() {
  ++round_;
  lists_used_ = 0;
  for (int rank = 0; rank < setup_.ranks; ++rank) {
    auto& side = sides_[index_of(rank)];
    fill(side.sent.data(), side.sent.size(), seed_of(round_, rank));
    std::fill(side.expected.begin(), side.expected.end(), kUntouched);
    copy(side.stream.get(), side.send.get(), side.sent.data(), side.sent.size());
    copy(side.stream.get(), side.receive.get(), side.expected.data(), side.expected.size());
    side.stream.wait();
  }
}

void Field::end_round(std::vector<Message> const& messages) {
  if (!finish(std::chrono::seconds(20))) {
    std::string waits;
    for (int rank = 0; rank < setup_.ranks; ++rank) {
      auto const what = cuda::words_left(left(rank));
      waits += "; rank " + std::to_string(rank) + " waited for ";
      waits += what ? (what->for_credit ? "credit of rank " : "data of rank ") + std::to_string(what->peer) : "nothing";
    }
    std::string sizes;
    for (auto const& message : messages) {
      sizes +=
          " " + std::to_string(message.from) + "->" + std::to_string(message.to) + ":" + std::to_string(message.bytes);
    }
    FAIL() << text_of(setup_) << ": round " << round_ << " does not end" << waits << "; bytes" << sizes;
  }
  for (int rank = 0; rank < setup_.ranks; ++rank) {
    EXPECT_EQ(left(rank), 0U) << text_of(setup_) << ": rank " << rank << " gave up";
    compare(rank);
  }
}

void Field::exchange(std::vector<Message> const& messages, int late, std::chrono::milliseconds delay) {
  begin_round();
  for (auto const& message : messages) expect(message);
  for (int rank = 0; rank < setup_.ranks; ++rank) {
    if (rank != late) submit(rank, messages);
  }
  if (late >= 0) {
    std::this_thread::sleep_for(delay);
    submit(late, messages);
  }
  end_round(messages);
}

void Field::exchange_in_a_row(std::vector<std::vector<Message>> const& calls) {
  begin_round();
  for (auto const& messages : calls) {
    for (auto const& message : messages) expect(message);
    for (int rank = 0; rank < setup_.ranks; ++rank) submit(rank, messages);
  }
  end_round(calls.front());
}

}  // namespace davit::test
