// SPDX-License-Identifier: Apache-2.0
/// @file
/// The text, and its tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/support/world.hpp"

namespace moe {

/// Collective: rank 0 reads the file, all ranks get its bytes. @throws Failure on all ranks, told by rank 0.
[[nodiscard]] std::string read_text(support::World const& world, std::string const& path);

struct Token {
  std::uint64_t word;      ///< follows from the bytes of the word: the same wherever it occurs
  std::uint64_t position;  ///< of its first byte in the text: unlike any other token's
};

/// The words that begin in part `part` of `parts` equal parts of the text. A word is a run of bytes that are not ASCII
/// white space, cut after 16 code points of UTF-8 or 64 bytes; bytes that are no UTF-8 are words as well.
[[nodiscard]] std::vector<Token> words_of(std::string_view text, int part, int parts);

}  // namespace moe
