// A stand-in for libcuda, for machines without an NVIDIA GPU: memory is the host's, and work is done when it is enqueued. It
// carries what the vendor libraries need, memory, streams and events, and modules of PTX text. Of a kernel, a launch only notes
// at the address that is its first argument how it was asked for: 1, or 2 as one that may begin early; and how many blocks; with
// FAKE_CUDA_SILENT it does nothing at all. There are FAKE_CUDA_DEVICES devices, or one.
//
// With FAKE_CUDA_COMPILE_MS, loading a module takes so long, text in which FAKE_CUDA_REFUSE occurs is refused with a message, and
// FAKE_LOG has a line for each load, with its kernels.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

namespace {

enum { kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidContext = 201, kInvalidPtx = 218, kNotFound = 500 };
enum : size_t { kTotal = size_t(1) << 30 };
std::map<uint64_t, size_t> gMemory;
size_t gUsed = 0;
thread_local bool tIsCurrent = false;

const char* setting(const char* name) { return std::getenv(name); }
bool isSilent() {
  static const bool is = setting("FAKE_CUDA_SILENT") != nullptr;
  return is;
}

// The kernels of a text, as `a+b`; of other images, how they begin.
std::string kernelsOf(const std::string& text) {
  std::string names;
  for (size_t at = text.find(".entry "); at != std::string::npos; at = text.find(".entry ", at + 1)) {
    names += (names.empty() ? "" : "+") + text.substr(at + 7, text.find('(', at) - at - 7);
  }
  return names.empty() ? text.substr(0, 24) : names;
}

void log(const std::string& line) {
  const char* path = setting("FAKE_CUDA_COMPILE_MS") ? setting("FAKE_LOG") : nullptr;
  FILE* file = path ? std::fopen(path, "a") : nullptr;
  if (!file) return;
  std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
}

void* at(uint64_t pointer) { return reinterpret_cast<void*>(pointer); }

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API int cuInit(unsigned) { return kSuccess; }
API int cuDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
API int cuGetErrorName(int e, const char** name) { return *name = e ? "CUDA_ERROR_UNKNOWN" : "CUDA_SUCCESS", kSuccess; }
API int cuGetErrorString(int e, const char** text) { return cuGetErrorName(e, text); }
API int cuDeviceGetCount(int* n) {
  const char* devices = std::getenv("FAKE_CUDA_DEVICES");
  return *n = devices ? std::atoi(devices) : 1, kSuccess;
}
API int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, kSuccess; }
API int cuDeviceGetName(char* text, int bytes, int) { return std::strncpy(text, "Fake Hopper", size_t(bytes)), kSuccess; }
API int cuDeviceGetAttribute(int* value, int which, int) {
  static const std::map<int, int> values = {{1, 1024}, {8, 49152}, {10, 32}, {13, 1980000}, {16, 132}, {18, 0}, {36, 3201000}, {37, 6144},
                                            {38, 62914560}, {39, 2048}, {75, 9}, {76, 0}, {97, 232448}};
  const auto found = values.find(which);
  return found == values.end() ? kInvalidValue : (*value = found->second, kSuccess);
}
API int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = kTotal, kSuccess; }
API int cuDeviceGetPCIBusId(char* text, int bytes, int) { return std::strncpy(text, "0000:1a:00.0", size_t(bytes)), kSuccess; }
API int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &gMemory, kSuccess; }
API int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
API int cuCtxSetCurrent(void* context) { return tIsCurrent = context == &gMemory, tIsCurrent ? kSuccess : kInvalidValue; }
API int cuCtxSynchronize() { return kSuccess; }
API int cuMemGetInfo_v2(size_t* f, size_t* t) { return *f = kTotal - gUsed, *t = kTotal, kSuccess; }
API int cuMemAlloc_v2(uint64_t* out, size_t bytes) {
  if (gUsed + bytes > kTotal) return kOutOfMemory;
  *out = reinterpret_cast<uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  gMemory[*out] = bytes;
  return gUsed += bytes, kSuccess;
}
API int cuMemFree_v2(uint64_t pointer) {
  const auto found = gMemory.find(pointer);
  if (found == gMemory.end()) return kInvalidValue;
  gUsed -= found->second;
  gMemory.erase(found);
  return std::free(at(pointer)), kSuccess;
}
API int cuMemHostAlloc(void** out, size_t bytes, unsigned) { return *out = std::malloc(bytes), kSuccess; }
API int cuMemFreeHost(void* p) { return std::free(p), kSuccess; }
API int cuMemcpyHtoDAsync_v2(uint64_t d, const void* s, size_t n, void*) { return std::memcpy(at(d), s, n), kSuccess; }
API int cuMemcpyDtoHAsync_v2(void* d, uint64_t s, size_t n, void*) { return std::memcpy(d, at(s), n), kSuccess; }
API int cuMemcpyDtoDAsync_v2(uint64_t d, uint64_t s, size_t n, void*) { return std::memmove(at(d), at(s), n), kSuccess; }
API int cuMemsetD8Async(uint64_t d, unsigned char v, size_t n, void*) { return std::memset(at(d), v, n), kSuccess; }
API int cuStreamCreate(void** s, unsigned flags) { return flags == 1 ? (*s = new int(0), kSuccess) : kInvalidValue; }
API int cuStreamDestroy_v2(void* s) { return delete static_cast<int*>(s), kSuccess; }
API int cuStreamSynchronize(void*) { return kSuccess; }
API int cuStreamWaitEvent(void*, void*, unsigned) { return kSuccess; }
API int cuEventCreate(void** e, unsigned) { return *e = new int(0), kSuccess; }
API int cuEventDestroy_v2(void* e) { return delete static_cast<int*>(e), kSuccess; }
API int cuEventRecord(void*, void*) { return kSuccess; }
API int cuEventSynchronize(void*) { return kSuccess; }
API int cuEventQuery(void*) { return kSuccess; }
API int cuEventElapsedTime(float* ms, void*, void*) { return *ms = 1.5f, kSuccess; }

