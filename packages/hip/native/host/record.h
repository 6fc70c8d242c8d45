// What a stream's queue and a captured graph are made of: records laid out one after another in memory, each a header,
// a fixed part and, for launches, tasks and small uploads, a payload. The first four kinds are plain bytes and may be captured;
// the others steer the queue they are in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "../driver.h"
#include "../host_abi.h"
#include "module.h"

namespace xhip::host {

enum class RecordKind : uint32_t {
  kKernel, kCopy, kFill, kTask, kGraph, kEventRecord, kEventWait, kRelease, kNotify, kEnd, kJump,
};

struct alignas(16) Record {
  RecordKind kind;
  uint32_t bytes;  // of the whole record, a multiple of 16
};

struct KernelRecord : Record {
  Kernel* kernel;
  uint64_t blocks;
  uint32_t grid[3];
  uint32_t sharedBytes;
  bool timed;  // a launch of one block whose time is learnt

  unsigned char* args() { return reinterpret_cast<unsigned char*>(this + 1); }
  const unsigned char* args() const { return reinterpret_cast<const unsigned char*>(this + 1); }
};

struct CopyRecord : Record {
  unsigned char* target;
  const unsigned char* source;  // null: the payload
  uint64_t length;

  unsigned char* payload() { return reinterpret_cast<unsigned char*>(this + 1); }
  const unsigned char* from() const { return source ? source : reinterpret_cast<const unsigned char*>(this + 1); }
};

struct FillRecord : Record {
  unsigned char* target;
  uint64_t length;
  uint8_t value;
};

struct TaskRecord : Record {
  HostTask run;
  uint64_t blocks;

  unsigned char* payload() { return reinterpret_cast<unsigned char*>(this + 1); }
  const unsigned char* payload() const { return reinterpret_cast<const unsigned char*>(this + 1); }
};

static_assert(sizeof(TaskRecord) % 16 == 0, "payloads are 16-byte aligned");
static_assert(sizeof(KernelRecord) % 16 == 0 && sizeof(CopyRecord) % 16 == 0, "payloads are 16-byte aligned");

// A captured sequence: the records in order and what must stay loaded while they can run. Immutable once captured.
struct Program {
  struct alignas(16) Unit {
    unsigned char bytes[16];
  };
  std::vector<Unit> units;
  std::vector<std::shared_ptr<ModuleImage>> images;
  size_t count = 0;
  bool touchesMemory = false;  // has copies or fills, whose ranges are checked again at each launch

  const Record* begin() const { return reinterpret_cast<const Record*>(units.data()); }
  const Record* end() const { return reinterpret_cast<const Record*>(units.data() + units.size()); }
  Record* append(size_t bytes) {
    const size_t at = units.size();
    units.resize(at + bytes / 16);
    ++count;
    return reinterpret_cast<Record*>(units.data() + at);
  }
};

inline const Record* nextRecord(const Record* record) {
  return reinterpret_cast<const Record*>(reinterpret_cast<const unsigned char*>(record) + record->bytes);
}

inline size_t recordBytes(size_t fixed, size_t payload) { return (fixed + payload + 15) & ~size_t{15}; }

}  // namespace xhip::host
