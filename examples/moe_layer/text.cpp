// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/text.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "examples/support/random.hpp"

namespace moe {
namespace {

constexpr std::size_t longest_text = std::size_t{1} << 30U;  // one MPI_Bcast carries it
constexpr int longest_word = 16;                             // code points
constexpr std::size_t longest_word_bytes = 64;

/// Empty where all went well.
std::string read_file(std::string const& path, std::string& text) {
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> const file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return std::strerror(errno);
  std::array<char, 1 << 16> block{};
  while (auto const bytes = std::fread(block.data(), 1, block.size(), file.get())) {
    text.append(block.data(), bytes);
    if (text.size() > longest_text) return "it is longer than 1 GiB";
  }
  return std::ferror(file.get()) != 0 ? std::strerror(errno) : "";
}

bool is_space(char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

/// Bytes inside a code point, after its first.
bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

std::uint64_t hash_of(std::string_view word) {
  std::uint64_t hash = word.size();
  for (char const byte : word) hash = support::mix(hash ^ static_cast<unsigned char>(byte));
  return hash;
}

std::size_t length_of_word_at(std::string_view text, std::size_t first) {
  int code_points = 0;
  auto last = first;
  for (; last < text.size() && !is_space(text[last]) && last - first < longest_word_bytes; ++last) {
    if (!is_continuation(text[last]) && ++code_points > longest_word) break;
  }
  return last - first;
}

}  // namespace

std::string read_text(support::World const& world, std::string const& path) {
  std::string text;
  std::string const trouble = world.is_root() ? read_file(path, text) : "";
  std::int64_t bytes = trouble.empty() ? static_cast<std::int64_t>(text.size()) : -1;
  support::check(MPI_Bcast(&bytes, 1, MPI_INT64_T, 0, world.comm()), "MPI_Bcast");
  if (bytes < 0) {
    throw support::Failure(support::Exit::failed, "cannot read '" + path + "': " + trouble, support::Told::by_root);
  }
  text.resize(static_cast<std::size_t>(bytes));
  support::check(MPI_Bcast(text.data(), static_cast<int>(bytes), MPI_CHAR, 0, world.comm()), "MPI_Bcast");
  return text;
}

std::vector<Token> words_of(std::string_view text, int part, int parts) {
  auto const begin_of = [&](int number) {
    return text.size() * static_cast<std::size_t>(number) / static_cast<std::size_t>(parts);
  };
  // From the start, whatever the part: where a long word is cut depends on where it begins.
  std::vector<Token> tokens;
  for (std::size_t at = 0; at < begin_of(part + 1);) {
    auto const length = length_of_word_at(text, at);
    if (length > 0 && at >= begin_of(part)) tokens.push_back({hash_of(text.substr(at, length)), at});
    at += length > 0 ? length : 1;
  }
  return tokens;
}

}  // namespace moe
