// Code objects: ELF shared objects with kernels of host_abi.h, loaded from memory by the dynamic linker.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "../driver.h"
#include "../host_abi.h"

namespace xhip::host {

class ModuleImage;

struct Kernel {
  HostKernel entry = nullptr;
  ModuleImage* image = nullptr;
  // How long a block takes, learnt from earlier launches; 0 until known. Decides how blocks are shared out.
  std::atomic<float> nsPerBlock{0};
  // The same of launches of one block, which streams run for their callers if it is little.
  std::atomic<float> nsAlone{0};
};

// One loaded shared object. Everything that may still run its code holds a reference; the last one unloads it.
class ModuleImage : public std::enable_shared_from_this<ModuleImage> {
 public:
  // kInvalidImage for bytes that are no complete shared object of this CPU's architecture;
  // kSharedObjectInitFailed, with the linker's own words, when it refuses the object.
  static Status load(std::shared_ptr<ModuleImage>* out, const void* bytes, size_t size);
  ~ModuleImage();

  // Sets the object's x_amx, if it has one (host_abi.h).
  void allowTiles();

  // kNotFound for a name that the object does not export.
  Status kernel(Kernel** out, const char* name);

 private:
  ModuleImage() = default;
  void* ownSymbol(const char* name);

  void* library_ = nullptr;
  int file_ = -1;
  std::string path_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
};

// Checks everything about an image that would make the dynamic linker read or write outside the file or its memory.
Status checkElf(const void* bytes, size_t size);

}  // namespace xhip::host
