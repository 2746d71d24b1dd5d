// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/options.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <exception>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "davit/version.hpp"
#include "examples/moe_layer/device.hpp"

namespace moe {
namespace {

// So that no product of two of them, in bytes, is out of reach of 64 bits.
constexpr std::int64_t most = 1 << 20;

constexpr char const* about =
    "moe_layer sends the words of a text through one Mixture-of-Experts layer, spread over the ranks by davit, and "
    "compares\n"
    "every result with the same layer worked out by each rank alone.\n"
    "\n"
    "  mpirun -n 4 moe_layer\n"
    "  mpirun -n 4 moe_layer my.txt --experts 128 --hidden 2048 --ffn 256 --batches 4\n"
    "  mpirun -n 4 moe_layer --dtype f32 --reduce by_k";

constexpr char const* notes =
    "A token is a word: bytes between white space, cut after 16 characters of UTF-8, so that a text without spaces "
    "has\n"
    "tokens too. Nothing else is asked of the bytes: any file will do, also one that is not UTF-8, or empty.\n"
    "Each rank takes the words of an equal part of the text, so the ranks' counts differ.\n"
    "Settings of davit come from its environment (DAVIT_TIMEOUT, DAVIT_SLOT_BYTES, DAVIT_SLOTS, ...).\n"
    "Exit code: 0 ok, 1 FAIL, 2 usage, 3 system, peer or time-out.";

template <class T>
using Names = std::vector<std::pair<char const*, T>>;

Names<Activation> const activations{{"relu", Activation::relu}, {"silu", Activation::silu}};
Names<Peer> const peers{{"mpi", Peer::mpi}, {"none", Peer::none}};
Names<Where> const places{{"auto", Where::automatic}, {"cuda", Where::cuda}, {"host", Where::host}};
Names<davit::Dtype> const dtypes{{"bf16", davit::bf16}, {"f16", davit::f16}, {"f32", davit::f32}};
Names<davit::Layout> const layouts{{"by_expert", davit::Layout::by_expert},
                                   {"by_source", davit::Layout::by_source},
                                   {"expert_slots", davit::Layout::expert_slots}};
Names<davit::Reduce> const reductions{{"grouped", davit::Reduce::grouped}, {"by_k", davit::Reduce::by_k}};

template <class T>
char const* find_name(Names<T> const& names, T value) noexcept {
  for (auto const& [name, of] : names) {
    if (of == value) return name;
  }
  return "?";
}

[[noreturn]] void refuse(std::string const& option, std::string const& value, std::string const& bound) {
  throw CLI::ValidationError(option, "'" + value + "', must be " + bound);
}

/// An option that is one of a few names; `value` may be a std::optional<T>.
template <class T, class Value>
void add_choice(CLI::App& app, std::string const& option, Names<T> const& names, Value& value, std::string const& help,
                std::string const& initial) {
  std::string bound;
  for (auto const& [name, of] : names) bound += (bound.empty() ? "" : "|") + std::string(name);
  auto const set = [option, bound, &names, &value](std::string const& text) {
    for (auto const& [name, of] : names) {
      if (text != name) continue;
      value = of;
      return;
    }
    refuse(option, text, bound);
  };
  app.add_option_function<std::string>(option, set, help)->type_name(bound)->default_str(initial);
}

template <class Number>
CLI::Option* add_number(CLI::App& app, std::string const& option, Number& value, Number least,
                        std::string const& help) {
  return app.add_option(option, value, help)
      ->check(CLI::Range(least, static_cast<Number>(most)))
      ->type_name("N")
      ->capture_default_str();
}

/// Read as text: as a number CLI11 would take "-1" for a huge one.
void add_seed(CLI::App& app, Options& options) {
  auto const set = [&options](std::string const& text) {
    std::istringstream in(text);
    if (text.find_first_not_of("0123456789") != std::string::npos || !(in >> options.seed)) {
      refuse("--seed", text, "a number from 0 to " + std::to_string(std::numeric_limits<std::uint64_t>::max()));
    }
  };
  app.add_option_function<std::string>("--seed", set, "Of all that is drawn")->type_name("N")->default_str("1");
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("FILE", options.file, "Text to read; rank 0 alone reads it (default: the one in examples/data)")
      ->type_name("");
  std::int64_t const one = 1;
  std::int64_t const zero = 0;
  add_number(app, "--tokens", options.tokens, one, "Most tokens of a rank in one batch");
  add_number(app, "--batches", options.batches, zero, "Most batches; 0: the whole text");
  add_number(app, "--experts", options.experts, one, "Experts of all ranks together");
  add_number(app, "--top-k", options.top_k, one, "Experts of a token");
  add_number(app, "--hidden", options.hidden, one, "Elements of a row");
  add_number(app, "--ffn", options.ffn, one, "Elements between an expert's two layers");
  add_choice(app, "--activation", activations, options.activation, "Between the two layers", "relu");
  add_choice(app, "--dtype", dtypes, options.dtype, "Of the rows that travel", "bf16");
  add_choice(app, "--partial-dtype", dtypes, options.partial_dtype, "Of partial sums on their way back", "as --dtype");
  add_choice(app, "--layout", layouts, options.layout, "Order of received rows", "by_expert");
  add_number(app, "--alignment", options.alignment, one, "Rows an expert are padded to a multiple (by_expert)");
  add_choice(app, "--reduce", reductions, options.reduce, "How results are added", "grouped");
  add_number(app, "--reduce-group", options.reduce_group, 0, "Ranks whose partial sums are added first; 0: the node's");
  add_seed(app, options);
  add_choice(app, "--device", places, options.where,
             "Where rows lie and experts work: on GPUs by cuBLAS, or on the host; auto: GPUs where each rank has one",
             "auto");
  add_choice(app, "--vs", peers, options.peer,
             "Exchange to run beside, batch by batch: MPI_Alltoallv (on GPUs through pinned memory), or none", "mpi");
}

void check_together(Options const& options) {
  if (options.top_k > options.experts) {
    refuse("--top-k", std::to_string(options.top_k), "at most --experts, which is " + std::to_string(options.experts));
  }
  if (options.layout == davit::Layout::by_source && options.reduce == davit::Reduce::by_k) {
    refuse("--reduce", "by_k", "grouped with --layout by_source, where each rank sums its own experts' rows");
  }
  if (options.where != Where::cuda) return;
  if (!builds_cuda()) refuse("--device", "cuda", "host: this build of moe_layer has no CUDA backend, or no cuBLAS");
  if (options.layout == davit::Layout::by_source) {
    refuse("--layout", "by_source", "by_expert or expert_slots with --device cuda");
  }
}

}  // namespace

char const* name_of(Activation activation) noexcept { return find_name(activations, activation); }
char const* name_of(davit::Layout layout) noexcept { return find_name(layouts, layout); }
char const* name_of(davit::Reduce reduce) noexcept { return find_name(reductions, reduce); }

Parsed parse(int argc, char const* const* argv) {
  Options options;
  options.file = MOE_LAYER_TEXT;
  try {
    CLI::App app(about, "moe_layer");
    app.set_version_flag("--version", davit::build_info(), "Version of davit, and what it was built with");
    app.get_formatter()->column_width(44);
    app.footer(notes);
    add_options(app, options);
    app.callback([&options] { check_together(options); });
    try {
      app.parse(argc, argv);
    } catch (CLI::ParseError const& error) {
      std::ostringstream out;
      std::ostringstream err;
      bool const failed = app.exit(error, out, err) != 0;
      return {std::nullopt, failed ? err.str() : out.str(), failed ? support::Exit::usage : support::Exit::ok};
    }
  } catch (std::exception const& error) {
    return {std::nullopt, error.what(), support::Exit::usage};
  }
  return {options, {}, support::Exit::ok};
}

}  // namespace moe
