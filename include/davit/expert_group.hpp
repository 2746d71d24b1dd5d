// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mixture-of-Experts exchange: ExpertGroup (who holds which expert), Routing (one batch's choices), dispatch (rows to
/// the ranks of their experts) and combine (results back to the tokens' owners, summed).
///
/// Notation: R ranks, E experts, L experts on this rank, T tokens on this rank (0 to C), C `max_tokens`, K `top_k`,
/// H `hidden`. All arrays are row-major. Rows may lie in host memory or on the GPU (see Communicator); counts are on
/// the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "davit/communicator.hpp"

namespace davit {

namespace detail {
class GroupState;
class RoutingState;
struct LayoutPlan;
}  // namespace detail

/// Order of received rows. Chosen at each dispatch, from one routing.
enum class Layout : std::uint8_t {
  by_source,    ///< one row a (token, rank): ordered (source, token). The caller weights and sums its own experts.
  by_expert,    ///< one row a (token, expert): contiguous per expert, inside it (source, token), counts aligned up
  expert_slots  ///< [L, R * C, row]: source r's rows start at r * C, token order, the rest untouched
};

/// Who multiplies expert rows by the routing's weights.
enum class Weighting : std::uint8_t {
  at_combine,  ///< combine does (default)
  by_caller    ///< the rows given to combine are weighted already; combine only adds. The one choice of by_source.
};

/// How combine adds. Every sum is in f32, product and sum round apart, the first term starts the sum, a token without
/// any term gets +0.0.
enum class Reduce : std::uint8_t {
  /// Three steps: (1) a rank adds its own experts' rows, k rising; (2) the ranks of a reduction group are added, rank
  /// rising; (3) the token's owner adds the groups, number rising, then the bias, and rounds to the output's dtype.
  /// Results of (1) and (2) are rounded to `partial_dtype`, whether or not they cross a link.
  grouped,
  /// One row a (token, used k) comes back and is added k = 0, 1, 2, ..., then the bias, rounded once: the bits of the
  /// plain loop, for checks. Not with by_source.
  by_k
};

/// Where Received rows live: called for the rows of each dispatch that does not name the caller's own memory. What it
/// throws comes out of that dispatch as it is (null: std::bad_alloc), and the other ranks get PeerError.
struct Allocator {
  std::function<void*(std::size_t bytes)> allocate;
  std::function<void(void* data, std::size_t bytes)> deallocate;
};

/// Settings of an ExpertGroup; equal on all ranks but for the allocators.
struct ExpertGroupOptions {
  std::int64_t experts = 0;     ///< E, 1 to 2^20; rank r holds a contiguous block, the first E mod R ranks one more
  std::int64_t top_k = 0;       ///< K, 1 to 1024; may be above E
  std::int64_t hidden = 0;      ///< H, elements of a combined row
  std::int64_t max_tokens = 0;  ///< C, most tokens a rank may bring to one routing
  Dtype dtype = bf16;           ///< of expert rows given to combine: f32, f16 or bf16
  std::optional<Dtype> partial_dtype{};  ///< of partial sums; unset: `dtype`
  int reduce_group = 0;                  ///< ranks of a reduction group; 0: the node's ranks
  int routings = 8;                      ///< A, routings that may be alive at once
  Allocator allocator{};                 ///< of host memory; unset: memory that the communicator keeps and uses again
  Allocator device_allocator{};          ///< the same on the GPU
};

/// Where received rows live.
enum class Space : std::uint8_t {
  automatic,  ///< on the GPU with a stream or where x is there, else on the host
  host,
  device  ///< for a rank without tokens, whose x may be null
};

/// Choices of a batch in memory of the GPU. [T, K] each.
struct DeviceChoices {
  void const* ids = nullptr;
  Dtype id_dtype = i32;  ///< i32 or i64
  float const* weights = nullptr;
  std::int64_t tokens = 0;  ///< T
};

/// An array of byte rows that travels with the tokens: [T, row_bytes].
struct RowArray {
  void const* data = nullptr;
  std::size_t row_bytes = 0;
};

/// Choices of one dispatch. Widths and number of payloads must be equal on all ranks; layout, alignment and the
/// numbering of ids concern this rank alone.
struct DispatchOptions {
  Layout layout = Layout::by_expert;
  std::int64_t alignment = 1;  ///< by_expert: each expert's rows are padded with zeros up to a multiple, any n >= 1
  std::size_t row_bytes = 0;   ///< of x; 0: hidden * size_of(dtype)
  std::span<RowArray const> payloads{};  ///< moved beside x, block scales for instance; 7 at most
  bool global_ids = false;               ///< received ids number all experts instead of this rank's
  Space space = Space::automatic;        ///< of the received rows, unless the caller gives the memory
  std::optional<Stream> stream{};        ///< enqueued on it, instead of blocking
};

/// Choices of one combine. Weighting and reduce must be equal on all ranks; the rest concerns this rank alone.
struct CombineOptions {
  std::optional<Layout> layout{};  ///< of the rows given; unset: that of the routing's last dispatch
  std::optional<std::int64_t> alignment{};
  std::optional<Weighting> weighting{};  ///< unset: at_combine, but by_caller for by_source
  Reduce reduce = Reduce::grouped;
  std::optional<Dtype> out_dtype{};  ///< unset: the group's dtype
  void const* bias = nullptr;        ///< [T, H] of the output's dtype, added last; null: none
  std::optional<Stream> stream{};    ///< enqueued on it, instead of blocking
};

/// Number of rows, and who sent them to which of this rank's experts. Views into the routing's plan; they live as long
/// as the Received or the Routing they came from.
struct ReceivedCounts {
  std::span<std::int64_t const> counts;          ///< [L, R] rows of (token, expert)
  std::span<std::int64_t const> expert_counts;   ///< [L] sum over the sources
  std::span<std::int64_t const> padded_counts;   ///< [L] aligned up (by_expert), else as expert_counts
  std::span<std::int64_t const> expert_offsets;  ///< [L] first row of each expert (by_expert, expert_slots)
  std::span<std::int64_t const> source_counts;   ///< [R] rows of (token, rank) from each source
};

/// The caller's own memory for a dispatch: `rows` holds Routing::rows(layout, alignment) rows of row_bytes, `payloads`
/// as many rows of each payload.
struct ReceiveInto {
  void* rows = nullptr;
  std::span<void* const> payloads{};
};

/// What a dispatch brought. Move-only; owns its rows unless the caller gave the memory. Rows of an enqueued dispatch
/// are there for later work on its stream. It may be dropped while that stream, which must still be there, has yet to
/// read them; but only when work on other streams has done with it.
class DAVIT_EXPORT Received {
 public:
  Received() noexcept = default;
  Received(Received&&) noexcept = default;
  Received& operator=(Received&&) noexcept = default;

