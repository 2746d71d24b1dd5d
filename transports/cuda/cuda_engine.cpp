// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda/cuda_engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "davit/error.hpp"

namespace davit::cuda {
namespace {

constexpr auto kRunOut = std::chrono::seconds(10);
constexpr auto kFirstUse = std::chrono::seconds(60);
constexpr std::size_t kScratchBytes = 4096;

CUdeviceptr address_of(void const* memory) noexcept { return reinterpret_cast<CUdeviceptr>(memory); }

/// A kernel that meets an element astride its size would take the context with it.
void check_elements(SumRows const& sum, std::uintptr_t terms) {
  auto const results = reinterpret_cast<std::uintptr_t>(sum.out) | reinterpret_cast<std::uintptr_t>(sum.bias) |
                       static_cast<std::uintptr_t>(sum.out_stride);
  if (terms % size_of(sum.in) == 0 && results % size_of(sum.out_type) == 0) return;
  throw UsageError(std::string("davit: a GPU adds rows of ") + name_of(sum.in) + " to " + name_of(sum.out_type) +
                   " only where each element lies at a multiple of its size");
}

}  // namespace

CudaEngine::CudaEngine(int device, DeviceEngineSettings const& settings)
    : context_(primary_context(device)),
      entered_(context_),
      ring_(settings.index_bytes, settings.patience, streams(),
            [this] {
              auto const up = of(Lane::up).held.first_closed();
              return up ? up : of(Lane::down).held.first_closed();
            }),
      scratch_(kScratchBytes) {
  try_everything(settings.patience.value_or(kFirstUse));
  entered_.reset();
}

CudaEngine::~CudaEngine() {
  try {
    entered_.emplace(context_);
  } catch (Error const&) {  // as run_out() finds
  }
  if (idle()) return;
  abandon();
  if (run_out_within(kRunOut)) return;
  ring_.leak();
  scratch_.leak();
}

void CudaEngine::try_everything(std::chrono::milliseconds patience) {
  auto* const bytes = ring_.take(0, 2 * sizeof(Counter));
  auto* const counters = reinterpret_cast<Counter*>(bytes);
  for (Lane const lane : {Lane::up, Lane::down}) {
    auto& counter = counters[static_cast<std::size_t>(lane)];
    counter = 0;
    load_move_kernels(stream(of(lane)));
    load_sum_kernels(stream(of(lane)));
    submit(lane, ZeroOp{scratch_.get(), kScratchBytes});
    submit(lane, CopyOp{scratch_.get(), scratch_.get() + kScratchBytes / 2, kScratchBytes / 2});
    submit(lane, RaiseOp{&counter, 1});
    submit(lane, CopyOp{scratch_.get(), bytes, sizeof counter});
    submit(lane, HoldOp{&counter, 1, -1, Awaited::data});
    submit(lane, RaiseOp{&counter, 2});
  }
  seal();
  auto const deadline = std::chrono::steady_clock::now() + patience;
  while (!idle()) {
    progress();
    if (std::chrono::steady_clock::now() > deadline) {
      throw SystemError("davit: CUDA: a copy, a kernel and a stream memory operation were not done within " +
                        std::to_string(patience.count()) + " ms");
    }
    std::this_thread::yield();
  }
  if (load_acquire(counters[0]) != 2 || load_acquire(counters[1]) != 2) {
    throw SystemError("davit: CUDA: stream memory operations have no effect on pinned host memory here");
  }
}

std::array<cudaStream_t, 4> CudaEngine::streams() const noexcept {
  return {queues_[0].main.get(), queues_[0].side.get(), queues_[1].main.get(), queues_[1].side.get()};
}

cudaStream_t CudaEngine::open(Lane lane) {
  if (abandoned_.exchange(false, std::memory_order_relaxed)) {
    for (auto& queue : queues_) queue.held.clear();
  }
  for (auto& queue : queues_) flush(queue);
  auto& queue = of(lane);
  queue.is_sealed = queue.is_done = false;
  return stream(queue);
}

void CudaEngine::add(Lane lane, CUstreamBatchMemOpParams const& operation) {
  auto& other = of(lane == Lane::up ? Lane::down : Lane::up);
  auto& queue = of(lane);
  if (!other.pending.empty() || queue.pending.size() == kMostPending) {
    DeviceGuard const guard(context_);
    open(lane);
  }
  queue.pending.push_back(operation);
  queue.is_sealed = queue.is_done = false;
}

void CudaEngine::begin_aside(Lane lane) {
  DeviceGuard const guard(context_);
  open(lane);
  auto& queue = of(lane);
  queue.fork.record(queue.main.get());
  DAVIT_CUDA_CHECK(cudaStreamWaitEvent(queue.side.get(), queue.fork.get(), 0));
  queue.is_aside = queue.is_loose = true;
}

void CudaEngine::end_aside(Lane lane) { of(lane).is_aside = false; }

void CudaEngine::join_aside(Lane lane) {
  DeviceGuard const guard(context_);
  open(lane);
  join(of(lane));
}

void CudaEngine::join(Queue& queue) {
  if (!std::exchange(queue.is_loose, false)) return;
  queue.joined.record(queue.side.get());
  DAVIT_CUDA_CHECK(cudaStreamWaitEvent(queue.main.get(), queue.joined.get(), 0));
}

void CudaEngine::flush(Queue& queue) {
  if (queue.pending.empty()) return;
  auto const operations = std::exchange(queue.pending, {});
  auto const& only = operations.front();
  if (operations.size() > 1) {
    auto copy = operations;
    check(driver().stream_batch(stream(queue), static_cast<unsigned>(copy.size()), copy.data(), 0),
          "cuStreamBatchMemOp");
  } else if (only.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
    check(driver().stream_write(stream(queue), only.writeValue.address, only.writeValue.value, only.writeValue.flags),
          "cuStreamWriteValue32");
  } else {
    check(driver().stream_wait(stream(queue), only.waitValue.address, only.waitValue.value, only.waitValue.flags),
          "cuStreamWaitValue32");
  }
}

void CudaEngine::submit(Lane lane, CopyOp const& op) {
  if (op.bytes == 0) return;
  DeviceGuard const guard(context_);
  DAVIT_CUDA_CHECK(cudaMemcpyAsync(op.to, op.from, op.bytes, cudaMemcpyDefault, open(lane)));
}

void CudaEngine::submit(Lane lane, ZeroOp const& op) {
  if (op.bytes == 0) return;
  DeviceGuard const guard(context_);
  DAVIT_CUDA_CHECK(cudaMemsetAsync(op.to, 0, op.bytes, open(lane)));
}

void CudaEngine::submit(Lane lane, RaiseOp const& op) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = address_of(op.counter);
  operation.writeValue.value = op.value;
  operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // with a barrier: earlier copies are visible first
  add(lane, operation);
}

