// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "bootstrap/group.hpp"
#include "davit/bootstrap.hpp"
#include "davit/error.hpp"

namespace davit {
namespace {

using bootstrap::Wish;

/// What the ranks of one group share. Rounds (allgathers) lie in two banks in turn: no rank can finish round k + 1, and
/// so start k + 2, before all have entered k + 1 and are therefore done with reading k. So a round needs no second
/// wait.
class Group {
 public:
  explicit Group(int size) : size_(size) {
    for (Bank& bank : banks_) {
      bank.parts.resize(static_cast<std::size_t>(size));
      bank.here.resize(static_cast<std::size_t>(size));
    }
  }

  [[nodiscard]] int size() const noexcept { return size_; }

  void allgather(int rank, std::uint64_t round, std::span<std::byte const> mine, std::span<std::byte> all,
                 Deadline deadline) {
    Bank& bank = banks_[round % banks_.size()];
    meet(rank, round, bank, mine, deadline);
    std::vector<std::size_t> lengths;
    for (auto const& part : bank.parts) lengths.push_back(part.size());
    bootstrap::require_equal(lengths);
    std::size_t offset = 0;
    for (auto const& part : bank.parts) {
      if (!part.empty()) std::memcpy(all.data() + offset, part.data(), part.size());
      offset += part.size();
    }
  }

  /// The group that the `size` ranks of one color share: the first to ask makes it, the last takes it off the table.
  std::shared_ptr<Group> child(std::uint64_t round, int color, int size) {
    std::lock_guard const lock(mutex_);
    auto const [at, is_new] = children_.try_emplace({round, color});
    if (is_new) at->second.group = std::make_shared<Group>(size);
    auto group = at->second.group;
    if (++at->second.taken == size) children_.erase(at);
    return group;
  }

 private:
  struct Bank {
    std::vector<std::vector<std::byte>> parts;
    std::vector<char> here;
    int arrived = 0;
  };
  struct Child {
    std::shared_ptr<Group> group;
    int taken = 0;
  };

  /// Leaves `mine` in the bank and returns when all ranks have done so.
  void meet(int rank, std::uint64_t round, Bank& bank, std::span<std::byte const> mine, Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!failure_.empty()) throw TimeoutError(failure_, culprit_);
    auto const me = static_cast<std::size_t>(rank);
    bank.parts[me].assign(mine.begin(), mine.end());
    bank.here[me] = 1;
    if (++bank.arrived == size_) return complete(round);
    auto const is_over = [&] { return completed_ > round || !failure_.empty(); };
    if (!arrival_.wait_until(lock, deadline, is_over)) fail(bank);
    // A round that became complete counts, even if the group failed before this thread woke up.
    if (completed_ <= round) throw TimeoutError(failure_, culprit_);
  }

  void complete(std::uint64_t round) {
    Bank& next = banks_[(round + 1) % banks_.size()];
    next.arrived = 0;
    std::ranges::fill(next.here, char{0});
    completed_ = round + 1;
    arrival_.notify_all();
  }

  /// After a time-out nobody knows who is in which round, so the whole group is failed, for those that come late as
  /// well.
  void fail(Bank const& bank) {
    std::vector<int> missing;
    for (std::size_t r = 0; r < bank.here.size(); ++r) {
      if (bank.here[r] == 0) missing.push_back(static_cast<int>(r));
    }
    failure_ = bootstrap::did_not_come(missing, size_);
    culprit_ = missing.front();
    arrival_.notify_all();
  }

  int const size_;
  std::mutex mutex_;
  std::condition_variable arrival_;
  std::array<Bank, 2> banks_;
  std::uint64_t completed_ = 0;  // rounds that all ranks have come to
  std::string failure_;          // empty: sound
  int culprit_ = -1;
  std::map<std::pair<std::uint64_t, int>, Child> children_;  // by round and color
};

class ThreadsBootstrap final : public Bootstrap {
 public:
  ThreadsBootstrap(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank), nodes_(static_cast<std::size_t>(group_->size())) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return group_->size(); }
  [[nodiscard]] std::span<int const> nodes() const noexcept override { return nodes_; }

  void allgather(std::span<std::byte const> mine, std::span<std::byte> all, Deadline deadline) override {
    bootstrap::require_room(mine.size(), all.size(), size());
    group_->allgather(rank_, round_++, mine, all, deadline);
  }

  std::shared_ptr<Bootstrap> split(int color, int key, Deadline deadline) override {
    Wish const mine{color, key};
    std::vector<Wish> wishes(nodes_.size());
    auto const round = round_;
    allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(wishes)), deadline);
    if (color < 0) return nullptr;
    auto const ranks = bootstrap::members(wishes, color);
    auto const place = std::ranges::find(ranks, rank_) - ranks.begin();
    return std::make_shared<ThreadsBootstrap>(group_->child(round, color, static_cast<int>(ranks.size())),
                                              static_cast<int>(place));
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
  std::uint64_t round_ = 0;  // allgathers begun here; all ranks count alike
  std::vector<int> nodes_;   // one process, so one node: all zero
};

}  // namespace

std::vector<std::shared_ptr<Bootstrap>> threads(int n) {
  if (n < 1) throw UsageError("davit: threads(n): n is " + std::to_string(n) + ", must be at least 1");
  auto const group = std::make_shared<Group>(n);
  std::vector<std::shared_ptr<Bootstrap>> ranks;
  ranks.reserve(static_cast<std::size_t>(n));
  for (int r = 0; r < n; ++r) ranks.push_back(std::make_shared<ThreadsBootstrap>(group, r));
  return ranks;
}

}  // namespace davit
