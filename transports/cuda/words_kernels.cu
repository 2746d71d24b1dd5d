// SPDX-License-Identifier: Apache-2.0
// The exchange kernel. Roles of blocks: first all writers, then all readers; a pair's warps take its batches in turn.
#include <algorithm>
#include <string>

#include "davit/error.hpp"
#include "transports/cuda/check.hpp"
#include "transports/cuda/words_warps.cuh"

namespace davit::cuda {
namespace {

constexpr unsigned kLanes = kWordsLanes;
constexpr unsigned kMostThreads = kMostWordsWarps * kLanes;

template <unsigned most>
struct Parameters {
  WordsPair pairs[most];
  unsigned count;
  std::uint32_t const* failed;
  std::uint32_t* left;
  float cycles[most];  ///< a batch of each pair's writers; 0: as fast as they can
};

/// A block's part: which pair, which role, and its number among the pair's blocks of that role.
struct Part {
  unsigned pair;
  unsigned block;
  bool receives;
};

template <unsigned most>
__device__ Part find_part(Parameters<most> const& parameters) {
  unsigned block = blockIdx.x;
  for (unsigned pair = 0; pair < parameters.count; ++pair) {
    unsigned const here = parameters.pairs[pair].plan.writers;
    if (block < here) return {pair, block, false};
    block -= here;
  }
  for (unsigned pair = 0; pair < parameters.count; ++pair) {
    unsigned const here = parameters.pairs[pair].plan.readers;
    if (block < here) return {pair, block, true};
    block -= here;
  }
  return {parameters.count, 0, false};
}

/// What a warp has given up for.
enum class Ending { done, no_credit, no_data };

__device__ Ending run_writer(WordsPair const& pair, Sender& sender, std::uint32_t first, std::uint32_t stride,
                             float cycles) {
  auto const& out = pair.out;
  std::uint32_t const written = words_written(out.form, out.batches, out.generation, pair.from.bytes);
  if (cycles > 0) sender.set_pace(cycles * static_cast<float>(first), cycles * static_cast<float>(stride));
  for (std::uint32_t batch = first; batch < written; batch += stride) {
    if (!sender.send(batch)) return Ending::no_credit;
  }
  // Others of the block may have a batch in the last generation where this warp has none.
  if (written > 0 && !sender.wait_for_grant((written - 1) / out.batches)) return Ending::no_credit;
  return Ending::done;
}

__device__ Ending run_reader(WordsPair const& pair, Receiver& receiver, std::uint32_t first, std::uint32_t stride) {
  std::uint32_t const batches = words_batches(pair.in.form, pair.to.bytes);
  for (std::uint32_t batch = first; batch < batches; batch += stride) {
    WordsHeld held;
    if (!receiver.receive(batch, held)) return Ending::no_data;
    receiver.deliver(batch, held);
  }
  return Ending::done;
}

/// Two batches ahead, then one for each that has come: the rate of sending follows that of receiving.
__device__ Ending run_both(WordsPair const& pair, Sender& sender, Receiver& receiver, std::uint32_t first,
                           std::uint32_t stride) {
  std::uint32_t const batches = words_batches(pair.in.form, pair.to.bytes);
  std::uint32_t const written = words_written(pair.out.form, pair.out.batches, pair.out.generation, pair.from.bytes);
  std::uint32_t next = first;
  std::uint32_t batch = first;
  int ahead = 2;
  while (next < written || batch < batches) {
    WordsHeld held;
    bool const comes = ahead == 0 && batch < batches;
    if (comes && !receiver.receive(batch, held)) return Ending::no_data;
    if (next < written) {
      if (!sender.send(next)) return Ending::no_credit;
      next += stride;
    }
    if (comes) {
      receiver.deliver(batch, held);
      batch += stride;
    }
    if (ahead > 0) --ahead;
  }
  return Ending::done;
}

template <unsigned most>
__global__ void __launch_bounds__(kMostThreads) exchange_words(__grid_constant__ Parameters<most> const parameters) {
  __shared__ unsigned granted;
  if (threadIdx.x == 0) granted = 0;
  __syncthreads();
  Part const part = find_part(parameters);
  if (part.pair == parameters.count) return;
  auto const& pair = parameters.pairs[part.pair];
  unsigned const lane = threadIdx.x % kLanes;
  unsigned const warp = threadIdx.x / kLanes;
  bool const is_self_clocked = pair.plan.readers == 0;
  // Neighbouring batches go to different multiprocessors.
  unsigned const blocks = part.receives ? pair.plan.readers : pair.plan.writers;
  std::uint32_t const first = warp * blocks + part.block;
  // At most a bank's batches, so that each warp has one in every full generation.
  std::uint32_t stride = blocks * (blockDim.x / kLanes);
  if (!part.receives) stride = min(stride, pair.out.batches);
  if (part.receives || is_self_clocked) stride = min(stride, pair.in.batches);
  Sender sender(pair, parameters.failed, lane, &granted, is_self_clocked || warp == 0);
  if (!part.receives && first < stride && pair.from.bytes > 0) sender.look();
  wait_for_turn();
  if (first >= stride) return;
  auto ending = Ending::done;
  if (part.receives) {
    Receiver receiver(pair, parameters.failed, lane, stride);
    ending = run_reader(pair, receiver, first, stride);
  } else if (!is_self_clocked) {
    ending = run_writer(pair, sender, first, stride, parameters.cycles[part.pair]);
  } else {
    Receiver receiver(pair, parameters.failed, lane, stride);
    ending = run_both(pair, sender, receiver, first, stride);
  }
  if (ending != Ending::done && lane == 0) {
    store_word(parameters.left, 1 + 2 * pair.peer + (ending == Ending::no_credit ? 1 : 0));
  }
}

template <unsigned most>
void launch_kernel(cudaStream_t stream, WordsDevice const& device, WordsExchange const& exchange, unsigned blocks) {
  Parameters<most> parameters{};
  for (auto const& pair : exchange.pairs) {
    if (pair.from.bytes == 0 && pair.to.bytes == 0) continue;
    double const rate = pair.plan.rate;
    double const cycles = rate > 0 ? words_batch_bytes(pair.out.form) / rate * device.cycles_a_ns : 0;
    parameters.cycles[parameters.count] = static_cast<float>(cycles);
    parameters.pairs[parameters.count++] = pair;
  }
  parameters.failed = exchange.failed;
  parameters.left = exchange.left;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(exchange.warps * kLanes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = device.dependent_launch ? 1 : 0;
  check(cudaLaunchKernelEx(&config, exchange_words<most>, parameters), "launch of exchange_words");
}

constexpr unsigned kFewPairs = 7;  // a launch copies all parameters, so the usual ones get a kernel of their own

void must(bool holds, char const* what, unsigned long long value) {
  if (!holds) throw UsageError("davit: words exchange: " + std::string(what) + ", not " + std::to_string(value));
}

void check_channel(WordsChannel const& channel) {
  auto const region = reinterpret_cast<std::uintptr_t>(channel.region);
  must(region != 0 && region % 64 == 0, "a region begins at a multiple of 64", region);
  must(static_cast<unsigned>(channel.form) <= static_cast<unsigned>(WordsForm::unit4), "a form is one of four",
       static_cast<unsigned>(channel.form));
  must(channel.batches > 0 && channel.batches <= kMostWordsRegion / 2 / words_batch_bytes(channel.form),
       "a bank has 1 to 2^30 bytes of batches", channel.batches);
  must(channel.credits != nullptr, "credits are there", 0);
}

template <class Place>
void check_place(Place const& place) {
  must(place.bytes <= kMostWordsBytes, "a message has at most 2^31 bytes", place.bytes);
  must(place.base != nullptr, "a message's memory is there", 0);
  if (place.rows == nullptr) return;
  must(place.row_bytes > 0 && place.bytes % place.row_bytes == 0, "a message of rows has whole rows", place.row_bytes);
}

}  // namespace

WordsDevice words_device(int device) {
  int major = 0;
  int kilohertz = 0;
  int processors = 0;
  int blocks = 0;
  DAVIT_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  DAVIT_CUDA_CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device));
  DAVIT_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  DAVIT_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, exchange_words<kMostWordsPairs>,
                                                                 static_cast<int>(kMostThreads), 0));
  return {major >= 9, static_cast<unsigned>(processors) * static_cast<unsigned>(blocks), kilohertz / 1e6};
}

