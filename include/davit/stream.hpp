// SPDX-License-Identifier: Apache-2.0
/// @file
/// A stream of a GPU, without the vendor's header.
#pragma once

struct CUstream_st;  // what a cudaStream_t and a CUstream point to

namespace davit {

/// A CUDA stream: `davit::Stream{stream}` from a cudaStream_t or CUstream. Explicit, since a null one means CUDA's
/// default stream and not "no stream". It stays the caller's.
class Stream {
 public:
  explicit constexpr Stream(CUstream_st* handle) noexcept : handle_(handle) {}
  [[nodiscard]] constexpr CUstream_st* handle() const noexcept { return handle_; }

 private:
  CUstream_st* handle_;
};

}  // namespace davit
