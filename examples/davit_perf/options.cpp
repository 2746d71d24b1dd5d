// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "davit/version.hpp"
#include "examples/davit_perf/device.hpp"
#include "examples/davit_perf/help.hpp"
#include "examples/support/sizes.hpp"

namespace perf {
namespace {

constexpr std::array operation_names{"alltoallv", "allgatherv", "reduce_scatterv", "moe", "limits"};
constexpr std::array skew_names{"uniform", "zipf", "all-to-one"};
constexpr std::array where_names{"host", "cuda"};

constexpr int fewest_batches = 50;
constexpr int most_batches = 1'000'000;
constexpr int exchange_batches = 100;
constexpr int moe_batches = fewest_batches;  // a batch is one call there, of milliseconds

[[noreturn]] void refuse(std::string const& option, std::string const& value, std::string const& bound) {
  throw CLI::ValidationError(option, "'" + value + "', must be " + bound);
}

void add_size(CLI::App& app, std::string const& name, std::int64_t& size, std::string const& help) {
  auto const set = [name, &size](std::string const& text) {
    auto const parsed = support::parse_size(text);
    if (!parsed || *parsed < 1) refuse(name, text, "a size of 1 or more, such as 4096, 64K or 4M");
    size = *parsed;
  };
  app.add_option_function<std::string>(name, set, help)->type_name("SIZE")->default_str(support::format_size(size));
}

/// Names and what they stand for, the first one first in the help.
template <class T>
using Choices = std::vector<std::pair<std::string, T>>;

template <class T>
std::string names_of(Choices<T> const& choices) {
  std::string all;
  for (auto const& [name, value] : choices) all += (all.empty() ? "" : "|") + name;
  return all;
}

template <class T>
T chosen(std::string const& option, Choices<T> const& choices, std::string const& text) {
  for (auto const& [name, value] : choices) {
    if (name == text) return value;
  }
  refuse(option, text, "one of " + names_of(choices));
}

template <class T>
void add_choice(CLI::App& app, std::string const& option, Choices<T> const& choices, std::string const& initial,
                std::string const& help, std::function<void(T)> set) {
  auto const find = [option, choices, set = std::move(set)](std::string const& text) {
    set(chosen(option, choices, text));
  };
  app.add_option_function<std::string>(option, find, help)->type_name(names_of(choices))->default_str(initial);
}

/// A whole number within bounds, which the help does not repeat.
template <class T>
CLI::Option* add_number(CLI::App& app, std::string const& option, T& value, std::int64_t least, std::int64_t most,
                        std::string const& help) {
  auto range = CLI::Range(least, most);
  range.description("");
  return app.add_option(option, value, help)->check(range)->type_name("N");
}

/// Peers of an operation by where the buffers lie, the default first.
struct Peers {
  std::vector<std::string> host;
  std::vector<std::string> cuda;
  [[nodiscard]] std::vector<std::string> const& at(Where where) const { return where == Where::host ? host : cuda; }
};

std::string joined(std::vector<std::string> const& names) {
  std::string all;
  for (auto const& name : names) all += (all.empty() ? "" : "|") + name;
  return all;
}

/// Once all is parsed, since --device may come after --vs.
void check_peers(Options& options, Peers const& peers) {
  auto const& names = peers.at(options.device);
  if (options.peers.empty()) options.peers.push_back(names.front());
  for (auto const& peer : options.peers) {
    if (std::ranges::find(names, peer) == names.end()) {
      refuse("--vs", peer, std::string("one of ") + joined(names) + " with --device " + name_of(options.device));
    }
    if (peer.starts_with("nccl") && !cuda_builds().nccl) {
      throw CLI::ValidationError(
          "--vs " + peer,
          "this build of davit_perf has no NCCL: its header nccl.h or its library were not found "
          "when it was configured");
    }
    // MPI has no smaller kind of number to add.
    bool const adds_by_mpi = options.operation == Operation::reduce_scatterv && !peer.starts_with("nccl");
    if (adds_by_mpi && options.dtype != davit::f32) {
      refuse("--dtype", davit::name_of(options.dtype), "f32 beside " + peer + ": MPI adds no other type of the three");
    }
  }
}

void add_device(CLI::App& app, Options& options) {
  auto const set_device = [&options](Where where) {
    if (where == Where::cuda && !cuda_builds().cuda) {
      throw CLI::ValidationError("--device cuda",
                                 "this build of davit has no CUDA backend (davit_perf --version says what it has); "
                                 "build with -DDAVIT_WITH_CUDA=ON, or measure host memory");
    }
    options.device = where;
  };
  add_choice<Where>(app, "--device", {{"host", Where::host}, {"cuda", Where::cuda}}, "host", "Where the buffers lie",
                    set_device);
  app.add_option("--json", options.json, "Append one JSON object a measured line to FILE")->type_name("FILE");
}

/// What all operations have that are measured beside a peer.
void add_common(CLI::App& app, Options& options, Peers const& peers, Choices<Skew> const& skews,
                std::string const& skew_help, int batches) {
  auto const set_peers = [&options](std::vector<std::string> const& names) { options.peers = names; };
  app.add_option_function<std::vector<std::string>>("--vs", set_peers, "Peer; several with commas, or given again")
      ->type_name(joined(peers.host) + " (cuda: " + joined(peers.cuda) + ")")
      ->delimiter(',')
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("the first");
  add_choice<Skew>(app, "--skew", skews, "uniform", skew_help, [&options](Skew skew) { options.skew = skew; });
  app.add_flag("--check", options.check, "Compare every output, before and after the timing");
  app.add_flag("-v,--verbose", options.verbose,
               "Print what a call moved, beside the least that it could, and on a GPU its kernels");
  add_number(app, "--batches", options.batches, fewest_batches, most_batches, "Samples a side, 50 or more")
      ->default_str(std::to_string(batches));
  app.add_option("--seed", options.seed, "Of data and routing")->type_name("N")->capture_default_str();
  Choices<davit::Path> const paths{
      {"auto", davit::Path::automatic}, {"slots", davit::Path::slots}, {"direct", davit::Path::direct}};
  add_choice<davit::Path>(app, "--path", paths, "DAVIT_PATH or auto", "Way of davit's bytes between two ranks",
                          [&options](davit::Path path) { options.path = path; });
  add_device(app, options);
}

void add_dtype(CLI::App& app, Options& options, std::string const& initial, std::string const& help) {
  Choices<davit::Dtype> const dtypes{{"bf16", davit::bf16}, {"f16", davit::f16}, {"f32", davit::f32}};
  add_choice<davit::Dtype>(app, "--dtype", dtypes, initial, help,
                           [&options](davit::Dtype dtype) { options.dtype = dtype; });
}

void add_exchange(CLI::App& app, Options& options, std::string const& min_help) {
  add_size(app, "--min", options.min_bytes, min_help);
  add_size(app, "--max", options.max_bytes, "Largest size");
  app.footer(help::exchange_notes + std::string(help::notes));
}

void check_sizes(Options const& options) {
  if (options.min_bytes > options.max_bytes) {
    refuse("--min", support::format_size(options.min_bytes),
           "at most --max, which is " + support::format_size(options.max_bytes));
  }
  auto const element = static_cast<std::int64_t>(size_of(options.dtype));
  if (options.operation == Operation::reduce_scatterv && options.min_bytes < element) {
    refuse("--min", support::format_size(options.min_bytes),
           "at least one element of --dtype, " + std::to_string(element) + " bytes");
  }
}

/// Layers of published models.
struct NamedShape {
  std::int64_t hidden;
  std::int64_t experts;
  std::int64_t top_k;
};
Choices<NamedShape> const shapes{{"deepseek-v3", {7168, 256, 8}},
                                 {"qwen3-30b-a3b", {2048, 128, 8}},
                                 {"gpt-oss-120b", {2880, 128, 4}},
                                 {"mixtral-8x7b", {4096, 8, 2}}};

void add_moe(CLI::App& app, Options& options) {
  add_choice<NamedShape>(app, "--shape", shapes, "none", "Hidden, experts and top-k of a model's layers",
                         [&options](NamedShape shape) {
                           options.hidden = shape.hidden;
                           options.experts = shape.experts;
                           options.top_k = shape.top_k;
                         });
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t widest = std::int64_t{1} << 28;  // bytes of a row must fit an int, for MPI
  add_number(app, "--tokens", options.tokens, 1, most, "Tokens a rank; several with commas, one after the other")
      ->delimiter(',')
      ->default_str(std::to_string(options.tokens.front()));
  auto const add_size_of_layer = [&app](char const* name, std::int64_t& value, std::int64_t high, char const* help) {
    add_number(app, name, value, 1, high, help)->capture_default_str()->excludes("--shape");
  };
  add_size_of_layer("--hidden", options.hidden, widest, "Elements of a row");
  add_size_of_layer("--experts", options.experts, most, "Experts of all ranks together");
  add_size_of_layer("--top-k", options.top_k, most, "Experts a token, all distinct");
  add_dtype(app, options, "bf16", "Of the rows");
  app.footer(help::moe_notes + std::string(help::notes));
}

void check_layer(Options const& options) {
  if (options.top_k > options.experts) {
    refuse("--top-k", std::to_string(options.top_k), "at most --experts, which is " + std::to_string(options.experts));
  }
}

}  // namespace

char const* name_of(Operation operation) noexcept { return operation_names.at(static_cast<std::size_t>(operation)); }
char const* name_of(Skew skew) noexcept { return skew_names.at(static_cast<std::size_t>(skew)); }
char const* name_of(Where where) noexcept { return where_names.at(static_cast<std::size_t>(where)); }

Parsed parse(int argc, char const* const* argv) {
  Options options;
  CLI::App app(help::about, "davit_perf");
  app.set_version_flag("--version", davit::build_info(), "Version of davit, and what it was built with");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(help::notes);

  Choices<Skew> const skews{{"uniform", Skew::uniform}, {"zipf", Skew::zipf}, {"all-to-one", Skew::all_to_one}};
  Choices<Skew> const block_skews(skews.begin(), skews.begin() + 2);
  Peers const exchanges{{"mpi"}, {"staged-mpi", "nccl"}};
  Peers const recipes{{"mpi", "mpi-expert"}, {"staged-mpi", "nccl", "nccl-dense"}};

  auto* const alltoallv = app.add_subcommand("alltoallv", "Every rank sends a block to every rank, itself included");
  add_exchange(*alltoallv, options, "Smallest size: bytes from one rank to one other");
  add_common(*alltoallv, options, exchanges, skews, help::alltoallv_skew, exchange_batches);

  auto* const allgatherv = app.add_subcommand("allgatherv", "Every rank sends one block to all");
  add_exchange(*allgatherv, options, "Smallest size: bytes of one rank's block");
  add_common(*allgatherv, options, exchanges, block_skews, help::blocks_skew, exchange_batches);

  auto* const reduce = app.add_subcommand("reduce_scatterv", "The ranks' sums, a block of them for each rank");
  add_exchange(*reduce, options, "Smallest size: bytes of one rank's block, in whole elements");
  add_dtype(*reduce, options, "f32", "Of the elements; beside MPI f32 alone");
  add_common(*reduce, options, exchanges, block_skews, help::blocks_skew, exchange_batches);

  auto* const moe = app.add_subcommand("moe", "Rows of tokens to their experts and back, summed");
  add_moe(*moe, options);
  add_common(*moe, options, recipes, skews, help::moe_skew, moe_batches);

  auto* const limits = app.add_subcommand("limits", "What copies up and down each GPU's link give, all ranks at once");
  add_exchange(*limits, options, "Smallest copy");
  add_device(*limits, options);
  constexpr std::int64_t least_copy = std::int64_t{16} << 10;
  constexpr std::int64_t largest_copy = std::int64_t{64} << 20;
  limits->get_option("--min")->default_str(support::format_size(least_copy));
  limits->get_option("--max")->default_str(support::format_size(largest_copy));
  limits->footer(help::limits_notes);

  std::array const operations{alltoallv, allgatherv, reduce, moe, limits};
  auto const is_chosen = [](CLI::App const* operation) { return operation->parsed(); };
  reduce->preparse_callback([&options](std::size_t) { options.dtype = davit::f32; });
  limits->preparse_callback([&options](std::size_t) {
    options.min_bytes = least_copy;
    options.max_bytes = largest_copy;
  });
  app.callback([&] {
    auto const chosen = std::ranges::find_if(operations, is_chosen);
    if (chosen == operations.end()) return;
    options.operation = static_cast<Operation>(chosen - operations.begin());
    check_sizes(options);
    check_layer(options);
    if (options.operation == Operation::limits) {
      if (options.device != Where::cuda) refuse("--device", "host", "cuda: limits measures the links of GPUs");
      return;
    }
    check_peers(options, options.operation == Operation::moe ? recipes : exchanges);
  });

  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& error) {
    std::ostringstream out;
    std::ostringstream err;
    if (app.exit(error, out, err) == 0) return {std::nullopt, out.str(), support::Exit::ok};
    if (app.get_subcommands().empty()) {
      // CLI11 would only say that one is missing, also where the user has given another word.
      auto const words = app.remaining();
      err.str((words.empty() ? "no operation given" : "'" + words.front() + "' is no operation of davit_perf") +
              ": one of alltoallv, allgatherv, reduce_scatterv, moe, limits\nRun with --help for more information.\n");
    }
    return {std::nullopt, "davit_perf: " + err.str(), support::Exit::usage};
  } catch (std::exception const& error) {
    return {std::nullopt, "davit_perf: " + std::string(error.what()) + "\n", support::Exit::usage};
  }
  if (options.batches == 0) options.batches = moe->parsed() ? moe_batches : exchange_batches;
  return {options, {}, support::Exit::ok};
}

}  // namespace perf
