// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace davit::test {
namespace {

std::uint64_t& seed() {
  static std::uint64_t instance = [] {
    char const* const set = std::getenv("DAVIT_TEST_SEED");
    return set != nullptr && *set != '\0' ? std::strtoull(set, nullptr, 0) : std::uint64_t{std::random_device{}()};
  }();
  return instance;
}

class SeedPrinter : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(testing::TestInfo const&) override { printed_ = false; }
  void OnTestPartResult(testing::TestPartResult const& part) override {
    if (!part.failed() || printed_) return;
    printed_ = true;
    std::fprintf(stderr, "seed of random data: DAVIT_TEST_SEED=%llu\n",
                 static_cast<unsigned long long>(process_seed()));
  }

 private:
  bool printed_ = false;
};

[[maybe_unused]] bool const listening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new SeedPrinter);  // owned by GoogleTest
  return true;
}();

}  // namespace

std::uint64_t process_seed() { return seed(); }

void set_process_seed(std::uint64_t value) { seed() = value; }

}  // namespace davit::test
