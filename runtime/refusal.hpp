// SPDX-License-Identifier: Apache-2.0
/// @file
/// The refusing rank's part of a call: it tells its peers, pushes and pulls nothing, and waits for nobody.
#pragma once

#include <string>

#include "runtime/communicator_state.hpp"

namespace davit::detail {

class Refusal final : public Task {
 public:
  Refusal(CommunicatorState& comm, std::uint32_t call, std::string text);

  bool advance() override;
  void awaited(std::vector<int>& peers) const override;
  [[nodiscard]] bool stays_for_others() const noexcept override { return false; }
  [[nodiscard]] std::string phase() const override { return "refusal"; }

 private:
  CommunicatorState& comm_;
  std::string text_;
};

}  // namespace davit::detail
