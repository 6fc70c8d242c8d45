// Behind rocm_staging.h: chunks are taken round robin, so the next one is the one used longest ago.
#include "rocm_staging.h"

#include <cstring>

namespace xhip {
namespace rocm {

Status UploadStaging::acquire(const Api& api, size_t* index) {
  if (!chunks_.empty()) {
    size_t candidate = next_ % chunks_.size();
    Status status = api.hipEventQuery(chunks_[candidate].event);
    if (status == kNotReady && chunks_.size() == kMaxChunks) status = api.hipEventSynchronize(chunks_[candidate].event);
    if (status == kSuccess) {
      next_ = candidate + 1;
      *index = candidate;
      return kSuccess;
    }
    if (status != kNotReady) return status;
  }
  Chunk chunk{nullptr, nullptr};
  Status status = api.hipHostMalloc(&chunk.host, kChunkBytes, 0);
  if (status != kSuccess) return status;
  status = api.hipEventCreate(&chunk.event);
  if (status != kSuccess) {
    (void)api.hipHostFree(chunk.host);
    return status;
  }
  // The new chunk takes the place of the busy one in the round, which is still the oldest after it.
  size_t at = chunks_.empty() ? 0 : next_ % chunks_.size();
  chunks_.insert(chunks_.begin() + at, chunk);
  next_ = at + 1;
  *index = at;
  return kSuccess;
}

Status UploadStaging::copy(const Api& api, DevicePtr dst, const void* src, size_t bytes, Stream stream) {
  void* target = reinterpret_cast<void*>(dst);
  if (bytes > kChunkBytes) {
    Status status = api.hipMemcpyHtoDAsync(target, const_cast<void*>(src), bytes, stream);
    return status == kSuccess ? api.hipStreamSynchronize(stream) : status;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  size_t index = 0;
  Status status = acquire(api, &index);
  if (status != kSuccess) return status;
  std::memcpy(chunks_[index].host, src, bytes);
  status = api.hipMemcpyHtoDAsync(target, chunks_[index].host, bytes, stream);
  return status == kSuccess ? api.hipEventRecord(chunks_[index].event, stream) : status;
}

void UploadStaging::release(const Api& api) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Chunk& chunk : chunks_) {
    (void)api.hipEventDestroy(chunk.event);
    (void)api.hipHostFree(chunk.host);
  }
  chunks_.clear();
  next_ = 0;
}

}  // namespace rocm
}  // namespace xhip
