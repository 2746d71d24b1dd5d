// SPDX-License-Identifier: Apache-2.0
#include "tests/support/nodes.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/agree.hpp"

namespace davit::test {
namespace {

class OnNodes final : public Bootstrap {
 public:
  OnNodes(std::shared_ptr<Bootstrap> inner, std::vector<int> nodes)
      : inner_(std::move(inner)), nodes_(std::move(nodes)) {}

  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  [[nodiscard]] std::span<int const> nodes() const noexcept override { return nodes_; }
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all, Deadline deadline) override {
    inner_->allgather(mine, all, deadline);
  }
  std::shared_ptr<Bootstrap> split(int color, int key, Deadline deadline) override {
    auto part = inner_->split(color, key, deadline);
    if (part == nullptr) return nullptr;
    auto const of_members = detail::gather(*part, nodes_[static_cast<std::size_t>(rank())], deadline);
    std::vector<int> seen;  // numbered by appearance, as a launcher does
    std::vector<int> nodes;
    for (int const node : of_members) {
      auto const at = std::ranges::find(seen, node);
      nodes.push_back(static_cast<int>(at - seen.begin()));
      if (at == seen.end()) seen.push_back(node);
    }
    return std::make_shared<OnNodes>(std::move(part), std::move(nodes));
  }

 private:
  std::shared_ptr<Bootstrap> inner_;
  std::vector<int> nodes_;
};

using Bytes = std::vector<std::byte>;

/// What has been sent to one rank.
struct Inbox {
  std::mutex mutex;
  std::deque<std::pair<int, Bytes>> frames;
  std::array<std::map<int, std::deque<Bytes>>, Link::kLanes> lanes;
};

class ThreadLink final : public Link {
 public:
  ThreadLink(int rank, std::vector<std::shared_ptr<Inbox>> inboxes) : rank_(rank), inboxes_(std::move(inboxes)) {}

  void send(int to, Bytes frame) override {
    auto& inbox = *inboxes_[static_cast<std::size_t>(to)];
    std::lock_guard const held(inbox.mutex);
    inbox.frames.emplace_back(rank_, std::move(frame));
  }

  std::optional<Frame> receive() override {
    std::lock_guard const held(own().mutex);
    while (!own().frames.empty()) {
      last_ = std::move(own().frames.front());
      own().frames.pop_front();
      if (!last_.second.empty()) return Frame{last_.first, last_.second};
      gone_.insert(last_.first);
    }
    return std::nullopt;
  }

  void send_from(int to, int lane, std::span<Piece const> pieces, std::shared_ptr<void>) override {
    Bytes bytes;
    for (auto const& piece : pieces) bytes.insert(bytes.end(), piece.at, piece.at + piece.bytes);
    auto& inbox = *inboxes_[static_cast<std::size_t>(to)];
    std::lock_guard const held(inbox.mutex);
    inbox.lanes[static_cast<std::size_t>(lane)][rank_].push_back(std::move(bytes));
  }

  Transfer receive_into(int from, int lane, std::span<Piece const> pieces, std::shared_ptr<void> keep) override {
    receives_[++transfers_] = {from, lane, {pieces.begin(), pieces.end()}, std::move(keep)};
    return transfers_;
  }

  bool has_come(Transfer transfer) override {
    auto const receive = receives_.find(transfer);
    std::lock_guard const held(own().mutex);
    auto& queue = own().lanes[static_cast<std::size_t>(receive->second.lane)][receive->second.from];
    if (queue.empty()) return false;
    auto const* at = queue.front().data();
    for (auto const& piece : receive->second.pieces) {
      std::memcpy(piece.at, at, piece.bytes);
      at += piece.bytes;
    }
    queue.pop_front();
    receives_.erase(receive);
    return true;
  }

  bool flush() override { return true; }

  bool leave(std::span<int const> peers) override {
    if (!std::exchange(has_said_goodbye_, true)) {
      for (int const peer : peers) send(peer, {});
    }
    while (receive()) continue;
    return std::ranges::all_of(peers, [this](int peer) { return gone_.contains(peer); });
  }

  bool allows_this_thread() const noexcept override { return all_threads_ || std::this_thread::get_id() == maker_; }
  bool allows_all_threads() const noexcept override { return all_threads_; }

 private:
  struct Receive {
    int from;
    int lane;
    std::vector<Piece> pieces;
    std::shared_ptr<void> keep;
  };
  [[nodiscard]] Inbox& own() const noexcept { return *inboxes_[static_cast<std::size_t>(rank_)]; }

  int rank_;
  std::vector<std::shared_ptr<Inbox>> inboxes_;
  std::pair<int, Bytes> last_;
  std::map<Transfer, Receive> receives_;
  Transfer transfers_ = 0;
  std::set<int> gone_;
  bool has_said_goodbye_ = false;
  bool const all_threads_ = !wire_is_for_one_thread();
  std::thread::id maker_ = std::this_thread::get_id();
};

}  // namespace

int pretended_nodes() {
  char const* const nodes = std::getenv("DAVIT_TEST_NODES");
  return nodes == nullptr ? 1 : std::atoi(nodes);
}

bool wire_is_for_one_thread() {
  char const* const wire = std::getenv("DAVIT_TEST_WIRE");
  return pretended_nodes() > 1 && wire != nullptr && std::string_view(wire) == "caller";
}

int default_reduce_group(int ranks) {
  int const nodes = std::min(pretended_nodes(), ranks);
  return ranks % nodes == 0 ? ranks / nodes : 1;
}

std::shared_ptr<Bootstrap> on_nodes(std::shared_ptr<Bootstrap> bootstrap) {
  int const count = std::min(pretended_nodes(), bootstrap->size());
  if (count == 1) return bootstrap;
  std::vector<int> nodes;
  for (int rank = 0; rank < bootstrap->size(); ++rank) nodes.push_back(rank * count / bootstrap->size());
  return std::make_shared<OnNodes>(std::move(bootstrap), std::move(nodes));
}

std::unique_ptr<Link> link_of_threads(Bootstrap& bootstrap, Deadline deadline) {
  auto const mine = std::make_shared<Inbox>();
  auto const all = detail::gather(bootstrap, &mine, deadline);
  std::vector<std::shared_ptr<Inbox>> inboxes;
  for (auto const* const inbox : all) inboxes.push_back(*inbox);
  bootstrap.barrier(deadline);  // all have taken theirs
  return std::make_unique<ThreadLink>(bootstrap.rank(), std::move(inboxes));
}

}  // namespace davit::test
