// What a host code object (an ELF shared object with kernels compiled for the CPU) exports, and what the host driver
// calls. A kernel `name` is the C symbol `name` of type HostKernel; a host block is ONE thread, so the driver ignores
// the block dimensions of a launch (a kernel must be right for any block size, including 1).
#pragma once
#include <cstdint>

extern "C" {
struct XHostLaunch {
  uint32_t grid[3];
  uint32_t sharedBytes;
  uint64_t firstBlock;  // linear block range [firstBlock, endBlock) that this call runs; x is fastest, then y, then z
  uint64_t endBlock;
  void* shared;  // sharedBytes of dynamic shared memory, 64-byte aligned, private to this call; null when 0
};
typedef void (*HostKernel)(const XHostLaunch* launch, const unsigned char* args);

// An object whose kernels can use tile registers (AMX-INT8 and AMX-BF16) exports `int32_t x_amx`. The driver makes it 1
// after loading where this process may use them; without that it stays 0. A kernel that used them releases them before
// it returns.
}
