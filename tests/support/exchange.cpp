// SPDX-License-Identifier: Apache-2.0
#include "tests/support/exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace davit::test {
namespace {

std::byte pattern(std::uint64_t salt, int from, int to, std::uint64_t at) {
  auto const start =
      (salt + static_cast<std::uint64_t>(from) * 1009 + static_cast<std::uint64_t>(to) * 9176) * 2654435761;
  return static_cast<std::byte>((start >> 16) + at * 7 + (at >> 8) * 13 + (at >> 16) * 31);
}

std::uint64_t random_bytes(Random& random, Sizes const& sizes) {
  auto const near = [&](std::uint64_t bytes) { return bytes + static_cast<std::uint64_t>(random.between(0, 16)) - 8; };
  switch (random.between(0, 9)) {
    case 0:
    case 1:
    case 2:
      return 0;
    case 3:
      return static_cast<std::uint64_t>(random.between(1, 64));
    case 4:
      return sizes.slot * static_cast<std::uint64_t>(random.between(1, 3));
    case 5:
      return std::min(near(sizes.slot * static_cast<std::uint64_t>(random.between(1, 3))), sizes.most);
    case 6:
      return std::min(near(sizes.direct), sizes.most);
    default:
      return static_cast<std::uint64_t>(random.between(0, static_cast<std::int64_t>(sizes.most)));
  }
}

}  // namespace

Matrix random_matrix(Random& random, int ranks, Sizes const& sizes) {
  Matrix matrix(static_cast<std::size_t>(ranks * ranks));
  auto const unit = random.one_of<std::uint64_t>({1, 2, 4, 8});
  bool const skewed = random.chance(0.2);  // one rank gets nearly all
  auto const busy = random.between(0, ranks - 1);
  for (std::size_t pair = 0; pair < matrix.size(); ++pair) {
    auto bytes = random_bytes(random, sizes);
    bool const to_busy = static_cast<std::int64_t>(pair) % ranks == busy;
    if (skewed) bytes = to_busy ? 4 * bytes : bytes % 8;
    matrix[pair] = (bytes + unit - 1) / unit * unit;
  }
  return matrix;
}

Matrix made_symmetric(Matrix matrix, int ranks) {
  for (int i = 0; i < ranks; ++i) {
    for (int j = 0; j < i; ++j) {
      matrix[static_cast<std::size_t>(i * ranks + j)] = matrix[static_cast<std::size_t>(j * ranks + i)];
    }
  }
  return matrix;
}

Exchange::Exchange(Random& random, int ranks, Matrix matrix)
    : ranks_(ranks), matrix_(std::move(matrix)), salt_(random.word()) {
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::uint64_t> sends;
    std::vector<std::uint64_t> receives;
    for (int peer = 0; peer < ranks; ++peer) {
      sends.push_back(bytes(rank, peer));
      receives.push_back(bytes(peer, rank));
    }
    send_.push_back(make_side(random, sends));
    recv_.push_back(make_side(random, receives));
  }
}

Side Exchange::make_side(Random& random, std::vector<std::uint64_t> const& blocks) const {
  std::uint64_t divisor = 0;
  for (auto const block : blocks) divisor = std::gcd(divisor, block);
  Side side;
  do {
    side.dtype = static_cast<Dtype>(random.between(0, static_cast<int>(e5m2)));
  } while (divisor % size_of(side.dtype) != 0);
  auto const size = size_of(side.dtype);
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (random.chance(0.5)) std::shuffle(order.begin(), order.end(), random.engine());
  bool const gaps = random.chance(0.5);
  side.counts.resize(blocks.size());
  side.displs.resize(blocks.size());
  std::int64_t end = 0;
  for (auto const peer : order) {
    side.counts[peer] = static_cast<std::int64_t>(blocks[peer] / size);
    if (blocks[peer] == 0) {
      side.displs[peer] = random.one_of<std::int64_t>({0, -5, 0x7ffffff0, INT64_MIN, INT64_MAX});
      continue;
    }
    if (gaps) end += random.between(0, 5);
    side.displs[peer] = end;
    end += side.counts[peer];
  }
  side.bytes = static_cast<std::size_t>(end + (gaps ? 3 : 0)) * size;
  return side;
}

void Exchange::put(std::vector<std::byte>& buffer, Side const& side, int at, int from, int to) const {
  auto const count = bytes(from, to);
  if (count == 0) return;
  auto* const block =
      buffer.data() + static_cast<std::size_t>(side.displs[static_cast<std::size_t>(at)]) * size_of(side.dtype);
  for (std::uint64_t i = 0; i < count; ++i) block[i] = pattern(salt_, from, to, i);
}