  /// Rows in `data()`, padding and capacity included.
  [[nodiscard]] std::int64_t rows() const;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }  ///< [rows(), row_bytes()]
  [[nodiscard]] std::size_t row_bytes() const noexcept { return row_bytes_; }
  /// [rows(), its row_bytes]. @throws UsageError for an index that the dispatch had no payload for.
  [[nodiscard]] std::byte* payload(std::size_t index) const;
  /// [rows(), K]: the token's choices on this rank, k rising, local numbers (global by option); -1 where not here.
  [[nodiscard]] std::span<std::int32_t const> ids() const;
  /// [rows(), K]: weight beside each id, 0 beside -1.
  [[nodiscard]] std::span<float const> weights() const;
  [[nodiscard]] ReceivedCounts counts() const;
  [[nodiscard]] Layout layout() const;

 private:
  friend class ExpertGroup;
  std::shared_ptr<detail::LayoutPlan const> plan_;
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  std::size_t row_bytes_ = 0;
  std::vector<std::byte*> payloads_;
};

/// The choices of one batch, known to all ranks. May be dispatched and combined any number of times. Dropping it is
/// local and frees its area for a later route; at most `routings` may be alive.
class DAVIT_EXPORT Routing {
 public:
  Routing() noexcept = default;
  Routing(Routing&&) noexcept = default;
  Routing& operator=(Routing&&) noexcept = default;

