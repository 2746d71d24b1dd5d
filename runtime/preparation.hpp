// SPDX-License-Identifier: Apache-2.0
/// @file
/// prepare(): all ranks meet, each with the GPU that its program has chosen.
#pragma once

#include "runtime/call.hpp"

namespace davit::detail {

class Preparation final : public Call {
 public:
  /// @throws UsageError, SystemError about the GPU that is chosen.
  explicit Preparation(CommunicatorState& comm);
  /// The GPU that is chosen, -1 if none.
  [[nodiscard]] int device() const noexcept { return index_; }
  /// Whether any rank has chosen one; once it is complete.
  [[nodiscard]] bool any_device() const noexcept { return any_device_; }

 private:
  [[nodiscard]] Card terms(int) const override;
  bool submit() override { return true; }
  void conclude() override;

  int index_ = -1;
  std::uint64_t identity_ = 0;
  bool any_device_ = false;
};

}  // namespace davit::detail
