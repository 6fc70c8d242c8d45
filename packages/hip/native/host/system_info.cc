// Reading the cores and the memory that this process may use, and what cpu_levels.h and topology.h know of the CPU.
#include "system_info.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "cpu_levels.h"
#include "status.h"

namespace xhip::host {
namespace {

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
  struct sysinfo info;
  // A process that may not read /proc: less is known, for what files hold counts as used.
  if (memory.totalBytes == 0 && sysinfo(&info) == 0) {
    memory.totalBytes = uint64_t{info.totalram} * info.mem_unit;
    memory.availableBytes = (uint64_t{info.freeram} + info.bufferram) * info.mem_unit;
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
  bool named = false;
  if (const Status status = chooseLevel(&cpu.arch, &named)) return status;
  if (multipliesPairs(cpu.arch)) cpu.features = ":bf16";
  // A level that was asked for is that one alone.
  cpu.tiles = !named && cpu.arch == "x86-64-v4-vnni" && allowsTiles();
  if (cpu.tiles) cpu.features += ":amx";
  cpu.name = cpuName();
  if (cpu.name.empty()) cpu.name = "CPU";
  const std::vector<uint32_t> allowed = allowedCpus();
  const Topology topology = readTopology(allowed, "/sys/devices/system");
  cpu.cores = static_cast<uint32_t>(allowed.size());
  cpu.threads = topology.cores();
  if (const uint32_t quota = cpuQuota(); quota > 0) {
    cpu.cores = std::min(cpu.cores, quota);
    cpu.threads = std::min(cpu.threads, quota);
  }
  cpu.threads = std::min(cpu.threads, 1024u);
  if (const char* wanted = std::getenv("X_HOST_THREADS"); wanted && *wanted) {
    char* end = nullptr;
    const long threads = std::strtol(wanted, &end, 10);
    if (*end || threads < 1 || threads > 1024) {
      return fail(kInvalidValue, "X_HOST_THREADS=%.40s is not a number from 1 to 1024: unset it", wanted);
    }
    cpu.threads = static_cast<uint32_t>(threads);
  }
  if (const char* spin = std::getenv("X_HOST_SPIN"); spin && *spin) {
    if (std::strcmp(spin, "0") != 0 && std::strcmp(spin, "1") != 0) {
      return fail(kInvalidValue, "X_HOST_SPIN=%.40s is neither 0 nor 1: unset it", spin);
    }
    cpu.spins = *spin == '1';
  }
  cpu.nodes = shareThreads(topology, cpu.threads);
  cpu.clockRateKHz = clockRate();
#if defined(_SC_LEVEL2_CACHE_SIZE)
  cpu.l2CacheBytes = static_cast<int>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE)));
#endif
  *out = std::move(cpu);
  return kSuccess;
}

}  // namespace xhip::host
