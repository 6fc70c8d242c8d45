// Memory of one rank that the kernels of the other ranks' devices write to, in threads of this process or in other processes of
// the machine, and two words of the host's memory through which its own kernels are told to stop and say why they did.
//
// What a rank of this process has opened stays until it lets go of it too, whatever becomes of the rank whose it is: a kernel that
// writes to memory that is gone would be a fault of its device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "driver.h"

namespace xhip {

class Device;
struct PeerBlock;

// What one rank tells the others of its memory, as bytes.
struct PeerName {
  uint8_t process[16];   // of this process, by chance
  char machine[40];      // what its system was named when it started; two containers of a machine have the same
  uint64_t number;       // within the process
  uint32_t ordinal;
  uint32_t hasHandle;
  PeerHandle handle;
};

class PeerMemory {
 public:
  // Zeros, on a device that is current. Throws a HipFailure; its status is kNotSupported where the platform has no such memory.
  PeerMemory(Device& device, size_t bytes);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;

  DevicePtr address() const;
  // Two words: not 0 when kernels are to stop; 1 + the rank that one has waited for in vain.
  DevicePtr control() const;
  PeerName name() const;
  // Where the device, which is current, finds another rank's memory. Throws a HipFailure with why it does not.
  DevicePtr reach(const PeerName& name);
  // Whether it has these bytes, or that of a rank of this process that was reached.
  bool covers(DevicePtr pointer, size_t bytes) const;
  // The rank that did not come, or -1.
  int missing() const;
  // Any thread.
  void abort();

 private:
  Device& device_;
  std::shared_ptr<PeerBlock> own_;
  std::vector<std::shared_ptr<PeerBlock>> held_;
  std::vector<DevicePtr> opened_;  // by handles
};

}  // namespace xhip
