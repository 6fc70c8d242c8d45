// The kernels of the host driver's tests, as source: the test program compiles them into a shared object with the C++
// compiler that $CXX names (default c++), as a code object is.
#pragma once

namespace hosttest {

constexpr const char* kKernelSource = R"source(
#include <pthread.h>
#include <time.h>
#include <stdexcept>
#include "host_abi.h"
typedef unsigned int u32;
typedef unsigned long long u64;

template <class T> static T take(const unsigned char* args, u64& at) {
  at = (at + alignof(T) - 1) / alignof(T) * alignof(T);
  T value;
  __builtin_memcpy(&value, args + at, sizeof value);
  at += sizeof value;
  return value;
}
static void spinUs(u32 us) {
  timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - start.tv_sec) * 1000000000ll + (now.tv_nsec - start.tv_nsec) < us * 1000ll);
}

extern "C" {
void nop(const XHostLaunch*, const unsigned char*) {}

// *x = *x * 31 + k: the result tells the order of the launches.
void mix(const XHostLaunch*, const unsigned char* args) {
  u64 at = 0;
  u32* x = take<u32*>(args, at);
  u32 k = take<u32>(args, at);
  *x = *x * 31 + k;
}

// The same after `us` microseconds of work.
void slow_mix(const XHostLaunch*, const unsigned char* args) {
  u64 at = 0;
  u32* x = take<u32*>(args, at);
  u32 k = take<u32>(args, at);
  spinUs(take<u32>(args, at));
  *x = *x * 31 + k;
}

// *out = the thread that runs it.
void thread_of(const XHostLaunch*, const unsigned char* args) {
  u64 at = 0;
  *take<u64*>(args, at) = (u64)pthread_self();
}

// Returns when *flag is not 0, or after ten seconds.
void await_flag(const XHostLaunch*, const unsigned char* args) {
  u64 at = 0;
  u32* flag = take<u32*>(args, at);
  timespec pause = {0, 100000};
  for (int i = 0; i < 100000 && __atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0; ++i) nanosleep(&pause, nullptr);
}

// hits[b] += k for every block b.
void hit(const XHostLaunch* launch, const unsigned char* args) {
  u64 at = 0;
  u32* hits = take<u32*>(args, at);
  u32 k = take<u32>(args, at);
  for (u64 b = launch->firstBlock; b < launch->endBlock; ++b) hits[b] += k;
}

// The same, `us` microseconds a block.
void slow_hit(const XHostLaunch* launch, const unsigned char* args) {
  u64 at = 0;
  u32* hits = take<u32*>(args, at);
  u32 k = take<u32>(args, at);
  u32 us = take<u32>(args, at);
  for (u64 b = launch->firstBlock; b < launch->endBlock; ++b) {
    spinUs(us);
    hits[b] += k;
  }
}

// y[i] = x[i] + 1 over n values, a contiguous part a block.
void add_one(const XHostLaunch* launch, const unsigned char* args) {
  u64 at = 0;
  u64 n = take<u64>(args, at);
  const u32* x = take<const u32*>(args, at);
  u32* y = take<u32*>(args, at);
  u64 blocks = (u64)launch->grid[0] * launch->grid[1] * launch->grid[2];
  u64 each = (n + blocks - 1) / blocks;
  for (u64 i = launch->firstBlock * each; i < launch->endBlock * each && i < n; ++i) y[i] = x[i] + 1;
}

// out[b] = the sum of what the block put into its shared memory; bit 31 when that is misaligned.
void use_shared(const XHostLaunch* launch, const unsigned char* args) {
  u64 at = 0;
  u32* out = take<u32*>(args, at);
  u32* shared = (u32*)launch->shared;
  u32 count = launch->sharedBytes / 4;
  for (u64 b = launch->firstBlock; b < launch->endBlock; ++b) {
    for (u32 i = 0; i < count; ++i) shared[i] = (u32)b + i;
    u32 sum = 0;
    for (u32 i = 0; i < count; ++i) sum += shared[i];
    out[b] = sum | ((u64)shared % 64 ? 1u << 31 : 0);
  }
}

// out[0..4] = grid, shared bytes, whether the shared pointer is null.
void describe(const XHostLaunch* launch, const unsigned char* args) {
  u64 at = 0;
  u32* out = take<u32*>(args, at);
  for (int i = 0; i < 3; ++i) out[i] = launch->grid[i];
  out[3] = launch->sharedBytes;
  out[4] = launch->shared == nullptr;
}

// Arguments of every size, to check the packing.
void args(const XHostLaunch*, const unsigned char* args) {
  u64 at = 0;
  u32* out = take<u32*>(args, at);
  out[0] = take<unsigned char>(args, at);
  out[1] = take<unsigned short>(args, at);
  out[2] = (u32)take<double>(args, at);
  out[3] = (u64)args % 16 == 0;
}

void throws(const XHostLaunch*, const unsigned char*) { throw std::runtime_error("a kernel's fault"); }
}
)source";

}  // namespace hosttest
