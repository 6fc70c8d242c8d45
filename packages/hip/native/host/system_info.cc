// Reading the CPU's level, its name, the cores and the memory that this process may use.
#include "system_info.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "status.h"

namespace xhip::host {
namespace {

#if defined(__x86_64__)

uint64_t enabledState() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool hasAll(uint32_t value, std::initializer_list<int> bits) {
  return std::all_of(bits.begin(), bits.end(), [value](int bit) { return (value >> bit) & 1u; });
}

// The psABI's level: 0 for below x86-64-v2, else 2, 3 or 4; the system must save the wide registers.
int psabiLevel() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT
  if (!hasAll(c, {0, 9, 13, 19, 20, 23})) return 0;
  uint32_t a1, b1, c1, d1;
  if (!__get_cpuid(0x80000001u, &a1, &b1, &c1, &d1) || !hasAll(c1, {0})) return 0;  // LAHF
  // FMA, MOVBE, OSXSAVE, AVX, F16C; then LZCNT; then BMI1, AVX2, BMI2
  if (!hasAll(c, {12, 22, 27, 28, 29}) || !hasAll(c1, {5})) return 2;
  uint32_t a7, b7, c7, d7;
  if (!__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7) || !hasAll(b7, {3, 5, 8})) return 2;
  const uint64_t state = enabledState();
  if ((state & 0x6) != 0x6) return 2;  // SSE and AVX registers
  // AVX512F, DQ, CD, BW, VL; mask registers and both ZMM halves
  if (!hasAll(b7, {16, 17, 28, 30, 31}) || (state & 0xe6) != 0xe6) return 3;
  return 4;
}

// The levels of this CPU that kernels are built for, the one to prefer last. A psABI level may come with int8 dot products:
// AVX-VNNI, AVX512-VNNI.
std::vector<std::string> hostLevels() {
  uint32_t a = 0, b, c = 0, d, a1 = 0;
  const bool known = __get_cpuid_count(7, 0, &a, &b, &c, &d);
  if (known && a >= 1) __get_cpuid_count(7, 1, &a1, &b, &d, &d);
  std::vector<std::string> levels;
#if defined(__GLIBC__)
  const int highest = psabiLevel();
#else
  const int highest = std::min(psabiLevel(), 2);  // kernels of higher levels call libmvec, which is glibc's
#endif
  for (int level = 2; level <= highest; ++level) {
    levels.push_back("x86-64-v" + std::to_string(level));
    const bool products = level == 3 ? hasAll(a1, {4}) : level == 4 && hasAll(c, {11});
    if (products) levels.push_back(levels.back() + "-vnni");
  }
  return levels;
}

// AVX512-BF16, whose registers the level's name vouches for.
bool multipliesPairs(const std::string& arch) {
  uint32_t a = 0, b, c, d;
  if (arch.compare(0, 9, "x86-64-v4") != 0 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || a < 1) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && hasAll(a, {5});
}

// AMX-BF16, AMX-TILE and AMX-INT8, whose registers the system saves for processes that ask.
bool allowsTiles() {
  uint32_t a = 0, b, c, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !hasAll(d, {22, 24, 25}) || (enabledState() & 0x60000) != 0x60000) return false;
#if defined(SYS_arch_prctl)
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, since Linux 5.16
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
#else
  return false;
#endif
}

std::string brandString() {
  uint32_t highest = __get_cpuid_max(0x80000000u, nullptr);
  if (highest < 0x80000004u) return "";
  char text[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    uint32_t r[4];
    __get_cpuid(0x80000002u + i, &r[0], &r[1], &r[2], &r[3]);
    std::memcpy(text + 16 * i, r, 16);
  }
  std::string name = text;
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
  return name;
}

#endif

std::string firstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The folders, from this process's control group up to the root, of one controller ("" for version 2).
std::vector<std::string> groupFolders(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  std::vector<std::string> folders;
  const std::string root = controller.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool match = controller.empty() ? line.compare(0, 3, "0::") == 0 : names.find("," + controller + ",") != std::string::npos;
    if (!match) continue;
    for (std::string path = line.substr(second + 1); path.size() > 1; path.erase(path.find_last_of('/'))) {
      folders.push_back(root + path);
    }
  }
  folders.push_back(root);
  return folders;
}

// A number in a file; false for a missing file or for "max".
bool readNumber(const std::string& path, uint64_t* out) {
  const std::string text = firstLine(path);
  char* end = nullptr;
  *out = std::strtoull(text.c_str(), &end, 10);
  return end != text.c_str();
}

uint64_t statField(const std::string& path, const char* field) {
  std::ifstream file(path);
  std::string name;
  for (uint64_t value = 0; file >> name >> value;) {
    if (name == field) return value;
  }
  return 0;
}

