// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random test data. The seed is DAVIT_TEST_SEED, or a new one in every process where that is "random", else always the
/// same; a test that fails prints it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>

namespace davit::test {

/// The seed of this process.
[[nodiscard]] std::uint64_t process_seed();
/// Takes another's, so that several processes draw the same numbers.
void set_process_seed(std::uint64_t seed);

class Random {
 public:
  /// @param stream tells apart the sequences of one seed.
  explicit Random(std::uint64_t stream = 0, std::uint64_t seed = process_seed()) : engine_(mixed(seed, stream)) {}

  [[nodiscard]] std::uint64_t word() { return engine_(); }
  /// From `low` to `high`, both included.
  [[nodiscard]] std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  [[nodiscard]] bool chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }
  template <class T>
  [[nodiscard]] T one_of(std::initializer_list<T> values) {
    return one_of(std::span(values.begin(), values.size()));
  }
  template <class T>
  [[nodiscard]] T one_of(std::span<T const> values) {
    return values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }
  [[nodiscard]] std::mt19937_64& engine() noexcept { return engine_; }

 private:
  static std::uint64_t mixed(std::uint64_t seed, std::uint64_t stream) noexcept {
    return seed ^ (stream + 0x9E37'79B9'7F4A'7C15ULL) * 0xBF58'476D'1CE4'E5B9ULL;
  }
  std::mt19937_64 engine_;
};

}  // namespace davit::test