void launch(cudaStream_t stream, WordsDevice const& device, WordsExchange const& exchange) {
  must(exchange.warps >= 1 && exchange.warps <= kMostWordsWarps, "a block has 1 to 16 warps", exchange.warps);
  must(exchange.failed != nullptr && exchange.left != nullptr, "failed word and left word are there", 0);
  unsigned blocks = 0;
  std::size_t pairs = 0;
  for (auto const& pair : exchange.pairs) {
    if (pair.from.bytes == 0 && pair.to.bytes == 0) continue;
    check_channel(pair.out);
    check_channel(pair.in);
    if (pair.from.bytes > 0) check_place(pair.from);
    if (pair.to.bytes > 0) check_place(pair.to);
    must(pair.arrivals != nullptr, "arrivals are there", 0);
    must(pair.plan.writers >= 1 && pair.plan.writers <= device.most_blocks, "a pair has a block that sends",
         pair.plan.writers);
    must(pair.plan.readers <= device.most_blocks, "readers fit the device", pair.plan.readers);
    must(pair.plan.rate >= 0, "a rate is not negative", 0);
    blocks += pair.plan.writers + pair.plan.readers;
    ++pairs;
  }
  must(pairs <= kMostWordsPairs, "there are at most 127 pairs with data", pairs);
  must(blocks <= device.most_blocks, "all blocks fit the device at once", blocks);
  if (pairs == 0) return;
  if (pairs <= kFewPairs) return launch_kernel<kFewPairs>(stream, device, exchange, blocks);
  launch_kernel<kMostWordsPairs>(stream, device, exchange, blocks);
}

void prepare_words(WordsChannel const& channel) noexcept {
  std::uint32_t const before = channel.generation - 1;
  // Whatever the form, each flag is then that of the number before: where it has 16 bits, both halves of a word.
  std::uint32_t const flag = words_flag(channel.form, before);
  std::uint32_t const pattern = channel.form == WordsForm::line62 ? flag | flag << 16U : flag;
  auto* const words = reinterpret_cast<std::uint32_t*>(channel.region);
  std::fill_n(words, words_region_bytes(channel.form, channel.batches) / sizeof pattern, pattern);
  channel.credits[0] = channel.credits[1] = before;
}

void load_words_kernels(cudaStream_t stream) {
  WordsExchange const nothing{{}, 1, nullptr, nullptr};
  launch_kernel<kFewPairs>(stream, {}, nothing, 1);
  launch_kernel<kMostWordsPairs>(stream, {}, nothing, 1);
}

}  // namespace davit::cuda
