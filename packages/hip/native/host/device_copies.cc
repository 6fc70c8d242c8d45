// Copies and fills. Small transfers on an idle stream happen at once on the calling thread; all others are queued.
// Host memory of an upload may be reused after the call, so the bytes travel in the queue or the call waits.
#include <cstdlib>
#include <cstring>

#include "device.h"

namespace xhip::host {
namespace {

constexpr size_t kInRecord = 16 * 1024;             // carried by the record itself
constexpr size_t kStaged = size_t{4} << 20;         // carried by a copy on the heap
constexpr uint64_t kStagedTotal = uint64_t{256} << 20;  // above, uploads wait instead
constexpr size_t kAtOnce = 256 * 1024;              // copied by the caller when the stream is idle
constexpr size_t kCaptured = size_t{1} << 30;       // a record's length has 32 bits

const unsigned char* bytesAt(DevicePtr address) { return reinterpret_cast<const unsigned char*>(address); }
unsigned char* writableAt(DevicePtr address) { return reinterpret_cast<unsigned char*>(address); }

}  // namespace

Status Device::upload(DevicePtr target, const void* source, size_t bytes, void* handle) {
  Stream* stream = streamTable_.find(handle);
  if (!stream) return fail(kInvalidHandle, "upload: not a live stream");
  if (bytes == 0) return kSuccess;
  if (!source) return fail(kInvalidValue, "upload of %zu bytes from a null pointer", bytes);
  if (const Status status = checkRange("upload", target, bytes)) return status;
  std::unique_lock<std::mutex> lock(stream->mutex);
  if (capturing(stream)) {
    lock.unlock();
    if (bytes > kCaptured) return fail(kStreamCaptureUnsupported, "a capture takes uploads of up to 1 GiB, not %zu bytes", bytes);
    return enqueue<CopyRecord>(stream, RecordKind::kCopy, bytes, [&](CopyRecord* record, Program* program) {
      record->target = writableAt(target);
      record->source = nullptr;
      record->length = bytes;
      std::memcpy(record->payload(), source, bytes);
      if (program) program->touchesMemory = true;
    });
  }
  if (bytes <= kAtOnce && stream->idle()) {
    std::memcpy(writableAt(target), source, bytes);
    return kSuccess;
  }
  if (bytes <= kInRecord) {
    auto* record = stream->append<CopyRecord>(RecordKind::kCopy, bytes);
    record->target = writableAt(target);
    record->source = nullptr;
    record->length = bytes;
    std::memcpy(record->payload(), source, bytes);
    stream->publish();
    return kSuccess;
  }
  std::shared_ptr<void> staged;
  if (bytes <= kStaged && stagedBytes_->load() + bytes <= kStagedTotal) {
    if (void* memory = std::malloc(bytes)) {
      stagedBytes_->fetch_add(bytes);
      staged = std::shared_ptr<void>(memory, [bytes, total = stagedBytes_](void* done) {
        std::free(done);
        total->fetch_sub(bytes);
      });
      std::memcpy(memory, source, bytes);
    }
  }
  auto* record = stream->append<CopyRecord>(RecordKind::kCopy);
  record->target = writableAt(target);
  record->source = static_cast<const unsigned char*>(staged ? staged.get() : source);
  record->length = bytes;
  stream->publish();
  if (!staged) {
    lock.unlock();
    return waitFor({stream}, false);
  }
  stream->append<ReleaseRecord>(RecordKind::kRelease)->object = std::move(staged);
  stream->publish();
  return kSuccess;
}

Status Device::download(void* target, DevicePtr source, size_t bytes, void* handle) {
  Stream* stream = streamTable_.find(handle);
  if (!stream) return fail(kInvalidHandle, "download: not a live stream");
  if (bytes == 0) return kSuccess;
  if (!target) return fail(kInvalidValue, "download of %zu bytes to a null pointer", bytes);
  if (const Status status = checkRange("download", source, bytes)) return status;
  // Memory that hostMalloc did not give out may be gone when the stream gets there: then the call waits.
  const bool ours = memory_.isHost(reinterpret_cast<uintptr_t>(target));
  if (ours) {
    if (const Status status = checkRange("download", reinterpret_cast<uintptr_t>(target), bytes)) return status;
  }
  {
    std::lock_guard<std::mutex> lock(stream->mutex);
    if (capturing(stream)) {
      if (!ours) return fail(kStreamCaptureUnsupported, "a captured download needs a target from hostMalloc");
    } else if (bytes <= kAtOnce && stream->idle()) {
      std::memmove(target, bytesAt(source), bytes);
      return kSuccess;
    }
  }
  const Status status = enqueue<CopyRecord>(stream, RecordKind::kCopy, 0, [&](CopyRecord* record, Program* program) {
    record->target = static_cast<unsigned char*>(target);
    record->source = bytesAt(source);
    record->length = bytes;
    if (program) program->touchesMemory = true;
  });
  return status == kSuccess && !ours ? waitFor({stream}, false) : status;
}

Status Device::copy(DevicePtr target, DevicePtr source, size_t bytes, void* handle) {
  Stream* stream = streamTable_.find(handle);
  if (!stream) return fail(kInvalidHandle, "copy: not a live stream");
  if (bytes == 0) return kSuccess;
  if (const Status status = checkRange("copy target", target, bytes)) return status;
  if (const Status status = checkRange("copy source", source, bytes)) return status;
  return enqueue<CopyRecord>(stream, RecordKind::kCopy, 0, [&](CopyRecord* record, Program* program) {
    record->target = writableAt(target);
    record->source = bytesAt(source);
    record->length = bytes;
    if (program) program->touchesMemory = true;
  });
}

Status Device::fill(DevicePtr target, uint8_t value, size_t bytes, void* handle) {
  Stream* stream = streamTable_.find(handle);
  if (!stream) return fail(kInvalidHandle, "fill: not a live stream");
  if (bytes == 0) return kSuccess;
  if (const Status status = checkRange("fill", target, bytes)) return status;
  return enqueue<FillRecord>(stream, RecordKind::kFill, 0, [&](FillRecord* record, Program* program) {
    record->target = writableAt(target);
    record->length = bytes;
    record->value = value;
    if (program) program->touchesMemory = true;
  });
}

}  // namespace xhip::host
