// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a Communicator holds: the mesh, its sides, the queue of tasks, and how one waits for them. Calls on streams are
/// kept until they have run, and looked after by whoever waits, else by the helper thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <initializer_list>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "davit/communicator.hpp"
#include "davit/stream.hpp"
#include "runtime/placement.hpp"
#include "runtime/progress.hpp"
#include "runtime/shared_ranges.hpp"
#include "runtime/side.hpp"
#include "runtime/submission.hpp"
#include "runtime/task.hpp"
#include "transports/mesh.hpp"
#include "transports/wait.hpp"

namespace davit::detail {

class Call;

/// Makes what a wire sends its messages over.
using LinkMaker = std::unique_ptr<Link> (*)(Bootstrap&, Deadline);

/// A buffer of a call and its name, for messages.
struct NamedBuffer {
  char const* name;
  void const* data;
};

class CommunicatorState {
 public:
  /// @param wire_in null on one node. @param backend of GPUs; null where there is none.
  CommunicatorState(std::shared_ptr<Bootstrap> bootstrap_in, Options options_in, std::unique_ptr<Wire> wire_in,
                    LinkMaker links_in, std::unique_ptr<Mesh> mesh_in, std::unique_ptr<Engine> host_engine,
                    DeviceBackend* backend_in, bool direct_in, Eagerness eagerness_in, std::uint32_t first_number,
                    PlacementPlan plan_in, std::optional<PciAddress> planned_gpu_in);
  /// Local. Open tasks are abandoned; peers that still count on this rank learn it from its header. What is enqueued is
  /// waited for, under the deadline.
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
  // --- Other nodes: runtime/wire_calls.cpp.

  /// Has the helper thread get on with the wire, where one may.
  void start_wire();
  /// Gets on with the wire, if there is one. Any thread, no lock. @returns whether anything moved.
  bool advance_wire() noexcept { return wire != nullptr && wire->progress(); }

  // --- GPUs: runtime/device_calls.cpp.

  /// The side that a call belongs to, by where its buffers lie. Makes the device side when it is first needed, but not
  /// for a call on a stream. @param wants_device also where no buffer is on a GPU.
  /// @throws UsageError where the buffers do not fit together or to the stream, SystemError.
  [[nodiscard]] Side& side_for(char const* operation, std::span<NamedBuffer const> buffers,
                               std::optional<Stream> stream = {}, bool wants_device = false);
  /// A GPU adds elements only where each lies at a multiple of its size. @throws UsageError.
  void check_elements(char const* operation, Side const& side, NamedBuffer const& buffer, Dtype dtype) const;
  /// Copies from the GPU, after what `stream` holds. @returns where they are, until the next such call.
  /// @throws TimeoutError if that takes too long, SystemError.
  std::byte const* fetch_from_device(std::initializer_list<CopyOp> copies, std::optional<Stream> stream);
  /// The GPU that this rank's calls use, or would use; -1 without one. @throws SystemError.
  [[nodiscard]] int device_index() const;
  /// All ranks have prepared: makes the device side on GPU `index`, -1 for none, and lets it reach all outboxes.
  /// @throws UsageError, SystemError.
  void finish_preparation(int index);
  /// Submits a call on a stream, behind the tasks that are open. @throws what fails the communicator.
  void enqueue(std::shared_ptr<Call> call);
  /// Whether calls on streams have not run, or were not yet found right. Under the lock, as the next two.
  [[nodiscard]] bool has_enqueued() const noexcept { return !enqueued_.empty(); }
  /// Appends the peers that the oldest of them waits for.
  void awaited_by_enqueued(std::vector<int>& peers) const;
  /// Reads the cards of calls on streams that have come. @throws PeerError, MismatchError where ranks disagreed.
  void read_late_cards();
  /// Whether all calls on streams have run, and rightly; false too where another thread is just at them. Never waits.
  [[nodiscard]] bool enqueued_are_done();
  /// Takes note of what has run. Fails the communicator where ranks disagreed.
  void settle_enqueued() noexcept;

  /// Under the lock: all that goes to a GPU is submitted in it.
  [[nodiscard]] Submission& submission() noexcept { return submission_; }
  /// By the watcher, without the lock: lets a submission through that takes too long, and a GPU run out whose
  /// communicator has failed.
  void watch_over() noexcept;
  /// By a thread of the program, without the lock: lets go of what has run, and of what streams have passed.
  void let_go() noexcept;

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
  std::unique_ptr<Wire> const wire;  ///< to other nodes; null where there are none
  LinkMaker const links;
  std::unique_ptr<Mesh> const mesh;
  HostSide host;
  std::unique_ptr<DeviceSide> device;  ///< null until a call needs it; made under the lock
  DeviceBackend* const backend;
  bool const direct;                            ///< agreed: blocks may go the direct way
  Eagerness const eagerness;                    ///< of waits: more ranks than cores must yield
  PlacementPlan const plan;                     ///< where ranks and slots lie
  std::optional<PciAddress> const planned_gpu;  ///< of this rank
  int const rank;
  int const size;
  Stats stats;  ///< under the lock, or by the one thread inside
  SharedRanges shared;
  std::uint32_t groups = 0;  ///< expert groups made on it

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

 private:
  friend class Entry;
  [[nodiscard]] Progress& helper() noexcept { return helper_ != nullptr ? *helper_ : Progress::of_process(); }
  bool advance_head();
  void leave_buffers() noexcept;
  void meet(Operation operation);
  [[noreturn]] void fail_set_up(Operation operation, TimeoutError const& error);
  /// Without a helper thread nobody gets on with the wire between calls: stays until the other nodes have all of this
  /// rank's part of call `number`, and the ranks here have what it takes in for them; until streams have run, too.
  /// Under the lock. @throws what fails the communicator.
  void stay_for_others(Task const& task);
  /// The same before the end; never longer than the deadline.
  void part_from_wire() noexcept;
  void look_after_wire();
  /// @throws UsageError where this thread may not call MPI, which the wire does.
  void check_thread() const;
  [[nodiscard]] std::string waiting_for(std::vector<int> const& peers) const;
  void look_after();
  void look_after(Task const& task, std::chrono::steady_clock::time_point& deadline, bool look_for_death);
  void look_after_enqueued(bool look_for_death);
  /// Waits for calls on streams, under the deadline.
  void drain();
  void make_device(int index);
  /// As the error that is being handled, which a task met.
  void fail_by(std::string const& phase, std::uint32_t number) noexcept;
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

  std::list<std::shared_ptr<Call>> enqueued_;
  std::list<std::shared_ptr<Call>> done_;  ///< have run; what they keep is the program's to let go of
  std::atomic<bool> any_done_{false};
  std::chrono::steady_clock::time_point enqueued_deadline_{};  ///< of the oldest
  std::vector<bool> missing_;                                  ///< scratch
  std::optional<DeviceSide::Progressed> progressed_;           ///< at the last look
  std::unique_ptr<Progress> helper_;                           ///< of a communicator with a GPU

  Submission submission_;
  // Of the watcher.
  std::uint64_t seen_submission_ = 0;
  std::optional<DeviceSide::Progressed> seen_progressed_;
  std::chrono::steady_clock::time_point stuck_since_{};
};

}  // namespace davit::detail
