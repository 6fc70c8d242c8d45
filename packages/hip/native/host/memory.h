// Device and host memory of the host platform: ordinary memory with a registry, so that a pointer that we did not hand
// out is an error and not a crash, and a freed block lives on until queued work has passed it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "../driver.h"
#include "topology.h"

namespace xhip::host {

class MemoryRegistry {
 public:
  enum class Kind { kDevice, kHost };

  explicit MemoryRegistry(uint64_t limitBytes) : counters_(std::make_shared<Counters>()), limitBytes_(limitBytes) {}

  // Where large blocks lie from now on: with several nodes, in as many parts, as threads take parts of launches.
  void placeOn(const std::vector<NodeThreads>& nodes) { nodes_ = nodes; }

  // 64-byte aligned; from 2 MiB on aligned to 2 MiB and backed by huge pages where the kernel gives them. Contents
  // are undefined. kOutOfMemory beyond the machine's (or the container's) memory.
  Status allocate(uint64_t* out, size_t bytes, Kind kind);

  // Forgets the block and gives it to the caller, who drops it when nothing uses it any more. kInvalidValue for an
  // address that is not the start of a block of this kind.
  Status take(std::shared_ptr<void>* block, uint64_t address, Kind kind);

  // Whether [address, address + bytes) lies in one block. An empty range must still start in, or at the end of, one.
  bool contains(uint64_t address, uint64_t bytes) const;
  // Whether the address lies in a block of `hostMalloc`.
  bool isHost(uint64_t address) const;

  // Changes whenever a block is taken away: ranges found valid before are still valid while it is the same.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  struct Counters {
    std::atomic<uint64_t> allocated{0};
  };
  struct Block {
    uint64_t address = 0;
    size_t bytes = 0;
    size_t mapped = 0;  // bytes to unmap; 0 for memory of the C library
    Kind kind = Kind::kDevice;
    std::shared_ptr<Counters> counters;
    ~Block();
  };
  using Blocks = std::map<uint64_t, std::shared_ptr<Block>>;

  Blocks::const_iterator holding(uint64_t address) const;

  mutable std::mutex mutex_;
  Blocks blocks_;
  std::shared_ptr<Counters> counters_;
  uint64_t limitBytes_;
  std::vector<NodeThreads> nodes_;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace xhip::host
