// What the machine and the container give this process: CPU level, cores, memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../driver.h"
#include "topology.h"

namespace xhip::host {

struct CpuInfo {
  std::string arch;     // the level (cpu_levels.h); empty when below x86-64-v2
  std::string features; // what it has besides that kernels use: ":bf16:amx"
  bool tiles = false;   // AMX-INT8 and AMX-BF16, which the system lets this process use
  std::string name;     // brand string
  uint32_t cores = 1;   // logical ones that this process may use (affinity and container quota)
  uint32_t threads = 1; // workers to start: one a physical core, or as X_HOST_THREADS says
  bool spins = true;    // whether they wait awake for a moment before they sleep, as X_HOST_SPIN says
  std::vector<NodeThreads> nodes;  // where they run
  int clockRateKHz = 0;
  int l2CacheBytes = 0;
};

struct MemoryInfo {
  uint64_t totalBytes = 0;
  uint64_t availableBytes = 0;
};

// Reads the CPU, then the switches X_HOST_ARCH (a lower level to use), X_HOST_THREADS and X_HOST_SPIN. kInvalidValue when a
// switch is malformed or asks for a level that the CPU lacks.
Status readCpu(CpuInfo* out);

// From /proc/meminfo, lowered by the container's limit.
MemoryInfo readMemory();

// The container's CPU quota in whole cores, rounded up; 0 for none.
uint32_t cpuQuota();

}  // namespace xhip::host
