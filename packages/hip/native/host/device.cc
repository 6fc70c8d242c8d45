// Opening and closing the host device, waiting for its streams, and its memory.
#include "device.h"

#include <unistd.h>

#include <algorithm>

namespace xhip::host {

Status Device::open(std::unique_ptr<Device>* out, const CpuInfo& cpu) {
  std::unique_ptr<Device> device(new Device);
  device->pool_ = ThreadPool::create(cpu.nodes, cpu.cores, cpu.spins);
  if (!device->pool_) return fail(kOutOfMemory, "%u worker threads cannot be started", cpu.threads);
  device->tiles_ = cpu.tiles;
  device->memory_.placeOn(cpu.nodes);
  *out = std::move(device);
  return kSuccess;
}

Device::~Device() {
  if (!pool_) return;
  std::unique_lock<std::mutex> lock(streamsMutex_);
  for (Stream* stream : streams_) {
    std::lock_guard<std::mutex> streamLock(stream->mutex);
    if (stream->closing) continue;
    stream->closing = true;
    stream->append<Record>(RecordKind::kEnd);
    stream->publish();
  }
  streamGone_.wait(lock, [this] { return liveStreams_ == 0; });
  lock.unlock();
  pool_.reset();
}

void Device::endOfStream(Stream* stream) {
  std::lock_guard<std::mutex> lock(streamsMutex_);
  streams_.erase(std::remove(streams_.begin(), streams_.end(), stream), streams_.end());
}

void Device::streamIdle(Stream* stream) {
  streamTable_.recycle(stream);
  std::lock_guard<std::mutex> lock(streamsMutex_);
  if (--liveStreams_ == 0) streamGone_.notify_all();
}

std::vector<Stream*> Device::busyStreams() {
  std::lock_guard<std::mutex> lock(streamsMutex_);
  std::vector<Stream*> busy;
  for (Stream* stream : streams_) {
    if (!stream->idle()) busy.push_back(stream);
  }
  return busy;
}

Status Device::waitFor(const std::vector<Stream*>& streams, bool reportErrors) {
  Waiter waiter;
  for (Stream* stream : streams) {
    std::lock_guard<std::mutex> lock(stream->mutex);
    if (stream->closing && stream->idle()) continue;
    const uint64_t target = stream->submitted();
    try {
      auto* notify = stream->append<NotifyRecord>(RecordKind::kNotify);
      notify->waiter = &waiter;
      notify->reportErrors = reportErrors;
      waiter.expect();
      stream->publish();
    } catch (const std::bad_alloc&) {
      // No memory for a record: the wait itself must not fail, so look from time to time.
      while (stream->completed() < target) usleep(200);
    }
  }
  return waiter.wait();
}

Status Device::synchronize() {
  std::vector<Stream*> busy;
  Status error = kSuccess;
  {
    std::lock_guard<std::mutex> lock(streamsMutex_);
    for (Stream* stream : streams_) {
      std::lock_guard<std::mutex> streamLock(stream->mutex);
      if (!stream->closing && capturing(stream)) {
        return fail(kStreamCaptureUnsupported, "a stream is capturing: end the capture before synchronising the device");
      }
    }
    for (Stream* stream : streams_) {
      if (!stream->idle()) {
        busy.push_back(stream);
      } else if (const Status status = stream->takeError(); error == kSuccess) {
        error = status;
      }
    }
  }
  const Status status = waitFor(busy, true);
  return error != kSuccess ? error : status;
}

void Device::retire(std::shared_ptr<void> object) {
  std::lock_guard<std::mutex> lock(streamsMutex_);
  for (Stream* stream : streams_) {
    if (stream->idle()) continue;
    std::lock_guard<std::mutex> streamLock(stream->mutex);
    stream->append<ReleaseRecord>(RecordKind::kRelease)->object = object;
    stream->publish();
  }
}

Status Device::memInfo(size_t* freeBytes, size_t* totalBytes) {
  const MemoryInfo memory = readMemory();
  if (freeBytes) *freeBytes = memory.availableBytes;
  if (totalBytes) *totalBytes = memory.totalBytes;
  return kSuccess;
}

Status Device::allocate(uint64_t* out, size_t bytes, MemoryRegistry::Kind kind) {
  *out = 0;
  if (bytes == 0) return kSuccess;
  const Status status = memory_.allocate(out, bytes, kind);
  if (status != kOutOfMemory) return status;
  // Blocks that were freed behind queued work count until that work is done.
  const std::vector<Stream*> busy = busyStreams();
  if (busy.empty()) return status;
  waitFor(busy, false);
  return memory_.allocate(out, bytes, kind);
}

Status Device::malloc(DevicePtr* out, size_t bytes) {
  if (!out) return fail(kInvalidValue, "malloc: no place for the result");
  return allocate(out, bytes, MemoryRegistry::Kind::kDevice);
}

Status Device::free(DevicePtr address) {
  if (address == 0) return kSuccess;
  std::shared_ptr<void> block;
  if (const Status status = memory_.take(&block, address, MemoryRegistry::Kind::kDevice)) return status;
  retire(std::move(block));
  return kSuccess;
}

Status Device::hostMalloc(void** out, size_t bytes) {
  if (!out) return fail(kInvalidValue, "hostMalloc: no place for the result");
  uint64_t address = 0;
  const Status status = allocate(&address, bytes, MemoryRegistry::Kind::kHost);
  *out = reinterpret_cast<void*>(address);
  return status;
}

Status Device::hostFree(void* address) {
  if (!address) return kSuccess;
  std::shared_ptr<void> block;
  if (const Status status = memory_.take(&block, reinterpret_cast<uintptr_t>(address), MemoryRegistry::Kind::kHost)) {
    return status;
  }
  retire(std::move(block));
  return kSuccess;
}

Status Device::checkRange(const char* what, uint64_t address, size_t bytes) const {
  if (memory_.contains(address, bytes)) return kSuccess;
  return fail(kInvalidValue, "%s: the %zu bytes at 0x%llx are not inside one allocation", what, bytes,
              static_cast<unsigned long long>(address));
}

}  // namespace xhip::host
