// SPDX-License-Identifier: Apache-2.0
#include "examples/moe_layer/job.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "davit/mpi.hpp"
#include "examples/moe_layer/device.hpp"
#include "examples/moe_layer/layer.hpp"
#include "examples/moe_layer/text.hpp"

namespace moe {
namespace {

using support::World;

constexpr int unset = 0xff;  // NaN in every dtype

double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// One of the two exchanges, with what its batches came to.
class Contestant {
 public:
  Contestant(char const* name, Layer layer, Steps const& steps)
      : name_(name), layer_(std::move(layer)), steps_(steps) {}

  /// @param x the batch's rows, on the device.
  void run(Batch const& batch, std::byte const* x, Device& device, Stopwatch& watch) {
    out_.resize(batch.rows.size());
    device.fill(room_, out_.size(), unset);
    device.settle();
    watch.start();
    layer_(batch, x, room_.memory.get(), watch);
    seconds_.push_back(watch.seconds());
    device.read(out_, room_.memory.get());
  }

  void check(World const& world, Batch const& batch, Reference& reference) {
    bool const was_right = found_.unequal == 0;
    reference.compare(batch, steps_, out_.data(), found_);
    if (was_right && found_.unequal != 0) {
      world.tell("moe_layer",
                 std::string("wrong by ") + name_ + ": batch " + std::to_string(seconds_.size() - 1) + ", " +
                     found_.first_unequal,
                 support::Told::by_itself);
    }
  }

  /// Collective.
  [[nodiscard]] Side side(World const& world, Reference const& reference) const {
    Side side;
    std::vector<double> exchanges(seconds_.size());
    for (std::size_t phase = 0; phase < phases; ++phase) {
      std::vector<double> slowest;
      for (auto const& mine : seconds_) slowest.push_back(world.max(mine.at(phase)));
      side.seconds.at(phase) = median(slowest);
      if (static_cast<Phase>(phase) == Phase::experts) continue;
      std::ranges::transform(exchanges, slowest, exchanges.begin(), std::plus<>{});
    }
    side.exchange = median(exchanges);
    side.found.elements = world.sum(found_.elements);
    side.found.unequal = world.sum(found_.unequal);
    side.found.too_far = world.sum(found_.too_far);
    side.found.absolute = world.max(found_.absolute);
    side.found.relative = world.max(found_.relative);
    side.tolerance = reference.tolerance(steps_);
    side.compares_bits = !steps_.by_experts.differs;
    return side;
  }

 private:
  char const* name_;
  Layer layer_;
  Steps steps_;
  Room room_;
  std::vector<std::byte> out_;
  std::vector<Seconds> seconds_;
  Comparison found_;
};

/// As many as the rank with most words needs, all with a place in every batch; one where there are no words at all.
std::int64_t batches_of(World const& world, Options const& options, std::size_t words) {
  auto const mine = (static_cast<std::int64_t>(words) + options.tokens - 1) / options.tokens;
  auto const most = std::max<std::int64_t>(static_cast<std::int64_t>(world.max(static_cast<double>(mine))), 1);
  return options.batches == 0 ? most : std::min(most, options.batches);
}

std::span<Token const> part_of(std::vector<Token> const& words, std::int64_t batch, std::int64_t tokens) {
  auto const first = std::min(words.size(), static_cast<std::size_t>(batch * tokens));
  auto const last = std::min(words.size(), static_cast<std::size_t>((batch + 1) * tokens));
  return std::span(words).subspan(first, last - first);
}

}  // namespace

Outcome run_job(World const& world, Options const& options) {
  auto const begin = std::chrono::steady_clock::now();
  auto const text = read_text(world, options.file);
  auto const words = words_of(text, world.rank(), world.size());

  Outcome outcome;
  outcome.text_bytes = static_cast<std::int64_t>(text.size());
  outcome.batches = batches_of(world, options, words.size());

  davit::Options davit_options;
  davit_options.name = "moe_layer";
  davit::Communicator comm(davit::mpi(world.comm()), davit_options);
  support::ExpertMap const map(options.experts, world.size());
  auto const device = make_device(world, comm, options);
  outcome.device = device->describe();
  auto const experts = device->make_experts(map.first(world.rank()), map.count(world.rank()));
  Front const front(options);
  Reference reference(options, world.size());

  std::vector<Contestant> contestants;
  auto const davit_layer = make_davit_layer(comm, options, *experts, device->stream());
  contestants.emplace_back("davit", davit_layer.run,
                           steps_of_davit(options, davit_layer.reduce_group, device->expert_error()));
  if (options.peer == Peer::mpi) {
    contestants.emplace_back("MPI", make_mpi_layer(world, options, *experts, *device),
                             steps_of_mpi(options, world.size(), device->expert_error()));
  }

  Room x;
  for (std::int64_t number = 0; number < outcome.batches; ++number) {
    auto const batch = front.make_batch(part_of(words, number, options.tokens));
    count(batch, world.rank(), map, outcome.tally);
    device->fill(x, batch.rows.size(), unset);
    device->write(x.memory.get(), batch.rows);
    Stopwatch watch(comm, [&device] { device->settle(); });
    for (std::size_t turn = 0; turn < contestants.size(); ++turn) {
      // Who goes second finds the experts in the caches, so they take turns.
      contestants[(turn + static_cast<std::size_t>(number)) % contestants.size()].run(batch, x.memory.get(), *device,
                                                                                      watch);
      for (std::size_t phase = 0; phase < phases; ++phase) outcome.moved.at(phase) += watch.moved().at(phase);
    }
    reference.work_out(batch);
    for (auto& contestant : contestants) contestant.check(world, batch, reference);
  }

  auto const mine = static_cast<double>(outcome.tally.tokens);
  outcome.most_tokens = static_cast<std::int64_t>(world.max(mine));
  outcome.fewest_tokens = -static_cast<std::int64_t>(world.max(-mine));
  outcome.tally = sum_of(world, outcome.tally);
  for (auto& moved : outcome.moved) moved = sum_of(world, moved);
  outcome.davit = contestants.front().side(world, reference);
  if (contestants.size() > 1) outcome.mpi = contestants.back().side(world, reference);
  outcome.seconds = world.max(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return outcome;
}

}  // namespace moe
