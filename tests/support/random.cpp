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
    // The same data each time, so that a change is judged by what it changes; DAVIT_TEST_SEED=random draws new ones.
    char const* const set = std::getenv("DAVIT_TEST_SEED");
    if (set == nullptr || *set == '\0') return std::uint64_t{20261130};
    if (std::strcmp(set, "random") == 0) return std::uint64_t{std::random_device{}()};
    return std::uint64_t{std::strtoull(set, nullptr, 0)};
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