std::vector<std::byte> Exchange::sent(int rank) const {
  std::vector<std::byte> buffer(send(rank).bytes, std::byte{0x5A});
  for (int peer = 0; peer < ranks_; ++peer) put(buffer, send(rank), peer, rank, peer);
  return buffer;
}

std::vector<std::byte> Exchange::received(int rank) const {
  std::vector<std::byte> buffer(recv(rank).bytes, kUntouched);
  for (int peer = 0; peer < ranks_; ++peer) put(buffer, recv(rank), peer, peer, rank);
  return buffer;
}

std::vector<std::byte> Exchange::sent_in_place(int rank) const {
  std::vector<std::byte> buffer(recv(rank).bytes, kUntouched);
  for (int peer = 0; peer < ranks_; ++peer) put(buffer, recv(rank), peer, rank, peer);
  return buffer;
}

Buffers::Buffers(Exchange const& exchange, int rank, bool in_place)
    : exchange_(exchange),
      rank_(rank),
      in_place_(in_place),
      send_(exchange.sent(rank)),
      recv_(exchange.recv(rank).bytes) {
  reset();
}

void Buffers::reset() {
  recv_.write(in_place_ ? exchange_.sent_in_place(rank_) : std::vector<std::byte>(recv_.size(), kUntouched));
}

void const* Buffers::send_pointer() const { return in_place_ ? davit::in_place : send_.data(); }

void Buffers::run(Communicator& comm) {
  auto const& send = exchange_.send(rank_);
  auto const& recv = exchange_.recv(rank_);
  if (in_place_) {
    comm.alltoallv(davit::in_place, {}, {}, Dtype{}, recv_.data(), recv.counts, recv.displs, recv.dtype);
  } else {
    comm.alltoallv(send_.data(), send.counts, send.displs, send.dtype, recv_.data(), recv.counts, recv.displs,
                   recv.dtype);
  }
}

void Buffers::enqueue(Communicator& comm, Stream stream) {
  auto const send = exchange_.send(rank_);
  auto const recv = exchange_.recv(rank_);
  comm.alltoallv(send_pointer(), send.counts, send.displs, send.dtype, recv_.data(), recv.counts, recv.displs,
                 recv.dtype, stream);
}

Request Buffers::post(Communicator& comm) {
  auto send = exchange_.send(rank_);  // copies, since the caller's spans need not outlive the call
  auto recv = exchange_.recv(rank_);
  auto request = comm.ialltoallv(send_pointer(), send.counts, send.displs, send.dtype, recv_.data(), recv.counts,
                                 recv.displs, recv.dtype);
  for (auto* const numbers : {&send.counts, &send.displs, &recv.counts, &recv.displs}) {
    std::fill(numbers->begin(), numbers->end(), -7);
  }
  return request;
}

Plan Buffers::plan(Communicator& comm) {
  auto const send = exchange_.send(rank_);
  auto const recv = exchange_.recv(rank_);
  return comm.alltoallv_init(send_pointer(), send.counts, send.displs, send.dtype, recv_.data(), recv.counts,
                             recv.displs, recv.dtype);
}

void Buffers::check(std::string const& what) const {
  auto const expected = exchange_.received(rank_);
  auto const actual = recv_.read();
  auto const [wrong, _] = std::mismatch(expected.begin(), expected.end(), actual.begin());
  EXPECT_TRUE(wrong == expected.end()) << what << ": rank " << rank_ << ": byte " << wrong - expected.begin() << " of "
                                       << expected.size() << " of recv is wrong";
  EXPECT_TRUE(recv_.intact()) << what << ": rank " << rank_ << ": written outside of recv";
  EXPECT_TRUE(send_.read(0, send_.size()) == exchange_.sent(rank_))
      << what << ": rank " << rank_ << ": send was changed";
}

void Buffers::check_untouched(std::string const& what) const {
  auto const actual = recv_.read();
  auto const clean = std::all_of(actual.begin(), actual.end(), [](std::byte b) { return b == kUntouched; });
  EXPECT_TRUE(clean) << what << ": rank " << rank_ << ": recv was written";
  EXPECT_TRUE(recv_.intact()) << what << ": rank " << rank_ << ": written outside of recv";
}

}  // namespace davit::test
