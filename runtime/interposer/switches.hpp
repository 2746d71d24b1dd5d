// SPDX-License-Identifier: Apache-2.0
/// @file
/// DAVIT_MPI*: which of MPI's calls davit takes. Read at the first call and not with the rest of the environment, which
/// must not trouble a program that never calls.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace davit::drop_in {

/// What davit can take. Persistent forms go with the nonblocking one, large counts with the plain one.
enum class Kind : unsigned char {
  alltoallv,
  alltoall,
  ialltoallv,
  ialltoall,
  allgatherv,
  reduce_scatter,
  neighbor_alltoallv
};
inline constexpr std::size_t kinds = 7;
/// As DAVIT_MPI_CALLS spells it.
[[nodiscard]] char const* name_of(Kind kind) noexcept;

/// The variables' comments are their manual. They must be set alike on all ranks.
struct Switches {
  /// DAVIT_MPI: off hands every call to the MPI library. Default on.
  bool on = true;
  /// DAVIT_MPI_CALLS: what is taken, with commas between. Default alltoallv,alltoall,ialltoallv,ialltoall; more are
  /// allgatherv, reduce_scatter (of MPI_FLOAT and MPI_SUM) and neighbor_alltoallv.
  std::array<bool, kinds> takes{true, true, true, true};
  /// DAVIT_MPI_VERBOSE: 1 writes a line a communicator to stderr when it ends, on its rank 0. Default 0.
  bool verbose = false;
  /// DAVIT_MPI_SAMPLE: n lets the MPI library do every nth blocking call once more, to compare times in the lines of
  /// DAVIT_MPI_VERBOSE. Default 0: never.
  unsigned sample = 0;
  /// DAVIT_MPI_CUDA: 1 lets MPIX_Query_cuda_support answer 1 where davit has a GPU to use, for programs that hand
  /// device buffers to no other calls than those that are taken. Default 0: the MPI library answers.
  bool claims_cuda = false;
  /// What is wrong with them; then nothing is taken.
  std::string error;

  [[nodiscard]] bool take(Kind kind) const noexcept { return on && takes[static_cast<std::size_t>(kind)]; }
};

/// The process's, read once.
[[nodiscard]] Switches const& switches() noexcept;

}  // namespace davit::drop_in
