// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the wire between nodes is made of: messages from rank to rank that keep their order. Over MPI in
/// transports/mpi/; tests have one between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace davit {

/// Bytes of memory that is not in one piece.
struct Piece {
  std::byte* at;
  std::size_t bytes;
};

/// Messages are matched by sender and lane in the order of sending. Nothing here waits; all calls by one thread at a
/// time. Errors of the layer below are SystemErrors.
class Link {
 public:
  /// Most bytes of a frame.
  static constexpr std::size_t kFrameBytes = std::size_t{48} << 10;
  /// Independent orders of messages sent by send_from().
  static constexpr int kLanes = 2;
  /// Names a transfer that is under way.
  using Transfer = std::uint64_t;

  virtual ~Link() = default;
  Link(Link const&) = delete;
  Link& operator=(Link const&) = delete;

  /// Sends a frame: 1 to kFrameBytes bytes.
  virtual void send(int to, std::vector<std::byte> frame) = 0;
  struct Frame {
    int from;
    std::span<std::byte const> bytes;  ///< until the next receive()
  };
  /// The next frame that has come from any rank, if one has.
  [[nodiscard]] virtual std::optional<Frame> receive() = 0;

  /// Sends bytes from where they lie, unchanged until the receiver has them. @param keep keeps the memory.
  virtual void send_from(int to, int lane, std::span<Piece const> pieces, std::shared_ptr<void> keep) = 0;
  /// Takes such a message to where it belongs. As many bytes as were sent, perhaps in other pieces.
  [[nodiscard]] virtual Transfer receive_into(int from, int lane, std::span<Piece const> pieces,
                                              std::shared_ptr<void> keep) = 0;
  /// Whether it has come; true only once.
  [[nodiscard]] virtual bool has_come(Transfer transfer) = 0;

  /// Gets on with what was sent. @returns whether all has left this rank's memory.
  virtual bool flush() = 0;

  /// Says goodbye to the ranks that this one has exchanged messages with; nothing is sent after that, and what comes is
  /// dropped. All of them do so in the end. @returns whether all have, each time it is asked.
  [[nodiscard]] virtual bool leave(std::span<int const> peers) = 0;
  /// Whether the calling thread may use it now.
  [[nodiscard]] virtual bool allows_this_thread() const noexcept = 0;
  /// Whether every thread may, at any time.
  [[nodiscard]] virtual bool allows_all_threads() const noexcept = 0;

 protected:
  Link() = default;
};

}  // namespace davit
