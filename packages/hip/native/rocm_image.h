// Checks an AMD code object before the runtime sees it. hipModuleLoadData takes no length, so a truncated or foreign
// file makes it read past the end of our buffer: the structure is checked here instead.
#pragma once

#include <cstddef>
#include <string>

namespace xhip {
namespace rocm {

struct ImageCheck {
  bool valid = false;
  std::string detail;  // why not, or for a valid image what it is ("code object version 4")
};

ImageCheck checkImage(const void* image, size_t bytes);

}  // namespace rocm
}  // namespace xhip
