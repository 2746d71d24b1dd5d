// SPDX-License-Identifier: Apache-2.0
#include "runtime/interposer/pending.hpp"

#include <algorithm>
#include <chrono>

#include "bootstrap/mpi_bootstrap.hpp"
#include "runtime/interposer/collectives.hpp"
#include "transports/wait.hpp"

namespace davit::drop_in {
namespace {

using bootstrap::check;

int tell_status(void* /*extra*/, MPI_Status* status) {
  MPI_Status_set_elements(status, bootstrap::byte_type, 0);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
int let_go(void* /*extra*/) { return MPI_SUCCESS; }
int do_not_cancel(void* /*extra*/, int /*complete*/) { return MPI_SUCCESS; }

}  // namespace

Kept::Kept(Given const& given, std::size_t blocks)
    : given_{.data = given.data, .datatype = given.datatype, .count = given.count} {
  if (given.data == bootstrap::in_place_buffer) return;
  if (given.datatype != bootstrap::no_type) {
    check(MPI_Type_dup(given.datatype, &given_.datatype), "MPI_Type_dup");
    owns_datatype_ = true;
  }
  if (given.counts == nullptr && given.large_counts == nullptr) return;
  for (std::size_t block = 0; block < blocks; ++block) {
    counts_.push_back(given.count_of(block));
    displs_.push_back(counts_.back() == 0 ? 0 : static_cast<MPI_Aint>(given.displ_of(block)));
  }
  given_.large_counts = counts_.data();
  given_.large_displs = displs_.data();
}

Kept::~Kept() {
  if (owns_datatype_) MPI_Type_free(&given_.datatype);
}

int Pending::begin(Communicator& davit, Given const& send, Given const& recv) {
  Stage stage;
  if (switches().verbose) started_ = Clock::now();
  int const code = guarded(
      [&](Stage& now) {
        sides_ = std::make_unique<Sides>(*at_, send, recv);
        sides_->keep_datatypes();
        now = {.blame = sides_->blame(), .told = true, .bytes = sides_->bytes()};
        auto const& from = sides_->from();
        auto& to = sides_->to();
        request_ =
            davit.ialltoallv(sides_->send(), from.counts(), from.displs(), u8, to.data(), to.counts(), to.displs(), u8);
      },
      [&] { static_cast<void>(davit.ialltoallv(nullptr, {}, {}, no_such_dtype, nullptr, {}, {}, no_such_dtype)); },
      stage);
  if (code != MPI_SUCCESS) sides_.reset();
  if (switches().verbose) {
    at_->tally.change(kind_, [&](Calls& calls) {
      ++calls.taken;
      calls.bytes += static_cast<std::uint64_t>(stage.bytes);
    });
  }
  return code;
}

std::shared_ptr<Pending> Pending::post(Attached& at, Kind kind, Given const& send, Given const& recv, int& code) {
  auto made = std::make_shared<Pending>(at, kind);
  code = made->begin(at.davit, send, recv);
  if (code != MPI_SUCCESS) return nullptr;
  code = MPI_Grequest_start(tell_status, let_go, do_not_cancel, nullptr, &made->handle_);
  return made;
}

std::shared_ptr<Pending> Pending::prepare(Attached& at, Kind kind, Given const& send, Given const& recv, int& code) {
  auto made = std::make_shared<Pending>(at, kind);
  try {
    auto const blocks = static_cast<std::size_t>(at.size);
    made->own_ = at.davit.dup();
    made->own_->prepare();
    made->send_ = std::make_unique<Kept>(send, blocks);
    made->recv_ = std::make_unique<Kept>(recv, blocks);
    code = MPI_Recv_init(nullptr, 0, bootstrap::byte_type, MPI_PROC_NULL, 0, at.own, &made->handle_);
  } catch (...) {
    code = class_of_current(MPI_ERR_OTHER);
  }
  return made;
}

int Pending::start() {
  if (active()) return MPI_ERR_REQUEST;
  return begin(*own_, send_->given(), recv_->given());
}

bool Pending::finish() {
  if (!active()) return true;
  try {
    if (!request_.test()) return false;
    sides_->to().unpack();
    code_ = MPI_SUCCESS;
  } catch (...) {
    code_ = class_of_current(MPI_ERR_OTHER);
  }
  sides_.reset();
  if (switches().verbose) {
    std::chrono::duration<double> const took = Clock::now() - started_;
    at_->tally.change(kind_, [&](Calls& calls) { calls.seconds += took.count(); });
  }
  int const completed = persistent() ? MPI_Start(&handle_) : MPI_Grequest_complete(handle_);
  if (completed != MPI_SUCCESS) code_ = MPI_ERR_OTHER;
  return true;
}

void Pending::wait() {
  Backoff backoff(Eagerness::yield);
  while (!finish()) {
    if (backoff.idle()) poke_mpi();
  }
}

void Pending::poke_mpi() const noexcept {
  int flag = 0;
  MPI_Iprobe(at_->rank, MPI_ANY_TAG, at_->own, &flag, bootstrap::no_status);
}

int Pending::report(int code) const { return report_error(at_->comm, code); }

void Pending::drop() noexcept {
  if (persistent()) {
    MPI_Request_free(&handle_);
  } else {
    MPI_Wait(&handle_, bootstrap::no_status);
  }
}

Pendings& Pendings::of_process() {
  // Never destroyed: MPI_Finalize may run at exit.
  static auto& instance = *[] {
    at_finalize([] { of_process().drain(); });
    return new Pendings;
  }();
  return instance;
}

void Pendings::add(std::shared_ptr<Pending> pending) {
  std::lock_guard const held(mutex_);
  all_[pending->handle()] = std::move(pending);
  ++count_;
}

std::shared_ptr<Pending> Pendings::find(MPI_Request handle) {
  std::lock_guard const held(mutex_);
  auto const found = all_.find(handle);
  return found == all_.end() ? nullptr : found->second;
}

void Pendings::remove(Pending const& pending) {
  std::lock_guard const held(mutex_);
  count_ -= all_.erase(pending.handle());
}

void Pendings::detach(std::shared_ptr<Pending> pending) {
  std::lock_guard const held(mutex_);
  all_.erase(pending->handle());
  detached_.push_back(std::move(pending));
}

void Pendings::sweep() {
  std::unique_lock const held(mutex_, std::try_to_lock);
  if (!held) return;
  count_ -= std::erase_if(detached_, [](auto const& pending) {
    if (!pending->finish()) return false;
    pending->drop();
    return true;
  });
}

void Pendings::drain() {
  auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  auto const is_done = [&] {
    sweep();
    return detached_.empty();
  };
  bootstrap::poll(is_done, deadline);
  std::lock_guard const held(mutex_);
  detached_.clear();
  all_.clear();
}

}  // namespace davit::drop_in