uint32_t allowedCores() {
  // The mask must be as large as the kernel's, which may pass the fixed type's 1024.
  for (size_t cpus = 1024; cpus <= 65536; cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return static_cast<uint32_t>(count);
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

int clockRate() {
  uint64_t kiloHertz = 0;
  if (readNumber("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", &kiloHertz)) return static_cast<int>(kiloHertz);
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, 7, "cpu MHz") == 0) return static_cast<int>(std::atof(line.substr(line.find(':') + 1).c_str()) * 1000);
  }
  return 0;
}

}  // namespace

uint32_t cpuQuota() {
  uint64_t cores = 0;
  auto lower = [&](uint64_t quota, uint64_t period) {
    if (quota == 0 || period == 0) return;
    const uint64_t whole = (quota + period - 1) / period;
    cores = cores == 0 ? whole : std::min(cores, whole);
  };
  for (const std::string& folder : groupFolders("")) {
    std::istringstream line(firstLine(folder + "/cpu.max"));
    uint64_t quota = 0, period = 0;
    if (line >> quota >> period) lower(quota, period);
  }
  for (const std::string& folder : groupFolders("cpu")) {
    uint64_t period = 0;
    const std::string quota = firstLine(folder + "/cpu.cfs_quota_us");
    if (!quota.empty() && quota[0] != '-' && readNumber(folder + "/cpu.cfs_period_us", &period)) {
      lower(std::strtoull(quota.c_str(), nullptr, 10), period);
    }
  }
  return static_cast<uint32_t>(cores);
}

MemoryInfo readMemory() {
  MemoryInfo memory;
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (uint64_t kilobytes = 0; file >> name >> kilobytes;) {
    if (name == "MemTotal:") memory.totalBytes = kilobytes * 1024;
    if (name == "MemAvailable:") memory.availableBytes = kilobytes * 1024;
    std::getline(file, unit);
  }
  auto lower = [&](uint64_t limit, uint64_t used, uint64_t reclaimable) {
    if (limit >= memory.totalBytes) return;
    used -= std::min(used, reclaimable);
    memory.totalBytes = limit;
    memory.availableBytes = std::min(memory.availableBytes, limit - std::min(limit, used));
  };
  uint64_t limit = 0, used = 0;
  for (const std::string& folder : groupFolders("")) {
    if (!readNumber(folder + "/memory.max", &limit) || !readNumber(folder + "/memory.current", &used)) continue;
    lower(limit, used, statField(folder + "/memory.stat", "inactive_file"));
  }
  for (const std::string& folder : groupFolders("memory")) {
    if (!readNumber(folder + "/memory.limit_in_bytes", &limit)) continue;
    if (!readNumber(folder + "/memory.usage_in_bytes", &used)) continue;
    lower(limit, used, statField(folder + "/memory.stat", "total_inactive_file"));
  }
  return memory;
}

Status readCpu(CpuInfo* out) {
  CpuInfo cpu;
#if defined(__x86_64__)
  const std::vector<std::string> levels = hostLevels();
  if (!levels.empty()) cpu.arch = levels.back();
  bool named = false;
  if (const char* wanted = std::getenv("X_HOST_ARCH"); wanted && *wanted) {
    const std::string name = wanted;
    // The baseline has no kernels.
    const bool baseline = name == "x86-64" || name == "x86-64-v1";
    if (!baseline && std::find(levels.begin(), levels.end(), name) == levels.end()) {
      std::string known = "x86-64";
      for (const std::string& level : levels) known += ", " + level;
      return fail(kInvalidValue, "X_HOST_ARCH=%.40s is none that this CPU has (%s): unset it", wanted, known.c_str());
    }
    cpu.arch = baseline ? "" : name;
    named = true;
  }
  if (multipliesPairs(cpu.arch)) cpu.features = ":bf16";
  // A level that was asked for is that one alone.
  cpu.tiles = !named && cpu.arch == "x86-64-v4-vnni" && allowsTiles();
  if (cpu.tiles) cpu.features += ":amx";
  cpu.name = brandString();
#elif defined(__aarch64__)
  cpu.arch = "aarch64";
  cpu.name = firstLine("/sys/firmware/devicetree/base/model");
#endif
  if (cpu.name.empty()) cpu.name = "CPU";
  cpu.cores = allowedCores();
  if (const uint32_t quota = cpuQuota(); quota > 0) cpu.cores = std::min(cpu.cores, quota);
  cpu.threads = std::min(cpu.cores, 1024u);
  if (const char* wanted = std::getenv("X_HOST_THREADS"); wanted && *wanted) {
    char* end = nullptr;
    const long threads = std::strtol(wanted, &end, 10);
    if (*end || threads < 1 || threads > 1024) {
      return fail(kInvalidValue, "X_HOST_THREADS=%.40s is not a number from 1 to 1024: unset it", wanted);
    }
    cpu.threads = static_cast<uint32_t>(threads);
  }
  cpu.clockRateKHz = clockRate();
#if defined(_SC_LEVEL2_CACHE_SIZE)
  cpu.l2CacheBytes = static_cast<int>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE)));
#endif
  *out = std::move(cpu);
  return kSuccess;
}

}  // namespace xhip::host
