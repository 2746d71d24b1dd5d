// SPDX-License-Identifier: Apache-2.0
/// @file
/// Warps that send and receive: how a batch waits, is written and is read. README.md argues the order.
#pragma once

#include "transports/cuda/words_lines.cuh"

namespace davit::cuda {

inline constexpr unsigned kPollsALook =
    32;                                    // polls of host memory, a microsecond each, between looks at the failed word
inline constexpr unsigned kPatience = 64;  // polls of a whole batch, before only its end is polled
inline constexpr unsigned kEager = 256;    // polls, before a poll also sleeps
inline constexpr unsigned kNapNanoseconds = 500;
inline constexpr std::uint32_t kGivenUp = 0xffffffffU;

// Before this the caller's memory must not be touched, behind it the kernel before on the stream has ended. Only then
// may the next one start, so that no more than two wait on the device.
__device__ inline void wait_for_turn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Counts a wait's polls, and says when it is given up.
class Polls {
 public:
  __device__ explicit Polls(std::uint32_t const* failed) : failed_(failed) {}
  /// The same on all lanes. @returns false if the wait is over.
  [[nodiscard]] __device__ __forceinline__ bool go_on() {
    ++polls_;
    if (polls_ > kEager) __nanosleep(kNapNanoseconds);
    return polls_ % kPollsALook != 0 || __any_sync(kWholeWarp, load_word(failed_) != 0) == 0;
  }
  [[nodiscard]] __device__ bool is_late() const { return polls_ >= kPatience; }

 private:
  std::uint32_t const* failed_;
  unsigned polls_ = 0;
};

/// A warp that sends. All functions are called by all lanes together.
class Sender {
 public:
  /// @param granted in shared memory: generations that the block's first warp knows to be granted
  /// @param asks whether this warp asks the credits itself
  __device__ Sender(WordsPair const& pair, std::uint32_t const* failed, unsigned lane, unsigned volatile* granted,
                    bool asks)
      : pair_(pair), failed_(failed), lane_(lane), shared_(granted), asks_(asks) {}

  /// Before wait_for_turn: looks once whether the first generation may be written.
  __device__ __forceinline__ void look() {
    if (asks_ && is_granted(0)) note(1);
  }

  /// From now on a batch is due every `cycles`, the first at `first`.
  __device__ __forceinline__ void set_pace(float first, float cycles) {
    due_ = clock64() + static_cast<long long>(first);
    cycles_ = static_cast<long long>(cycles);
  }

  /// @returns false if it has given up.
  [[nodiscard]] __device__ __forceinline__ bool send(std::uint32_t batch) {
    auto const& out = pair_.out;
    WordsHeld held;
    load_message(pair_.from, {out.form, lane_, batch * words_batch_data(out.form)}, held);
    std::uint32_t const generation = batch / out.batches;
    if (!wait_for_grant(generation)) return false;
    if (cycles_ != 0) wait_until_due();
    auto* const at = out.region + words_offset(out.form, out.batches, out.generation, batch) + lane_ * 16;
    std::uint32_t const flag = words_flag(out.form, out.generation + generation);
    bool const carries = words_carries_flag(out.form, lane_);
    switch (out.form) {
      case WordsForm::line62:
        write_batch<WordsForm::line62>(at, carries, flag, held);
        break;
      case WordsForm::line60:
        write_batch<WordsForm::line60>(at, carries, flag, held);
        break;
      case WordsForm::unit12:
        write_batch<WordsForm::unit12>(at, carries, flag, held);
        break;
      default:
        write_batch<WordsForm::unit4>(at, carries, flag, held);
    }
    return true;
  }

  /// Until `generation`, counted from the message's first, may be written. The warp that asks for its block must ask
  /// for each, also where it has no batch in it.
  [[nodiscard]] __device__ __forceinline__ bool wait_for_grant(std::uint32_t generation) {
    if (generation < granted_) return true;
    if (!asks_) {
      std::uint32_t known = 0;
      do {
        known = __shfl_sync(kWholeWarp, *shared_, 0);
      } while (known <= generation);
      granted_ = known;
      return known != kGivenUp;
    }
    Polls polls(failed_);
    while (!is_granted(generation)) {
      if (polls.go_on()) continue;
      note(kGivenUp);
      return false;
    }
    note(generation + 1);
    return true;
  }

