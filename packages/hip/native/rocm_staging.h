// Uploads from pageable memory on HIP. hipMemcpyHtoDAsync does not promise that pageable memory may be reused when it
// returns (CUDA does), and JavaScript memory may move on at once. So small uploads go through page-locked chunks that are
// reused when their event has passed, and large ones wait for the stream, as the runtime itself would for such memory.
#pragma once

#include <mutex>
#include <vector>

#include "driver.h"
#include "rocm_api.h"

namespace xhip {
namespace rocm {

class UploadStaging {
 public:
  static constexpr size_t kChunkBytes = 256 * 1024;
  static constexpr size_t kMaxChunks = 64;  // 16 MiB of page-locked memory a device at most

  Status copy(const Api& api, DevicePtr dst, const void* src, size_t bytes, Stream stream);
  void release(const Api& api);  // the device is idle

 private:
  struct Chunk {
    void* host;
    Event event;
  };
  Status acquire(const Api& api, size_t* index);

  std::mutex mutex_;
  std::vector<Chunk> chunks_;
  size_t next_ = 0;
};

}  // namespace rocm
}  // namespace xhip
