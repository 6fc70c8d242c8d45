// Opening and closing, properties, switches, memory and its registry, copies and fills, deferred free.
#include <stdlib.h>

#include <atomic>
#include <thread>

#include "host_test.h"

using namespace hosttest;
using namespace xhip::host;

TEST(properties_are_sensible) {
  Fixture f;
  int count = 0;
  OK(f.d.deviceCount(&count));
  CHECK_EQ(count, 1);
  DeviceProperties p;
  OK(f.d.deviceProperties(0, &p));
  CHECK(p.arch.find("x86-64-v") == 0 || p.arch.find("aarch64") == 0);
  CHECK(!p.name.empty());
  CHECK_EQ(p.warpSize, 1);
  CHECK(p.multiprocessorCount >= 1 && p.totalMemory > (100u << 20));
  CHECK_EQ(p.maxThreadsPerBlock, 1024);
  CHECK_EQ(f.d.deviceProperties(1, &p), kInvalidDevice);
  size_t available = 0, total = 0;
  OK(f.d.memInfo(&available, &total));
  CHECK(available > 0 && available <= total && total == p.totalMemory);
}

TEST(switches_are_checked) {
  auto status = [](const char* name, const char* value) {
    setenv(name, value, 1);
    auto driver = makeHostDriver();
    int count = -1;
    const Status init = driver->init();
    const Status counted = driver->deviceCount(&count);
    unsetenv(name);
    return init ? init : counted;
  };
  CHECK_EQ(status("X_HOST_ARCH", "pentium"), kInvalidValue);
  CHECK_EQ(status("X_HOST_ARCH", "x86-64-v2-vnni"), kInvalidValue);
  CHECK_EQ(status("X_HOST_THREADS", "0"), kInvalidValue);
  CHECK_EQ(status("X_HOST_THREADS", "two"), kInvalidValue);
  CHECK_EQ(status("X_HOST_THREADS", "3"), kSuccess);
  CHECK_EQ(status("X_HOST_SPIN", "10"), kInvalidValue);
  CHECK_EQ(status("X_HOST_SPIN", "no"), kInvalidValue);
  CHECK_EQ(status("X_HOST_SPIN", "1"), kSuccess);
#if defined(__x86_64__)
  CHECK_EQ(status("X_HOST_ARCH", "x86-64"), kNoDevice);
  setenv("X_HOST_ARCH", "x86-64-v2", 1);
  setenv("X_HOST_THREADS", "5", 1);
  {
    Fixture f;
    DeviceProperties p;
    OK(f.d.deviceProperties(0, &p));
    CHECK(p.arch == "x86-64-v2");
    CHECK_EQ(p.multiprocessorCount, 5);
    DevicePtr x = f.malloc(4000);
    for (int i = 0; i < 50; ++i) OK(f.launch(f.function("hit"), Args()(x)(1u), 1000));
    for (uint32_t value : f.read(x, 1000)) CHECK_EQ(value, 50u);
  }
  unsetenv("X_HOST_ARCH");
  unsetenv("X_HOST_THREADS");
#endif
}

TEST(closed_and_unopened_contexts_are_errors) {
  auto driver = makeHostDriver();
  DevicePtr address = 0;
  Context context = nullptr;
  CHECK_EQ(driver->malloc(&address, 16), kContextIsDestroyed);
  CHECK_EQ(driver->closeContext(&address), kContextIsDestroyed);
  OK(driver->openContext(0, &context));
  CHECK_EQ(driver->openContext(1, &context), kInvalidDevice);
  OK(driver->openContext(0, &context));
  CHECK_EQ(driver->makeCurrent(&address), kInvalidContext);
  OK(driver->closeContext(context));
  OK(driver->malloc(&address, 16));
  OK(driver->closeContext(context));
  CHECK_EQ(driver->free(address), kContextIsDestroyed);
  CHECK_EQ(driver->deviceSynchronize(), kContextIsDestroyed);
  OK(driver->openContext(0, &context));
  CHECK_EQ(driver->free(address), kInvalidValue);
}

