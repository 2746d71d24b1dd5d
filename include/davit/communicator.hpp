// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicator: MPI_Alltoallv and its kin over host slots and flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "davit/bootstrap.hpp"
#include "davit/dtype.hpp"
#include "davit/error.hpp"
#include "davit/export.hpp"
#include "davit/options.hpp"
#include "davit/request.hpp"
#include "davit/stats.hpp"
#include "davit/stream.hpp"

namespace davit {

namespace detail {
class CommunicatorState;
struct Access;  // tests
}  // namespace detail

/// As MPI_IN_PLACE: given for `send`, the data are taken from `recv` and replaced; counts, displacements and dtype of
/// the sending side are then never read.
DAVIT_EXPORT extern void const* const in_place;

/// Counts or displacements, one a rank, in elements.
using Counts = std::span<std::int64_t const>;

/// A buffer in memory that every rank of the node maps: blocks in it are exchanged by plain copies, at any size,
/// without a system call. Made by Communicator::allocate; moves, never copies; freed locally when dropped.
class DAVIT_EXPORT SharedBuffer {
 public:
  SharedBuffer() noexcept = default;
  /// First byte, aligned to a page; null if empty.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  friend class Communicator;
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A group of ranks that exchange data, and the slots through which they do.
///
/// - *Collective*: every method so marked is called by all ranks in the same order, as MPI asks. One thread at a time
///   inside a communicator (a second one is a UsageError on that thread alone); different communicators may be used by
///   different threads at once. Where its ranks sit on several nodes and MPI's thread level is below
///   MPI_THREAD_MULTIPLE, only the thread that made it may call (UsageError on that thread alone).
/// - *Buffers* are host, device, managed or registered memory; ranks may differ, and one communicator may see both. On
///   one rank, if one buffer of a call is on a GPU, the others must be where that GPU reaches them: not pageable host
///   memory (UsageError). Null is fine where all counts are zero. Gaps between blocks stay untouched.
/// - *Streams*: without one a call blocks until the buffers may be reused, and takes no notice of what streams hold:
///   synchronise first. With one it enqueues and returns: it starts after what the stream holds, later work on the
///   stream starts after it and may overwrite the input; its result counts once status() has returned true or a later
///   exchange without a stream (not a barrier, prepare or route) has returned. Same order on all ranks, over all
///   communicators that share ranks. It needs prepare() with a GPU chosen. Whether ranks agree is found out later, and
///   where they do not the communicator fails.
/// - *Counts and displacements* have `size()` entries, in elements of the dtype beside them; where a count is zero the
///   displacement means nothing. Only the bytes of a pair must agree, not its dtypes.
/// - *Errors*: davit/error.hpp. Arguments are checked before anything moves; the rank at fault raises UsageError, the
///   others PeerError that names it and its reason, and the next call works.
/// - *Deadline*: `Options::timeout` from the moment this rank's call has come to the head of the communicator's queue.
///
/// @code
///   davit::Communicator comm{davit::mpi(MPI_COMM_WORLD)};
///   comm.alltoallv(send, send_counts, send_displs, davit::f32, recv, recv_counts, recv_displs, davit::f32);
/// @endcode
/// Wrong, and a UsageError: a nonblocking call before any blocking one and without prepare():
/// @code
///   davit::Communicator comm{davit::mpi(MPI_COMM_WORLD)};
///   auto request = comm.ialltoallv(...);
/// @endcode
class DAVIT_EXPORT Communicator {
 public:
  /// Null communicator: good for assigning to, nothing else.
  Communicator() noexcept;
  /// Collective. Maps a few pages a rank; slots come with prepare().
  /// @throws MismatchError naming the option and both values where ranks' options differ, on all ranks;
  ///         UsageError for an option out of its bounds, PeerError on the other ranks;
  ///         SystemError if the segment cannot be made (both figures named), or if ranks sit on several nodes and the
  ///         bootstrap does not stand on MPI, or the path is pinned to `direct`; TimeoutError.
  explicit Communicator(std::shared_ptr<Bootstrap> bootstrap, Options options = {});
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  /// Local, never hangs. Ranks that call on it afterwards raise PeerError. Open requests are abandoned. On several
  /// nodes it waits until the ranks elsewhere have come through the calls that this one has, under the deadline.
  ~Communicator();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// Name used in messages.
  [[nodiscard]] std::string const& name() const;
  [[nodiscard]] Options const& options() const;
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Local: false once a time-out, a death or a system error has failed it for good.
  [[nodiscard]] bool usable() const;
  [[nodiscard]] Stats stats() const;
  /// The number of the last collective call made here; messages carry it.
  [[nodiscard]] std::uint32_t calls() const;

  /// Collective: reserves and binds the slots, so that nonblocking calls may follow; the first blocking call does it
  /// too. Where the program has chosen a GPU (Options::device, or a current CUDA context) it is made ready as well, so
  /// that calls on streams may follow: context, kernels, registration of the slots. May be called again, after
  /// choosing.
  /// @throws SystemError naming bytes needed and free where the slots do not fit, or what CUDA said; UsageError where
  /// two ranks have chosen one GPU and Options::allow_shared_gpu is not set. The others get PeerError.
  void prepare();
  /// Local: the GPU that this rank's calls use, or that it had best use: Options::device, the program's current one,
  /// else the nearest to where the rank may run, spread over the node's root complexes. -1 where there is none. Chooses
  /// nothing: give it to cudaSetDevice.
  /// @throws SystemError where a GPU is there but cannot be used; UsageError if Options::device is not there.
  [[nodiscard]] int device() const;
  /// Local, never waits: whether all calls on streams have run. @throws what one of them met.
  [[nodiscard]] bool status();
  /// Collective: returns when all ranks have called it.
  void barrier();
  /// Collective: ranks of equal `color` (>= 0) get a communicator of their own, ordered by `key`, then rank; `color <
  /// 0` gets a null one. Options are inherited.
  [[nodiscard]] Communicator split(int color, int key = 0);
  /// Collective: a second communicator over the same ranks.
  [[nodiscard]] Communicator dup();
  /// Collective: `bytes` (may differ by rank, 0 is fine) of memory that the node's ranks map. @throws as prepare().
  [[nodiscard]] SharedBuffer allocate(std::size_t bytes);

