/** Kernels for the host platform, compiled by the tests with the machine's clang. They follow native/host_abi.h. */
import { readFileSync } from 'node:fs';
import { compileProgram } from '../src/index';

const abi = readFileSync(new URL('../native/host_abi.h', import.meta.url), 'utf8');

const SOURCE = `
${abi.replace('#pragma once', '')}
#include <cstring>
#include <ctime>

template <class T> static T take(const unsigned char* args, unsigned offset) {
  T value;
  std::memcpy(&value, args + offset, sizeof value);
  return value;
}

#define KERNEL extern "C" __attribute__((visibility("default")))

// fill(ptr out, u32 count, f32 value): out[i] = value, one element a block.
KERNEL void fill(const XHostLaunch* launch, const unsigned char* args) {
  float* out = take<float*>(args, 0);
  unsigned count = take<unsigned>(args, 8);
  float value = take<float>(args, 12);
  for (uint64_t i = launch->firstBlock; i < launch->endBlock; i++) {
    if (i < count) out[i] = value;
  }
}

// scale(ptr out, ptr in, u32 count, f32 factor): out[i] = in[i] * factor.
KERNEL void scale(const XHostLaunch* launch, const unsigned char* args) {
  float* out = take<float*>(args, 0);
  const float* in = take<const float*>(args, 8);
  unsigned count = take<unsigned>(args, 16);
  float factor = take<float>(args, 20);
  for (uint64_t i = launch->firstBlock; i < launch->endBlock; i++) {
    if (i < count) out[i] = in[i] * factor;
  }
}

// slow_fill(ptr out, u32 count, f32 value, u32 milliseconds): waits, then fills everything in block 0.
KERNEL void slow_fill(const XHostLaunch* launch, const unsigned char* args) {
  float* out = take<float*>(args, 0);
  unsigned count = take<unsigned>(args, 8);
  float value = take<float>(args, 12);
  unsigned milliseconds = take<unsigned>(args, 16);
  if (launch->firstBlock != 0) return;
  timespec pause = {long(milliseconds / 1000), long(milliseconds % 1000) * 1000000};
  nanosleep(&pause, nullptr);
  for (unsigned i = 0; i < count; i++) out[i] = value;
}

// pack(ptr out, u8, i64, i16, f16, bf16, f8e4m3, bool, u32, i32, u64, f64, f32): copies its argument block to out.
KERNEL void pack(const XHostLaunch* launch, const unsigned char* args) {
  if (launch->firstBlock == 0) std::memcpy(take<unsigned char*>(args, 0), args, 72);
}

// geometry(ptr out): counts blocks into out[0] and notes grid and shared bytes.
KERNEL void geometry(const XHostLaunch* launch, const unsigned char* args) {
  unsigned* out = take<unsigned*>(args, 0);
  __atomic_fetch_add(out, unsigned(launch->endBlock - launch->firstBlock), __ATOMIC_RELAXED);
  if (launch->firstBlock != 0) return;
  for (int i = 0; i < 3; i++) out[1 + i] = launch->grid[i];
  out[4] = launch->sharedBytes;
  out[5] = launch->shared != nullptr && uint64_t(launch->shared) % 64 == 0;
}

KERNEL void nothing(const XHostLaunch*, const unsigned char*) {}
`;

let compiled: Uint8Array | undefined;

/** The shared object with the kernels above. */
export function hostKernels(): Uint8Array {
  compiled ??= compileProgram('host', SOURCE, { name: 'test-kernels.cpp', arch: 'x86-64' });
  return compiled;
}
