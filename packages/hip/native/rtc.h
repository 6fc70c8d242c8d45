// Run-time compilation: hiprtc (in libamdhip64 up to ROCm 5, a library of its own since) and NVRTC. They share one C API
// under two prefixes. Neither needs a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calls.h"

namespace xhip {

struct CompilerInfo {
  bool available = false;
  std::string library;
  std::string version;
  std::vector<std::string> searched;
  std::string reason;
};

// Rocm or Cuda.
CompilerInfo findCompiler(Platform platform);

struct CompileResult {
  std::vector<char> code;  // HSACO or PTX
  std::string log;         // warnings
};

// Throws HipFailure: COMPILE_FAILED with the compiler's log, or LIBRARY_NOT_FOUND / SYMBOL_MISSING.
CompileResult compileProgram(Platform platform, const std::string& source, const std::string& name,
                             const std::vector<std::string>& options);

}  // namespace xhip