  /// Collective, blocking: block i of `send` goes to rank i, block j of `recv` comes from rank j. Blocks of `recv` must
  /// not overlap (UsageError), nor `send` and `recv` (not checked). With `in_place`, counts must be symmetric: what
  /// rank i receives from j is what it sends to j.
  void alltoallv(void const* send, Counts send_counts, Counts send_displs, Dtype send_dtype,  //
                 void* recv, Counts recv_counts, Counts recv_displs, Dtype recv_dtype);
  /// The same on a stream: enqueued. The spans are copied. Launches no kernel but for the block that this rank keeps.
  void alltoallv(void const* send, Counts send_counts, Counts send_displs, Dtype send_dtype,  //
                 void* recv, Counts recv_counts, Counts recv_displs, Dtype recv_dtype, Stream stream);
  /// Local: posts an alltoallv; the spans are copied, the buffers are not.
  /// @throws UsageError before prepare(); the other ranks get PeerError at this call.
  [[nodiscard]] Request ialltoallv(void const* send, Counts send_counts, Counts send_displs, Dtype send_dtype,
                                   void* recv, Counts recv_counts, Counts recv_displs, Dtype recv_dtype);
  /// Collective: checks the arguments and agrees on the sizes once, for a plan that may be started any number of times.
  [[nodiscard]] Plan alltoallv_init(void const* send, Counts send_counts, Counts send_displs, Dtype send_dtype,
                                    void* recv, Counts recv_counts, Counts recv_displs, Dtype recv_dtype);

  /// Collective, blocking or on a stream: every rank's `send` (`send_count` elements) into block r of every rank's
  /// `recv`. In one step: each rank writes once, the others read. `in_place`: the own block already stands in `recv`.
  void allgatherv(void const* send, std::int64_t send_count, Dtype send_dtype,  //
                  void* recv, Counts recv_counts, Counts recv_displs, Dtype recv_dtype,
                  std::optional<Stream> stream = {});

  /// Collective, blocking or on a stream: element-wise sum over the ranks of `send` (the sum of `counts` elements, the
  /// same counts on all ranks); block r, `counts[r]` elements, goes to rank r's `recv`. f32, f16 or bf16; added in f32,
  /// rank rising, rounded once. `in_place`: input in `recv`, result at its start. `recv` holds `counts[rank()]`
  /// elements, all with `in_place`.
  void reduce_scatterv(void const* send, void* recv, Counts counts, Dtype dtype, std::optional<Stream> stream = {});

  /// Typed form of alltoallv, for element types that davit has a Dtype for.
  template <class T>
  void alltoallv(T const* send, Counts send_counts, Counts send_displs, T* recv, Counts recv_counts,
                 Counts recv_displs) {
    alltoallv(send, send_counts, send_displs, dtype_of<T>(), recv, recv_counts, recv_displs, dtype_of<T>());
  }

 private:
  friend class ExpertGroup;
  friend struct detail::Access;
  explicit Communicator(std::shared_ptr<detail::CommunicatorState> state) noexcept;
  std::shared_ptr<detail::CommunicatorState> state_;

  template <class T>
  static constexpr Dtype dtype_of() {
    if constexpr (std::is_same_v<T, float>)
      return f32;
    else if constexpr (std::is_same_v<T, double>)
      return f64;
    else if constexpr (std::is_same_v<T, std::int8_t>)
      return i8;
    else if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte> || std::is_same_v<T, char>)
      return u8;
    else if constexpr (std::is_same_v<T, std::int16_t>)
      return i16;
    else if constexpr (std::is_same_v<T, std::uint16_t>)
      return u16;
    else if constexpr (std::is_same_v<T, std::int32_t>)
      return i32;
    else if constexpr (std::is_same_v<T, std::uint32_t>)
      return u32;
    else if constexpr (std::is_same_v<T, std::int64_t>)
      return i64;
    else if constexpr (std::is_same_v<T, std::uint64_t>)
      return u64;
    else
      static_assert(sizeof(T) == 0, "davit has no Dtype for this element type");
  }
};

/// Bytes of shared memory that one rank of a communicator of `ranks` ranks reserves, without allocating anything:
/// control pages from creation, slots from prepare(). With `slot_bytes` 0 the node's last-level caches are asked.
struct MemoryUse {
  std::size_t control_bytes;  ///< header, counters, cards: 4 KiB + ranks x (128 + 64 x 64) + 64 x 256, in pages
  std::size_t
      slots_bytes;  ///< 2 x slots x (slot_bytes + 4 KiB); times the NUMA nodes that ranks sit beside, if several
  std::size_t slot_bytes;
  int slots;  ///< in each of the two banks
};
[[nodiscard]] DAVIT_EXPORT MemoryUse memory_use(int ranks, Options const& options = {});

}  // namespace davit
