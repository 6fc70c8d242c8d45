// Reading Linux's files about CPUs and nodes. core_id and physical_package_id are not used: machines exist on which all CPUs
// have the same, while a list of siblings that names its own CPU is meant.
#include "topology.h"

#include <dirent.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <thread>

namespace xhip::host {
namespace {

constexpr uint32_t kMostCpus = 65536;

std::vector<uint32_t> readCpuList(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parseCpuList(line);
}

bool holds(const std::vector<uint32_t>& sorted, uint32_t cpu) { return std::binary_search(sorted.begin(), sorted.end(), cpu); }

// The numbers of the folders nodeN, in order.
std::vector<uint32_t> nodeNumbers(const std::string& folder) {
  std::vector<uint32_t> numbers;
  DIR* directory = opendir(folder.c_str());
  if (!directory) return numbers;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    char* end = nullptr;
    if (name.compare(0, 4, "node") != 0 || name.size() < 5 || !std::isdigit(static_cast<unsigned char>(name[4]))) continue;
    const unsigned long number = std::strtoul(name.c_str() + 4, &end, 10);
    if (*end == '\0') numbers.push_back(static_cast<uint32_t>(number));
  }
  closedir(directory);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Of each CPU the first one that is the same core.
std::map<uint32_t, uint32_t> firstOfCores(const std::vector<uint32_t>& allowed, const std::string& root) {
  std::map<uint32_t, std::vector<uint32_t>> siblings;
  for (const uint32_t cpu : allowed) {
    siblings[cpu] = readCpuList(root + "/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  }
  std::map<uint32_t, uint32_t> first;
  for (const uint32_t cpu : allowed) {
    first[cpu] = cpu;
    for (const uint32_t other : siblings[cpu]) {
      const auto found = first.find(other);
      if (other == cpu || found == first.end() || !holds(siblings[other], cpu)) continue;
      first[cpu] = found->second;
      break;
    }
  }
  return first;
}

}  // namespace

uint32_t Topology::cores() const {
  return std::accumulate(nodes.begin(), nodes.end(), 0u, [](uint32_t sum, const CpuNode& node) { return sum + node.cores; });
}

std::vector<uint32_t> parseCpuList(const std::string& text) {
  std::vector<uint32_t> cpus;
  const char* at = text.c_str();
  const auto number = [&](unsigned long* out) {
    if (!std::isdigit(static_cast<unsigned char>(*at))) return false;
    char* end = nullptr;
    *out = std::strtoul(at, &end, 10);
    at = end;
    return *out < kMostCpus;
  };
  while (*at && *at != '\n') {
    unsigned long first = 0, last = 0;
    if (!number(&first)) return {};
    last = first;
    if (*at == '-') {
      ++at;
      if (!number(&last) || last < first) return {};
    }
    for (unsigned long cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<uint32_t>(cpu));
    if (*at == ',') {
      ++at;
    } else if (*at && *at != '\n') {
      return {};
    }
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::vector<uint32_t> allowedCpus() {
  std::vector<uint32_t> cpus;
  // The mask must be as large as the kernel's, which may pass the fixed type's 1024.
  for (uint32_t most = 1024; most <= kMostCpus && cpus.empty(); most *= 4) {
    cpu_set_t* set = CPU_ALLOC(most);
    const size_t bytes = CPU_ALLOC_SIZE(most);
    CPU_ZERO_S(bytes, set);
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (uint32_t cpu = 0; cpu < most; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
  }
  if (cpus.empty()) {
    cpus.resize(std::max(1u, std::thread::hardware_concurrency()));
    std::iota(cpus.begin(), cpus.end(), 0u);
  }
  return cpus;
}

Topology readTopology(const std::vector<uint32_t>& allowed, const std::string& root) {
  const std::map<uint32_t, uint32_t> first = firstOfCores(allowed, root);
  const auto coresOf = [&](const std::vector<uint32_t>& cpus) {
    return static_cast<uint32_t>(std::count_if(cpus.begin(), cpus.end(), [&](uint32_t cpu) { return first.at(cpu) == cpu; }));
  };
  Topology topology;
  size_t found = 0;
  for (const uint32_t number : nodeNumbers(root + "/node")) {
    CpuNode node;
    node.id = number;
    const std::vector<uint32_t> all = readCpuList(root + "/node/node" + std::to_string(number) + "/cpulist");
    std::copy_if(all.begin(), all.end(), std::back_inserter(node.cpus), [&](uint32_t cpu) { return first.count(cpu) > 0; });
    node.cores = coresOf(node.cpus);
    found += node.cpus.size();
    if (!node.cpus.empty()) topology.nodes.push_back(std::move(node));
  }
  // A core whose threads are in two nodes would leave one of them without any.
  const bool whole = std::all_of(topology.nodes.begin(), topology.nodes.end(), [](const CpuNode& node) { return node.cores > 0; });
  std::vector<uint32_t> covered;
  for (const CpuNode& node : topology.nodes) covered.insert(covered.end(), node.cpus.begin(), node.cpus.end());
  std::sort(covered.begin(), covered.end());
  const bool once = found == allowed.size() && std::unique(covered.begin(), covered.end()) == covered.end();
  if (!whole || !once) topology.nodes = {{0, allowed, coresOf(allowed)}};
  return topology;
}

std::vector<NodeThreads> shareThreads(const Topology& topology, uint32_t threads) {
  std::vector<NodeThreads> shares;
  const uint64_t cores = topology.cores();
  uint64_t before = 0, given = 0;
  for (const CpuNode& node : topology.nodes) {
    before += node.cores;
    // Rounded sums: no node is more than one thread away from its share.
    const uint64_t until = (2 * before * threads + cores) / (2 * cores);
    if (until > given) shares.push_back({node.id, node.cpus, static_cast<uint32_t>(until - given)});
    given = until;
  }
  return shares;
}

}  // namespace xhip::host
