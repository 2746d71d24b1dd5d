// SPDX-License-Identifier: Apache-2.0
/// @file
/// A side of a communicator: an engine, and what collectives need beside it. Every communicator has a host side; one
/// that has met a GPU has a device side as well. A call is on the side where this rank's buffers are.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/leaving.hpp"
#include "runtime/row_pool.hpp"
#include "transports/device_backend.hpp"
#include "transports/engine.hpp"
#include "transports/mesh.hpp"

namespace davit::detail {

class Call;

class Side {
 public:
  Side(Side const&) = delete;
  Side& operator=(Side const&) = delete;

  [[nodiscard]] Engine& engine() noexcept { return *engine_; }
  [[nodiscard]] Engine const& engine() const noexcept { return *engine_; }
  /// Where rows live that the engine writes; a call's own temporary memory too. A piece that is dropped may be used by
  /// what is submitted later to the lane that it was used in.
  [[nodiscard]] std::shared_ptr<RowPool> const& pool() const noexcept { return pool_; }
  /// What `then` gets from now on waits for all that `first` holds now. @param rank of this process, for messages.
  void fence(Lane first, Lane then, int rank);

 protected:
  /// @param fences two words that the engine reaches; null: any memory will do.
  Side(std::unique_ptr<Engine> engine, std::shared_ptr<RowPool> pool, Counter* fences);
  ~Side() = default;

  std::unique_ptr<Engine> engine_;

 private:
  std::shared_ptr<RowPool> pool_;
  std::uint32_t fenced_ = 0;
  std::array<Counter, 2> own_fences_{};
  Counter* fences_;  ///< one a lane
};

class HostSide final : public Side {
 public:
  explicit HostSide(std::unique_ptr<Engine> engine) : Side(std::move(engine), host_pool(), nullptr) {}
};

/// The engine on a GPU, the segments that it reaches, and words by which it says how far it has come.
class DeviceSide final : public Side {
 public:
  /// Makes the context if there is none, which may take seconds. @throws SystemError.
  DeviceSide(DeviceBackend& backend, int device, Mesh& mesh);
  /// Never hangs; what the GPU might still touch then stays to the process's end, in the watcher's hands.
  ~DeviceSide();

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] DeviceEngine& device_engine() noexcept { return *device_engine_; }
  /// Lets the GPU reach a rank's outbox, whose owner must have reserved its slots. Once a rank; then free.
  /// @throws SystemError.
  void reach(int rank);

  // --- A call on a stream. What it submits lies between begin() and end(). Tickets count such calls: numbers of calls
  // would be too far apart after many others.

  /// @returns the call's ticket.
  [[nodiscard]] std::uint32_t begin(CUstream_st* stream);
  void end(CUstream_st* stream, std::uint32_t ticket);
  /// Takes calls that failed: what they own may still be in use.
  void take_over(std::list<std::shared_ptr<Call>>& calls) noexcept;
  /// Whether the stream has come to the call; whether it has run.
  [[nodiscard]] bool has_begun(std::uint32_t ticket) const noexcept;
  [[nodiscard]] bool has_ended(std::uint32_t ticket) const noexcept;
  /// From any thread: whether a call has begun and not ended.
  [[nodiscard]] bool is_in_a_call() const noexcept;

  /// How far the GPU has come, as the host sees it. From any thread.
  struct Progressed {
    std::array<std::uint32_t, 3> words;
    std::array<std::optional<Blocked>, 2> held_up;  ///< by lane
    [[nodiscard]] bool operator==(Progressed const& other) const noexcept;
  };
  [[nodiscard]] Progressed progressed() const noexcept;

  /// What the program has dropped and its streams may still use.
  [[nodiscard]] std::shared_ptr<Leaving> const& leaving() const noexcept { return leaving_; }
  /// Memory that goes back once its owner has dropped it and what `stream` held then has run.
  [[nodiscard]] std::shared_ptr<void> for_stream(CUstream_st* stream, std::shared_ptr<void> memory) const;

  /// Copies to the host, after what `stream` holds, if given, else after what the lanes hold.
  void fetch(std::span<CopyOp const> copies, std::byte* to, std::optional<CUstream_st*> stream);
  /// Whether the last of these has come.
  [[nodiscard]] bool has_fetched() const noexcept;

  /// Memory of the host that the engine reaches, the same at each call unless it must grow. @throws SystemError.
  [[nodiscard]] std::byte* host_memory(std::size_t bytes);

 private:
  static constexpr std::size_t kWordsBytes = 4096;
  DeviceSide(DeviceBackend& backend, int device, Mesh& mesh, std::unique_ptr<DeviceEngine> engine,
             std::shared_ptr<std::byte> words);
  [[nodiscard]] Counter& word(std::size_t index) const noexcept {
    return reinterpret_cast<Counter*>(reached_->words.get())[16 * index];  // a cache line each
  }
  /// What the GPU touches. Left to the process's end where it could not be stopped.
  struct Reached {
    std::shared_ptr<RowPool> pool;
    std::shared_ptr<std::byte> words;
    std::shared_ptr<std::byte> host_memory;
    std::vector<std::shared_ptr<void>> registrations;  ///< of each rank's outbox; null until reached
    std::list<std::shared_ptr<Call>> calls;
    std::unique_ptr<Engine> engine;  ///< only where it is left
  };

  DeviceBackend& backend_;
  int device_;
  Mesh& mesh_;
  DeviceEngine* device_engine_;
  std::size_t host_bytes_ = 0;
  std::uint32_t tickets_ = 0;
  std::uint32_t fetches_ = 0;
  std::unique_ptr<Reached> reached_;
  std::shared_ptr<Leaving> leaving_ = std::make_shared<Leaving>();
};

}  // namespace davit::detail
