// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which GPU a communicator is on, and which buffers a call takes. GPUs are stand-ins.
#include <gtest/gtest.h>

#include "tests/runtime/arguments.hpp"
#include "tests/runtime/streams.hpp"
#include "tests/support/access.hpp"
#include "tests/support/stand_in.hpp"

namespace davit::test {
namespace {

using Numbers = std::vector<std::int64_t>;

/// Runs `play` on communicators that have stand-ins, none of them chosen.
void run_on_devices(int ranks, Options const& options, std::function<void(int, Communicator&)> const& play) {
  auto const thrown = play_ranks(ranks, [&](int rank, std::shared_ptr<Bootstrap> bootstrap) {
    StandIn::choose(-1);
    auto comm = davit::detail::Access::make(std::move(bootstrap), options, {}, &StandIn::of_process());
    play(rank, comm);
  });
  for (auto const& one : thrown) EXPECT_EQ(text_of(one), "");
}

/// A call with one number to each rank, from `send` to `recv`.
struct OneNumber {
  explicit OneNumber(Communicator const& comm) : counts(static_cast<std::size_t>(comm.size()), 1) {
    for (std::size_t peer = 0; peer < counts.size(); ++peer) displs.push_back(static_cast<std::int64_t>(peer));
  }
  void run(Communicator& comm, void const* send, void* recv) const {
    comm.alltoallv(send, counts, displs, i32, recv, counts, displs, i32);
  }
  Numbers counts;
  Numbers displs;
};

std::shared_ptr<std::byte> on_device(int device) { return StandIn::of_process().device_memory(device, 4096); }

TEST(DeviceChoice, IsTheProgramsElseTheRanksOwn) {
  run_on_devices(3, Making::patient(), [](int rank, Communicator& comm) {
    EXPECT_EQ(comm.device(), rank);  // its place on the node
    StandIn::choose(5 - rank);
    EXPECT_EQ(comm.device(), 5 - rank);
    comm.prepare();
    StandIn::choose(7);
    EXPECT_EQ(comm.device(), 5 - rank) << "it stays";
  });
}

TEST(DeviceChoice, WrapsAroundWhereRanksOutnumberDevices) {
  run_on_devices(9, Making::patient(), [](int rank, Communicator& comm) { EXPECT_EQ(comm.device(), rank % 8); });
}

TEST(DeviceChoice, PrepareTouchesNoneThatNobodyChose) {
  run_on_devices(2, Making::patient(), [](int, Communicator& comm) {
    comm.prepare();
    EXPECT_EQ(davit::detail::Access::state(comm).device, nullptr);
  });
}

TEST(DeviceChoice, FollowsTheFirstBuffers) {
  run_on_devices(2, Making::patient(), [](int rank, Communicator& comm) {
    auto const memory = on_device(6 + rank);
    OneNumber(comm).run(comm, memory.get(), memory.get() + 1024);
    EXPECT_EQ(comm.device(), 6 + rank);
    auto const other = on_device(rank);
    auto const call = [&] { OneNumber(comm).run(comm, other.get(), other.get() + 1024); };
    expect_parts(raised<UsageError>(call), {"send is on GPU " + std::to_string(rank), "must be on GPU"});
  });
}

TEST(DeviceChoice, AnOptionSettlesIt) {
  auto options = Making::patient();
  options.device = 4;
  options.allow_shared_gpu = true;
  run_on_devices(2, options, [](int, Communicator& comm) {
    EXPECT_EQ(comm.device(), 4);
    auto const memory = on_device(3);
    auto const call = [&] { OneNumber(comm).run(comm, memory.get(), memory.get() + 1024); };
    expect_parts(raised<UsageError>(call), {"send is on GPU 3", "must be on GPU 4"});
    comm.prepare();
    EXPECT_NE(davit::detail::Access::state(comm).device, nullptr);
  });
}

TEST(DeviceChoice, AnOptionThatIsNotThereIsRefused) {
  auto options = Making::patient();
  options.device = 8;
  run_on_devices(2, options, [](int, Communicator& comm) {
    expect_parts(raised<UsageError>([&] { static_cast<void>(comm.device()); }), {"option device is 8", "below 8"});
    expect_parts(raised<UsageError>([&] { comm.prepare(); }), {"option device is 8"});
    comm.barrier();
  });
}

/// Stand-ins of which one cannot be had.
class OneFails final : public DeviceBackend {
 public:
  MemoryPlace place(void const* pointer) const noexcept override { return real().place(pointer); }
  bool shows_a_device() const noexcept override { return true; }
  int device_count() const override { return real().device_count(); }
  int current_device_if_chosen() const noexcept override { return real().current_device_if_chosen(); }
  bool is_capturing(CUstream_st* stream) const noexcept override { return real().is_capturing(stream); }
  int device_of(CUstream_st* stream) const noexcept override { return real().device_of(stream); }
  std::unique_ptr<StreamMark> mark(int device, CUstream_st* stream) override { return real().mark(device, stream); }
  DeviceFacts facts(int device) const override { return real().facts(device); }
  std::shared_ptr<void> register_memory(int device, std::shared_ptr<std::byte> memory, std::size_t bytes) override {
    return real().register_memory(device, std::move(memory), bytes);
  }
  std::shared_ptr<std::byte> device_memory(int device, std::size_t bytes) override {
    return real().device_memory(device, bytes);
  }
  std::shared_ptr<std::byte> pinned_memory(int device, std::size_t bytes) override {
    return real().pinned_memory(device, bytes);
  }
  std::unique_ptr<DeviceEngine> make_engine(int device, DeviceEngineSettings const& settings) override {
    if (device == 1) throw SystemError("davit: out of memory");
    return real().make_engine(device, settings);
  }

