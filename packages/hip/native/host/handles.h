// Handles that can be checked. A handle is not a pointer but (tag, generation, slot number), so that a null, foreign,
// destroyed or wrongly typed handle is recognised without touching memory it might point to. Slots are never given
// back while the table lives: a thread that still holds a T* of a destroyed object reads a live (perhaps reused) T.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace xhip::host {

template <class T, uint8_t Tag>
class HandleTable {
 public:
  ~HandleTable() {
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }

  // A slot that nobody else sees yet: fill its value, then `publish` it, or `recycle` it unused.
  T* acquire() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) {
      if (chunkCount_ == kChunks) throw std::bad_alloc();
      Slot* chunk = new Slot[kChunkSlots];
      for (uint32_t i = 0; i < kChunkSlots; ++i) chunk[i].index = chunkCount_ * kChunkSlots + i;
      free_.reserve((chunkCount_ + 1) * kChunkSlots);  // so that recycle never allocates
      for (uint32_t i = kChunkSlots; i > 0; --i) free_.push_back(chunkCount_ * kChunkSlots + i - 1);
      chunks_[chunkCount_++].store(chunk, std::memory_order_release);
    }
    Slot* slot = at(free_.back());
    free_.pop_back();
    return &slot->value;
  }

  void* publish(T* value) {
    Slot* slot = slotOf(value);
    slot->generation = (slot->generation + 1) & 0xffffff;
    const uint64_t key = (uint64_t{Tag} << 56) | (uint64_t{slot->generation} << 32) | (slot->index + 1u);
    slot->key.store(key, std::memory_order_release);
    return reinterpret_cast<void*>(static_cast<uintptr_t>(key));
  }

  // The live object of a handle, or null.
  T* find(void* handle) const {
    const uint64_t key = reinterpret_cast<uintptr_t>(handle);
    const uint32_t index = static_cast<uint32_t>(key) - 1u;
    if ((key >> 56) != Tag || index >= kChunks * kChunkSlots) return nullptr;
    Slot* slot = at(index);
    return slot && slot->key.load(std::memory_order_acquire) == key ? &slot->value : nullptr;
  }

  // Makes the handle invalid; exactly one caller gets the object, and recycles it when it is no longer used.
  T* withdraw(void* handle) {
    T* value = find(handle);
    if (!value) return nullptr;
    uint64_t key = reinterpret_cast<uintptr_t>(handle);
    return slotOf(value)->key.compare_exchange_strong(key, 0) ? value : nullptr;
  }

  void recycle(T* value) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(slotOf(value)->index);
  }

 private:
  struct Slot {
    T value;  // first, so that a T* is its slot
    std::atomic<uint64_t> key{0};
    uint32_t index = 0;
    uint32_t generation = 0;
  };
  static constexpr uint32_t kChunkSlots = 64;
  static constexpr uint32_t kChunks = 8192;

  static Slot* slotOf(T* value) { return reinterpret_cast<Slot*>(value); }
  Slot* at(uint32_t index) const {
    Slot* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    return chunk ? chunk + index % kChunkSlots : nullptr;
  }

  std::mutex mutex_;
  std::vector<uint32_t> free_;
  uint32_t chunkCount_ = 0;
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
};

}  // namespace xhip::host
