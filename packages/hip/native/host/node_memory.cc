#include "node_memory.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace xhip::host {

std::vector<MemoryPart> memoryParts(size_t bytes, const std::vector<NodeThreads>& nodes, size_t page) {
  uint64_t threads = 0, before = 0;
  for (const NodeThreads& node : nodes) threads += node.threads;
  const uint64_t pages = (bytes + page - 1) / page;
  std::vector<MemoryPart> parts;
  size_t begin = 0;
  for (const NodeThreads& node : nodes) {
    before += node.threads;
    const size_t end = std::min<size_t>(bytes, (pages * before + threads / 2) / threads * page);
    if (end > begin) parts.push_back({node.id, begin, end});
    begin = end;
  }
  return parts;
}

void placeByParts(void* block, size_t bytes, const std::vector<NodeThreads>& nodes, size_t page) {
#if defined(SYS_mbind)
  if (nodes.size() < 2) return;
  constexpr long kPreferred = 1;  // MPOL_PREFERRED
  constexpr size_t kMostNodes = 1024, kBits = sizeof(unsigned long) * CHAR_BIT;
  for (const MemoryPart& part : memoryParts(bytes, nodes, page)) {
    if (part.node >= kMostNodes) continue;
    unsigned long mask[kMostNodes / kBits] = {};
    mask[part.node / kBits] = 1ul << part.node % kBits;
    // Linux takes one bit less than it is told of.
    syscall(SYS_mbind, static_cast<char*>(block) + part.begin, part.end - part.begin, kPreferred, mask, kMostNodes + 1, 0);
  }
#endif
}

}  // namespace xhip::host
