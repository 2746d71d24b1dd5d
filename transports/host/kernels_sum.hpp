// SPDX-License-Identifier: Apache-2.0
/// @file
/// Row sums over vectors of any width; see kernels_vectors.hpp.
#pragma once

#include "transports/host/kernels_table.hpp"
#include "transports/host/kernels_vectors.hpp"

namespace davit::host {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bf16 pairs are taken apart as little-endian words");

template <class Isa>
struct SumKernels {
  using Floats = typename Isa::Floats;
  using Words = typename Isa::Words;
  using Halves = typename Isa::Halves;
  static constexpr std::size_t lanes = sizeof(Floats) / sizeof(float);
  static constexpr std::size_t pair = 2 * lanes;  // columns handled together: formats load and store two vectors

  [[gnu::always_inline]] static Words bits(Floats value) { return reinterpret_cast<Words>(value); }
  [[gnu::always_inline]] static Floats floats(Words value) { return reinterpret_cast<Floats>(value); }

  // Which NaN an addition returns depends on operand order, which compilers choose. So every NaN that is stored becomes
  // the one of positive sign and full mantissa: it is also the one that NVIDIA GPUs give.
  [[gnu::always_inline]] static Floats one_nan(Floats value) {
    return value == value ? value : floats(Words{} + 0x7fffffffu);
  }

  // Rounds to bf16 in the upper half of each word; the lower half is left over. Integer arithmetic: denormals stay.
  [[gnu::always_inline]] static Words round_bf16(Floats value) {
    Words const word = bits(value);
    return value == value ? word + 0x7fffu + ((word >> 16u) & 1u) : Words{} + 0x7fff0000u;
  }

  struct F32 {
    static constexpr std::size_t size = 4;
    [[gnu::always_inline]] static void load(std::byte const* at, Floats (&to)[2]) {
      to[0] = read<Floats>(at);
      to[1] = read<Floats>(at + sizeof(Floats));
    }
    [[gnu::always_inline]] static void store(std::byte* at, Floats const (&from)[2]) {
      write(at, one_nan(from[0]));
      write(at + sizeof(Floats), one_nan(from[1]));
    }
  };

  struct F16 {
    static constexpr std::size_t size = 2;
    [[gnu::always_inline]] static void load(std::byte const* at, Floats (&to)[2]) {
      to[0] = Isa::from_f16(read<Halves>(at));
      to[1] = Isa::from_f16(read<Halves>(at + sizeof(Halves)));
    }
    [[gnu::always_inline]] static void store(std::byte* at, Floats const (&from)[2]) {
      write(at, Isa::to_f16(one_nan(from[0])));
      write(at + sizeof(Halves), Isa::to_f16(one_nan(from[1])));
    }
  };

  struct Bf16 {
    static constexpr std::size_t size = 2;
    [[gnu::always_inline]] static void load(std::byte const* at, Floats (&to)[2]) {
      to[0] = floats(__builtin_convertvector(read<Halves>(at), Words) << 16u);
      to[1] = floats(__builtin_convertvector(read<Halves>(at + sizeof(Halves)), Words) << 16u);
    }
    [[gnu::always_inline]] static void store(std::byte* at, Floats const (&from)[2]) {
      write(at, __builtin_convertvector(round_bf16(from[0]) >> 16u, Halves));
      write(at + sizeof(Halves), __builtin_convertvector(round_bf16(from[1]) >> 16u, Halves));
    }
  };

  // bf16 with the even columns in the first vector and the odd ones in the second: no shuffles, half the work of Bf16.
  // For sums that both read and write bf16; in between no column meets another, so their order is free.
  struct Bf16Split {
    static constexpr std::size_t size = 2;
    [[gnu::always_inline]] static void load(std::byte const* at, Floats (&to)[2]) {
      Words const both = read<Words>(at);
      to[0] = floats(both << 16u);
      to[1] = floats(both & 0xffff0000u);
    }
    [[gnu::always_inline]] static void store(std::byte* at, Floats const (&from)[2]) {
      write(at, (round_bf16(from[0]) >> 16u) | (round_bf16(from[1]) & 0xffff0000u));
    }
  };

  struct Job {
    Term const* terms;
    std::size_t count;
    std::byte const* bias;
    std::byte* out;
    Dtype inner;
    Dtype out_type;
  };

  // The sum of `pairs` pairs of columns, in registers. If not even one pair is left (`partial`), `columns` of it are
  // copied from and to a whole one.
  template <class In, bool weighted, bool grouped, std::size_t pairs, bool partial>
  struct Block {
    Job const& job;
    std::size_t column;
    std::size_t columns;  // only if `partial`
    std::size_t ahead;    // bytes from the rows' beginnings that are fetched for a later block

    template <class Format>
    [[gnu::always_inline]] void load(std::byte const* row, std::size_t i, Floats (&to)[2]) const {
      std::byte const* const at = row + (column + i * pair) * Format::size;
      if constexpr (partial) {
        std::byte whole[pair * Format::size] = {};
        __builtin_memcpy(whole, at, columns * Format::size);
        Format::load(whole, to);
      } else {
        Format::load(at, to);
      }
    }

    template <class Format>
    [[gnu::always_inline]] void store(std::size_t i, Floats const (&from)[2]) const {
      std::byte* const at = job.out + (column + i * pair) * Format::size;
      if constexpr (partial) {
        std::byte whole[pair * Format::size];
        Format::store(whole, from);
        __builtin_memcpy(at, whole, columns * Format::size);
      } else {
        Format::store(at, from);
      }
    }

