// SPDX-License-Identifier: Apache-2.0
#include "davit/mpi.hpp"

#include <array>
#include <climits>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "bootstrap/group.hpp"
#include "bootstrap/mpi_bootstrap.hpp"
#include "davit/error.hpp"
#include "davit/options.hpp"

namespace davit {
namespace {

using bootstrap::check;
using bootstrap::no_comm;
using bootstrap::Wish;

bool is_running() noexcept {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

/// Which threads may call MPI, as far as MPI's thread level and the place of birth tell.
class ThreadRule {
 public:
  ThreadRule() { check(MPI_Query_thread(&level_), "MPI_Query_thread"); }

  /// @throws UsageError where the thread level forbids a call that the program orders with its own MPI calls.
  void require(char const* call) const {
    if (level_ >= MPI_THREAD_SERIALIZED || is_main()) return;
    throw UsageError(std::string("davit: ") + call + ": MPI's thread level is " +
                     (level_ == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED") +
                     ", so only the main thread may call it; ask MPI_Init_thread for MPI_THREAD_SERIALIZED or more");
  }

  /// Whether this thread may call MPI at a moment that the program does not choose. At MPI_THREAD_SERIALIZED another
  /// thread may be inside MPI just then; the one that made the bootstrap is the one that a program expects there.
  [[nodiscard]] bool allows_unasked() const noexcept {
    if (level_ >= MPI_THREAD_MULTIPLE) return true;
    return level_ == MPI_THREAD_SERIALIZED ? std::this_thread::get_id() == maker_ : is_main();
  }

 private:
  static bool is_main() noexcept {
    int flag = 0;
    return MPI_Is_thread_main(&flag) == MPI_SUCCESS && flag != 0;
  }

  int level_ = MPI_THREAD_SINGLE;
  std::thread::id maker_ = std::this_thread::get_id();
};

/// Where a rank runs, as it travels between the ranks.
struct Whereabouts {
  int shared_with = 0;             // least rank that MPI says shares memory with this one
  int pretended = 0;               // its entry of DAVIT_NODES
  std::array<char, 40> boot_id{};  // containers and virtual machines may share a name, never this
  bool operator==(Whereabouts const&) const = default;
};

class MpiBootstrap final : public bootstrap::OverMpi {
 public:
  /// Takes `comm` over, an intra-communicator of davit's own, and leaves null in its place.
  explicit MpiBootstrap(MPI_Comm& comm) : comm_(std::exchange(comm, no_comm)) {}

  /// What is failed is left to MPI: a late message must not meet a new communicator under a reused number.
  ~MpiBootstrap() override {
    if (comm_ != no_comm && !failure_ && is_running() && threads_.allows_unasked()) MPI_Comm_free(&comm_);
  }

  /// Second half of the constructor; a throw leaves to the destructor what there is.
  void set_up() {
    check(MPI_Comm_set_errhandler(comm_, bootstrap::errors_return), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  void find_nodes(int pretended, Deadline deadline);

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::span<int const> nodes() const noexcept override { return nodes_; }

  void allgather(std::span<std::byte const> mine, std::span<std::byte> all, Deadline deadline) override;
  std::shared_ptr<Bootstrap> split(int color, int key, Deadline deadline) override;
  MPI_Comm duplicate(Deadline deadline) override;

  /// Asks for what never comes, a message from itself: where a probe finds one, Open MPI returns without any progress.
  void progress() noexcept override {
    if (!is_running() || !threads_.allows_unasked()) return;
    int flag = 0;
    MPI_Iprobe(rank_, MPI_ANY_TAG, comm_, &flag, bootstrap::no_status);
  }

 private:
  /// Runs `step`; after a failure of the world the bootstrap is failed, and every later call raises the same.
  template <class Step>
  void guard(char const* call, Step step) {
    if (!is_running()) throw UsageError(std::string("davit: ") + call + " after MPI_Finalize");
    threads_.require(call);
    if (failure_) std::rethrow_exception(failure_);
    try {
      step();
    } catch (UsageError const&) {
      throw;
    } catch (Error const&) {
      failure_ = std::current_exception();
      throw;
    }
  }

  void play(std::span<std::byte const> mine, std::span<std::byte> all, Deadline deadline) {
    constexpr unsigned tags = 32768;  // the least that MPI grants; the longest cycle keeps late messages apart
    int const tag = static_cast<int>(rounds_++ % tags);
    bootstrap::play_round(comm_, rank_, size_, tag, mine, all, deadline);
  }

  ThreadRule threads_;
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 0;
  unsigned rounds_ = 0;
  std::vector<int> nodes_;
  std::exception_ptr failure_;
};

void MpiBootstrap::allgather(std::span<std::byte const> mine, std::span<std::byte> all, Deadline deadline) {
  guard("bootstrap allgather", [&] {
    bootstrap::require_room(mine.size(), all.size(), size_);
    if (mine.size() > INT_MAX) {
      throw UsageError("davit: bootstrap allgather: " + std::to_string(mine.size()) + " bytes, at most " +
                       std::to_string(INT_MAX));
    }
    // Lengths first: Open MPI writes past the end of a receive buffer that is too short for a large message.
    std::size_t const length = mine.size();
    std::vector<std::size_t> lengths(static_cast<std::size_t>(size_));
    play(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)), deadline);
    bootstrap::require_equal(lengths);
    if (length > 0) play(mine, all, deadline);
  });
}

std::shared_ptr<Bootstrap> MpiBootstrap::split(int color, int key, Deadline deadline) {
  Wish const mine{color, key};
  std::vector<Wish> wishes(static_cast<std::size_t>(size_));
  static_assert(bootstrap::rounds_of_agreement <= 2);  // what an allgather of bytes plays
  allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(wishes)), deadline);
  std::shared_ptr<MpiBootstrap> child;
  guard("bootstrap split", [&] {
    MPI_Comm comm = no_comm;
    check(MPI_Comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, key, &comm), "MPI_Comm_split");
    if (color < 0) return;
    child = std::make_shared<MpiBootstrap>(comm);
    child->set_up();
    for (int member : bootstrap::members(wishes, color)) {
      child->nodes_.push_back(nodes_[static_cast<std::size_t>(member)]);
    }
    child->nodes_ = bootstrap::number_by_appearance(child->nodes_);
  });
  return child;
}

MPI_Comm MpiBootstrap::duplicate(Deadline deadline) {
  MPI_Comm copy = no_comm;
  guard("bootstrap duplicate", [&] { copy = bootstrap::duplicate(comm_, deadline); });
  return copy;
}

void MpiBootstrap::find_nodes(int pretended, Deadline deadline) {
  for (int i = 0; i < bootstrap::rounds_of_agreement; ++i) barrier(deadline);
  Whereabouts mine{.shared_with = rank_, .pretended = pretended};
  guard("bootstrap set-up", [&] {
    MPI_Comm shared = no_comm;
    check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, bootstrap::no_info, &shared), "MPI_Comm_split_type");
    int const code = MPI_Bcast(&mine.shared_with, 1, bootstrap::int_type, 0, shared);
    MPI_Comm_free(&shared);
    check(code, "MPI_Bcast");
  });
  std::ifstream("/proc/sys/kernel/random/boot_id").read(mine.boot_id.data(), std::ssize(mine.boot_id));
  std::vector<Whereabouts> all(static_cast<std::size_t>(size_));
  allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), deadline);
  nodes_ = bootstrap::number_by_appearance(all);
}

