// SPDX-License-Identifier: Apache-2.0
/// @file
/// The requests of one call that waits or tests: which are davit's, and how far they are.
#pragma once

#include <mpi.h>

#include <memory>
#include <span>
#include <vector>

#include "runtime/interposer/pending.hpp"

namespace davit::drop_in {

class Batch {
 public:
  Batch(int count, MPI_Request* requests);

  /// Whether none is davit's.
  [[nodiscard]] bool none() const noexcept { return none_; }
  /// Gets on with all. @returns whether all are done
  bool finish();
  /// Waits for all.
  void wait();
  void poke_mpi() const noexcept;

  /// For a call that takes what is done: the requests, those of persistent calls that are not done left out, since MPI
  /// would take them for inactive. Handles that MPI may complete are forgotten before it does.
  [[nodiscard]] MPI_Request* offer();
  /// After it: takes over what MPI did. @param completed indices
  void accept(std::span<int const> completed);
  /// All are done and were completed by MPI on the program's own array.
  void forget();
  void remember();

  /// The error class of a completed request, once.
  int take_code(int index);
  /// Puts the codes of completed requests beside MPI's. @param code MPI's. @param statuses one for each of `completed`,
  /// or the constant that means none. @returns what to return, which the program's handler was told
  int conclude(int code, std::span<int const> completed, MPI_Status* statuses);
  int report(int index, int code) const;

 private:
  [[nodiscard]] Pending* at(int index) const { return mine_[static_cast<std::size_t>(index)].get(); }

  std::span<MPI_Request> requests_;
  std::vector<std::shared_ptr<Pending>> mine_;  ///< null for those of others
  std::vector<MPI_Request> offered_;
  bool none_ = true;
};

}  // namespace davit::drop_in