using Text = std::string;
API int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void** values) {
  if (!tIsCurrent) return kInvalidContext;
  const char* ms = setting("FAKE_CUDA_COMPILE_MS");
  if (ms) std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(ms)));
  const char* refused = setting("FAKE_CUDA_REFUSE");
  // Of machine code the text behind the header of an ELF file.
  const char* begin = static_cast<const char*>(image);
  auto* text = new Text(begin + (*begin == '\x7f' ? 64 : 0));
  const bool isRefused = refused && text->find(refused) != Text::npos;
  log((isRefused ? "refused " : "loaded ") + kernelsOf(*text));
  if (!isRefused) return *module = text, kSuccess;
  delete text;
  return std::strcpy(static_cast<char*>(values[0]), "line 1: no such thing"), kInvalidPtx;
}
API int cuModuleUnload(void* module) {
  log("unloaded " + kernelsOf(*static_cast<Text*>(module)));
  return delete static_cast<Text*>(module), kSuccess;
}
API int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (static_cast<Text*>(module)->find(Text(".entry ") + name + "(") == Text::npos) return kNotFound;
  return *function = module, kSuccess;
}
API int cuModuleGetGlobal_v2(uint64_t* address, size_t* bytes, void* module, const char* name) {
  if (static_cast<Text*>(module)->find(Text(" ") + name + " ") == Text::npos) return kNotFound;
  return *address = 256, *bytes = 1, kSuccess;
}
static int note(unsigned how, unsigned blocks, void** extra) {
  if (isSilent()) return kSuccess;
  if (extra[0] != reinterpret_cast<void*>(1) || extra[2] != reinterpret_cast<void*>(2) || extra[4]) return kInvalidValue;
  unsigned* to = *static_cast<unsigned**>(extra[1]);
  return to[0] = how, to[1] = blocks, kSuccess;
}
API int cuLaunchKernel(void*, unsigned x, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void** extra) {
  return note(1, x, extra);
}
// As in cuda.h.
struct Attribute {
  int id;
  char pad[4];
  int allowed;
  char rest[60];
};
struct Config {
  unsigned grid[3], block[3], sharedBytes;
  void* stream;
  Attribute* attributes;
  unsigned count;
};
API int cuLaunchKernelEx(const Config* config, void*, void**, void** extra) {
  if (config->count != 1 || config->attributes->id != 6 || config->attributes->allowed != 1) return kInvalidValue;
  return note(2, config->grid[0], extra);
}

API int cuFuncSetAttribute(void*, int, int) { return isSilent() ? kSuccess : kNotFound; }

// What would run code.
#define ABSENT(name) \
  API int name() { return kNotFound; }
ABSENT(cuStreamBeginCapture_v2)
ABSENT(cuStreamEndCapture)
ABSENT(cuGraphInstantiateWithFlags)
ABSENT(cuGraphExecUpdate_v2)
ABSENT(cuGraphLaunch)
ABSENT(cuGraphDestroy)
ABSENT(cuGraphExecDestroy)
