// SPDX-License-Identifier: Apache-2.0
/// @file
/// An engine: two ordered queues (lanes) of a few operations. Collectives are written once, against this interface; the
/// host engine runs operations on CPUs, a device engine puts them on streams. Whoever submits keeps what an operation
/// points to alive and unchanged until `idle()`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "davit/dtype.hpp"
#include "transports/counter.hpp"
#include "transports/host/kernels.hpp"
#include "transports/outbox.hpp"

namespace davit {

/// Upward: from this rank's buffers into its slots. Downward: from peers' slots into its buffers. Operations of a lane
/// run in the order of submission, but for what is set aside; lanes are independent but for counters.
enum class Lane : std::uint8_t { up, down };

/// What a hold waits for, for messages.
enum class Awaited : std::uint8_t { data, credit };

/// Copies `bytes` from `from` to `to`.
struct CopyOp {
  std::byte* to;
  std::byte const* from;
  std::size_t bytes;
};

/// Sets `bytes` bytes to zero.
struct ZeroOp {
  std::byte* to;
  std::size_t bytes;
};

/// Sets a counter to `value`, visible after the effects of all earlier operations of the lane.
struct RaiseOp {
  Counter* counter;
  std::uint32_t value;
};

/// Keeps later operations of the lane from starting until a counter has reached `value`.
struct HoldOp {
  Counter const* counter;
  std::uint32_t value;
  int peer;  ///< whose raise is awaited
  Awaited awaited;
};

/// Gathers or scatters rows: see host::move_rows. Both arrays are packed rows.
struct MoveRowsOp {
  std::byte* to;
  std::byte const* from;
  std::size_t row_bytes;
  host::RowMove const* moves;
  std::size_t count;
  host::Stores stores;
};

/// Where rows of an array start.
struct RowBase {
  std::byte const* data;
  std::size_t stride;
};

/// One addend: row `row` of the array `base`.
struct RowTerm {
  std::uint32_t base;
  std::uint32_t row;
  float weight;
  std::uint32_t closes_group;
};

/// Sums rows: output row i adds the terms first[i] .. first[i + 1]; see host::sum_row.
struct SumRowsOp {
  host::RowSum types;
  RowBase const* bases;
  RowTerm const* terms;
  std::uint32_t const* first;  ///< `rows` + 1 entries
  std::size_t rows;
  std::size_t columns;
  std::byte* out;
  std::size_t out_stride;
  std::byte const* bias;  ///< same stride as out; may be null
};

/// Copies from another rank's memory, without its help. Only where Engine::can_fetch says so. The peer may fail its
/// call and take its buffer back, so the reader announces itself before it looks whether the peer has failed, and the
/// peer waits for announced readers after it has said so.
struct FetchOp {
  std::byte* to;
  int peer;
  std::uint64_t address;  ///< in the peer
  std::byte const* here;  ///< the same block as mapped here; null where it is not
  std::size_t bytes;
  std::uint32_t number;        ///< of the call
  CreditLine* line;            ///< of this rank, in the peer's outbox
  OutboxHeader const* header;  ///< of the peer
  bool begun;                  ///< false at submission
};

/// What an engine's lanes stand at.
struct Blocked {
  int peer;
  Awaited awaited;
  std::uint32_t value;   ///< awaited
  std::uint32_t actual;  ///< there now
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual void submit(Lane lane, CopyOp const& op) = 0;
  virtual void submit(Lane lane, ZeroOp const& op) = 0;
  virtual void submit(Lane lane, RaiseOp const& op) = 0;
  virtual void submit(Lane lane, HoldOp const& op) = 0;
  virtual void submit(Lane lane, MoveRowsOp const& op) = 0;
  virtual void submit(Lane lane, SumRowsOp const& op) = 0;
  virtual void submit(Lane lane, FetchOp const& op) = 0;
  [[nodiscard]] virtual bool can_fetch() const noexcept = 0;

  /// What follows in the lane up to end_aside() starts after what the lane holds now, and holds up nothing that comes
  /// behind, before join_aside() or seal(): work on this rank's own memory beside its copies. No raises and no holds.
  /// An engine may keep the plain order.
  virtual void begin_aside(Lane) {}
  virtual void end_aside(Lane) {}
  /// What follows in the lane starts after all that was set aside.
  virtual void join_aside(Lane) {}

  /// Whether collectives must submit all of a call before anything runs: read every card first, then submit push and
  /// pull in turn, then seal(). False where an operation may run as soon as it is submitted.
  [[nodiscard]] virtual bool submits_whole_calls() const noexcept = 0;
  /// The call's submissions are complete.
  virtual void seal() = 0;

  /// Gets on with what can run now; never waits. @returns whether anything ran. @throws what an operation met.
  virtual bool progress() = 0;
  /// Whether all that was submitted has run.
  [[nodiscard]] virtual bool idle() const noexcept = 0;
  /// What a lane's head waits for, if anything.
  [[nodiscard]] virtual std::optional<Blocked> blocked(Lane lane) const noexcept = 0;
  /// Drops all that has not run; the communicator has failed.
  virtual void abandon() noexcept = 0;
};

}  // namespace davit
