// SPDX-License-Identifier: Apache-2.0
#include "examples/support/mpi_rows.hpp"

#include "examples/support/moe_recipe.hpp"
#include "examples/support/world.hpp"

namespace support {
namespace {

class HostCarrier final : public RowCarrier {
 public:
  HostCarrier(LayerShape const& shape, MPI_Comm comm) : shape_(shape), rows_(shape.row_bytes(), comm) {}

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    auto const buffer = std::make_shared<Buffer>(bytes);
    return {buffer, buffer->data()};
  }
  void finish() override {}
  void keep(MoveList&) override {}
  void keep(SumList&) override {}

  void exchange(std::byte const* send, RowBlocks const& sent, std::byte* recv, RowBlocks const& taken) override {
    rows_.alltoallv(send, sent, recv, taken);
  }
  void move(std::byte* to, std::byte const* from, MoveList const& list) override {
    move_rows(to, from, shape_.row_bytes(), list.moves, stores_for(list.to_bytes));
  }
  void sum(std::byte* out, SumList const& list) override {
    auto const dtype = shape_.dtype;
    davit::host::RowSum const types{
        .in = dtype, .inner = dtype, .out = dtype, .weighted = true, .rounds_inner = list.rounds_groups};
    std::span<davit::host::Term const> const terms(list.terms);
    for (std::size_t i = 0; i < list.sums(); ++i) {
      sum_row(types, terms.subspan(list.first[i], list.first[i + 1] - list.first[i]), nullptr,
              out + i * shape_.row_bytes(), static_cast<std::size_t>(shape_.hidden));
    }
  }

 private:
  LayerShape shape_;
  MpiRows rows_;
};

}  // namespace

MpiRows::MpiRows(std::size_t row_bytes, MPI_Comm comm) : comm_(comm) {
  check(MPI_Type_contiguous(static_cast<int>(row_bytes), MPI_BYTE, &type_), "MPI_Type_contiguous");
  check(MPI_Type_commit(&type_), "MPI_Type_commit");
}

MpiRows::~MpiRows() { MPI_Type_free(&type_); }

void MpiRows::alltoallv(std::byte const* send, RowBlocks const& sent, std::byte* recv, RowBlocks const& taken) const {
  check(MPI_Alltoallv(send, sent.counts.data(), sent.places.data(), type_, recv, taken.counts.data(),
                      taken.places.data(), type_, comm_),
        "MPI_Alltoallv");
}

davit::host::Stores stores_for(std::size_t bytes) noexcept {
  constexpr std::size_t most_cached = std::size_t{4} << 20;
  return bytes > most_cached ? davit::host::Stores::streaming : davit::host::Stores::cached;
}

std::unique_ptr<RowCarrier> make_host_carrier(LayerShape const& shape, MPI_Comm comm) {
  return std::make_unique<HostCarrier>(shape, comm);
}

}  // namespace support
