// SPDX-License-Identifier: Apache-2.0
/// @file
/// Carriers of rows on a GPU. They enqueue, move and add rows by davit's own kernels, and keep lists in memory of the
/// GPU; how rows reach other ranks is left to whoever derives.
#pragma once

#include <memory>

#include "examples/support/cuda/stream.hpp"
#include "examples/support/moe_recipe.hpp"

namespace support {

class CudaRows : public RowCarrier {
 public:
  /// @throws Failure (usage) for rows too long for the kernels.
  CudaRows(LayerShape const& shape, TimedStream const& stream);

  std::shared_ptr<std::byte> allocate(std::size_t bytes) final { return device_memory(bytes); }
  void finish() final { stream_.wait(); }
  void keep(MoveList& list) final;
  void keep(SumList& list) final;
  void move(std::byte* to, std::byte const* from, MoveList const& list) final;
  void sum(std::byte* out, SumList const& list) final;

 protected:
  [[nodiscard]] LayerShape const& shape() const noexcept { return shape_; }
  [[nodiscard]] TimedStream const& stream() const noexcept { return stream_; }

 private:
  struct Kept;
  Kept& kept_of(std::shared_ptr<void>& kept, void const* data, std::size_t bytes, std::size_t host_bytes) const;

  LayerShape shape_;
  TimedStream const& stream_;
};

/// Rows go down to pinned memory, by MPI_Alltoallv, and up again; exchange() waits for it.
[[nodiscard]] std::unique_ptr<RowCarrier> make_staged_carrier(LayerShape const& shape, MPI_Comm comm,
                                                              TimedStream const& stream);

}  // namespace support
