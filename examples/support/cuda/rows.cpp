// SPDX-License-Identifier: Apache-2.0
#include "examples/support/cuda/rows.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "transports/cuda/row_kernels.hpp"

namespace support {
namespace {

using davit::cuda::IndexPair;
using davit::cuda::RowAddend;
using davit::host::RowMove;
using davit::host::Term;

// The lists are given to the kernels as they are.
static_assert(sizeof(IndexPair) == sizeof(RowMove) && offsetof(IndexPair, from) == offsetof(RowMove, from) &&
              offsetof(IndexPair, to) == offsetof(RowMove, to));
static_assert(sizeof(RowAddend) == sizeof(Term) && offsetof(RowAddend, row) == offsetof(Term, row) &&
              offsetof(RowAddend, weight) == offsetof(Term, weight) &&
              offsetof(RowAddend, closes_group) == offsetof(Term, closes_group));

class StagedRows final : public CudaRows {
 public:
  StagedRows(LayerShape const& shape, MPI_Comm comm, TimedStream const& stream)
      : CudaRows(shape, stream), rows_(shape.row_bytes(), comm) {}

  void exchange(std::byte const* send, RowBlocks const& sent, std::byte* recv, RowBlocks const& taken) override {
    auto* const out = staged(out_, out_bytes_, sent);
    auto* const in = staged(in_, in_bytes_, taken);
    copy_blocks(out, send, sent);
    stream().wait();
    rows_.alltoallv(out, sent, in, taken);
    copy_blocks(recv, in, taken);
    stream().wait();
  }

 private:
  [[nodiscard]] std::byte* staged(std::shared_ptr<std::byte>& memory, std::size_t& bytes, RowBlocks const& blocks) {
    std::size_t needed = 0;
    for (std::size_t i = 0; i < blocks.counts.size(); ++i) {
      needed = std::max(needed, static_cast<std::size_t>(blocks.places[i] + blocks.counts[i]) * shape().row_bytes());
    }
    if (needed > bytes || memory == nullptr) {
      memory = pinned_memory(needed);
      bytes = needed;
    }
    return memory.get();
  }
  void copy_blocks(std::byte* to, std::byte const* from, RowBlocks const& blocks) const {
    for (std::size_t i = 0; i < blocks.counts.size(); ++i) {
      auto const at = static_cast<std::size_t>(blocks.places[i]) * shape().row_bytes();
      copy(stream().get(), to + at, from + at, static_cast<std::size_t>(blocks.counts[i]) * shape().row_bytes());
    }
  }

  MpiRows rows_;
  std::shared_ptr<std::byte> out_, in_;
  std::size_t out_bytes_ = 0;
  std::size_t in_bytes_ = 0;
};

}  // namespace

/// Pinned memory of the host, and memory of the GPU that holds its first part.
struct CudaRows::Kept {
  std::shared_ptr<std::byte> host;
  std::shared_ptr<std::byte> device;
  std::size_t device_bytes = 0;
  std::size_t host_bytes = 0;
  unsigned const* first = nullptr;  ///< in `host`, of sums
  bool aligned = false;             ///< of sums
};

CudaRows::CudaRows(LayerShape const& shape, TimedStream const& stream) : shape_(shape), stream_(stream) {
  if (shape.row_bytes() <= davit::cuda::kMostRowBytes) return;
  throw Failure(Exit::usage,
                "--hidden " + std::to_string(shape.hidden) + ": a row has " + std::to_string(shape.row_bytes()) +
                    " bytes, must be at most " + std::to_string(davit::cuda::kMostRowBytes) + " on a GPU",
                Told::by_root);
}

CudaRows::Kept& CudaRows::kept_of(std::shared_ptr<void>& kept, void const* data, std::size_t bytes,
                                  std::size_t host_bytes) const {
  if (kept == nullptr) kept = std::make_shared<Kept>();
  auto& mine = *static_cast<Kept*>(kept.get());
  if (mine.host == nullptr || mine.host_bytes < bytes + host_bytes) {
    mine.host_bytes = bytes + host_bytes;
    mine.host = pinned_memory(mine.host_bytes);
  }
  if (mine.device == nullptr || mine.device_bytes < bytes) {
    mine.device_bytes = bytes;
    mine.device = device_memory(bytes);
  }
  if (bytes != 0) std::memcpy(mine.host.get(), data, bytes);
  copy(stream_.get(), mine.device.get(), mine.host.get(), bytes);
  return mine;
}

void CudaRows::keep(MoveList& list) { kept_of(list.kept, list.moves.data(), list.moves.size() * sizeof(RowMove), 0); }

void CudaRows::keep(SumList& list) {
  auto const bytes = list.terms.size() * sizeof(Term);
  auto const first_bytes = list.first.size() * sizeof(std::uint32_t);
  auto& kept = kept_of(list.kept, list.terms.data(), bytes, first_bytes);
  std::memcpy(kept.host.get() + bytes, list.first.data(), first_bytes);
  kept.first = reinterpret_cast<unsigned const*>(kept.host.get() + bytes);
  std::uintptr_t bits = 0;
  for (auto const& term : list.terms) bits |= reinterpret_cast<std::uintptr_t>(term.row);
  kept.aligned = bits % 16 == 0;
}

void CudaRows::move(std::byte* to, std::byte const* from, MoveList const& list) {
  if (list.moves.empty()) return;
  auto const& kept = *static_cast<Kept const*>(list.kept.get());
  launch(stream_.get(),
         davit::cuda::MoveRows{to, from, shape_.row_bytes(), reinterpret_cast<IndexPair const*>(kept.device.get()),
                               static_cast<unsigned>(list.moves.size())});
}

void CudaRows::sum(std::byte* out, SumList const& list) {
  if (list.sums() == 0) return;
  auto const& kept = *static_cast<Kept const*>(list.kept.get());
  auto const dtype = shape_.dtype;
  davit::cuda::SumRows sum{.in = dtype,
                           .inner = dtype,
                           .out_type = dtype,
                           .weighted = true,
                           .rounds_inner = list.rounds_groups,
                           .aligned = false,
                           .terms = reinterpret_cast<RowAddend const*>(kept.device.get()),
                           .first = kept.first,
                           .rows = static_cast<unsigned>(list.sums()),
                           .columns = static_cast<unsigned>(shape_.hidden),
                           .out = out,
                           .out_stride = shape_.row_bytes(),
                           .bias = nullptr};
  sum.aligned = can_sum_by_16(sum, kept.aligned ? 0 : 1);
  launch(stream_.get(), sum);
}

std::unique_ptr<RowCarrier> make_staged_carrier(LayerShape const& shape, MPI_Comm comm, TimedStream const& stream) {
  return std::make_unique<StagedRows>(shape, comm, stream);
}

}  // namespace support
