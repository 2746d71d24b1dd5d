// SPDX-License-Identifier: Apache-2.0
/// @file
/// The dense shared exchanges, in one step each: every rank writes a chunk once, all who need it read it. In round c
/// rank r pushes its chunk c, then pulls chunk c of r - 1, r - 2, ...
#pragma once

#include <vector>

#include "runtime/alltoallv.hpp"
#include "runtime/staging.hpp"

namespace davit::detail {

class Allgatherv final : public Call {
 public:
  /// @param send this rank's block; null in place. @param recv checked.
  Allgatherv(CommunicatorState& comm, Side& side, std::byte const* send, std::uint64_t send_bytes, Dtype send_dtype,
             Blocks const& recv);
  Allgatherv(Allgatherv const&) = delete;  // recv_ refers to its own
  Allgatherv& operator=(Allgatherv const&) = delete;

 private:
  [[nodiscard]] Card terms(int peer) const override;
  bool submit() override;
  [[nodiscard]] bool goes_direct(std::uint16_t writer_flags, std::uint16_t reader_flags, std::uint64_t bytes) const;
  void pull_direct(int peer);
  [[nodiscard]] std::uint64_t chunks_of(std::uint64_t bytes) const noexcept;

  std::byte const* send_;
  std::uint64_t send_bytes_;
  Dtype send_dtype_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> displs_;
  Blocks recv_;
  std::vector<int> readers_;
};

/// A chunk holds a part of each owner's block, at a place that follows from rank and size alone, so that pairs with
/// different counts still know where to look.
class ReduceScatterv final : public Call {
 public:
  ReduceScatterv(CommunicatorState& comm, Side& side, std::byte const* send, std::byte* recv, Counts counts,
                 Dtype dtype);

 private:
  [[nodiscard]] Card terms(int peer) const override;
  [[nodiscard]] std::string explain(std::uint64_t mine, std::uint64_t theirs) const override;
  bool open() override;
  bool submit() override;
  void push_round(std::uint64_t round);
  void pull_round(std::uint64_t round);
  [[nodiscard]] std::uint64_t bytes_of(int owner) const noexcept;
  [[nodiscard]] std::uint64_t part_bytes() const noexcept;

  std::byte const* send_;
  std::byte* recv_;
  std::vector<std::int64_t> counts_;
  Dtype dtype_;
  std::vector<std::uint64_t> offsets_;  ///< of each owner's block in `send`, in bytes
  std::shared_ptr<void> result_;        ///< in place: until all of the input has been read
  Staging staging_;                     ///< on a GPU
  std::vector<RowTerm> terms_;
  std::vector<std::uint32_t> first_;
  std::vector<RowBase> bases_;  ///< `size` a round
  std::vector<int> readers_;
};

}  // namespace davit::detail
