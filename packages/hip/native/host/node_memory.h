// Where a large block lies on a machine of several NUMA nodes. A launch's blocks are shared out so that a node's workers take the
// same part of it every time (thread_pool.h), and kernels go through a matrix in the order in which it lies. So each node gets
// the part of the block that its workers will read, in its own memory. Interleaved pages would leave all but one in `nodes` reads
// to the link between nodes; the first touch would follow the uploads, which come in pieces that are no such parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "topology.h"

namespace xhip::host {

struct MemoryPart {
  uint32_t node = 0;
  size_t begin = 0;
  size_t end = 0;
};

// The parts of a block of `bytes` by the nodes' threads, cut at multiples of `page`; a node with none is left out.
std::vector<MemoryPart> memoryParts(size_t bytes, const std::vector<NodeThreads>& nodes, size_t page);

// Asks the system to put them there as pages are first touched; where a node is full, or the system refuses (containers may),
// pages lie where it likes. Nothing for a single node.
void placeByParts(void* block, size_t bytes, const std::vector<NodeThreads>& nodes, size_t page);

}  // namespace xhip::host
