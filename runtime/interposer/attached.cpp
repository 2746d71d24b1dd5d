// SPDX-License-Identifier: Apache-2.0
#include "runtime/interposer/attached.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "bootstrap/mpi_bootstrap.hpp"
#include "davit/mpi.hpp"
#include "runtime/interposer/switches.hpp"
#include "runtime/log.hpp"

namespace davit::drop_in {
namespace {

using bootstrap::check;

// Handles are reused after they are freed, so what a thread remembers holds only while nothing was freed.
std::atomic<std::uint64_t> freed{0};

/// What is alive, for the end of MPI.
struct Registry {
  std::mutex mutex;
  std::map<Attached*, std::shared_ptr<Attached>> all;
  void (*at_finalize)() = nullptr;
};
Registry& registry() {
  // Never destroyed: MPI_Finalize may run at exit.
  static auto& instance = *new Registry;
  return instance;
}

void close(Attached& at) noexcept {
  Inside const inside;
  if (switches().verbose && at.rank == 0) at.tally.print(at.size, at.reason);
  at.davit = Communicator();
  if (at.own != bootstrap::no_comm) MPI_Comm_free(&at.own);
}

int on_comm_free(MPI_Comm /*comm*/, int /*key*/, void* value, void* /*extra*/) {
  ++freed;
  std::shared_ptr<Attached> at;
  {
    std::lock_guard const held(registry().mutex);
    auto const found = registry().all.find(static_cast<Attached*>(value));
    at = std::move(found->second);
    registry().all.erase(found);
  }
  at->comm = bootstrap::no_comm;
  // Open calls need what they run on, so it goes with the last of them, and `own` with MPI_Finalize.
  if (at.use_count() == 1) close(*at);
  return MPI_SUCCESS;
}

/// A rank still inside a call that fails must not find its peer gone. MPI_Finalize is collective, so all come; whoever
/// has died is not waited for long.
void meet_at_the_end() {
  std::vector<MPI_Request> meetings;
  for (auto const& [at, owner] : registry().all) {
    if (!at->davit || !at->davit.usable()) continue;
    meetings.push_back(bootstrap::no_request);
    if (MPI_Ibarrier(at->own, &meetings.back()) != MPI_SUCCESS) meetings.pop_back();
  }
  int flag = 0;
  auto const count = static_cast<int>(meetings.size());
  auto const have_met = [&] {
    return MPI_Testall(count, meetings.data(), &flag, bootstrap::no_statuses) != MPI_SUCCESS || flag != 0;
  };
  bootstrap::poll(have_met, std::chrono::steady_clock::now() + std::chrono::seconds(10));
}

int on_finalize(MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* /*extra*/) {
  Inside const inside;
  if (registry().at_finalize != nullptr) registry().at_finalize();
  std::lock_guard const held(registry().mutex);
  meet_at_the_end();
  for (auto const& [at, owner] : registry().all) close(*at);
  return MPI_SUCCESS;
}

int on_type_free(MPI_Datatype /*type*/, int /*key*/, void* value, void* /*extra*/) {
  ++freed;
  std::unique_ptr<Type> const owned(static_cast<Type*>(value));
  return MPI_SUCCESS;
}

int comm_key() {
  static int const key = [] {
    int made = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_comm_free, &made, nullptr), "MPI_Comm_create_keyval");
    int last = MPI_KEYVAL_INVALID;  // attributes of the self communicator go first in MPI_Finalize
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &last, nullptr), "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(bootstrap::self, last, nullptr), "MPI_Comm_set_attr");
    return made;
  }();
  return key;
}

int type_key() {
  static int const key = [] {
    int made = MPI_KEYVAL_INVALID;
    check(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, on_type_free, &made, nullptr), "MPI_Type_create_keyval");
    return made;
  }();
  return key;
}

/// MPI has no deadline, and its programs may let a rank come late.
Options options_of_calls() {
  Options options;
  if (std::getenv("DAVIT_TIMEOUT") == nullptr) options.timeout = std::chrono::hours(24);
  options.name = "MPI";
  return options;
}

/// All ranks come out with a communicator, or none does.
void make(Attached& at) {
  // As patient as the program's own call, which would wait here too. Unlike a duplicate, a split calls none of the
  // program's attribute functions; all ranks have met, so it ends.
  auto const options = options_of_calls();
  bootstrap::meet(at.comm, "the collective that davit takes", std::chrono::steady_clock::now() + options.timeout);
  check(MPI_Comm_split(at.comm, 0, at.rank, &at.own), "MPI_Comm_split");
  check(MPI_Comm_set_errhandler(at.own, bootstrap::errors_return), "MPI_Comm_set_errhandler");
  try {
    auto who = mpi(at.own);
    std::set<int> const nodes(who->nodes().begin(), who->nodes().end());
    if (nodes.size() > 1) {
      at.reason = "its ranks sit on " + std::to_string(nodes.size()) + " nodes";
    } else {
      at.davit = Communicator(std::move(who), options);
      at.davit.prepare();
    }
  } catch (std::exception const& error) {
    at.reason = error.what();
  }
  int const mine = at.reason.empty() ? 1 : 0;
  int all = 0;
  check(MPI_Allreduce(&mine, &all, 1, bootstrap::int_type, MPI_MIN, at.own), "MPI_Allreduce");
  if (all == 0) at.davit = Communicator();
  if (!at.reason.empty() && (at.rank == 0 || all != mine)) {
    detail::log(LogLevel::warn, "davit: collectives on a communicator of " + std::to_string(at.size) +
                                    " ranks are left to MPI: " + at.reason);
  }
  if (all == 0 && at.reason.empty()) at.reason = "another rank could not set up";
}

