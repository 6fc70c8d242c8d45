// Tasks: host work of a library in a stream.
#include "host_test.h"

using namespace hosttest;
using namespace xhip::host;

namespace {

struct Sum {
  uint32_t* target;
  uint32_t amount;
};

// Adds once a block, as blocks may run on several threads.
void addPerBlock(const void* payload, uint64_t begin, uint64_t end) {
  const Sum& sum = *static_cast<const Sum*>(payload);
  __atomic_fetch_add(sum.target, sum.amount * static_cast<uint32_t>(end - begin), __ATOMIC_RELAXED);
}

void timesTwo(const void* payload, uint64_t, uint64_t) { *static_cast<const Sum*>(payload)->target *= 2; }

}  // namespace

TEST(tasks_run_in_stream_order_with_a_copy_of_their_payload) {
  Fixture f;
  DevicePtr x = f.malloc(4);
  OK(f.d.memsetD8Async(x, 0, 4, f.stream));
  for (uint64_t blocks : {1u, 7u, 1000u}) {
    Sum sum{reinterpret_cast<uint32_t*>(x), 3};
    OK(f.d.enqueueTask(addPerBlock, &sum, sizeof sum, blocks, f.stream));
    sum.amount = 99;
    OK(f.d.enqueueTask(timesTwo, &sum, sizeof sum, 1, f.stream));
  }
  CHECK_EQ(f.read(x), ((3u * 2 + 21) * 2 + 3000) * 2);
}

TEST(tasks_are_captured_replayed_and_compared) {
  Fixture f;
  DevicePtr x = f.malloc(4), y = f.malloc(4);
  OK(f.d.memsetD8Async(x, 0, 4, f.stream));
  OK(f.d.memsetD8Async(y, 0, 4, f.stream));
  auto make = [&](HostTask task, DevicePtr to) {
    return f.capture([&] {
      Sum sum{reinterpret_cast<uint32_t*>(to), 5};
      OK(f.d.enqueueTask(task, &sum, sizeof sum, 4, f.stream));
    });
  };
  Graph first = make(addPerBlock, x), elsewhere = make(addPerBlock, y), other = make(timesTwo, x);
  CHECK_EQ(f.read(x), 0u);
  GraphExec exec = nullptr;
  OK(f.d.graphInstantiate(&exec, first));
  for (int i = 0; i < 3; ++i) OK(f.d.graphLaunch(exec, f.stream));
  CHECK_EQ(f.read(x), 60u);
  bool updated = true;
  OK(f.d.graphExecUpdate(exec, other, &updated));
  CHECK(!updated);
  OK(f.d.graphExecUpdate(exec, elsewhere, &updated));
  CHECK(updated);
  OK(f.d.graphLaunch(exec, f.stream));
  CHECK_EQ(f.read(x), 60u);
  CHECK_EQ(f.read(y), 20u);
}

TEST(bad_tasks_are_refused) {
  Fixture f;
  Sum sum{nullptr, 0};
  const std::vector<unsigned char> big(64 * 1024);
  CHECK_EQ(f.d.enqueueTask(nullptr, &sum, sizeof sum, 1, f.stream), kInvalidValue);
  CHECK_EQ(f.d.enqueueTask(timesTwo, &sum, sizeof sum, 0, f.stream), kInvalidValue);
  CHECK_EQ(f.d.enqueueTask(timesTwo, nullptr, 8, 1, f.stream), kInvalidValue);
  CHECK_EQ(f.d.enqueueTask(timesTwo, big.data(), big.size(), 1, f.stream), kInvalidValue);
  CHECK_EQ(f.d.enqueueTask(timesTwo, &sum, sizeof sum, 1, nullptr), kInvalidHandle);
}