  [[nodiscard]] std::int64_t tokens() const;  ///< T of this rank
  /// Rows that a dispatch in this layout would bring, padding and capacity included.
  [[nodiscard]] std::int64_t rows(Layout layout, std::int64_t alignment = 1) const;
  [[nodiscard]] ReceivedCounts counts(Layout layout = Layout::by_expert, std::int64_t alignment = 1) const;

 private:
  friend class ExpertGroup;
  explicit Routing(std::shared_ptr<detail::RoutingState> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<detail::RoutingState> state_;
};

/// Experts spread over the ranks of a communicator. Calls on it take their place in the communicator's call order and
/// obey its rules; it keeps what it needs of the communicator alive.
///
/// Promise: the bits of combine follow from ids, weights, rows, dtypes and `reduce_group`; not from time, path, chunks,
/// layout (by_source apart) or the spread of the ranks.
class DAVIT_EXPORT ExpertGroup {
 public:
  /// Collective. @throws MismatchError naming the field and both values where ranks' options differ, on all ranks;
  /// UsageError for an option out of its bounds, PeerError on the other ranks; SystemError as Communicator::prepare.
  ExpertGroup(Communicator& comm, ExpertGroupOptions const& options);
  ExpertGroup(ExpertGroup&&) noexcept;
  ExpertGroup& operator=(ExpertGroup&&) noexcept;
  ~ExpertGroup();

  [[nodiscard]] ExpertGroupOptions const& options() const;
  [[nodiscard]] std::int64_t local_experts() const;       ///< L
  [[nodiscard]] std::int64_t first_expert() const;        ///< global number of local expert 0
  [[nodiscard]] int owner_of(std::int64_t expert) const;  ///< rank that holds an expert

  /// Collective, blocking: publishes this rank's choices and reads the others'. T is `ids.size() / K`.
  /// @param ids [T, K] global expert numbers; -1 means unused. The same expert twice in a token: merged, weights add in
  ///        f32, k rising, at the first position. @param weights [T, K]; those beside -1 are never read.
  /// Both may be overwritten afterwards. @throws UsageError naming row and value of an id out of range, T above
  /// max_tokens, sizes that do not fit, or more than `routings` alive; the other ranks get PeerError.
  [[nodiscard]] Routing route(std::span<std::int32_t const> ids, std::span<float const> weights);
  [[nodiscard]] Routing route(std::span<std::int64_t const> ids, std::span<float const> weights);
  /// The same from the GPU. Blocking too, since the host must know the counts; with a stream it first waits for what
  /// that holds, under the deadline.
  [[nodiscard]] Routing route(DeviceChoices const& choices, std::optional<Stream> stream = {});

  /// Collective, blocking or on a stream: moves row t of `x` [T, row_bytes] (and of each payload) to every rank that
  /// holds one of token t's experts, once, and lays it out there. @throws UsageError for a routing of another group;
  /// MismatchError where ranks' row widths differ.
  [[nodiscard]] Received dispatch(Routing& routing, void const* x, DispatchOptions const& options = {});
  /// The same into the caller's memory.
  [[nodiscard]] Received dispatch(Routing& routing, void const* x, ReceiveInto const& into,
                                  DispatchOptions const& options = {});

  /// Collective, blocking or on a stream: the experts' results `rows` [rows of the layout, H] of `dtype` back to the
  /// owners: `out` [T, H]. Padding rows are never read. `rows` and `out` must not overlap (not checked).
  void combine(Routing& routing, void const* rows, void* out, CombineOptions const& options = {});

 private:
  [[nodiscard]] Received dispatch_to(Routing& routing, void const* x, ReceiveInto const* into,
                                     DispatchOptions const& options);
  std::shared_ptr<detail::GroupState> state_;
};

}  // namespace davit
