// Checks a code object before the runtime sees it. hipModuleLoadData and cuModuleLoadData take no length, so a truncated or
// foreign file makes them read past the end of our buffer: the structure is checked here instead.
#pragma once

#include <cstddef>
#include <string>

namespace xhip {

struct ImageCheck {
  bool valid = false;
  std::string detail;  // why not, or for a valid image what it is ("code object version 4")
};

// An ELF code object for an AMD GPU, or an uncompressed offload bundle.
ImageCheck checkAmdImage(const void* image, size_t bytes);

// PTX text, a cubin (ELF), or a fat binary.
ImageCheck checkNvidiaImage(const void* image, size_t bytes);

}  // namespace xhip
