// Launches, order within a stream, concurrency between streams, events and modules.
#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "host_test.h"

using namespace hosttest;
using namespace xhip::host;

TEST(every_block_runs_once) {
  Fixture f;
  Function hit = f.function("hit"), slow = f.function("slow_hit");
  const uint32_t most = 100000;
  DevicePtr x = f.malloc(most * 4);
  uint32_t expected = 0;
  for (uint32_t blocks : {1u, 2u, 3u, 7u, 64u, 1000u, 100000u}) {
    OK(f.d.memsetD8Async(x, 0, most * 4, f.stream));
    expected = 0;
    for (uint32_t k = 1; k <= 20; ++k) {
      OK(f.launch(hit, Args()(x)(k), blocks));
      expected += k;
    }
    if (blocks <= 64) {
      OK(f.launch(slow, Args()(x)(9u)(50u), blocks));
      expected += 9;
    }
    const std::vector<uint32_t> hits = f.read(x, most);
    for (uint32_t i = 0; i < most; ++i) {
      if (hits[i] != (i < blocks ? expected : 0)) {
        CHECK_EQ(hits[i], i < blocks ? expected : 0u);
        break;
      }
    }
  }
}

TEST(launches_pass_grid_arguments_and_shared_memory) {
  Fixture f;
  DevicePtr out = f.malloc(4096);
  Args describe = Args()(out);
  OK(f.d.launch(f.function("describe"), {{3, 1, 1}, {32, 2, 1}, 0}, describe.data(), describe.size(), f.stream));
  CHECK(f.read(out, 5) == (std::vector<uint32_t>{3, 1, 1, 0, 1}));
  OK(f.d.launch(f.function("describe"), {{1, 1, 1}, {1, 1, 1}, 48}, describe.data(), describe.size(), f.stream));
  CHECK(f.read(out, 5) == (std::vector<uint32_t>{1, 1, 1, 48, 0}));
  OK(f.launch(f.function("args"), Args()(out)(uint8_t{200})(uint16_t{60000})(4e9)));
  CHECK(f.read(out, 4) == (std::vector<uint32_t>{200, 60000, 4000000000u, 1}));
  for (uint32_t bytes : {4u, 1000u, 1u << 20}) {
    OK(f.launch(f.function("use_shared"), Args()(out), 64, nullptr, bytes));
    const std::vector<uint32_t> sums = f.read(out, 64);
    for (uint32_t b = 0; b < 64; ++b) {
      uint32_t sum = 0;
      for (uint32_t i = 0; i < bytes / 4; ++i) sum += b + i;
      CHECK_EQ(sums[b] & ~(1u << 31), sum & ~(1u << 31));
      if (bytes <= 1000) CHECK_EQ(sums[b] >> 31, 0u);
    }
  }
}

TEST(bad_launches_are_refused) {
  Fixture f;
  Function nop = f.function("nop");
  const LaunchConfig good{{1, 1, 1}, {1, 1, 1}, 0};
  const std::vector<unsigned char> args(20000);
  OK(f.d.launch(nop, good, nullptr, 0, f.stream));
  OK(f.d.launch(nop, good, args.data(), 16384, f.stream));
  CHECK_EQ(f.d.launch(nop, {{0, 1, 1}, {1, 1, 1}, 0}, nullptr, 0, f.stream), kInvalidConfiguration);
  CHECK_EQ(f.d.launch(nop, {{1, 1, 1}, {1, 0, 1}, 0}, nullptr, 0, f.stream), kInvalidConfiguration);
  CHECK_EQ(f.d.launch(nop, {{1, 1, 1}, {1024, 2, 1}, 0}, nullptr, 0, f.stream), kInvalidConfiguration);
  CHECK_EQ(f.d.launch(nop, {{~0u, ~0u, ~0u}, {1, 1, 1}, 0}, nullptr, 0, f.stream), kInvalidConfiguration);
  CHECK_EQ(f.d.launch(nop, {{1, 1, 1}, {1, 1, 1}, (1u << 20) + 1}, nullptr, 0, f.stream), kLaunchOutOfResources);
  CHECK(std::string(f.d.errorString(kLaunchOutOfResources)).find("1048577") != std::string::npos);
  CHECK_EQ(f.d.launch(nop, good, args.data(), args.size(), f.stream), kInvalidValue);
  CHECK_EQ(f.d.launch(nop, good, nullptr, 8, f.stream), kInvalidValue);
  CHECK_EQ(f.d.launch(nullptr, good, nullptr, 0, f.stream), kInvalidHandle);
  CHECK_EQ(f.d.launch(f.stream, good, nullptr, 0, f.stream), kInvalidHandle);
  CHECK_EQ(f.d.launch(nop, good, nullptr, 0, nop), kInvalidHandle);
  OK(f.d.functionSetMaxSharedBytes(nop, 1 << 20));
  CHECK_EQ(f.d.functionSetMaxSharedBytes(nop, (1 << 20) + 1), kInvalidValue);
  CHECK_EQ(f.d.functionSetMaxSharedBytes(nop, -1), kInvalidValue);
  OK(f.d.streamSynchronize(f.stream));
}

