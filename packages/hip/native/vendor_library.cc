// Names, places and remedies behind vendor_library.h.
#include "vendor_library.h"

#include "driver.h"
#include "library_paths.h"
#include "rtc.h"

namespace xhip {
namespace {

struct Entry {
  const char* name;
  Platform platform;
  const char* variable;  // names the library to load, instead of searching
  std::vector<std::string> files;
  const char* remedy;
  LibraryInfo (*find)();
};

// Versions: rocBLAS is .so.0 up to ROCm 5.6, .3 in 5.7, .4 in 6 and .5 in 7; hipBLASLt .so.0 in 6 and .1 in 7.
const Entry& entryOf(LibraryId id) {
  static const Entry entries[kLibraryCount] = {
      {"rocBLAS", Platform::Rocm, "X_ROCBLAS_LIBRARY",
       {"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0", "librocblas.so"},
       "Install ROCm's rocblas (Debian 13: librocblas0), or set ROCM_PATH or X_ROCBLAS_LIBRARY", findRocBlas},
      {"hipBLASLt", Platform::Rocm, "X_HIPBLASLT_LIBRARY", {"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"},
       "Install hipblaslt of ROCm 6.0 or later, or set ROCM_PATH or X_HIPBLASLT_LIBRARY", findHipBlasLt},
      {"MIOpen", Platform::Rocm, "X_MIOPEN_LIBRARY", {"libMIOpen.so.1", "libMIOpen.so"},
       "Install ROCm's miopen-hip, or set ROCM_PATH or X_MIOPEN_LIBRARY", findMiOpen},
      {"cuBLAS", Platform::Cuda, "X_CUBLAS_LIBRARY", {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"},
       "Install cuBLAS (NVIDIA's packages: libcublas-13-0 or libcublas-12-9; Debian non-free: libcublas12 or libcublas11; "
       "the wheel nvidia-cublas), or set CUDA_PATH or X_CUBLAS_LIBRARY", findCuBlas},
      {"cuDNN", Platform::Cuda, "X_CUDNN_LIBRARY", {"libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"},
       "Install cuDNN (NVIDIA's packages: cudnn9-cuda-13 or cudnn9-cuda-12; Debian contrib: nvidia-cudnn; the wheel "
       "nvidia-cudnn-cu13), or set CUDA_PATH or X_CUDNN_LIBRARY", findCuDnn},
      {"OpenBLAS", Platform::Host, "X_OPENBLAS_LIBRARY", {"libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so"},
       "Install OpenBLAS (Debian, Ubuntu: libopenblas0-pthread; Fedora, Arch: openblas), or set X_OPENBLAS_LIBRARY",
       findOpenBlas},
      {"RCCL", Platform::Rocm, "X_RCCL_LIBRARY", {"librccl.so.1", "librccl.so"},
       "Install ROCm's rccl, or set ROCM_PATH or X_RCCL_LIBRARY", findRccl},
      {"NCCL", Platform::Cuda, "X_NCCL_LIBRARY", {"libnccl.so.2", "libnccl.so"},
       "Install NCCL (NVIDIA's package libnccl2; the wheel nvidia-nccl-cu13 or nvidia-nccl-cu12), or set X_NCCL_LIBRARY",
       findNccl},
  };
  return entries[uint32_t(id)];
}

void addInside(std::vector<std::string>* candidates, const std::string& directory, const std::vector<std::string>& files) {
  for (const std::string& file : files) candidates->push_back(directory + "/" + file);
}

// A library must be of the runtime's ROCm: loaded from another one it would bring a second HIP runtime along. So the
// directory of the loaded libamdhip64 comes first.
std::vector<std::string> rocmCandidates(const std::vector<std::string>& files) {
  std::vector<std::string> candidates;
  LoadResult runtime = loadRocmDriver();
  if (runtime.driver) addInside(&candidates, directoryOf(runtime.driver->libraryPath()), files);
  for (const std::string& path : rocmLibraryCandidates(files)) candidates.push_back(path);
  return candidates;
}

// After the toolkit and the loader's path, the wheels of a Python environment, which is where most machines have cuDNN.
std::vector<std::string> cudaCandidates(const std::vector<std::string>& files) {
  std::vector<std::string> candidates = cudaToolkitCandidates(files);
  std::vector<std::string> patterns;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    std::string root = environment(variable);
    if (root.empty()) continue;
    patterns.push_back(root + "/lib/python3*/site-packages/nvidia/*/lib");
    addInside(&candidates, root + "/lib", files);
  }
  patterns.insert(patterns.end(), {"/usr/local/lib/python3*/site-packages/nvidia/*/lib",
                                   "/usr/local/lib/python3*/dist-packages/nvidia/*/lib",
                                   "/usr/lib/python3*/site-packages/nvidia/*/lib"});
  for (const std::string& pattern : patterns) {
    for (const std::string& directory : globDirectories(pattern)) {
      for (const std::string& file : files) {
        // Most of these directories hold other libraries: only hits are worth naming in a report.
        if (fileExists(directory + "/" + file)) candidates.push_back(directory + "/" + file);
      }
    }
  }
  return candidates;
}

// What follows ".so." in the file's real name: 0.12.60402 of libhipblaslt.so.0.12.60402.
std::string versionInName(const std::string& path) {
  size_t at = path.rfind(".so.");
  return at == std::string::npos ? "" : path.substr(at + 4);
}

}  // namespace

const char* libraryName(LibraryId id) { return entryOf(id).name; }
Platform libraryPlatform(LibraryId id) { return entryOf(id).platform; }
LibraryInfo findLibrary(LibraryId id) { return entryOf(id).find(); }

LibraryInfo loadVendorLibrary(LibraryId id, const std::vector<Symbol>& symbols) {
  const Entry& entry = entryOf(id);
  LibraryInfo info;
  std::string chosen = environment(entry.variable);
  std::vector<std::string> remaining;
  if (!chosen.empty()) {
    remaining = {chosen};
  } else if (entry.platform == Platform::Rocm) {
    remaining = rocmCandidates(entry.files);
  } else if (entry.platform == Platform::Cuda) {
    // cuDNN asks the loader for cuBLAS and NVRTC by name while it runs: once loaded, they are found wherever they lie.
    if (id == LibraryId::CuDnn) {
      (void)findCuBlas();
      (void)findCompiler(Platform::Cuda);
    }
    remaining = cudaCandidates(entry.files);
  } else {
    remaining = entry.files;
  }
  info.code = "LIBRARY_NOT_FOUND";
  std::string detail;
  while (!remaining.empty()) {
    Library library = openFirst(remaining);
    info.searched.insert(info.searched.end(), library.searched.begin(), library.searched.end());
    if (!library.lastError.empty()) detail = library.lastError;
    if (!library.handle) break;
    remaining.erase(remaining.begin(), remaining.begin() + long(library.searched.size()));
    std::vector<std::string> missing = resolve(library, symbols);
    if (missing.empty()) {
      for (const Symbol& symbol : symbols) {
        if (!symbol.optional) info.library = pathOfSymbol(*symbol.target);
        if (!info.library.empty()) break;
      }
      if (info.library.empty()) info.library = library.path;
      info.version = versionInName(info.library);
      info.available = true;
      info.code.clear();
      return info;
    }
    info.code = "SYMBOL_MISSING";
    detail = library.path + " lacks";
    for (const std::string& name : missing) detail += " " + name;
  }
  info.message = chosen.empty() ? std::string(entry.name) + " was not found"
                                : std::string(entry.variable) + " names " + chosen + ", which cannot be used";
  if (!detail.empty()) {
    info.message += " (" + detail + ")";
  } else if (!chosen.empty()) {
    info.message += " (no such file)";
  }
  info.remedy = chosen.empty() ? entry.remedy
                               : std::string("Point ") + entry.variable + " at the file of " + entry.name + ", or unset it";
  return info;
}

void requireLibrary(LibraryId id, const LibraryInfo& info) {
  if (info.available) return;
  FailureInfo failure;
  failure.code = info.code;
  failure.platform = platformName(libraryPlatform(id));
  failure.message = info.message + ". " + info.remedy;
  throw HipFailure{std::move(failure)};
}

void throwLibraryFailure(LibraryId id, const char* call, int status, const std::string& statusName,
                         const std::string& context, bool outOfMemory) {
  FailureInfo failure;
  failure.code = outOfMemory ? "OUT_OF_MEMORY" : "LIBRARY_ERROR";
  failure.platform = platformName(libraryPlatform(id));
  failure.call = call;
  failure.status = status;
  failure.driverName = statusName;
  failure.message = std::string(call) + " failed with " + statusName + " (" + std::to_string(status) + ")";
  if (!context.empty()) failure.message += " for " + context;
  failure.message += std::string(" in ") + findLibrary(id).library;
  failure.message += outOfMemory ? ". Free buffers or use a smaller problem"
                                 : ". Our own kernels do the same work: X_GEMM=kernels X_CONV=kernels";
  throw HipFailure{std::move(failure)};
}

}  // namespace xhip
