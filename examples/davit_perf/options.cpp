// SPDX-License-Identifier: Apache-2.0
#include "examples/davit_perf/options.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <exception>
#include <limits>
#include <map>
#include <sstream>

#include "davit/version.hpp"
#include "examples/support/sizes.hpp"

namespace perf {
namespace {

constexpr std::array operation_names{"alltoallv", "allgatherv", "moe"};
constexpr std::array skew_names{"uniform", "zipf", "all-to-one"};

// At run time only host memory is known; a device is a name here, and a kind of buffer for the sides.
std::array const devices{std::string("host")};

constexpr int fewest_batches = 50;
constexpr int most_batches = 1'000'000;
constexpr int exchange_batches = 100;
constexpr int moe_batches = fewest_batches;  // a batch is one call there, of milliseconds

constexpr char const* about =
    "davit_perf times davit beside a peer, in turn, in one run and on the same data.\n"
    "\n"
    "  mpirun -n 4 davit_perf alltoallv --check\n"
    "  mpirun -n 4 davit_perf alltoallv --min 64K --max 16M --skew zipf --json alltoallv.json\n"
    "  mpirun -n 4 davit_perf moe --tokens 4096 --hidden 2048 --experts 64 --top-k 8 --check\n"
    "  davit_perf moe --help";

constexpr char const* notes =
    "How it measures: both sides use the same input, which changes before every call. A sample is the slowest rank's\n"
    "time of a batch of at least 200 microseconds after a barrier, divided by its calls; davit's and the peer's "
    "batches\n"
    "alternate. Times are medians (p50), p99 beside them. ratio = peer's time / davit's time: above 1 davit is "
    "faster.\n"
    "GB/s = bytes that a rank sends to all others, in 10^9, by davit's time.\n"
    "JSON: one object a line; davit_us, p99_us, peer_us and peer_p99_us in microseconds a call.\n"
    "Settings of davit come from its environment (DAVIT_SLOT_BYTES, DAVIT_SLOTS, DAVIT_DIRECT_BYTES, DAVIT_TIMEOUT, "
    "...).\n"
    "Exit code: 0 ok, 1 a check FAILED, 2 usage, 3 system, peer or time-out.";

constexpr char const* exchange_notes = "Sizes take the suffixes K, M, G and go from --min to --max in steps of 4.\n\n";

constexpr char const* moe_notes =
    "Phases: route (ids and weights to the ranks that need them), dispatch (rows to the experts, contiguous an "
    "expert),\n"
    "combine (weighted results back, summed), total (dispatch and combine back to back, timed by itself). The "
    "experts'\n"
    "results are the rows they received.\n"
    "Peers: mpi is the recipe done well: one row a (token, rank) is packed, goes through MPI_Alltoallv and is expanded "
    "to\n"
    "its experts; partial sums come back; lists and buffers are made in its route; it uses davit's own row kernels.\n"
    "mpi-expert is the careless recipe: one row a (token, expert) there and back, not expanded.\n"
    "bytes in the JSON, and in GB/s: payload bytes that a rank sends to all others, the ranks' mean: one row a "
    "(token,\n"
    "rank) for dispatch and combine, both for total; for route its tokens' ids and weights, once.\n\n";

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

template <class T>
void add_choice(CLI::App& app, std::string const& name, std::map<std::string, T> const& choices,
                std::string const& initial, std::string const& help, std::function<void(T)> set) {
  std::string bound;
  for (auto const& choice : choices) bound += (bound.empty() ? "" : "|") + choice.first;
  auto const find = [name, choices, bound, set = std::move(set)](std::string const& text) {
    auto const found = choices.find(text);
    if (found == choices.end()) refuse(name, text, bound);
    set(found->second);
  };
  app.add_option_function<std::string>(name, find, help)->type_name(bound)->default_str(initial);
}

std::string joined(std::vector<std::string> const& names, std::string const& between) {
  std::string all;
  for (auto const& name : names) all += (all.empty() ? "" : between) + name;
  return all;
}

/// What all operations have.
void add_common(CLI::App& app, Options& options, std::vector<std::string> const& peers,
                std::map<std::string, Skew> const& skews, std::string const& skew_help, int batches) {
  auto const set_device = [&options](std::string const& text) {
    if (text == "cuda") {
      throw CLI::ValidationError("--device",
                                 "cuda: this build of davit has no CUDA backend (see davit_perf --version); "
                                 "configure with -DDAVIT_WITH_CUDA=ON, or use --device host");
    }
    if (std::ranges::find(devices, text) == devices.end()) refuse("--device", text, "host or cuda");
    options.device = text;
  };
  app.add_option_function<std::string>("--device", set_device, "Where the buffers lie: host memory, or GPUs")
      ->type_name("host|cuda")
      ->default_str("host");

  auto const set_peers = [&options, peers](std::vector<std::string> const& names) {
    for (auto const& name : names) {
      if (std::ranges::find(peers, name) == peers.end()) refuse("--vs", name, joined(peers, " or "));
    }
    options.peers = names;
  };
  app.add_option_function<std::vector<std::string>>("--vs", set_peers,
                                                    "Peer to measure beside; several with commas, or given again")
      ->type_name(joined(peers, "|"))
      ->delimiter(',')
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("mpi");

  add_choice<Skew>(app, "--skew", skews, "uniform", skew_help, [&options](Skew skew) { options.skew = skew; });
  std::map<std::string, davit::Path> const paths{
      {"auto", davit::Path::automatic}, {"slots", davit::Path::slots}, {"direct", davit::Path::direct}};
  add_choice<davit::Path>(app, "--path", paths, "DAVIT_PATH, else auto", "Way of a pair's bytes on davit's side",
                          [&options](davit::Path path) { options.path = path; });
  app.add_option("--batches", options.batches, "Batches a side and size")
      ->check(CLI::Range(fewest_batches, most_batches))
      ->default_str(std::to_string(batches));
  app.add_option("--seed", options.seed, "Of data and routing")->capture_default_str();
  app.add_flag("--check", options.check, "Compare every output with the peer's, before and after the timing");
  app.add_option("--json", options.json, "Append one JSON object a measured line to FILE")->type_name("FILE");
  app.add_flag("-v,--verbose", options.verbose, "Also print what a call moved, beside the least that it could");
}

void add_exchange(CLI::App& app, Options& options, std::string const& unit) {
  add_size(app, "--min", options.min_bytes, "Smallest size: bytes of " + unit);
  add_size(app, "--max", options.max_bytes, "Largest size");
  app.footer(exchange_notes + std::string(notes));
  app.callback([&options] {
    if (options.min_bytes > options.max_bytes) {
      refuse("--min", support::format_size(options.min_bytes),
             "at most --max, which is " + support::format_size(options.max_bytes));
    }
  });
}

void add_moe(CLI::App& app, Options& options) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  app.add_option("--tokens", options.tokens, "Tokens a rank; several with commas, measured one after the other")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, most))
      ->default_str("4096");
  auto const add = [&app](char const* name, std::int64_t& value, char const* help) {
    app.add_option(name, value, help)->check(CLI::Range(std::int64_t{1}, most))->capture_default_str();
  };
  add("--hidden", options.hidden, "Elements of a row");
  add("--experts", options.experts, "Experts of all ranks together");
  add("--top-k", options.top_k, "Distinct experts a token");
  std::map<std::string, davit::Dtype> const dtypes{{"bf16", davit::bf16}, {"f16", davit::f16}, {"f32", davit::f32}};
  add_choice<davit::Dtype>(app, "--dtype", dtypes, "bf16", "Of the rows",
                           [&options](davit::Dtype dtype) { options.dtype = dtype; });
  app.footer(moe_notes + std::string(notes));
  app.callback([&options] {
    if (options.top_k > options.experts) {
      refuse("--top-k", std::to_string(options.top_k),
             "at most --experts, which is " + std::to_string(options.experts));
    }
  });
}

}  // namespace

