// SPDX-License-Identifier: Apache-2.0
#include "runtime/interposer/batch.hpp"

#include <algorithm>

#include "bootstrap/mpi_bootstrap.hpp"
#include "runtime/interposer/taken.hpp"

namespace davit::drop_in {

Batch::Batch(int count, MPI_Request* requests)
    : requests_(requests, static_cast<std::size_t>(std::max(count, 0))), mine_(requests_.size()) {
  auto& all = Pendings::of_process();
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    mine_[i] = all.find(requests_[i]);
    none_ = none_ && mine_[i] == nullptr;
  }
}

bool Batch::finish() {
  bool all = true;
  for (auto const& pending : mine_) all = (pending == nullptr || pending->finish()) && all;
  return all;
}

void Batch::wait() {
  for (auto const& pending : mine_) {
    if (pending != nullptr) pending->wait();
  }
}

void Batch::poke_mpi() const noexcept {
  auto const found = std::find_if(mine_.begin(), mine_.end(), [](auto const& pending) { return pending != nullptr; });
  if (found != mine_.end()) (*found)->poke_mpi();
}

MPI_Request* Batch::offer() {
  offered_.assign(requests_.begin(), requests_.end());
  for (std::size_t i = 0; i < mine_.size(); ++i) {
    if (mine_[i] == nullptr) continue;
    if (!mine_[i]->active()) {
      if (!mine_[i]->persistent()) Pendings::of_process().remove(*mine_[i]);
    } else if (mine_[i]->persistent()) {
      offered_[i] = bootstrap::no_request;
    }
  }
  return offered_.data();
}

void Batch::accept(std::span<int const> completed) {
  for (int const index : completed) {
    auto const i = static_cast<std::size_t>(index);
    requests_[i] = offered_[i];
  }
  for (std::size_t i = 0; i < mine_.size(); ++i) {
    if (mine_[i] == nullptr || mine_[i]->persistent() || mine_[i]->active()) continue;
    if (std::find(completed.begin(), completed.end(), static_cast<int>(i)) != completed.end()) continue;
    Pendings::of_process().add(mine_[i]);
  }
}

void Batch::forget() {
  for (auto const& pending : mine_) {
    if (pending != nullptr && !pending->persistent()) Pendings::of_process().remove(*pending);
  }
}

void Batch::remember() {
  for (auto const& pending : mine_) {
    if (pending != nullptr && !pending->persistent()) Pendings::of_process().add(pending);
  }
}

int Batch::take_code(int index) { return at(index) == nullptr ? MPI_SUCCESS : at(index)->take_code(); }

int Batch::conclude(int code, std::span<int const> completed, MPI_Status* statuses) {
  int failed = -1;
  for (std::size_t i = 0; i < completed.size(); ++i) {
    int const mine = take_code(completed[i]);
    if (mine == MPI_SUCCESS) continue;
    bool const told = statuses != bootstrap::no_statuses;
    if (failed < 0 && code == MPI_SUCCESS && told) {
      for (std::size_t k = 0; k < completed.size(); ++k) statuses[k].MPI_ERROR = MPI_SUCCESS;
    }
    if (failed < 0) failed = completed[i];
    if (told) statuses[i].MPI_ERROR = mine;
  }
  return failed < 0 || code != MPI_SUCCESS ? code : report(failed, MPI_ERR_IN_STATUS);
}

int Batch::report(int index, int code) const { return at(index)->report(code); }

}  // namespace davit::drop_in