TEST(a_throwing_kernel_is_reported_once) {
  Fixture f;
  Function throws = f.function("throws");
  OK(f.launch(throws, Args()));
  CHECK_EQ(f.d.streamSynchronize(f.stream), kLaunchFailure);
  OK(f.d.streamSynchronize(f.stream));
  OK(f.launch(throws, Args(), 500));
  CHECK_EQ(f.d.deviceSynchronize(), kLaunchFailure);
  OK(f.d.deviceSynchronize());
  DevicePtr x = f.malloc(4);
  OK(f.launch(f.function("mix"), Args()(x)(3u)));
  CHECK_EQ(f.read(x), 3u);
}

TEST(a_stream_keeps_its_order) {
  Fixture f;
  Function mix = f.function("mix");
  DevicePtr x = f.malloc(4);
  uint32_t expected = 0;
  for (uint32_t k = 0; k < 20000; ++k) {  // several queue segments
    OK(f.launch(mix, Args()(x)(k)));
    expected = expected * 31 + k;
  }
  CHECK_EQ(f.read(x), expected);
  // Wide launches, copies and narrow launches in turn.
  const uint32_t n = 50000;
  DevicePtr a = f.malloc(n * 4), b = f.malloc(n * 4);
  for (int i = 0; i < 200; ++i) {
    OK(f.launch(f.function("add_one"), Args()(uint64_t{n})(a)(b), 1 + i % 64));
    OK(f.d.memcpyDtoDAsync(a, b, n * 4, f.stream));
    OK(f.launch(mix, Args()(a)(1u)));
    OK(f.d.memcpyDtoDAsync(a, b, 4, f.stream));
  }
  for (uint32_t value : f.read(a, n)) {
    if (value != 200) {
      CHECK_EQ(value, 200u);
      break;
    }
  }
}

TEST(enqueueing_does_not_wait) {
  Fixture f;
  DevicePtr x = f.malloc(4096);
  std::atomic<uint32_t> flag{0};
  Event event = nullptr;
  void* host = nullptr;
  OK(f.d.hostMalloc(&host, 4096));
  OK(f.d.eventCreate(&event));
  OK(f.launch(f.function("await_flag"), Args()(&flag)));
  OK(f.d.eventRecord(event, f.stream));
  const std::vector<unsigned char> source(4096, 1);
  for (int i = 0; i < 1000; ++i) {
    OK(f.launch(f.function("mix"), Args()(x)(1u)));
    OK(f.d.memcpyHtoDAsync(x, source.data(), source.size(), f.stream));
    OK(f.d.memsetD8Async(x, 2, 4096, f.stream));
    OK(f.d.memcpyDtoHAsync(host, x, 4096, f.stream));
  }
  bool done = true;
  OK(f.d.eventQuery(event, &done));
  CHECK(!done);
  flag.store(1);
  OK(f.d.streamSynchronize(f.stream));
  OK(f.d.eventQuery(event, &done));
  CHECK(done);
  CHECK_EQ(*static_cast<uint32_t*>(host), 0x02020202u);
}