char const* name_of(Operation operation) noexcept { return operation_names.at(static_cast<std::size_t>(operation)); }
char const* name_of(Skew skew) noexcept { return skew_names.at(static_cast<std::size_t>(skew)); }

Parsed parse(int argc, char const* const* argv) {
  Options options;
  CLI::App app(about, "davit_perf");
  app.set_version_flag("--version", davit::build_info(), "Version of davit, and what it was built with");
  app.require_subcommand(1);
  app.get_formatter()->column_width(26);
  app.footer(notes);

  std::map<std::string, Skew> const pair_skews{
      {"uniform", Skew::uniform}, {"zipf", Skew::zipf}, {"all-to-one", Skew::all_to_one}};
  auto* const alltoallv = app.add_subcommand("alltoallv", "Every rank sends a block to every rank, itself included");
  add_common(
      *alltoallv, options, {"mpi"}, pair_skews,
      "Blocks: equal; for rank 0 most, by 1/n; for rank 0 alone. --min and --max give the mean of a rank's blocks",
      exchange_batches);
  add_exchange(*alltoallv, options, "a pair of ranks");

  auto* const allgatherv = app.add_subcommand("allgatherv", "Every rank sends one block to all");
  add_common(*allgatherv, options, {"mpi"}, {{"uniform", Skew::uniform}, {"zipf", Skew::zipf}},
             "Blocks: equal; rank 0's longest, by 1/n. --min and --max give their mean", exchange_batches);
  add_exchange(*allgatherv, options, "a rank's block");

  auto* const moe = app.add_subcommand("moe", "Rows of tokens to their experts and back, summed");
  add_common(*moe, options, {"mpi", "mpi-expert"}, pair_skews,
             "Experts' popularity: equal; by 1/n, in an order drawn from the seed; those of rank 0 first", moe_batches);
  add_moe(*moe, options);

  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& error) {
    std::ostringstream out;
    std::ostringstream err;
    bool const failed = app.exit(error, out, err) != 0;
    return {std::nullopt, failed ? err.str() : out.str(), failed ? support::Exit::usage : support::Exit::ok};
  } catch (std::exception const& error) {
    return {std::nullopt, error.what(), support::Exit::usage};
  }
  if (alltoallv->parsed()) options.operation = Operation::alltoallv;
  if (allgatherv->parsed()) options.operation = Operation::allgatherv;
  if (moe->parsed()) options.operation = Operation::moe;
  if (options.batches == 0) options.batches = moe->parsed() ? moe_batches : exchange_batches;
  return {options, {}, support::Exit::ok};
}

}  // namespace perf