TEST(destruction_without_close_runs_the_queue) {
  uint32_t value = 7;
  {
    auto driver = makeHostDriver();
    Context context = nullptr;
    Module module = nullptr;
    Function slow = nullptr;
    Stream stream = nullptr;
    OK(driver->openContext(0, &context));
    OK(driver->moduleLoad(&module, kernelImage().data(), kernelImage().size()));
    OK(driver->moduleGetFunction(&slow, module, "slow_mix"));
    OK(driver->streamCreate(&stream));
    const Args args = Args()(&value)(1u)(2000u);
    for (int i = 0; i < 3; ++i) OK(driver->launch(slow, {{1, 1, 1}, {1, 1, 1}, 0}, args.data(), args.size(), stream));
    OK(driver->streamDestroy(stream));
    CHECK_EQ(driver->streamSynchronize(stream), kInvalidHandle);
  }
  CHECK_EQ(value, ((7u * 31 + 1) * 31 + 1) * 31 + 1);
}

TEST(close_lets_a_waiting_call_finish) {
  Fixture f;
  DevicePtr x = f.malloc(4);
  OK(f.launch(f.function("slow_mix"), Args()(x)(1u)(20000u)));
  Status status = -1;
  std::atomic<bool> begun{false};
  std::thread waiter([&] {
    begun = true;
    status = f.d.streamSynchronize(f.stream);
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  OK(f.d.closeContext(f.context));
  waiter.join();
  CHECK_EQ(status, 0);
  f.context = nullptr;
}

TEST(memory_is_aligned_and_checked) {
  Fixture f;
  DevicePtr small = 0, large = 0, none = 1;
  OK(f.d.malloc(&small, 1));
  OK(f.d.malloc(&large, (5u << 20) + 3));
  OK(f.d.malloc(&none, 0));
  CHECK_EQ(none, DevicePtr{0});
  OK(f.d.free(0));
  CHECK_EQ(small % 64, DevicePtr{0});
  CHECK_EQ(large % (2u << 20), DevicePtr{0});
  OK(f.d.memsetD8Async(large, 1, (5u << 20) + 3, f.stream));
  OK(f.d.memsetD8Async(large + (5u << 20), 1, 3, f.stream));
  CHECK_EQ(f.d.memsetD8Async(large + (5u << 20), 1, 4, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memsetD8Async(large - 1, 1, 1, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memsetD8Async(0, 1, 1, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memsetD8Async(~0ull - 3, 1, 8, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memsetD8Async(large, 1, ~size_t{0}, f.stream), kInvalidValue);
  CHECK_EQ(f.d.free(large + 64), kInvalidValue);
  CHECK_EQ(f.d.free(0xdeadbeef), kInvalidValue);
  OK(f.d.free(large));
  CHECK_EQ(f.d.free(large), kInvalidValue);
  CHECK(std::string(f.d.errorString(kInvalidValue)).find("device allocation") != std::string::npos);
  int local = 0;
  CHECK_EQ(f.d.hostFree(&local), kInvalidValue);
  CHECK_EQ(f.d.hostFree(reinterpret_cast<void*>(small)), kInvalidValue);
  OK(f.d.free(small));
}

TEST(too_much_memory_is_refused) {
  Fixture f;
  DevicePtr address = 1;
  size_t available = 0, total = 0;
  OK(f.d.memInfo(&available, &total));
  CHECK_EQ(f.d.malloc(&address, size_t{1} << 60), kOutOfMemory);
  CHECK_EQ(address, DevicePtr{0});
  CHECK_EQ(f.d.malloc(&address, ~size_t{0}), kOutOfMemory);
  CHECK_EQ(f.d.malloc(&address, total + 1), kOutOfMemory);
  CHECK(std::string(f.d.errorName(kOutOfMemory)) == "hostErrorOutOfMemory");
  void* host = &address;
  CHECK_EQ(f.d.hostMalloc(&host, size_t{1} << 60), kOutOfMemory);
  CHECK(host == nullptr);
  OK(f.d.malloc(&address, 1 << 20));
  OK(f.d.free(address));
}

TEST(copies_carry_the_bytes) {
  Fixture f;
  Function slow = f.function("slow_mix");
  DevicePtr flag = f.malloc(4);
  // Below and above every threshold, on an idle stream and behind work.
  for (size_t count : {1u, 100u, 4096u, 5000u, 70000u, 300000u, 2000000u}) {
    for (bool busy : {false, true}) {
      std::vector<uint32_t> source(count), result;
      for (size_t i = 0; i < count; ++i) source[i] = static_cast<uint32_t>(i * 2654435761u + count);
      const std::vector<uint32_t> expected = source;
      DevicePtr a = f.malloc(count * 4), b = f.malloc(count * 4);
      if (busy) OK(f.launch(slow, Args()(flag)(1u)(1000u)));
      OK(f.d.memcpyHtoDAsync(a, source.data(), count * 4, f.stream));
      std::fill(source.begin(), source.end(), 0u);  // may be reused as soon as the call returns
      OK(f.d.memcpyDtoDAsync(b, a, count * 4, f.stream));
      void* host = nullptr;
      OK(f.d.hostMalloc(&host, count * 4));
      OK(f.d.memcpyDtoHAsync(host, b, count * 4, f.stream));
      OK(f.d.streamSynchronize(f.stream));
      CHECK(std::memcmp(host, expected.data(), count * 4) == 0);
      if (count > 1) CHECK_EQ(f.d.memcpyDtoHAsync(static_cast<char*>(host) + 4, b, count * 4, f.stream), kInvalidValue);
      OK(f.d.hostFree(host));
      OK(f.d.free(a));
      OK(f.d.free(b));
    }
  }
}

TEST(bad_copies_are_refused) {
  Fixture f;
  DevicePtr a = f.malloc(64);
  char local[64] = {};
  CHECK_EQ(f.d.memcpyHtoDAsync(a, local, 65, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memcpyHtoDAsync(a, nullptr, 4, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memcpyHtoDAsync(12345, local, 4, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memcpyDtoHAsync(local, a + 60, 5, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memcpyDtoHAsync(nullptr, a, 5, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memcpyDtoDAsync(a, a + 1, 64, f.stream), kInvalidValue);
  CHECK_EQ(f.d.memcpyHtoDAsync(a, local, 4, nullptr), kInvalidHandle);
  CHECK_EQ(f.d.memcpyHtoDAsync(a, local, 4, local), kInvalidHandle);
  OK(f.d.memcpyHtoDAsync(12345, nullptr, 0, f.stream));
  // Overlapping ranges move as a whole.
  for (int i = 0; i < 64; ++i) local[i] = static_cast<char>(i);
  OK(f.d.memcpyHtoDAsync(a, local, 64, f.stream));
  OK(f.d.memcpyDtoDAsync(a + 1, a, 63, f.stream));
  char moved[64];
  OK(f.d.memcpyDtoHAsync(moved, a, 64, f.stream));
  CHECK(std::memcmp(moved + 1, local, 63) == 0);
}

TEST(freed_memory_lives_until_its_work_is_done) {
  Fixture f;
  Function await = f.function("await_flag");
  Stream other = f.newStream();
  DevicePtr result = f.malloc(8);
  Event event = nullptr;
  OK(f.d.eventCreate(&event));
  for (size_t bytes : {size_t{64}, size_t{8} << 20}) {
    DevicePtr x = f.malloc(bytes), y = f.malloc(bytes);
    std::atomic<uint32_t> flag{0};
    OK(f.launch(await, Args()(&flag)));
    OK(f.d.eventRecord(event, f.stream));
    OK(f.d.streamWaitEvent(other, event));
    OK(f.launch(f.function("mix"), Args()(x)(5u)));
    OK(f.d.memcpyDtoDAsync(result, x, 4, f.stream));
    OK(f.launch(f.function("mix"), Args()(y)(6u), 1, other));
    OK(f.d.memcpyDtoDAsync(result + 4, y, 4, other));
    OK(f.d.free(x));
    OK(f.d.free(y));
    bool done = true;
    OK(f.d.eventQuery(event, &done));
    CHECK(!done);  // freeing waited for nothing
    CHECK_EQ(f.d.memsetD8Async(x, 0, 4, f.stream), kInvalidValue);
    // What is allocated meanwhile is other memory.
    DevicePtr z = 0;
    OK(f.d.malloc(&z, bytes));
    CHECK(z != x && z != y);
    std::memset(reinterpret_cast<void*>(z), 0xff, bytes);
    flag.store(1);
    OK(f.d.deviceSynchronize());
    const std::vector<uint32_t> values = f.read(result, 2);
    CHECK_EQ(values[0], 5u);
    CHECK_EQ(values[1], 6u);
    OK(f.d.free(z));
  }
}
