// Behind peer_memory.h. Blocks belong to the process, not to the environment that made them, and so do the driver tables that
// give them back.
#include "peer_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "device.h"

namespace xhip {

struct PeerBlock {
  Driver& driver;
  Context context = nullptr;  // held open
  DevicePtr address = 0;
  size_t bytes = 0;
  uint32_t* control = nullptr;

  explicit PeerBlock(Driver& used) : driver(used) {}
  PeerBlock(const PeerBlock&) = delete;
  ~PeerBlock() {
    if (!context) return;
    (void)driver.makeCurrent(context);
    if (control) (void)driver.hostFree(control);
    if (address) (void)driver.free(address);
    (void)driver.closeContext(context);
  }
};

namespace {

constexpr size_t kControlBytes = 64;

// Never destroyed: ranks may end while the process does.
struct Process {
  std::mutex mutex;
  uint8_t id[16];
  uint64_t made = 0;
  std::map<uint64_t, std::weak_ptr<PeerBlock>> blocks;
  std::unique_ptr<Driver> drivers[kPlatformCount];

  Process() {
    std::random_device random;
    for (uint8_t& byte : id) byte = uint8_t(random());
  }
  static Process& get() {
    static Process* process = new Process();
    return *process;
  }
  // Under the mutex; null on the host.
  Driver* driver(Platform platform) {
    std::unique_ptr<Driver>& driver = drivers[uint32_t(platform)];
    if (!driver && platform == Platform::Rocm) driver = loadRocmDriver().driver;
    if (!driver && platform == Platform::Cuda) driver = loadCudaDriver().driver;
    return driver.get();
  }
};

void readMachine(char (&out)[40]) {
  std::memset(out, 0, sizeof out);
  std::FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r");
  if (!file) return;
  if (!std::fgets(out, sizeof out, file)) out[0] = 0;
  std::fclose(file);
}

[[noreturn]] void refuse(const Device& device, Status status, const std::string& message) {
  FailureInfo info;
  info.code = "DRIVER_ERROR";
  info.platform = device.platformText();
  info.status = status;
  info.message = message;
  throw HipFailure{std::move(info)};
}

}  // namespace

PeerMemory::PeerMemory(Device& device, size_t bytes) : device_(device) {
  Process& process = Process::get();
  std::lock_guard<std::mutex> lock(process.mutex);
  Driver* driver = process.driver(device.platform());
  if (!driver) refuse(device, kNotSupported, "this platform has no memory for the kernels of other devices");
  auto block = std::make_shared<PeerBlock>(*driver);
  Status status = driver->openContext(device.ordinal(), &block->context);
  device.check(Call::OpenContext, status);
  block->bytes = bytes;
  status = driver->peerMalloc(&block->address, bytes);
  if (status == 0) {
    void* control = nullptr;
    status = driver->hostMalloc(&control, kControlBytes);
    block->control = static_cast<uint32_t*>(control);
  }
  device.check(Call::PeerMalloc, status, std::to_string(bytes) + " bytes for the kernels of other devices");
  std::memset(block->control, 0, kControlBytes);
  const Stream stream = device.stream(0);
  status = device.table().memsetD8Async(block->address, 0, bytes, stream);
  if (status == 0) status = device.table().streamSynchronize(stream);
  device.check(Call::Memset, status);
  process.blocks[++process.made] = block;
  own_ = std::move(block);
}

PeerMemory::~PeerMemory() {
  Driver& driver = own_->driver;
  for (DevicePtr pointer : opened_) (void)driver.peerClose(pointer);
  own_.reset();
  held_.clear();
  {
    Process& process = Process::get();
    std::lock_guard<std::mutex> lock(process.mutex);
    for (auto entry = process.blocks.begin(); entry != process.blocks.end();) {
      entry = entry->second.expired() ? process.blocks.erase(entry) : std::next(entry);
    }
  }
  // The last one of a block had its device made current.
  (void)driver.makeCurrent(device_.context());
}

DevicePtr PeerMemory::address() const { return own_->address; }
DevicePtr PeerMemory::control() const { return reinterpret_cast<DevicePtr>(own_->control); }

PeerName PeerMemory::name() const {
  Process& process = Process::get();
  PeerName name;
  std::memset(&name, 0, sizeof name);
  std::memcpy(name.process, process.id, sizeof name.process);
  readMachine(name.machine);
  name.ordinal = uint32_t(device_.ordinal());
  std::lock_guard<std::mutex> lock(process.mutex);
  for (const auto& entry : process.blocks) {
    if (entry.second.lock() == own_) name.number = entry.first;
  }
  name.hasHandle = own_->driver.peerExport(own_->address, &name.handle) == 0;
  return name;
}

DevicePtr PeerMemory::reach(const PeerName& name) {
  Process& process = Process::get();
  PeerName own = this->name();
  std::lock_guard<std::mutex> lock(process.mutex);
  if (std::memcmp(name.process, own.process, sizeof own.process) == 0) {
    const auto found = process.blocks.find(name.number);
    std::shared_ptr<PeerBlock> block = found == process.blocks.end() ? nullptr : found->second.lock();
    if (!block) refuse(device_, 0, "another rank's memory is gone");
    if (name.ordinal == own.ordinal) refuse(device_, 0, "two ranks are on one device");
    bool reached = false;
    device_.check(Call::PeerAccess, own_->driver.reachPeer(device_.context(), block->context, &reached));
    if (!reached) refuse(device_, 0, "no access to the memory of device " + std::to_string(name.ordinal));
    held_.push_back(block);
    return block->address;
  }
  if (own.machine[0] == 0 || std::memcmp(name.machine, own.machine, sizeof own.machine) != 0) refuse(device_, 0, "a rank is on another machine");
  if (!name.hasHandle) refuse(device_, 0, "another process cannot share its memory");
  DevicePtr pointer = 0;
  device_.check(Call::PeerOpen, own_->driver.peerOpen(&pointer, name.handle), "the memory of another process");
  opened_.push_back(pointer);
  return pointer;
}

bool PeerMemory::covers(DevicePtr pointer, size_t bytes) const {
  const auto isIn = [&](const std::shared_ptr<PeerBlock>& block) {
    return pointer >= block->address && bytes <= block->bytes && pointer - block->address <= block->bytes - bytes;
  };
  return isIn(own_) || std::any_of(held_.begin(), held_.end(), isIn);
}

int PeerMemory::missing() const { return int(__atomic_load_n(own_->control + 1, __ATOMIC_RELAXED)) - 1; }

void PeerMemory::abort() { __atomic_store_n(own_->control, 1u, __ATOMIC_RELAXED); }

}  // namespace xhip
