// Allocation and look-up. Large blocks are mapped by themselves, so that they are aligned for huge pages and go back to
// the system when freed. Linux hands out more memory than there is and kills the process that uses it, so what is asked
// for is compared with what the machine has first.
#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <iterator>

#include "node_memory.h"
#include "status.h"
#include "system_info.h"

namespace xhip::host {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kAskSystemFrom = size_t{64} << 20;  // reading what is available takes tens of microseconds

void* mapHuge(size_t bytes) {
  const size_t reserved = bytes + kHugePage;
  void* raw = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uintptr_t start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + kHugePage - 1) & ~(kHugePage - 1);
  if (aligned > start) munmap(raw, aligned - start);
  const uintptr_t end = aligned + bytes;
  if (start + reserved > end) munmap(reinterpret_cast<void*>(end), start + reserved - end);
  void* block = reinterpret_cast<void*>(aligned);
#if defined(MADV_HUGEPAGE)
  madvise(block, bytes, MADV_HUGEPAGE);
#endif
  return block;
}

}  // namespace

MemoryRegistry::Block::~Block() {
  if (address == 0) return;
  if (mapped > 0) {
    munmap(reinterpret_cast<void*>(address), mapped);
  } else {
    std::free(reinterpret_cast<void*>(address));
  }
  counters->allocated.fetch_sub(bytes);
}

Status MemoryRegistry::allocate(uint64_t* out, size_t bytes, Kind kind) {
  const uint64_t inUse = counters_->allocated.load();
  if (bytes > limitBytes_ || inUse > limitBytes_ - bytes) {
    return fail(kOutOfMemory, "%zu bytes asked for, %llu of %llu bytes are in use", bytes,
                static_cast<unsigned long long>(inUse), static_cast<unsigned long long>(limitBytes_));
  }
  if (bytes >= kAskSystemFrom) {
    const uint64_t available = readMemory().availableBytes;
    if (bytes > available) {
      return fail(kOutOfMemory, "%zu bytes asked for, the machine has %llu available", bytes,
                  static_cast<unsigned long long>(available));
    }
  }
  auto block = std::make_shared<Block>();
  void* memory;
  if (bytes >= kHugePage) {
    const size_t mapped = (bytes + 4095) & ~size_t{4095};
    memory = mapHuge(mapped);
    block->mapped = mapped;
    if (memory && kind == Kind::kDevice) placeByParts(memory, mapped, nodes_, kHugePage);
  } else {
    memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) & ~(kAlignment - 1));
  }
  if (!memory) return fail(kOutOfMemory, "the system refused %zu bytes", bytes);
  block->address = reinterpret_cast<uintptr_t>(memory);
  block->bytes = bytes;
  block->kind = kind;
  block->counters = counters_;
  counters_->allocated.fetch_add(bytes);
  *out = block->address;
  std::lock_guard<std::mutex> lock(mutex_);
  blocks_.emplace(block->address, std::move(block));
  return kSuccess;
}

Status MemoryRegistry::take(std::shared_ptr<void>* block, uint64_t address, Kind kind) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second->kind != kind) {
    return fail(kInvalidValue, "0x%llx is not the start of a live %s allocation",
                static_cast<unsigned long long>(address), kind == Kind::kDevice ? "device" : "host");
  }
  *block = std::move(found->second);
  blocks_.erase(found);
  generation_.fetch_add(1, std::memory_order_release);
  return kSuccess;
}

MemoryRegistry::Blocks::const_iterator MemoryRegistry::holding(uint64_t address) const {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return blocks_.end();
  auto block = std::prev(after);
  return address - block->first <= block->second->bytes ? block : blocks_.end();
}

bool MemoryRegistry::contains(uint64_t address, uint64_t bytes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto block = holding(address);
  return block != blocks_.end() && bytes <= block->second->bytes - (address - block->first);
}

bool MemoryRegistry::isHost(uint64_t address) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto block = holding(address);
  return block != blocks_.end() && block->second->kind == Kind::kHost && address - block->first < block->second->bytes;
}

}  // namespace xhip::host