/// This process's entry of DAVIT_NODES; 0 where it is not set.
int pretended_node() {
  auto const& nodes = environment().nodes;
  if (nodes.empty()) return 0;
  int size = 0;
  int rank = 0;
  check(MPI_Comm_size(bootstrap::world, &size), "MPI_Comm_size");
  check(MPI_Comm_rank(bootstrap::world, &rank), "MPI_Comm_rank");
  if (nodes.size() != static_cast<std::size_t>(size)) {
    throw UsageError("davit: DAVIT_NODES has " + std::to_string(nodes.size()) + " entries, the world has " +
                     std::to_string(size) + " ranks");
  }
  return nodes[static_cast<std::size_t>(rank)];
}

}  // namespace

std::shared_ptr<Bootstrap> mpi(MPI_Comm comm) {
  auto const deadline = std::chrono::steady_clock::now() + environment().timeout;
  if (!is_running()) throw UsageError("davit: davit::mpi: MPI is not initialised, or is finalised already");
  ThreadRule().require("davit::mpi");
  if (comm == no_comm) throw UsageError("davit: davit::mpi: comm is MPI_COMM_NULL");
  int is_inter = 0;
  check(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
  if (is_inter != 0)
    throw UsageError("davit: davit::mpi: comm is an inter-communicator, must be an intra-communicator");
  int const pretended = pretended_node();
  MPI_Comm copy = bootstrap::duplicate(comm, deadline);
  auto made = std::make_shared<MpiBootstrap>(copy);
  made->set_up();
  made->find_nodes(pretended, deadline);
  return made;
}

}  // namespace davit