// What is known to be short runs on the thread that launches it, and only where nothing on the stream comes before it.
TEST(short_launches_run_at_once) {
  Fixture f;
  Function thread = f.function("thread_of"), mix = f.function("mix"), slow = f.function("slow_mix");
  DevicePtr ran = f.malloc(8), x = f.malloc(4);
  const auto self = static_cast<uint64_t>(pthread_self());
  const auto runner = [&] {
    const std::vector<uint32_t> words = f.read(ran, 2);
    return words[0] | static_cast<uint64_t>(words[1]) << 32;
  };
  OK(f.launch(thread, Args()(ran)));
  CHECK(runner() != self);
  bool atOnce = false;
  for (int i = 0; i < 1000 && !atOnce; ++i) {
    OK(f.launch(thread, Args()(ran)));
    atOnce = runner() == self;
  }
  CHECK(atOnce);
  OK(f.d.memsetD8Async(x, 0, 4, f.stream));
  uint32_t expected = 0;
  for (uint32_t i = 0; i < 5000; ++i) {
    OK(f.launch(mix, Args()(x)(i)));
    expected = expected * 31 + i;
    if (i % 7 == 0) {
      OK(f.launch(slow, Args()(x)(3u)(i % 5)));
      expected = expected * 31 + 3;
    }
    if (i % 100 == 0) CHECK_EQ(f.read(x), expected);
  }
  CHECK_EQ(f.read(x), expected);
  std::atomic<uint32_t> flag{0};
  OK(f.launch(f.function("await_flag"), Args()(&flag)));
  OK(f.launch(thread, Args()(ran)));
  flag.store(1);
  CHECK(runner() != self);
}

TEST(events_order_streams) {
  Fixture f;
  Function slow = f.function("slow_mix"), mix = f.function("mix");
  Stream other = f.newStream(), third = f.newStream();
  DevicePtr x = f.malloc(4);
  Event event = nullptr, back = nullptr;
  OK(f.d.eventCreate(&event));
  OK(f.d.eventCreate(&back));
  uint32_t expected = 0;
  for (uint32_t i = 0; i < 300; ++i) {
    OK(f.launch(slow, Args()(x)(i)(i % 30)));
    OK(f.d.eventRecord(event, f.stream));
    OK(f.d.streamWaitEvent(other, event));
    OK(f.launch(mix, Args()(x)(i + 1), 1, other));
    OK(f.d.eventRecord(event, other));  // recorded again while the first may be pending
    OK(f.d.streamWaitEvent(third, event));
    OK(f.launch(mix, Args()(x)(i + 2), 1, third));
    OK(f.d.eventRecord(back, third));
    OK(f.d.streamWaitEvent(f.stream, back));
    for (uint32_t k : {i, i + 1, i + 2}) expected = expected * 31 + k;
  }
  CHECK_EQ(f.read(x), expected);
  // A destroyed event still releases those who wait for it.
  OK(f.launch(slow, Args()(x)(1u)(5000u)));
  OK(f.d.eventRecord(event, f.stream));
  OK(f.d.streamWaitEvent(other, event));
  OK(f.d.eventDestroy(event));
  CHECK_EQ(f.d.eventRecord(event, f.stream), kInvalidHandle);
  OK(f.d.streamDestroy(f.stream));
  OK(f.launch(mix, Args()(x)(2u), 1, other));
  f.stream = other;
  CHECK_EQ(f.read(x), (expected * 31 + 1) * 31 + 2);
}

