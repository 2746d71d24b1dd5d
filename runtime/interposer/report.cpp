// SPDX-License-Identifier: Apache-2.0
#include "runtime/interposer/report.hpp"

#include <atomic>
#include <cstdio>
#include <iomanip>
#include <sstream>

namespace davit::drop_in {
namespace {

void describe(std::ostream& out, Kind kind, Calls const& calls, std::string const& reason) {
  out << "; " << name_of(kind) << ": " << calls.taken << " taken";
  if (calls.taken > 0) out << ", " << calls.bytes << " bytes";
  if (auto const timed = calls.taken - calls.sampled; timed > 0) {
    out << ", " << calls.seconds / static_cast<double>(timed) * 1e6 << " us each";
  }
  if (calls.sampled > 0) {
    auto const each = 1e6 / static_cast<double>(calls.sampled);
    out << ", of " << calls.sampled << " sampled davit took " << calls.sampled_davit * each << " us each, MPI "
        << calls.sampled_mpi * each;
  }
  if (calls.passed_on > 0) out << ", " << calls.passed_on << " passed on";
  if (calls.early > 0) out << " (" << calls.early << " before the first blocking call)";
  if (calls.passed_on > calls.early) out << " (" << (reason.empty() ? "not for davit" : reason) << ")";
}

}  // namespace

void Tally::print(int ranks, std::string const& reason) const {
  static std::atomic<int> number{0};
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  bool any = false;
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    if (calls_[kind].taken + calls_[kind].passed_on == 0) continue;
    any = true;
    describe(out, static_cast<Kind>(kind), calls_[kind], reason);
  }
  if (!any) return;
  std::fprintf(stderr, "davit: MPI communicator %d, %d ranks%s\n", ++number, ranks, out.str().c_str());
}

}  // namespace davit::drop_in
