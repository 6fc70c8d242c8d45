// How a launch is shared out. Waking a sleeping worker costs microseconds and even a spinning one costs the transfer of a
// few cache lines, so a launch that is known to take less stays on the thread that runs the stream, and one of a single block
// on the thread that launches it, if the stream has nothing else to do. What a kernel's block takes is learnt from its launches;
// an unknown kernel is shared out at once.
#include "execute.h"

#include <algorithm>
#include <cstring>

#include "status.h"

namespace xhip::host {
namespace {

constexpr float kAtOnceNs = 1000;          // launches of one block below this run on the thread that launches them
constexpr float kSerialNs = 1500;          // launches below this run on one thread
constexpr float kWakeNs = 12000;           // launches below this do not wake sleepers
constexpr float kChunkNs = 1000;           // a chunk takes at least this long, if it can
constexpr uint64_t kChunksPerThread = 8;   // so that uneven blocks even out
constexpr uint64_t kMemoryBlock = 256 * 1024;

struct KernelTask {
  const KernelRecord* record;
  std::atomic<bool> threw{false};
};

void runBlocks(const void* task, unsigned char* scratch, uint64_t begin, uint64_t end) {
  auto* kernel = static_cast<const KernelTask*>(task);
  const KernelRecord& record = *kernel->record;
  XHostLaunch launch;
  std::memcpy(launch.grid, record.grid, sizeof launch.grid);
  launch.sharedBytes = record.sharedBytes;
  launch.firstBlock = begin;
  launch.endBlock = end;
  launch.shared = record.sharedBytes ? scratch : nullptr;
  try {
    record.kernel->entry(&launch, record.args());
  } catch (...) {
    const_cast<KernelTask*>(kernel)->threw.store(true, std::memory_order_relaxed);
  }
}

// A rise counts at once, a fall slowly: taking a long launch for a short one costs more than the reverse.
void learn(std::atomic<float>& known, float measured) {
  const float old = known.load(std::memory_order_relaxed);
  known.store(measured > old ? measured : old + (measured - old) * 0.125f, std::memory_order_relaxed);
}

// Nanoseconds. Zero means unknown, so an immeasurably short time counts as a little.
float since(uint64_t start) { return std::max(0.01f, static_cast<float>(nowNs() - start)); }

Status executeKernel(const KernelRecord& record, Worker& worker, ThreadPool& pool) {
  KernelTask task;
  task.record = &record;
  const uint64_t blocks = record.blocks;
  if (blocks == 1 || pool.threads() == 1) {
    const uint64_t start = record.timed ? nowNs() : 0;
    runBlocks(&task, worker.scratch, 0, blocks);
    if (record.timed) learn(record.kernel->nsAlone, since(start));
  } else {
    std::atomic<float>& nsPerBlock = record.kernel->nsPerBlock;
    const float known = nsPerBlock.load(std::memory_order_relaxed);
    const float expected = known * static_cast<float>(blocks);
    const uint64_t start = nowNs();
    uint64_t own = blocks;
    if (known > 0 && expected < kSerialNs) {
      runBlocks(&task, worker.scratch, 0, blocks);
    } else {
      uint64_t chunk = std::max<uint64_t>(1, blocks / (pool.threads() * kChunksPerThread));
      if (known > 0) {
        const uint64_t worthwhile = static_cast<uint64_t>(kChunkNs / known);
        chunk = std::max(chunk, std::min(worthwhile, (blocks + pool.threads() - 1) / pool.threads()));
      }
      own = pool.parallel(worker, runBlocks, &task, blocks, chunk, known == 0 || expected >= kWakeNs);
    }
    if (own > 0) learn(nsPerBlock, since(start) / static_cast<float>(own));
  }
  return task.threw.load(std::memory_order_relaxed) ? kLaunchFailure : kSuccess;
}

void copyBlocks(const void* task, unsigned char*, uint64_t begin, uint64_t end) {
  const CopyRecord& copy = *static_cast<const CopyRecord*>(task);
  const uint64_t from = begin * kMemoryBlock;
  const uint64_t to = std::min(end * kMemoryBlock, copy.length);
  // The C library takes slower instructions for copies larger than a second cache.
  for (uint64_t at = from; at < to; at += kMemoryBlock) {
    std::memcpy(copy.target + at, copy.from() + at, std::min(kMemoryBlock, to - at));
  }
}

void fillBlocks(const void* task, unsigned char*, uint64_t begin, uint64_t end) {
  const FillRecord& fill = *static_cast<const FillRecord*>(task);
  const uint64_t from = begin * kMemoryBlock;
  const uint64_t to = std::min(end * kMemoryBlock, fill.length);
  std::memset(fill.target + from, fill.value, to - from);
}

void shareMemoryBlocks(RangeFunction function, const Record* record, uint64_t length, Worker& worker, ThreadPool& pool) {
  const uint64_t blocks = (length + kMemoryBlock - 1) / kMemoryBlock;
  if (pool.threads() == 1) return function(record, worker.scratch, 0, blocks);
  const uint64_t chunk = std::max<uint64_t>(1, blocks / (pool.threads() * kChunksPerThread));
  pool.parallel(worker, function, record, blocks, chunk, true);
}

void executeCopy(const CopyRecord& copy, Worker& worker, ThreadPool& pool) {
  const unsigned char* from = copy.from();
  const bool apart = from + copy.length <= copy.target || copy.target + copy.length <= from;
  if (!apart || copy.length <= kMemoryBlock) {
    std::memmove(copy.target, from, copy.length);
  } else {
    shareMemoryBlocks(copyBlocks, &copy, copy.length, worker, pool);
  }
}

void executeFill(const FillRecord& fill, Worker& worker, ThreadPool& pool) {
  if (fill.length <= kMemoryBlock) {
    std::memset(fill.target, fill.value, fill.length);
  } else {
    shareMemoryBlocks(fillBlocks, &fill, fill.length, worker, pool);
  }
}

void runTask(const void* task, unsigned char*, uint64_t begin, uint64_t end) {
  const TaskRecord& record = *static_cast<const TaskRecord*>(task);
  record.run(record.payload(), begin, end);
}

// Whoever enqueues a task has cut it into as many blocks as are worth a thread each.
void executeTask(const TaskRecord& task, Worker& worker, ThreadPool& pool) {
  if (task.blocks == 1 || pool.threads() == 1) {
    task.run(task.payload(), 0, task.blocks);
  } else {
    pool.parallel(worker, runTask, &task, task.blocks, 1, true);
  }
}

}  // namespace

bool isShort(const Kernel& kernel) {
  const float known = kernel.nsAlone.load(std::memory_order_relaxed);
  return known > 0 && known < kAtOnceNs;
}

Status executeAtOnce(Kernel& kernel, const uint32_t (&grid)[3], const unsigned char* args) {
  XHostLaunch launch = {};
  std::memcpy(launch.grid, grid, sizeof launch.grid);
  launch.endBlock = 1;
  const uint64_t start = nowNs();
  try {
    kernel.entry(&launch, args);
  } catch (...) {
    return kLaunchFailure;
  }
  learn(kernel.nsAlone, since(start));
  return kSuccess;
}

Status executeRecord(const Record* record, Worker& worker, ThreadPool& pool) {
  switch (record->kind) {
    case RecordKind::kKernel:
      return executeKernel(*static_cast<const KernelRecord*>(record), worker, pool);
    case RecordKind::kCopy:
      executeCopy(*static_cast<const CopyRecord*>(record), worker, pool);
      return kSuccess;
    case RecordKind::kFill:
      executeFill(*static_cast<const FillRecord*>(record), worker, pool);
      return kSuccess;
    case RecordKind::kTask:
      executeTask(*static_cast<const TaskRecord*>(record), worker, pool);
      return kSuccess;
    default:
      return kUnknown;
  }
}

}  // namespace xhip::host