void CudaEngine::submit(Lane lane, HoldOp const& op) {
  of(lane).held.add(op);
  CUstreamBatchMemOpParams operation{};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = address_of(op.counter);
  operation.waitValue.value = op.value;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;  // of the signed difference: has_reached
  add(lane, operation);
}

void CudaEngine::submit(Lane lane, MoveRowsOp const& op) {
  static_assert(sizeof(host::RowMove) == sizeof(IndexPair));
  if (op.count == 0 || op.row_bytes == 0) return;
  if (op.row_bytes > kMostRowBytes) {
    for (auto const& move : std::span(op.moves, op.count)) {
      submit(lane, CopyOp{op.to + static_cast<std::size_t>(move.to) * op.row_bytes,
                          op.from + static_cast<std::size_t>(move.from) * op.row_bytes, op.row_bytes});
    }
    return;
  }
  DeviceGuard const guard(context_);
  auto const most = ring_.part_bytes() / sizeof(host::RowMove);
  for (std::size_t first = 0; first < op.count; first += most) {
    auto* const on = open(lane);
    auto const count = std::min(most, op.count - first);
    auto* const moves = ring_.take(number(lane), count * sizeof(host::RowMove));
    std::memcpy(moves, op.moves + first, count * sizeof(host::RowMove));
    launch(on, MoveRows{op.to, op.from, op.row_bytes, reinterpret_cast<IndexPair const*>(moves),
                        static_cast<unsigned>(count)});
    ++launches_;
  }
}

void CudaEngine::submit(Lane lane, SumRowsOp const& op) {
  if (op.columns == 0) return;
  DeviceGuard const guard(context_);
  for (std::size_t row = 0; row < op.rows;) row = sum_some(lane, op, row);
}

