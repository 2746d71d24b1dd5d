// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an MPI call is given, as davit takes it: bytes, with 64-bit counts and displacements.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "davit/communicator.hpp"
#include "davit/error.hpp"
#include "runtime/interposer/attached.hpp"

namespace davit::drop_in {

/// One side of an exchange as MPI gives it: with arrays of counts and displacements, plain or large, or with one count
/// for all, block i at i * count.
struct Given {
  void* data = nullptr;
  MPI_Datatype datatype{};
  std::int64_t count = 0;
  int const* counts = nullptr;
  int const* displs = nullptr;
  MPI_Count const* large_counts = nullptr;
  MPI_Aint const* large_displs = nullptr;

  [[nodiscard]] std::int64_t count_of(std::size_t block) const {
    return counts != nullptr ? counts[block] : large_counts != nullptr ? large_counts[block] : count;
  }
  [[nodiscard]] std::int64_t displ_of(std::size_t block) const {
    if (displs != nullptr) return displs[block];
    return large_displs != nullptr ? large_displs[block] : static_cast<std::int64_t>(block) * count;
  }
};

[[nodiscard]] Given blocks_of(void const* data, std::int64_t count, MPI_Datatype datatype);
[[nodiscard]] Given blocks_of(void const* data, int const* counts, int const* displs, MPI_Datatype datatype);
[[nodiscard]] Given blocks_of(void const* data, MPI_Count const* counts, MPI_Aint const* displs, MPI_Datatype datatype);

/// MPI_IN_PLACE where it may not be.
struct BadBuffer : UsageError {
  using UsageError::UsageError;
};

/// The same side in bytes. Where the type has gaps, the blocks lie packed in a buffer of its own. The arrays given are
/// not read after the constructor.
class Side {
 public:
  /// @throws BadBuffer; UsageError for a datatype that cannot be taken.
  Side(Given const& given, std::size_t blocks, MPI_Comm own);
  ~Side();
  Side(Side const&) = delete;
  Side& operator=(Side const&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] Counts counts() const noexcept { return {numbers_, blocks_}; }
  [[nodiscard]] Counts displs() const noexcept { return {numbers_ + blocks_, blocks_}; }
  [[nodiscard]] bool negative() const noexcept { return negative_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return total_; }

  void pack();
  void unpack();
  /// For calls that outlive the program's own handle of the datatype.
  void keep_datatype();

 private:
  template <class Work>
  void each_piece(Work const& work);

  static constexpr std::size_t few = 16;
  std::size_t blocks_;
  MPI_Datatype datatype_;
  MPI_Comm own_;
  Type type_;
  std::byte* given_data_;
  std::array<std::int64_t, 2 * few> few_numbers_;  ///< not set: only as many as there are blocks are used
  std::int64_t* numbers_;                          ///< counts, then displacements
  std::byte* data_;
  std::int64_t total_ = 0;
  bool negative_ = false;
  bool keeps_datatype_ = false;
  std::vector<std::int64_t> places_;  ///< of blocks in the program's buffer, in bytes; only of types with gaps
  std::unique_ptr<std::byte[]> packed_;
  std::unique_ptr<std::int64_t[]> many_numbers_;
};

/// Both sides of a call, packed and ready.
class Sides {
 public:
  /// @throws UsageError as Side.
  Sides(Attached const& at, Given const& send, Given const& recv);

  [[nodiscard]] bool in_place() const noexcept { return !from_; }
  [[nodiscard]] void const* send() const noexcept { return from_ ? from_->data() : davit::in_place; }
  /// Of in place, those of the receiving side, which davit does not read.
  [[nodiscard]] Side const& from() const noexcept { return from_ ? *from_ : to_; }
  [[nodiscard]] Side& to() noexcept { return to_; }
  /// The MPI error class of what davit refuses in these arguments.
  [[nodiscard]] int blame() const noexcept { return blame_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return (from_ ? from_->bytes() : 0) + to_.bytes(); }
  void keep_datatypes();

 private:
  Side to_;
  std::optional<Side> from_;
  int blame_ = MPI_ERR_OTHER;
};

}  // namespace davit::drop_in