bool is_contiguous(MPI_Datatype type, Type const& known, MPI_Comm own) {
  MPI_Aint low = 0;
  MPI_Aint true_extent = 0;
  check(MPI_Type_get_true_extent(type, &low, &true_extent), "MPI_Type_get_true_extent");
  if (low != 0 || true_extent != known.size || known.extent != known.size || known.size > INT32_MAX) return false;
  // The bytes may still go in another order: only the packing itself tells.
  std::vector<std::uint8_t> lying(static_cast<std::size_t>(known.size));
  std::vector<std::uint8_t> packed(lying.size());
  std::mt19937_64 random(lying.size());
  std::generate(lying.begin(), lying.end(), [&] { return static_cast<std::uint8_t>(random() >> 32); });
  int at = 0;
  check(MPI_Pack(lying.data(), 1, type, packed.data(), static_cast<int>(packed.size()), &at, own), "MPI_Pack");
  return packed == lying;
}

}  // namespace

constinit thread_local int Inside::depth = 0;

Attached::Attached(MPI_Comm comm_in) : comm(comm_in), own(bootstrap::no_comm) {
  int inter = 0;
  check(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  is_inter = inter != 0;
  if (is_inter) reason = "an inter-communicator";
  if (!is_inter && size == 1) reason = "one rank";
  tried = !reason.empty();
}

Attached::~Attached() {
  Inside const inside;
  davit = Communicator();
}

void at_finalize(void (*function)()) noexcept { registry().at_finalize = function; }

Attached* attached_so_far(MPI_Comm comm) {
  static constinit thread_local struct {
    MPI_Comm comm;
    Attached* at;
    std::uint64_t freed;
  } last{};
  auto const now = freed.load(std::memory_order_acquire);
  if (comm == last.comm && now == last.freed && last.at != nullptr) return last.at;
  Inside const inside;
  if (comm == bootstrap::no_comm) return nullptr;
  void* value = nullptr;
  int found = 0;
  if (MPI_Comm_get_attr(comm, comm_key(), static_cast<void*>(&value), &found) != MPI_SUCCESS) return nullptr;
  if (found == 0) {
    auto made = std::make_shared<Attached>(comm);
    check(MPI_Comm_set_attr(comm, comm_key(), made.get()), "MPI_Comm_set_attr");
    value = made.get();
    std::lock_guard const held(registry().mutex);
    registry().all.emplace(made.get(), std::move(made));
  }
  last = {comm, static_cast<Attached*>(value), now};
  return last.at;
}

Attached* attached(MPI_Comm comm) {
  auto* const at = attached_so_far(comm);
  if (at != nullptr && !at->tried) {
    Inside const inside;
    at->tried = true;
    try {
      make(*at);
    } catch (std::exception const& error) {
      at->reason = error.what();
      at->failure = std::current_exception();
    }
  }
  if (at != nullptr && at->failure) std::rethrow_exception(at->failure);
  return at;
}

Type type_of(MPI_Datatype type, MPI_Comm own) {
  struct Known {
    MPI_Datatype handle;
    std::uint64_t freed;
    Type type;
  };
  static thread_local std::array<Known, 4> recent{};
  static thread_local std::size_t next = 0;
  if (type == bootstrap::no_type) throw UsageError("davit: the datatype is MPI_DATATYPE_NULL");
  auto const now = freed.load(std::memory_order_acquire);
  for (auto const& known : recent) {
    if (known.handle == type && known.freed == now && known.type.extent != 0) return known.type;
  }
  void* value = nullptr;
  int found = 0;
  check(MPI_Type_get_attr(type, type_key(), static_cast<void*>(&value), &found), "MPI_Type_get_attr");
  if (found == 0) {
    auto made = std::make_unique<Type>();
    MPI_Count size = 0;
    MPI_Aint low = 0;
    MPI_Aint extent = 0;
    check(MPI_Type_size_x(type, &size), "MPI_Type_size_x");
    check(MPI_Type_get_extent(type, &low, &extent), "MPI_Type_get_extent");
    made->size = size;
    made->extent = extent;
    made->contiguous = is_contiguous(type, *made, own);
    check(MPI_Type_set_attr(type, type_key(), made.get()), "MPI_Type_set_attr");
    value = made.release();
  }
  auto const& known = *static_cast<Type*>(value);
  recent[next++ % recent.size()] = {type, now, known};
  return known;
}

}  // namespace davit::drop_in
