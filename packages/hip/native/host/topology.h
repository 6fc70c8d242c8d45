// Which logical CPUs are one core, and which share a memory (a NUMA node), among those that this process may use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xhip::host {

struct CpuNode {
  uint32_t id = 0;             // the system's number
  std::vector<uint32_t> cpus;  // logical, that this process may use
  uint32_t cores = 0;          // physical, that these are
};

struct Topology {
  std::vector<CpuNode> nodes;  // those with CPUs for this process; one where the system tells of none
  uint32_t cores() const;
};

// A node's part of the worker threads. Threads of the first node come first.
struct NodeThreads {
  uint32_t id = 0;
  std::vector<uint32_t> cpus;
  uint32_t threads = 0;
};

// The numbers of "0-3,8,10-11"; empty for what is no such list.
std::vector<uint32_t> parseCpuList(const std::string& text);

// The logical CPUs that this thread may run on. Where the system does not say, as many as there are, from 0 on.
std::vector<uint32_t> allowedCpus();

// Reads cpu/cpu*/topology and node/node* under `root` (/sys/devices/system). Two CPUs are one core when each names the other
// as its sibling; where that cannot be read every CPU is a core, so that no core is ever missed. Nodes that do not have every
// allowed CPU once are none.
Topology readTopology(const std::vector<uint32_t>& allowed, const std::string& root);

// How many of the threads each node gets, by its cores; nodes that get none are left out.
std::vector<NodeThreads> shareThreads(const Topology& topology, uint32_t threads);

}  // namespace xhip::host
