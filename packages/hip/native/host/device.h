// The open context of the host platform: its workers, memory, streams, events, modules and graphs. The methods are the
// driver table's, on live objects; host_driver.cc forwards to them and explains nothing of its own.
//
// Lock order: streamsMutex_, then a stream's mutex, then a capture's, an event's or a program's.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../driver.h"
#include "capture.h"
#include "handles.h"
#include "memory.h"
#include "module.h"
#include "status.h"
#include "stream.h"
#include "system_info.h"
#include "thread_pool.h"

namespace xhip::host {

class Device final : private StreamOwner {
 public:
  static Status open(std::unique_ptr<Device>* out, const CpuInfo& cpu);
  ~Device();  // runs what is queued, joins the workers, frees everything

  Status synchronize();

  Status memInfo(size_t* freeBytes, size_t* totalBytes);
  Status malloc(DevicePtr* out, size_t bytes);
  Status free(DevicePtr address);
  Status hostMalloc(void** out, size_t bytes);
  Status hostFree(void* address);

  Status upload(DevicePtr target, const void* source, size_t bytes, void* stream);
  Status download(void* target, DevicePtr source, size_t bytes, void* stream);
  Status copy(DevicePtr target, DevicePtr source, size_t bytes, void* stream);
  Status fill(DevicePtr target, uint8_t value, size_t bytes, void* stream);

  Status streamCreate(void** out);
  Status streamDestroy(void* stream);
  Status streamSynchronize(void* stream);
  Status streamWaitEvent(void* stream, void* event);

  Status eventCreate(void** out);
  Status eventDestroy(void* event);
  Status eventRecord(void* event, void* stream);
  Status eventSynchronize(void* event);
  Status eventQuery(void* event, bool* done);
  Status eventElapsedMs(float* out, void* start, void* end);

  Status moduleLoad(void** out, const void* image, size_t bytes);
  Status moduleUnload(void* module);
  Status moduleGetFunction(void** out, void* module, const char* name);
  Status functionSetMaxSharedBytes(void* function, int bytes);
  Status launch(void* function, const LaunchConfig& config, const void* args, size_t argBytes, void* stream);

  Status enqueueTask(HostTask run, const void* payload, size_t bytes, uint64_t blocks, void* stream);

  Status beginCapture(void* stream);
  Status endCapture(void* stream, void** out);
  Status graphInstantiate(void** out, void* graph);
  Status graphExecUpdate(void* exec, void* graph, bool* updated);
  Status graphLaunch(void* exec, void* stream);
  Status graphDestroy(void* graph);
  Status graphExecDestroy(void* exec);

 private:
  struct LoadedModule {
    std::mutex mutex;
    std::shared_ptr<ModuleImage> image;
    std::unordered_map<Kernel*, void*> functions;
  };
  struct Function {
    std::atomic<Kernel*> kernel{nullptr};
  };

  Device() : memory_(readMemory().totalBytes) {}

  void endOfStream(Stream* stream) override;
  void streamIdle(Stream* stream) override;

  Status allocate(uint64_t* out, size_t bytes, MemoryRegistry::Kind kind);
  // Drops the object once every stream has passed what is queued on it now; at once when nothing is queued.
  void retire(std::shared_ptr<void> object);
  // Sleeps until the streams have run what is queued on them now; their first error when asked for.
  Status waitFor(const std::vector<Stream*>& streams, bool reportErrors);
  std::vector<Stream*> busyStreams();

  // The capture that the stream takes part in, or null; forgets one that has ended. Under the stream's mutex.
  static Capture* capturing(Stream* stream);
  Status checkRange(const char* what, uint64_t address, size_t bytes) const;
  Status checkProgram(GraphExec* exec, const Program& program) const;

  // Puts a capturable record where it belongs: the capture's program or the stream's queue.
  template <class R, class Write>
  Status enqueue(Stream* stream, RecordKind kind, size_t payload, Write write) {
    std::lock_guard<std::mutex> lock(stream->mutex);
    if (Capture* capture = capturing(stream)) {
      std::lock_guard<std::mutex> captureLock(capture->mutex);
      if (!capture->valid) return fail(kStreamCaptureInvalidated, "end the capture to use the stream again");
      const size_t bytes = recordBytes(sizeof(R), payload);
      R* record = static_cast<R*>(capture->program.append(bytes));
      record->kind = kind;
      record->bytes = static_cast<uint32_t>(bytes);
      write(record, &capture->program);
      capture->advance(stream->captureIndex);
      return kSuccess;
    }
    write(stream->append<R>(kind, payload), nullptr);
    stream->publish();
    return kSuccess;
  }

  std::unique_ptr<ThreadPool> pool_;
  MemoryRegistry memory_;
  std::shared_ptr<std::atomic<uint64_t>> stagedBytes_ = std::make_shared<std::atomic<uint64_t>>(0);

  HandleTable<Stream, 0x51> streamTable_;
  HandleTable<Event, 0x52> events_;
  HandleTable<LoadedModule, 0x53> modules_;
  HandleTable<Function, 0x54> functions_;
  HandleTable<Graph, 0x55> graphs_;
  HandleTable<GraphExec, 0x56> execs_;

  std::mutex streamsMutex_;
  std::condition_variable streamGone_;
  std::vector<Stream*> streams_;  // every stream that has not run its last record
  bool tiles_ = false;            // whether kernels may use tile registers
  size_t liveStreams_ = 0;        // those whose worker has not let go of them yet
};

}  // namespace xhip::host