TEST(events_measure_time) {
  Fixture f;
  DevicePtr x = f.malloc(4);
  Event start = nullptr, end = nullptr;
  OK(f.d.eventCreate(&start));
  OK(f.d.eventCreate(&end));
  float ms = -1;
  bool done = false;
  OK(f.d.eventQuery(start, &done));
  CHECK(done);
  OK(f.d.eventSynchronize(start));
  OK(f.d.streamWaitEvent(f.stream, start));
  CHECK_EQ(f.d.eventElapsedMs(&ms, start, end), kInvalidHandle);
  OK(f.d.eventRecord(start, f.stream));
  std::atomic<uint32_t> flag{0};
  OK(f.launch(f.function("slow_mix"), Args()(x)(1u)(30000u)));
  OK(f.launch(f.function("await_flag"), Args()(&flag)));
  OK(f.d.eventRecord(end, f.stream));
  OK(f.d.eventQuery(end, &done));
  CHECK(!done);
  CHECK_EQ(f.d.eventElapsedMs(&ms, start, end), kNotReady);
  flag.store(1);
  OK(f.d.eventSynchronize(end));
  OK(f.d.eventElapsedMs(&ms, start, end));
  CHECK(ms >= 30 && ms < 3000);
  CHECK_EQ(f.d.eventQuery(f.stream, &done), kInvalidHandle);
  CHECK_EQ(f.d.eventDestroy(nullptr), kInvalidHandle);
}

TEST(more_parked_streams_than_workers) {
  Fixture f;
  Function mix = f.function("mix");
  DevicePtr gate = f.malloc(4), x = f.malloc(64 * 4);
  Event event = nullptr;
  OK(f.d.eventCreate(&event));
  OK(f.launch(f.function("slow_mix"), Args()(gate)(1u)(20000u)));
  OK(f.d.eventRecord(event, f.stream));
  std::vector<Stream> streams;
  for (uint32_t i = 0; i < 64; ++i) {
    streams.push_back(f.newStream());
    OK(f.d.streamWaitEvent(streams[i], event));
    OK(f.launch(mix, Args()(x + 4 * i)(i + 1), 1, streams[i]));
  }
  OK(f.d.deviceSynchronize());
  const std::vector<uint32_t> values = f.read(x, 64);
  for (uint32_t i = 0; i < 64; ++i) CHECK_EQ(values[i], i + 1);
  for (Stream stream : streams) OK(f.d.streamDestroy(stream));
}

TEST(modules_load_and_unload) {
  Fixture f;
  const auto& image = kernelImage();
  DevicePtr x = f.malloc(4);
  Function missing = f.stream;
  CHECK_EQ(f.d.moduleGetFunction(&missing, f.module, "no_such_kernel"), kNotFound);
  CHECK(missing == nullptr);
  CHECK(std::string(f.d.errorString(kNotFound)).find("no_such_kernel") != std::string::npos);
  CHECK_EQ(f.d.moduleGetFunction(&missing, f.module, ""), kNotFound);
  CHECK_EQ(f.d.moduleGetFunction(&missing, f.module, "clock_gettime"), kNotFound);
  CHECK_EQ(f.d.moduleGetFunction(&missing, f.stream, "nop"), kInvalidHandle);
  CHECK(f.function("mix") == f.function("mix"));
  // Two copies of one image are two modules; unloading waits for what is queued.
  for (int i = 0; i < 20; ++i) {
    Module second = nullptr;
    Function slow = nullptr;
    OK(f.d.moduleLoad(&second, image.data(), image.size()));
    OK(f.d.moduleGetFunction(&slow, second, "slow_mix"));
    CHECK(slow != f.function("slow_mix"));
    OK(f.launch(slow, Args()(x)(1u)(500u)));
    OK(f.launch(slow, Args()(x)(1u)(500u)));
    OK(f.d.moduleUnload(second));
    CHECK_EQ(f.launch(slow, Args()(x)(1u)(500u)), kInvalidHandle);
    CHECK_EQ(f.d.moduleUnload(second), kInvalidHandle);
  }
  uint32_t expected = 0;
  for (int i = 0; i < 40; ++i) expected = expected * 31 + 1;
  CHECK_EQ(f.read(x), expected);
}