    // starts: sum = w * row, else sum += w * row.
    template <bool starts>
    [[gnu::always_inline]] void take(Term const& term, Floats (&sum)[pairs][2]) const {
      if constexpr (In::size == 2 && !partial) {
        for (std::size_t at = 0; at < pairs * pair * In::size; at += cache_line)
          __builtin_prefetch(term.row + ahead + at);
      }
#pragma GCC unroll 8
      for (std::size_t i = 0; i < pairs; ++i) {
        Floats x[2];
        load<In>(term.row, i, x);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          Floats const product = weighted ? x[half] * term.weight : x[half];
          sum[i][half] = starts ? product : sum[i][half] + product;
        }
      }
    }

    [[gnu::always_inline]] void round_inner(Floats (&sum)[pairs][2]) const {
      if (job.inner == f32) return;
#pragma GCC unroll 8
      for (std::size_t i = 0; i < pairs; ++i) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          Floats& x = sum[i][half];
          x = job.inner == f16 ? Isa::from_f16(Isa::to_f16(x)) : floats(round_bf16(x) & 0xffff0000u);
        }
      }
    }

    template <class Out>
    [[gnu::always_inline]] void finish(Floats (&sum)[pairs][2]) const {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < pairs; ++i) {
        if (job.bias != nullptr) {
          Floats bias[2];
          load<Out>(job.bias, i, bias);
          sum[i][0] += bias[0];
          sum[i][1] += bias[1];
        }
        store<Out>(i, sum[i]);
      }
    }

    [[gnu::always_inline]] void run() const {
      Floats total[pairs][2] = {};
      if (!grouped && job.count > 0) {
        take<true>(job.terms[0], total);
        for (std::size_t t = 1; t < job.count; ++t) take<false>(job.terms[t], total);
      } else if (grouped && job.count > 0) {
        // -0.0 + x is x for every x, -0.0 included: so the first group starts the total as any other is added.
        for (auto& both : total) both[0] = both[1] = floats(Words{} + 0x80000000u);
        for (std::size_t t = 0; t < job.count;) {
          Floats sum[pairs][2];
          take<true>(job.terms[t], sum);
          while (job.terms[t++].closes_group == 0 && t < job.count) take<false>(job.terms[t], sum);
          round_inner(sum);
          for (std::size_t i = 0; i < pairs; ++i) {
            total[i][0] += sum[i][0];
            total[i][1] += sum[i][1];
          }
        }
      }
      if constexpr (__is_same(In, Bf16Split)) {
        finish<Bf16Split>(total);
      } else if (job.out_type == f32) {
        finish<F32>(total);
      } else if (job.out_type == f16) {
        finish<F16>(total);
      } else {
        finish<Bf16>(total);
      }
    }
  };

  // Rows lie anywhere, and the hardware's prefetch starts anew on each page. Fetching 2-byte rows this far ahead gave,
  // from DRAM, 7 % at 4 KiB a row and 15 % at 14 KiB; f32 rows got slower (AVX-512) or no faster, so they are left
  // alone.
  static constexpr std::size_t prefetch_distance = 512;

  template <class In, bool weighted, bool grouped>
  static void sum_columns(Job const& job, std::size_t columns) {
    constexpr std::size_t pairs = 2;  // 4 vectors, 8 with totals: what 16 registers hold beside the operands
    if (columns < pair) {
      if (columns > 0) Block<In, weighted, grouped, 1, true>{job, 0, columns, 0}.run();
      return;
    }
    std::size_t column = 0;
    for (; columns - column >= pairs * pair; column += pairs * pair) {
      std::size_t const ahead = column * In::size + prefetch_distance;
      std::size_t const last = (columns - pairs * pair) * In::size;
      Block<In, weighted, grouped, pairs, false>{job, column, 0, ahead < last ? ahead : last}.run();
    }
    while (column < columns) {
      // The last pair may begin early, and then gives some columns a second time, with the same bits.
      if (column > columns - pair) column = columns - pair;
      Block<In, weighted, grouped, 1, false>{job, column, 0, (columns - pair) * In::size}.run();
      column += pair;
    }
  }

  template <class In>
  static void sum_format(RowSum const& sum, Job const& job, std::size_t columns) {
    if (sum.rounds_inner) {
      return sum.weighted ? sum_columns<In, true, true>(job, columns) : sum_columns<In, false, true>(job, columns);
    }
    return sum.weighted ? sum_columns<In, true, false>(job, columns) : sum_columns<In, false, false>(job, columns);
  }

  // Only what runs once a term is a template parameter; what runs once a group or once a block is a predictable branch.
  static void sum_row(RowSum const& sum, Term const* terms, std::size_t count, std::byte const* bias, std::byte* out,
                      std::size_t columns) {
    Job const job{terms, count, bias, out, sum.inner, sum.out};
    if (sum.in == bf16 && sum.out == bf16) return sum_format<Bf16Split>(sum, job, columns);
    if (sum.in == f32) return sum_format<F32>(sum, job, columns);
    if (sum.in == f16) return sum_format<F16>(sum, job, columns);
    return sum_format<Bf16>(sum, job, columns);
  }
};

}  // namespace davit::host
