// What this CPU can do that kernels are built for, as a level's name: x86-64-v4-vnni, aarch64-i8mm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../driver.h"

namespace xhip::host {

// The best level of this CPU and operating system, or the one that X_HOST_ARCH names (`named`); empty when below x86-64-v2.
// kInvalidValue when the CPU lacks the named one.
Status chooseLevel(std::string* level, bool* named);

// The levels of an ARM CPU by its AT_HWCAP and AT_HWCAP2, the one to prefer last.
std::vector<std::string> armLevels(uint64_t capabilities, uint64_t more);

// Whether a CPU of this level has AVX512-BF16.
bool multipliesPairs(const std::string& arch);

// Whether the CPU has AMX-INT8 and AMX-BF16 and the system lets this process use them, which it is asked for here.
bool allowsTiles();

// The brand string or the board's name; empty when unknown.
std::string cpuName();

}  // namespace xhip::host
