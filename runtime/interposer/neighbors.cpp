// SPDX-License-Identifier: Apache-2.0
/// @file
/// MPI_Neighbor_alltoallv as an alltoallv in which most pairs have nothing to say.
#include <algorithm>
#include <vector>

#include "davit/davit_mpi.h"
#include "runtime/interposer/collectives.hpp"

namespace davit::drop_in {
namespace {

using bootstrap::check;

struct Neighbors {
  std::vector<int> sources;
  std::vector<int> destinations;
};

std::vector<int> cartesian(MPI_Comm comm) {
  int dimensions = 0;
  check(MPI_Cartdim_get(comm, &dimensions), "MPI_Cartdim_get");
  std::vector<int> ranks(2 * static_cast<std::size_t>(dimensions));
  for (int d = 0; d < dimensions; ++d) {
    auto* const pair = ranks.data() + 2 * d;
    check(MPI_Cart_shift(comm, d, 1, pair, pair + 1), "MPI_Cart_shift");
  }
  return ranks;
}

std::vector<int> graph(MPI_Comm comm, int rank) {
  int count = 0;
  check(MPI_Graph_neighbors_count(comm, rank, &count), "MPI_Graph_neighbors_count");
  std::vector<int> ranks(static_cast<std::size_t>(count));
  check(MPI_Graph_neighbors(comm, rank, count, ranks.data()), "MPI_Graph_neighbors");
  return ranks;
}

Neighbors distributed(MPI_Comm comm) {
  int in = 0;
  int out = 0;
  int weighted = 0;
  check(MPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted), "MPI_Dist_graph_neighbors_count");
  Neighbors all{std::vector<int>(static_cast<std::size_t>(in)), std::vector<int>(static_cast<std::size_t>(out))};
  std::vector<int> weights(static_cast<std::size_t>(std::max(in, out)) + 1);
  auto in_weights = weights;
  check(MPI_Dist_graph_neighbors(comm, in, all.sources.data(), in_weights.data(), out, all.destinations.data(),
                                 weights.data()),
        "MPI_Dist_graph_neighbors");
  return all;
}

Neighbors neighbors_of(Attached const& at) {
  int topology = MPI_UNDEFINED;
  check(MPI_Topo_test(at.comm, &topology), "MPI_Topo_test");
  if (topology == MPI_DIST_GRAPH) return distributed(at.comm);
  auto ranks = topology == MPI_CART ? cartesian(at.comm) : graph(at.comm, at.rank);
  return {ranks, ranks};
}

bool repeats(std::vector<int> ranks) {
  std::erase(ranks, MPI_PROC_NULL);
  std::sort(ranks.begin(), ranks.end());
  return std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end();
}

/// The ranks agree at their first such call: one block a pair is all that davit takes.
bool takes_neighbors(Attached& at) {
  if (at.neighbors < 0) {
    int topology = MPI_UNDEFINED;
    check(MPI_Topo_test(at.comm, &topology), "MPI_Topo_test");
    int mine = 0;
    if (topology != MPI_UNDEFINED) {
      auto const all = neighbors_of(at);
      mine = repeats(all.sources) || repeats(all.destinations) ? 0 : 1;
    }
    check(MPI_Allreduce(&mine, &at.neighbors, 1, bootstrap::int_type, MPI_MIN, at.own), "MPI_Allreduce");
  }
  return at.neighbors == 1;
}

/// One side with a block a rank instead of a block a neighbour.
struct Spread {
  Spread(Attached const& at, std::vector<int> const& ranks, int const* given_counts, int const* given_displs)
      : counts(static_cast<std::size_t>(at.size)), displs(counts.size()) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == MPI_PROC_NULL) continue;
      counts[static_cast<std::size_t>(ranks[i])] = given_counts[i];
      displs[static_cast<std::size_t>(ranks[i])] = given_displs[i];
    }
  }
  std::vector<MPI_Count> counts;
  std::vector<MPI_Aint> displs;
};

}  // namespace
}  // namespace davit::drop_in

int davit_neighbor_alltoallv(void const* sendbuf, int const sendcounts[], int const sdispls[], MPI_Datatype sendtype,
                             void* recvbuf, int const recvcounts[], int const rdispls[], MPI_Datatype recvtype,
                             MPI_Comm comm) {
  using namespace davit::drop_in;
  auto const mpi = [&] {
    return PMPI_Neighbor_alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype,
                                   comm);
  };
  constexpr auto kind = Kind::neighbor_alltoallv;
  int code = MPI_SUCCESS;
  auto* const at = taker_of(comm, kind, code);
  bool takes = false;
  if (at != nullptr) {
    Inside const inside;
    try {
      takes = takes_neighbors(*at);
    } catch (std::exception const&) {
      code = class_of_current(MPI_ERR_OTHER);
    }
    if (!takes && switches().verbose) at->tally.change(kind, [](Calls& calls) { ++calls.passed_on; });
  }
  if (code != MPI_SUCCESS) return report_error(comm, code);
  if (!takes) {
    Inside const inside;
    return mpi();
  }
  auto const work = [&](Stage& stage) {
    auto const all = neighbors_of(*at);
    Spread const from(*at, all.destinations, sendcounts, sdispls);
    Spread const to(*at, all.sources, recvcounts, rdispls);
    alltoallv(*at, blocks_of(sendbuf, from.counts.data(), from.displs.data(), sendtype),
              blocks_of(recvbuf, to.counts.data(), to.displs.data(), recvtype), stage);
  };
  return run(
      *at, kind, work, [&] { refuse_alltoallv(*at); }, true, mpi);
}