std::size_t CudaEngine::sum_some(Lane lane, SumRowsOp const& op, std::size_t row) {
  auto const first_bytes = [&](std::size_t last) { return ((last - row) * sizeof(unsigned) / 16 + 1) * 16; };
  auto const bytes = [&](std::size_t last) {
    return first_bytes(last) + std::size_t{op.first[last] - op.first[row]} * sizeof(RowAddend);
  };
  auto last = row;
  while (last < op.rows && bytes(last + 1) <= ring_.part_bytes()) ++last;
  if (last == row) {
    throw UsageError("davit: a row is a sum of " + std::to_string(op.first[row + 1] - op.first[row]) +
                     " rows, more than the index memory of the CUDA engine takes");
  }
  auto* const on = open(lane);
  auto* const room = ring_.take(number(lane), bytes(last));
  auto* const first = reinterpret_cast<unsigned*>(room);
  auto* const terms = reinterpret_cast<RowAddend*>(room + first_bytes(last));
  std::uintptr_t bits = 0;
  for (auto index = op.first[row]; index < op.first[last]; ++index) {
    auto const& term = op.terms[index];
    auto const& base = op.bases[term.base];
    auto const* const data = base.data + term.row * base.stride;
    bits |= reinterpret_cast<std::uintptr_t>(data);
    terms[index - op.first[row]] = {data, term.weight, term.closes_group};
  }
  for (auto index = row; index <= last; ++index) first[index - row] = op.first[index] - op.first[row];
  SumRows sum{op.types.in,
              op.types.inner,
              op.types.out,
              op.types.weighted,
              op.types.rounds_inner,
              false,
              terms,
              first,
              static_cast<unsigned>(last - row),
              static_cast<unsigned>(op.columns),
              op.out + row * op.out_stride,
              op.out_stride,
              op.bias == nullptr ? nullptr : op.bias + row * op.out_stride};
  check_elements(sum, bits);
  sum.aligned = can_sum_by_16(sum, bits);
  launch(on, sum);
  ++launches_;
  return last;
}

void CudaEngine::submit(Lane /*lane*/, FetchOp const& op) {
  throw UsageError("davit: the CUDA engine cannot fetch " + std::to_string(op.bytes) + " bytes from rank " +
                   std::to_string(op.peer) + "'s memory");
}

void CudaEngine::seal() {
  DeviceGuard const guard(context_);
  for (auto& queue : queues_) flush(queue);
  for (auto& queue : queues_) {
    if (queue.is_sealed) continue;
    join(queue);
    queue.sealed.record(queue.main.get());
    queue.is_sealed = true;
  }
}

bool CudaEngine::is_done(Queue const& queue) {
  if (queue.is_done) return true;
  if (!queue.is_sealed || !queue.sealed.is_done()) return false;
  queue.held.clear();
  return queue.is_done = true;
}

bool CudaEngine::progress() {
  DeviceGuard const guard(context_);  // or the runtime would make a context of its own choice for this thread
  for (auto const& queue : queues_) {
    if (!is_done(queue) && !queue.is_sealed) static_cast<void>(queue.main.is_done());  // for its error
  }
  return false;
}

bool CudaEngine::idle() const noexcept {
  if (abandoned_.load(std::memory_order_acquire)) return const_cast<CudaEngine&>(*this).run_out();
  if (queues_[0].is_done && queues_[1].is_done) return true;
  try {
    DeviceGuard const guard(context_);
    return is_done(queues_[0]) && is_done(queues_[1]);
  } catch (...) {
    return false;  // progress() says why
  }
}

std::optional<Blocked> CudaEngine::blocked(Lane lane) const noexcept {
  bool const may_be = !of(lane).is_done || abandoned_.load(std::memory_order_acquire);
  return may_be ? held_up(lane) : std::nullopt;
}

void CudaEngine::release_holds() noexcept {
  for (auto& queue : queues_) queue.held.release();
}

bool CudaEngine::run_out() noexcept {
  std::optional<DeviceGuard> guard;
  try {
    guard.emplace(context_);
  } catch (Error const&) {
    return true;  // the driver is shutting down, and takes everything with it
  }
  release_holds();
  bool done = true;
  for (auto* const stream : streams()) {
    auto const result = cudaStreamQuery(stream);
    done = done && result != cudaErrorNotReady;  // any other error: the context is gone, nothing will run
    ignore(result);
  }
  return done;
}

void CudaEngine::abandon() noexcept {
  for (auto& queue : queues_) {
    queue.pending.clear();
    queue.is_sealed = queue.is_done = true;
  }
  abandoned_.store(true, std::memory_order_release);
  release_holds();
}

void CudaEngine::begin_after(CUstream_st* user) {
  DeviceGuard const guard(context_);
  start_.record(user);
  for (Lane const lane : {Lane::up, Lane::down}) {
    DAVIT_CUDA_CHECK(cudaStreamWaitEvent(open(lane), start_.get(), 0));
  }
}

void CudaEngine::end_before(CUstream_st* user) {
  seal();
  DeviceGuard const guard(context_);
  for (auto const& queue : queues_) {
    if (!queue.is_done) DAVIT_CUDA_CHECK(cudaStreamWaitEvent(user, queue.sealed.get(), 0));
  }
}

}  // namespace davit::cuda
