// SPDX-License-Identifier: Apache-2.0
#include "runtime/interposer/attached.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "bootstrap/mpi_bootstrap.hpp"
#include "davit/mpi.hpp"
#include "runtime/log.hpp"

namespace davit::drop_in {
namespace {

using bootstrap::check;

// Handles are reused after they are freed, so what a thread remembers holds only while nothing was freed.
std::atomic<std::uint64_t> freed{0};

/// What is alive, for the end of MPI.
struct Registry {
  std::mutex mutex;
  std::set<Attached*> all;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

void close(Attached& at) noexcept {
  Inside const inside;
  at.davit = Communicator();
  if (at.own != bootstrap::no_comm) MPI_Comm_free(&at.own);
}

int on_comm_free(MPI_Comm /*comm*/, int /*key*/, void* value, void* /*extra*/) {
  std::unique_ptr<Attached> const at(static_cast<Attached*>(value));
  ++freed;
  {
    std::lock_guard const held(registry().mutex);
    registry().all.erase(at.get());
  }
  close(*at);
  return MPI_SUCCESS;
}

/// A rank still inside a call that fails must not find its peer gone. MPI_Finalize is collective, so all come; whoever
/// has died is not waited for long.
void meet_at_the_end() {
  Inside const inside;
  std::vector<MPI_Request> meetings;
  for (auto* const at : registry().all) {
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
  std::lock_guard const held(registry().mutex);
  meet_at_the_end();
  for (auto* const at : registry().all) close(*at);
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
void make(MPI_Comm comm, Attached& at) {
  // Waits for the others without a deadline, as the program's own call would. Unlike a duplicate, it calls none of the
  // program's attribute functions.
  check(MPI_Comm_split(comm, 0, at.rank, &at.own), "MPI_Comm_split");
  check(MPI_Comm_set_errhandler(at.own, bootstrap::errors_return), "MPI_Comm_set_errhandler");
  std::string reason;
  try {
    auto who = mpi(at.own);
    std::set<int> const nodes(who->nodes().begin(), who->nodes().end());
    if (nodes.size() > 1) {
      reason = "its ranks sit on " + std::to_string(nodes.size()) + " nodes";
    } else {
      at.davit = Communicator(std::move(who), options_of_calls());
      at.davit.prepare();
    }
  } catch (std::exception const& error) {
    reason = error.what();
  }
  int const mine = reason.empty() ? 1 : 0;
  int all = 0;
  check(MPI_Allreduce(&mine, &all, 1, bootstrap::int_type, MPI_MIN, at.own), "MPI_Allreduce");
  if (all == 0) at.davit = Communicator();
  if (!reason.empty() && (at.rank == 0 || all != mine)) {
    detail::log(LogLevel::warn, "davit: collectives on a communicator of " + std::to_string(at.size) +
                                    " ranks are left to MPI: " + reason);
  }
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

Attached* attached(MPI_Comm comm) {
  static thread_local std::pair<MPI_Comm, Attached*> last{bootstrap::no_comm, nullptr};
  static thread_local std::uint64_t last_freed = 0;
  auto const now = freed.load(std::memory_order_acquire);
  if (comm == last.first && now == last_freed && last.second != nullptr) return last.second;
  Inside const inside;
  if (comm == bootstrap::no_comm) return nullptr;
  void* value = nullptr;
  int found = 0;
  if (MPI_Comm_get_attr(comm, comm_key(), static_cast<void*>(&value), &found) != MPI_SUCCESS) return nullptr;
  if (found == 0) {
    auto made = std::make_unique<Attached>();
    made->own = bootstrap::no_comm;
    int is_inter = 0;
    check(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
    check(MPI_Comm_rank(comm, &made->rank), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &made->size), "MPI_Comm_size");
    if (is_inter == 0 && made->size > 1) make(comm, *made);
    check(MPI_Comm_set_attr(comm, comm_key(), made.get()), "MPI_Comm_set_attr");
    std::lock_guard const held(registry().mutex);
    registry().all.insert(made.get());
    value = made.release();
  }
  last = {comm, static_cast<Attached*>(value)};
  last_freed = now;
  return last.second;
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