 private:
  static StandIn& real() { return StandIn::of_process(); }
};

TEST(DeviceChoice, PrepareTellsTheOthersOfAGpuThatCannotBeHad) {
  static OneFails backend;
  keep_on_devices();
  auto const thrown = play_ranks(
      2,
      [&](int rank, std::shared_ptr<Bootstrap> bootstrap) {
        auto comm = davit::detail::Access::make(std::move(bootstrap), Making().options, {}, &backend);
        if (rank == 1) {
          expect_parts(raised<SystemError>([&] { comm.prepare(); }), {"out of memory"});
        } else {
          expect_parts(raised<PeerError>([&] { comm.prepare(); }), {"rank 1", "out of memory"});
        }
        comm.barrier();
      },
      std::chrono::seconds(20));
  for (auto const& each : thrown) EXPECT_FALSE(each);
}

TEST(SharedDevice, IsRefusedUnlessAllowed) {
  for (bool const is_allowed : {false, true}) {
    auto options = Making::patient();
    options.allow_shared_gpu = is_allowed;
    run_on_devices(3, options, [&](int rank, Communicator& comm) {
      StandIn::choose(rank / 2);  // ranks 0 and 1 share one
      try {
        comm.prepare();
        EXPECT_TRUE(is_allowed || rank < 2) << "the others hear of it";
      } catch (UsageError const& error) {
        expect_parts(error.what(), {"ranks 0 and 1 are both on GPU 0000:00:00.0", "DAVIT_ALLOW_SHARED_GPU=1"});
        EXPECT_LT(rank, 2);
        EXPECT_FALSE(is_allowed);
      } catch (PeerError const&) {
        EXPECT_FALSE(is_allowed);
      }
      comm.barrier();
      if (rank == 1) StandIn::choose(7);  // the rank does as it was told
      comm.prepare();
      auto const memory = on_device(comm.device());
      OneNumber(comm).run(comm, memory.get(), memory.get() + 1024);
    });
  }
}

TEST(Buffers, MustBeWhereTheGpuReachesThem) {
  run_on_devices(2, Making::patient(), [](int rank, Communicator& comm) {
    auto const memory = on_device(rank);
    auto const pinned = StandIn::of_process().pinned_memory(rank, 4096);
    std::vector<std::int32_t> pageable(16);
    OneNumber const one(comm);
    expect_parts(raised<UsageError>([&] { one.run(comm, memory.get(), pageable.data()); }),
                 {"alltoallv: recv is host memory that the GPU cannot reach", "send is on GPU"});
    expect_parts(raised<UsageError>([&] { one.run(comm, pageable.data(), memory.get()); }),
                 {"alltoallv: send is host memory"});
    auto const elsewhere = on_device(7);
    expect_parts(raised<UsageError>([&] { one.run(comm, memory.get(), elsewhere.get()); }),
                 {"send is on GPU", "recv on GPU 7", "both must be on one"});
    std::int32_t const values[] = {10 * rank, 10 * rank + 1};
    test_device().write(memory.get(), std::as_bytes(std::span(values)));
    one.run(comm, memory.get(), pinned.get());
    auto const* const got = reinterpret_cast<std::int32_t const*>(pinned.get());
    EXPECT_EQ(got[0], rank);
    EXPECT_EQ(got[1], 10 + rank);
  });
}

TEST(Buffers, AHostCallAfterThoseOnAGpuAndBack) {
  run_on_devices(2, Making::patient(), [](int rank, Communicator& comm) {
    OneNumber const one(comm);
    auto const memory = on_device(rank);
    for (std::int32_t round = 0; round < 50; ++round) {
      std::int32_t const values[] = {100 * round + 10 * rank, 100 * round + 10 * rank + 1};
      std::int32_t got[2] = {};
      if ((round + rank) % 3 == 0) {
        one.run(comm, values, got);
      } else {
        test_device().write(memory.get(), std::as_bytes(std::span(values)));
        one.run(comm, memory.get(), memory.get() + 1024);
        test_device().read(std::as_writable_bytes(std::span(got)), memory.get() + 1024);
      }
      ASSERT_EQ(got[0], 100 * round + rank);
      ASSERT_EQ(got[1], 100 * round + 10 + rank);
    }
  });
}

TEST(StreamArguments, ACaptureIsRefused) {
  run_on_streams(2, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    Ring ring(comm, 10);
    StandInStream capturing;
    capturing.captures = true;
    expect_parts(raised<UsageError>([&] { ring.enqueue(comm, Stream(capturing.handle())); }),
                 {"alltoallv: the stream is being captured"});
    ring.enqueue(comm, stream);
    ASSERT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
    ring.check(rank, 1);
  });
}

TEST(StreamArguments, NeedAPreparedCommunicator) {
  static_cast<void>(play_ranks(2, [&](int rank, std::shared_ptr<Bootstrap> bootstrap) {
    auto comm = davit::detail::Access::make(std::move(bootstrap), Making::patient(), {}, &StandIn::of_process());
    StandInStream stream;
    auto const memory = StandIn::of_process().device_memory(rank, 4096);
    std::vector<std::int64_t> const counts{1, 1};
    std::vector<std::int64_t> const displs{0, 1};
    auto const call = [&] {
      comm.alltoallv(memory.get(), counts, displs, i32, memory.get() + 1024, counts, displs, i32,
                     Stream(stream.handle()));
    };
    expect_parts(raised<UsageError>(call), {"not prepared"});
    StandIn::choose(-1);
    comm.prepare();
    expect_parts(raised<UsageError>(call), {"no GPU yet", "prepare()"});
    StandIn::choose(rank);
    comm.prepare();
    call();
    EXPECT_TRUE(stream.drain());
    EXPECT_TRUE(await_status(comm));
  }));
}

TEST(StreamArguments, ElementsThatAGpuCannotAddAreRefused) {
  run_on_streams(2, small_slots(), [&](int rank, Communicator& comm, TestStream& stream) {
    auto const memory = test_device().backend().device_memory(comm.device(), 4096);
    std::vector<std::int64_t> const counts{4, 4};
    auto const add = [&](std::ptrdiff_t from, std::ptrdiff_t to) {
      comm.reduce_scatterv(memory.get() + from, memory.get() + to, counts, f32, Stream(stream.handle()));
    };
    if (rank == 0)
      expect_parts(raised<UsageError>([&] { add(2, 1024); }), {"reduce_scatterv: send", "no multiple of 4"});
    if (rank == 1)
      expect_parts(raised<UsageError>([&] { add(0, 1025); }), {"reduce_scatterv: recv", "no multiple of 4"});
    EXPECT_TRUE(comm.usable()) << "nothing had moved";
  });
}

TEST(StreamArguments, DestroyingGivesAStreamThatNeverComesItsTimeAndNoMore) {
  auto making = small_slots();
  making.options.timeout = stretched(std::chrono::milliseconds(200));
  making.options.first_timeout = stretched(std::chrono::seconds(10));
  keep_on_devices();
  testing::internal::CaptureStderr();
  run_ranks(2, making, [&](int, Communicator& comm) {
    comm.prepare();
    StandInStream stream;
    stream.submit([] { return false; });
    Ring ring(comm, 100);
    ring.enqueue(comm, Stream(stream.handle()));
    auto const start = std::chrono::steady_clock::now();
    comm = Communicator();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(25));
  });
  expect_parts(testing::internal::GetCapturedStderr(),
               {"the communicator was destroyed", "no stream came to its call"});
}

TEST(StreamArguments, AStreamOfAnotherGpuIsRefused) {
  run_on_streams(2, small_slots(), [](int rank, Communicator& comm, TestStream&) {
    StandIn::choose(rank + 2);
    StandInStream other;
    Ring ring(comm, 10);
    expect_parts(
        raised<UsageError>([&] { ring.enqueue(comm, Stream(other.handle())); }),
        {"alltoallv: the stream is of GPU " + std::to_string(rank + 2) + ", must be of GPU " + std::to_string(rank)});
  });
}

}  // namespace
}  // namespace davit::test