 private:
  [[nodiscard]] __device__ __forceinline__ bool is_granted(std::uint32_t generation) const {
    std::uint32_t const number = pair_.out.generation + generation;
    std::uint32_t const credit = load_word(pair_.out.credits + (number & 1U));
    return __all_sync(kWholeWarp, static_cast<std::int32_t>(credit - (number - 2)) >= 0) != 0;
  }

  __device__ __forceinline__ void note(std::uint32_t granted) {
    granted_ = granted;
    if (lane_ == 0) *shared_ = granted;
  }

  // A warp that is late by more than its own interval does not catch up: the link could not take it then, nor can it
  // now.
  __device__ __forceinline__ void wait_until_due() {
    while (clock64() - due_ < 0) {
    }
    long long const now = clock64();
    due_ += cycles_;
    if (due_ - now < 0) due_ = now;
  }

  WordsPair const& pair_;
  std::uint32_t const* failed_;
  unsigned lane_;
  unsigned volatile* shared_;
  bool asks_;
  std::uint32_t granted_ = 0;
  long long due_ = 0;
  long long cycles_ = 0;
};

/// A warp that receives, every `stride`-th batch.
class Receiver {
 public:
  __device__ Receiver(WordsPair const& pair, std::uint32_t const* failed, unsigned lane, std::uint32_t stride)
      : pair_(pair),
        failed_(failed),
        lane_(lane),
        stride_(stride),
        batches_(words_batches(pair.in.form, pair.to.bytes)) {}

  /// Waits for a batch and takes it out of the region. @returns false if it has given up.
  [[nodiscard]] __device__ __forceinline__ bool receive(std::uint32_t batch, WordsHeld& held) {
    auto const& in = pair_.in;
    std::uint32_t const generation = batch / in.batches;
    auto const* const at = in.region + words_offset(in.form, in.batches, in.generation, batch);
    std::uint32_t const flag = words_flag(in.form, in.generation + generation);
    bool const carries = words_carries_flag(in.form, lane_);
    Polls polls(failed_);
    for (;;) {
      if ((pair_.plan.peeks || polls.is_late()) && !wait_for_end(at, flag, polls)) return false;
      bool is_here = false;
      switch (in.form) {
        case WordsForm::line62:
          is_here = read_batch<WordsForm::line62>(at + lane_ * 16, carries, flag, held);
          break;
        case WordsForm::line60:
          is_here = read_batch<WordsForm::line60>(at + lane_ * 16, carries, flag, held);
          break;
        case WordsForm::unit12:
          is_here = read_batch<WordsForm::unit12>(at + lane_ * 16, carries, flag, held);
          break;
        default:
          is_here = read_batch<WordsForm::unit4>(at + lane_ * 16, carries, flag, held);
      }
      if (is_here) break;
      if (!polls.go_on()) return false;
    }
    std::uint32_t const next = batch + stride_;
    if (next >= batches_ || next / in.batches != generation) arrive(generation);
    return true;
  }

  __device__ __forceinline__ void deliver(std::uint32_t batch, WordsHeld const& held) const {
    store_message(pair_.to, {pair_.in.form, lane_, batch * words_batch_data(pair_.in.form)}, held);
  }

 private:
  [[nodiscard]] __device__ __forceinline__ bool wait_for_end(std::byte const* at, std::uint32_t flag,
                                                             Polls& polls) const {
    auto const* const end = at + words_batch_bytes(pair_.in.form) - 16;
    for (;;) {
      Quad const last = load_quad(end);
      if (__all_sync(kWholeWarp, words_last_flag(pair_.in.form, last) == flag) != 0) return true;
      if (!polls.go_on()) return false;
    }
  }

  // The warp has its last batch of a generation. The last of the warps that have any gives the bank back. A bank's next
  // generation is only written after that, so its count and its credit are never touched by two generations at once.
  __device__ __forceinline__ void arrive(std::uint32_t generation) {
    if (lane_ != 0) return;
    std::uint32_t const number = pair_.in.generation + generation;
    std::uint32_t const here = min(batches_ - generation * pair_.in.batches, pair_.in.batches);
    std::uint32_t const warps = min(here, stride_);
    // Counts to warps - 1, and then is 0 again.
    if (warps > 1 && atomicInc(pair_.arrivals + (number & 1U), warps - 1) != warps - 1) return;
    store_word(pair_.in.credits + (number & 1U), number);
  }

  WordsPair const& pair_;
  std::uint32_t const* failed_;
  unsigned lane_;
  std::uint32_t stride_;
  std::uint32_t batches_;
};

}  // namespace davit::cuda
