// One open device of one environment: its table, its context, and what JavaScript refers to by small integers (streams,
// events, modules, functions, graphs). Integers instead of externals keep a launch cheap and make a stale handle an
// error instead of a crash. Used on the environment's thread only.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "calls.h"
#include "collectives.h"
#include "counting_driver.h"
#include "driver.h"
#include "failure.h"
#include "file_reader.h"
#include "peer_memory.h"
#include "vendor_library.h"

namespace xhip {

// A table of T under small integers; an integer is reused after its entry is removed.
template <class T>
class Slots {
 public:
  uint32_t add(T value) {
    if (free_.empty()) {
      items_.push_back(std::make_unique<T>(std::move(value)));
      return uint32_t(items_.size() - 1);
    }
    uint32_t id = free_.back();
    free_.pop_back();
    items_[id] = std::make_unique<T>(std::move(value));
    return id;
  }
  T* find(uint32_t id) const { return id < items_.size() ? items_[id].get() : nullptr; }
  std::unique_ptr<T> remove(uint32_t id) {
    if (!find(id)) return nullptr;
    free_.push_back(id);
    return std::move(items_[id]);
  }
  template <class F>
  void each(F f) const {
    for (uint32_t id = 0; id < items_.size(); id++) {
      if (items_[id]) f(id, *items_[id]);
    }
  }
  void clear() {
    items_.clear();
    free_.clear();
  }

 private:
  std::vector<std::unique_ptr<T>> items_;
  std::vector<uint32_t> free_;
};

// Memory of the host that was page-locked where it lies.
struct PinnedMemory {
  uint8_t* data = nullptr;
  size_t bytes = 0;
};

struct EventEntry {
  Event handle = nullptr;
  bool recorded = false;
  uint32_t waiters = 0;  // asynchronous waits under way
  bool doomed = false;   // disposed while being waited for: the last waiter destroys it
};

struct FunctionEntry {
  Function handle = nullptr;
  uint32_t module = 0;
  uint32_t maxSharedBytes = 0;  // dynamic shared memory that the function may be launched with so far
  bool early = false;
  std::string name;
};

// Page-locked buffers for reading back, kept for reuse in power-of-two sizes up to a cap.
class StagingPool {
 public:
  static constexpr size_t kCapBytes = size_t(256) << 20;
  static constexpr size_t kMinBytes = size_t(64) << 10;
  struct Buffer {
    void* host = nullptr;
    size_t bytes = 0;
  };
  Status acquire(Driver& driver, size_t bytes, Buffer* out);
  void giveBack(Driver& driver, Buffer buffer);
  void clear(Driver& driver);

 private:
  std::multimap<size_t, void*> idle_;
  size_t idleBytes_ = 0;
};

// Words of the launch record at the head of the launch buffer; the packed arguments follow at kLaunchArgsOffset.
enum LaunchWord : uint32_t { kWordFunction, kWordStream, kWordGrid, kWordBlock = kWordGrid + 3, kWordShared = kWordBlock + 3, kWordArgBytes };
constexpr size_t kLaunchArgsOffset = 64;
constexpr size_t kLaunchArgsBytes = 4096;
constexpr size_t kLaunchBufferBytes = kLaunchArgsOffset + kLaunchArgsBytes;

class Device {
 public:
  // `current` is the environment's note of which context its thread last made current on this platform.
  Device(Platform platform, int ordinal, Driver& driver, Context* current, bool blocking);
  ~Device() { close(); }

  void open();
  // Waits for the device and gives everything back. Safe to call twice; never throws.
  void close();
  bool closed() const { return context_ == nullptr; }

  Driver& table() { return counting_; }
  CountingDriver& counting() { return counting_; }
  Context context() const { return context_; }
  Platform platform() const { return platform_; }
  const char* platformText() const { return platformName(platform_); }
  const DeviceProperties& properties() const { return properties_; }
  int ordinal() const { return ordinal_; }

  // Makes the device current on this thread and refuses a closed one. Every operation starts with it.
  void enter();
  void check(Call call, Status status, const std::string& context = "");
  FailureInfo describe(Call call, Status status, const std::string& context);

  DevicePtr alloc(size_t bytes);
  void free(DevicePtr pointer);
  // Whether [pointer, pointer + bytes) lies in one live allocation of this device.
  bool owns(DevicePtr pointer, size_t bytes) const;

  Stream stream(uint32_t id);
  Stream idleStream(uint32_t id, const char* what);  // refuses one that is being captured
  EventEntry& event(uint32_t id);
  Module module(uint32_t id);
  Graph graph(uint32_t id);
  PinnedMemory& pinnedMemory(uint32_t id);
  GraphExec graphExec(uint32_t id);

  uint32_t createStream();
  void destroyStream(uint32_t id);
  uint32_t createEvent();
  void destroyEvent(uint32_t id);
  void finishWait(uint32_t eventId);
  uint32_t loadModule(const void* image, size_t bytes);
  void unloadModule(uint32_t id);
  uint32_t getFunction(uint32_t module, const std::string& name);
  void destroyGraph(uint32_t id);
  void unpin(uint32_t id);
  void destroyGraphExec(uint32_t id);
  void waitForAll(const char* what);  // device synchronise, refused while a stream is being captured
  // The same, with the device's failure returned: what is disposed goes all the same.
  Status waitToDispose(const char* what);
  void launch(const uint8_t* record);

  // Whether this device can copy from memory of `source`, another device of the platform, without the host.
  bool reaches(Device& source);
  // A copy on this device's stream `to`, after what `from`, a stream of `source`, was given so far and before what it is
  // given later.
  void copyFrom(Device& source, DevicePtr dst, DevicePtr src, size_t bytes, Stream to, Stream from);

  // A recycled event for internal waits.
  Event takeEvent();
  void giveEvent(Event event) { spareEvents_.push_back(event); }

  Slots<Stream> streams;
  Slots<EventEntry> events;
  Slots<Module> modules;
  Slots<FunctionEntry> functions;
  Slots<Graph> graphs;
  Slots<GraphExec> graphExecs;
  Slots<PinnedMemory> pinnedMemories;
  StagingPool staging;
  std::array<std::unique_ptr<VendorHandle>, kLibraryCount> libraries;  // opened when first asked for
  Slots<std::unique_ptr<Communicator>> communicators;
  Slots<std::unique_ptr<PeerMemory>> peerMemories;
  Slots<std::unique_ptr<FileReader>> fileReaders;
  std::map<FileRead*, FileReader*> fileReads;  // under way
  uint32_t pending = 0;  // asynchronous waits under way; the device closes after the last
  bool closing = false;
  uint8_t* launchBuffer = nullptr;

 private:
  [[noreturn]] void stale(const char* what);

  const Platform platform_;
  const int ordinal_;
  CountingDriver counting_;
  Context context_ = nullptr;
  Context* current_;
  DeviceProperties properties_;
  std::map<DevicePtr, size_t> allocations_;
  std::vector<Event> spareEvents_;
};

// A recycled event for as long as a scope: a wait that is enqueued keeps what was recorded then.
struct LentEvent {
  explicit LentEvent(Device& owner) : device(owner), event(owner.takeEvent()) {}
  ~LentEvent() { device.giveEvent(event); }
  LentEvent(const LentEvent&) = delete;
  Device& device;
  const Event event;
};

}  // namespace xhip
