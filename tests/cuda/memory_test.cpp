// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which memory a pointer points to, and host memory made reachable for GPUs.
#include <thread>

#include "davit/error.hpp"
#include "tests/cuda/bench.hpp"
#include "tests/support/child.hpp"
#include "transports/cuda/driver.hpp"

namespace davit::test {
namespace {

TEST(CudaMemory, TellsKindsApart) {
  int local = 0;
  EXPECT_EQ(cuda::backend().place(&local).kind, MemoryKind::pageable);
  EXPECT_EQ(cuda::backend().place(nullptr).kind, MemoryKind::pageable);
  auto const device = cuda::backend().device_memory(0, 4096);
  auto const pinned = cuda::backend().pinned_memory(0, 4096);
  void* managed = nullptr;
  DAVIT_CUDA_CHECK(cudaMallocManaged(&managed, 4096));
  auto const ask = [&] {
    EXPECT_EQ(cuda::backend().place(device.get()).kind, MemoryKind::device);
    EXPECT_EQ(cuda::backend().place(device.get()).device, 0);
    EXPECT_EQ(cuda::backend().place(device.get() + 4095).kind, MemoryKind::device);
    EXPECT_EQ(cuda::backend().place(pinned.get() + 100).kind, MemoryKind::pinned);
    EXPECT_EQ(cuda::backend().place(pinned.get()).device, -1);
    EXPECT_EQ(cuda::backend().place(managed).kind, MemoryKind::managed);
    std::vector<int> heap(1000);
    EXPECT_EQ(cuda::backend().place(heap.data()).kind, MemoryKind::pageable);
  };
  ask();
  std::thread(ask).join();  // a thread without a context
  DAVIT_CUDA_CHECK(cudaFree(managed));
}

TEST(CudaMemory, LeavesPendingErrorsAlone) {
  auto const device = cuda::backend().device_memory(0, 64);
  ASSERT_NE(cudaSetDevice(100000), cudaSuccess);
  int local = 0;
  static_cast<void>(cuda::backend().place(&local));
  static_cast<void>(cuda::backend().place(device.get()));
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST(CudaMemory, RegistrationEndsWithItsLastUser) {
  std::size_t const bytes = 1 << 20;
  auto segment = Segment::create("/dev/shm", bytes);
  segment.reserve(0, bytes);
  auto* const begin = segment.mapping().get();
  EXPECT_EQ(cuda::backend().place(begin).kind, MemoryKind::pageable);
  for (int time = 0; time < 2; ++time) {
    auto first = cuda::backend().register_memory(0, segment.mapping(), bytes);
    auto second = cuda::backend().register_memory(0, segment.mapping(), bytes);
    EXPECT_EQ(cuda::backend().place(begin + bytes - 1).kind, MemoryKind::pinned);
    EXPECT_THROW(static_cast<void>(cuda::backend().register_memory(0, segment.mapping(), bytes / 2)), SystemError);
    first.reset();
    EXPECT_EQ(cuda::backend().place(begin).kind, MemoryKind::pinned);
    second.reset();
    EXPECT_EQ(cuda::backend().place(begin).kind, MemoryKind::pageable);
  }
}

TEST(CudaMemory, RegistrationNamesWhatWasRefused) {
  auto const device = cuda::backend().device_memory(0, 4096);
  try {
    static_cast<void>(cuda::backend().register_memory(0, device, 4096));  // not host memory
    ADD_FAILURE() << "no error";
  } catch (SystemError const& error) {
    EXPECT_NE(std::string(error.what()).find("cudaHostRegister of 4096 bytes"), std::string::npos) << error.what();
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(CudaDevices, ThreadsChooseTheirs) {
  std::thread([] {
    EXPECT_EQ(cuda::backend().current_device_if_chosen(), -1);
    {
      cuda::DeviceGuard const guard(0);
      EXPECT_EQ(cuda::backend().current_device_if_chosen(), 0);
    }
    EXPECT_EQ(cuda::backend().current_device_if_chosen(), -1) << "the guard leaves a trace";
    DAVIT_CUDA_CHECK(cudaSetDevice(cuda::backend().device_count() - 1));
    EXPECT_EQ(cuda::backend().current_device_if_chosen(), cuda::backend().device_count() - 1);
    CudaBench const bench;  // an engine on device 0
    EXPECT_EQ(cuda::backend().current_device_if_chosen(), cuda::backend().device_count() - 1);
  }).join();
}

TEST(CudaDevices, FactsNameTheDevice) {
  for (int device = 0; device < cuda::backend().device_count(); ++device) {
    auto const facts = cuda::backend().facts(device);
    EXPECT_FALSE(facts.name.empty());
    EXPECT_EQ(facts.pci_address.size(), 12U) << facts.pci_address;
    EXPECT_GE(facts.major, 7);
    EXPECT_TRUE(facts.reaches_host_memory);
  }
  EXPECT_THROW(static_cast<void>(cuda::backend().facts(100000)), SystemError);
}

TEST(CudaDevices, HiddenGpusAreNone) { run_child("CudaDevices.DISABLED_Count", {"CUDA_VISIBLE_DEVICES="}, "", 77); }

TEST(CudaDevices, DISABLED_Count) { ADD_FAILURE() << "main() does not come here without a GPU"; }

}  // namespace
}  // namespace davit::test
