// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a Communicator holds: the mesh, the engine, the queue of tasks, and how one waits for them.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "davit/communicator.hpp"
#include "runtime/placement.hpp"
#include "runtime/shared_ranges.hpp"
#include "runtime/task.hpp"
#include "transports/engine.hpp"
#include "transports/mesh.hpp"
#include "transports/wait.hpp"

namespace davit::detail {

class CommunicatorState {
 public:
  CommunicatorState(std::shared_ptr<Bootstrap> bootstrap_in, Options options_in, std::unique_ptr<Mesh> mesh_in,
                    std::unique_ptr<Engine> engine_in, bool direct_in, Eagerness eagerness_in,
                    std::uint32_t first_number, PlacementPlan plan_in);
  /// Local. Open tasks are abandoned; peers that still count on this rank learn it from its header.
  ~CommunicatorState();

  /// One thread at a time inside; the second raises UsageError, which concerns no other rank.
  class Entry {
   public:
    explicit Entry(CommunicatorState& state);
    ~Entry() { state_.inside_.store(false, std::memory_order_release); }
    Entry(Entry const&) = delete;
    Entry& operator=(Entry const&) = delete;

   private:
    CommunicatorState& state_;
  };

  /// Takes the next call number. Every collective call takes exactly one on every rank, refused or not.
  std::uint32_t take_number() noexcept { return ++number_; }
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  /// Reserves and binds the slots, once. @throws SystemError.
  void prepare();
  /// Runs a task behind those that are open, to its end. @throws what it met.
  void run(Task& task);
  /// Opens a task; the helper thread gets on with it. Local.
  void open(std::shared_ptr<Task> task);
  /// Waits for an open task. @throws what it met.
  void wait(Task& task);
  /// What a poke found.
  enum class Poked { idle, waiting, moved };
  /// Gets on with open tasks if nobody else is at it.
  Poked poke() noexcept;
  /// Tells the peers that this rank refuses call `number`, and why.
  void refuse(std::uint32_t number, char const* text, bool blocking);
  /// A collective set-up that goes over the bootstrap. A call of its own comes first, so that ranks that do something
  /// else are found. A time-out later fails the communicator, since its ranks no longer stand at the same place.
  template <class Work>
  auto set_up(Operation operation, Work const& work) {
    meet(operation);
    try {
      return work(std::chrono::steady_clock::now() + options.timeout);
    } catch (TimeoutError const& error) {
      fail_set_up(operation, error);
    }
  }
  /// Marks the communicator failed for good. Under the lock.
  void fail(int culprit, std::uint32_t number, std::exception_ptr error, std::string const& text) noexcept;
  [[nodiscard]] bool usable() const noexcept { return !failed_.load(std::memory_order_acquire); }
  void throw_if_failed();
  /// " [communicator 'comm', call 7]": the end of every message.
  [[nodiscard]] std::string where(std::uint32_t number) const;

  std::shared_ptr<Bootstrap> const bootstrap;
  Options const options;
  std::unique_ptr<Mesh> const mesh;
  std::unique_ptr<Engine> const engine;
  bool const direct;          ///< agreed: blocks may go the direct way
  Eagerness const eagerness;  ///< of waits: more ranks than cores must yield
  PlacementPlan const plan;   ///< where ranks and slots lie
  int const rank;
  int const size;
  Stats stats;  ///< under the lock, or by the one thread inside
  /// How this rank stands with a peer in the call at the head of the queue.
  enum class Standing : std::uint8_t { unread, agreed, mismatched, refused };
  struct Pair {
    Card const* card = nullptr;
    Standing standing = Standing::unread;
  };
  std::vector<Pair> pairs;  ///< of the one call that is being advanced
  SharedRanges shared;
  std::uint32_t groups = 0;  ///< expert groups made on it

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

 private:
  friend class Entry;
  bool advance_head();
  void meet(Operation operation);
  [[noreturn]] void fail_set_up(Operation operation, TimeoutError const& error);
  void look_after();
  void wait_until_done(Task& task);
  void finish_head(std::exception_ptr error) noexcept;

  std::mutex mutex_;
  std::deque<std::shared_ptr<Task>> queue_;
  std::atomic<bool> inside_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::atomic<std::uint32_t> number_;
  bool first_task_ = true;
  std::chrono::steady_clock::time_point next_death_look_{};
  std::vector<int> awaited_;  ///< scratch
};

}  // namespace davit::detail
