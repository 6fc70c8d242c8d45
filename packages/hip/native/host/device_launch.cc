// Modules, functions, launches, tasks, capture and graphs.
#include <algorithm>
#include <cstring>

#include "device.h"
#include "execute.h"

namespace xhip::host {
namespace {

constexpr size_t kMaxArgBytes = 16 * 1024;
constexpr uint32_t kMaxBlockThreads = 1024;
constexpr uint64_t kMaxBlocks = uint64_t{1} << 62;

// The number of blocks of a launch; 0 when the grid or block is impossible.
uint64_t blocksOf(const LaunchConfig& config) {
  uint64_t threads = 1;
  uint64_t blocks = 1;
  bool tooMany = false;
  for (int i = 0; i < 3; ++i) {
    if (config.block[i] > kMaxBlockThreads) return 0;
    threads *= config.block[i];
    tooMany = __builtin_mul_overflow(blocks, uint64_t{config.grid[i]}, &blocks) || tooMany;
  }
  return threads == 0 || threads > kMaxBlockThreads || tooMany || blocks > kMaxBlocks ? 0 : blocks;
}

void keepLoaded(Program* program, Kernel* kernel) {
  auto& images = program->images;
  const bool known = std::any_of(images.begin(), images.end(), [&](auto& image) { return image.get() == kernel->image; });
  if (!known) images.push_back(kernel->image->shared_from_this());
}

}  // namespace

Status Device::moduleLoad(void** out, const void* image, size_t bytes) {
  if (!out) return fail(kInvalidValue, "moduleLoad: no place for the result");
  *out = nullptr;
  if (!image) return fail(kInvalidValue, "moduleLoad: the image is a null pointer");
  std::shared_ptr<ModuleImage> loaded;
  if (const Status status = ModuleImage::load(&loaded, image, bytes)) return status;
  if (tiles_) loaded->allowTiles();
  LoadedModule* module = modules_.acquire();
  {
    std::lock_guard<std::mutex> lock(module->mutex);
    module->image = std::move(loaded);
  }
  *out = modules_.publish(module);
  return kSuccess;
}

Status Device::moduleUnload(void* handle) {
  LoadedModule* module = modules_.withdraw(handle);
  if (!module) return fail(kInvalidHandle, "moduleUnload: not a loaded module");
  std::shared_ptr<ModuleImage> image;
  {
    std::lock_guard<std::mutex> lock(module->mutex);
    for (auto& entry : module->functions) {
      if (Function* function = functions_.withdraw(entry.second)) functions_.recycle(function);
    }
    module->functions.clear();
    image = std::move(module->image);
  }
  modules_.recycle(module);
  retire(std::move(image));
  return kSuccess;
}

Status Device::moduleGetFunction(void** out, void* handle, const char* name) {
  if (!out || !name) return fail(kInvalidValue, "moduleGetFunction: no %s", out ? "name" : "place for the result");
  *out = nullptr;
  LoadedModule* module = modules_.find(handle);
  if (!module) return fail(kInvalidHandle, "moduleGetFunction: not a loaded module");
  std::lock_guard<std::mutex> lock(module->mutex);
  if (!module->image) return fail(kInvalidHandle, "moduleGetFunction: the module was unloaded");
  Kernel* kernel = nullptr;
  if (const Status status = module->image->kernel(&kernel, name)) return status;
  void*& known = module->functions[kernel];
  if (!known) {
    Function* function = functions_.acquire();
    function->kernel.store(kernel);
    known = functions_.publish(function);
  }
  *out = known;
  return kSuccess;
}

Status Device::functionSetMaxSharedBytes(void* handle, int bytes) {
  if (!functions_.find(handle)) return fail(kInvalidHandle, "functionSetMaxSharedBytes: not a function of a loaded module");
  if (bytes < 0 || static_cast<uint32_t>(bytes) > kMaxSharedBytes) {
    return fail(kInvalidValue, "%d bytes of shared memory; a host worker has %u", bytes, kMaxSharedBytes);
  }
  return kSuccess;
}

Status Device::launch(void* functionHandle, const LaunchConfig& config, const void* args, size_t argBytes, void* streamHandle) {
  Function* function = functions_.find(functionHandle);
  if (!function) return fail(kInvalidHandle, "launch: not a function of a loaded module");
  Stream* stream = streamTable_.find(streamHandle);
  if (!stream) return fail(kInvalidHandle, "launch: not a live stream");
  const uint64_t blocks = blocksOf(config);
  if (blocks == 0) {
    return fail(kInvalidConfiguration, "grid %u,%u,%u of blocks %u,%u,%u: no dimension may be 0 and a block has at most %u threads",
                config.grid[0], config.grid[1], config.grid[2], config.block[0], config.block[1], config.block[2], kMaxBlockThreads);
  }
  if (config.sharedBytes > kMaxSharedBytes) {
    return fail(kLaunchOutOfResources, "%u bytes of shared memory; a host worker has %u", config.sharedBytes, kMaxSharedBytes);
  }
  if (argBytes > kMaxArgBytes) return fail(kInvalidValue, "%zu bytes of arguments; at most %zu", argBytes, kMaxArgBytes);
  if (argBytes > 0 && !args) return fail(kInvalidValue, "launch: %zu bytes of arguments at a null pointer", argBytes);
  Kernel* kernel = function->kernel.load(std::memory_order_relaxed);
  const bool alone = blocks == 1 && config.sharedBytes == 0;
  if (alone && isShort(*kernel)) {
    std::lock_guard<std::mutex> lock(stream->mutex);
    if (!capturing(stream) && stream->idle()) {
      // Nothing can be queued meanwhile, and a worker that still looks at the stream finds nothing to do.
      stream->keepError(executeAtOnce(*kernel, config.grid, static_cast<const unsigned char*>(args)));
      return kSuccess;
    }
  }
  return enqueue<KernelRecord>(stream, RecordKind::kKernel, argBytes, [&](KernelRecord* record, Program* program) {
    record->kernel = kernel;
    record->blocks = blocks;
    std::memcpy(record->grid, config.grid, sizeof record->grid);
    record->sharedBytes = config.sharedBytes;
    record->timed = alone && !program;
    if (argBytes > 0) std::memcpy(record->args(), args, argBytes);
    if (program) keepLoaded(program, kernel);
  });
}

Status Device::enqueueTask(HostTask run, const void* payload, size_t bytes, uint64_t blocks, void* handle) {
  Stream* stream = streamTable_.find(handle);
  if (!stream) return fail(kInvalidHandle, "enqueueTask: not a live stream");
  if (!run || blocks == 0) return fail(kInvalidValue, "enqueueTask: no %s", run ? "blocks" : "function");
  if (bytes > kMaxArgBytes) return fail(kInvalidValue, "%zu bytes of payload; at most %zu", bytes, kMaxArgBytes);
  if (bytes > 0 && !payload) return fail(kInvalidValue, "enqueueTask: %zu bytes of payload at a null pointer", bytes);
  return enqueue<TaskRecord>(stream, RecordKind::kTask, bytes, [&](TaskRecord* record, Program*) {
    record->run = run;
    record->blocks = blocks;
    if (bytes > 0) std::memcpy(record->payload(), payload, bytes);
  });
}

Status Device::beginCapture(void* handle) {
  Stream* stream = streamTable_.find(handle);
  if (!stream) return fail(kInvalidHandle, "streamBeginCapture: not a live stream");
  std::lock_guard<std::mutex> lock(stream->mutex);
  if (capturing(stream)) return fail(kIllegalState, "streamBeginCapture: the stream is already capturing");
  auto capture = std::make_shared<Capture>();
  stream->captureIndex = capture->join({});
  stream->capture = std::move(capture);
  return kSuccess;
}

Status Device::endCapture(void* handle, void** out) {
  Stream* stream = streamTable_.find(handle);
  if (!stream) return fail(kInvalidHandle, "streamEndCapture: not a live stream");
  if (!out) return fail(kInvalidValue, "streamEndCapture: no place for the result");
  *out = nullptr;
  std::lock_guard<std::mutex> lock(stream->mutex);
  if (!capturing(stream)) return fail(kIllegalState, "streamEndCapture: the stream is not capturing");
  const std::shared_ptr<Capture> capture = stream->capture;
  std::lock_guard<std::mutex> captureLock(capture->mutex);
  if (stream->captureIndex != 0) {
    capture->valid = false;
    return fail(kStreamCaptureUnmatched, "end the capture on the stream that began it");
  }
  stream->capture = nullptr;
  capture->ended = true;
  if (!capture->valid) return fail(kStreamCaptureInvalidated, "nothing was captured; the stream is usable again");
  if (!capture->joined()) {
    return fail(kStreamCaptureUnjoined, "record an event on each stream that joined and wait for it before the end");
  }
  Graph* graph = graphs_.acquire();
  {
    std::lock_guard<std::mutex> graphLock(graph->mutex);
    graph->program = std::make_shared<const Program>(std::move(capture->program));
  }
  *out = graphs_.publish(graph);
  return kSuccess;
}

Status Device::graphInstantiate(void** out, void* handle) {
  if (!out) return fail(kInvalidValue, "graphInstantiate: no place for the result");
  *out = nullptr;
  Graph* graph = graphs_.find(handle);
  if (!graph) return fail(kInvalidHandle, "graphInstantiate: not a live graph");
  GraphExec* exec = execs_.acquire();
  {
    std::lock_guard<std::mutex> graphLock(graph->mutex);
    std::lock_guard<std::mutex> lock(exec->mutex);
    exec->program = graph->program;
    exec->checkedGeneration = UINT64_MAX;
  }
  *out = execs_.publish(exec);
  return kSuccess;
}

Status Device::graphExecUpdate(void* execHandle, void* graphHandle, bool* updated) {
  if (!updated) return fail(kInvalidValue, "graphExecUpdate: no place for the result");
  *updated = false;
  GraphExec* exec = execs_.find(execHandle);
  Graph* graph = graphs_.find(graphHandle);
  if (!exec || !graph) return fail(kInvalidHandle, "graphExecUpdate: not a live %s", exec ? "graph" : "executable graph");
  std::lock_guard<std::mutex> graphLock(graph->mutex);
  std::lock_guard<std::mutex> lock(exec->mutex);
  if (!exec->program || !graph->program) return fail(kInvalidHandle, "graphExecUpdate: the graph was destroyed");
  if (!sameShape(*exec->program, *graph->program)) return kSuccess;
  exec->program = graph->program;  // launches that are queued keep the program they were queued with
  exec->checkedGeneration = UINT64_MAX;
  *updated = true;
  return kSuccess;
}

// Memory may have been freed since the capture. Under exec->mutex.
Status Device::checkProgram(GraphExec* exec, const Program& program) const {
  const uint64_t generation = memory_.generation();
  if (!program.touchesMemory || exec->checkedGeneration == generation) return kSuccess;
  for (const Record* record = program.begin(); record != program.end(); record = nextRecord(record)) {
    Status status = kSuccess;
    if (record->kind == RecordKind::kCopy) {
      auto* copy = static_cast<const CopyRecord*>(record);
      status = checkRange("copy in a graph", reinterpret_cast<uintptr_t>(copy->target), copy->length);
      if (status == kSuccess && copy->source) {
        status = checkRange("copy in a graph", reinterpret_cast<uintptr_t>(copy->source), copy->length);
      }
    } else if (record->kind == RecordKind::kFill) {
      auto* fill = static_cast<const FillRecord*>(record);
      status = checkRange("fill in a graph", reinterpret_cast<uintptr_t>(fill->target), fill->length);
    }
    if (status != kSuccess) return status;
  }
  exec->checkedGeneration = generation;
  return kSuccess;
}

Status Device::graphLaunch(void* execHandle, void* streamHandle) {
  GraphExec* exec = execs_.find(execHandle);
  Stream* stream = streamTable_.find(streamHandle);
  if (!exec || !stream) return fail(kInvalidHandle, "graphLaunch: not a live %s", exec ? "stream" : "executable graph");
  std::shared_ptr<const Program> program;
  {
    std::lock_guard<std::mutex> lock(exec->mutex);
    program = exec->program;
    if (!program) return fail(kInvalidHandle, "graphLaunch: the executable graph was destroyed");
    if (const Status status = checkProgram(exec, *program)) return status;
  }
  std::lock_guard<std::mutex> lock(stream->mutex);
  if (Capture* capture = capturing(stream)) {
    std::lock_guard<std::mutex> captureLock(capture->mutex);
    if (!capture->valid) return fail(kStreamCaptureInvalidated, "end the capture to use the stream again");
    Program& into = capture->program;
    into.units.insert(into.units.end(), program->units.begin(), program->units.end());
    into.count += program->count;
    into.touchesMemory = into.touchesMemory || program->touchesMemory;
    for (auto& image : program->images) {
      if (std::find(into.images.begin(), into.images.end(), image) == into.images.end()) into.images.push_back(image);
    }
    capture->advance(stream->captureIndex);
    return kSuccess;
  }
  stream->append<GraphRecord>(RecordKind::kGraph)->program = std::move(program);
  stream->publish();
  return kSuccess;
}

Status Device::graphDestroy(void* handle) {
  Graph* graph = graphs_.withdraw(handle);
  if (!graph) return fail(kInvalidHandle, "graphDestroy: not a live graph");
  {
    std::lock_guard<std::mutex> lock(graph->mutex);
    graph->program = nullptr;
  }
  graphs_.recycle(graph);
  return kSuccess;
}

Status Device::graphExecDestroy(void* handle) {
  GraphExec* exec = execs_.withdraw(handle);
  if (!exec) return fail(kInvalidHandle, "graphExecDestroy: not a live executable graph");
  {
    std::lock_guard<std::mutex> lock(exec->mutex);
    exec->program = nullptr;
  }
  execs_.recycle(exec);
  return kSuccess;
}

}  // namespace xhip::host
