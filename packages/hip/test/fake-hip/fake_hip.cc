// A stand-in for libamdhip64, for machines without an AMD GPU: memory is the host's, work runs when it is enqueued, and a
// kernel launch writes the packed arguments it received to the address in its first argument. It checks what the binding
// passes (the launch-parameter protocol, stream flags, page-locked staging, what a stream that is captured is given: launches,
// copies and fills on the device, anything else spoils the capture) and answers as FAKE_HIP says:
//   (unset)       one gfx90a device          none         the device count is hipErrorNoDevice
//   faulty        synchronising fails with hipErrorLaunchFailure after a launch of "bad_kernel"
// It may be used by several threads; a kernel runs on the thread that launches it.
// FAKE_HIP_DEVICES is how many devices there are, all alike; with FAKE_HIP_PEER=none they do not reach each other, with
// =wrong copies between them arrive as zeros.
// Built with FAKE_R0600 it has ROCm 6's property struct, without it ROCm 5's. FAKE_HIP_ARCH names another chip. With
// FAKE_HIP_KERNELS, a directory of tools/emulator's libraries, kernels are run, those that a loaded image has. To the file
// FAKE_HIP_LAUNCHES every process appends the names of the kernels that it ran, each once.
// With FAKE_HIP_PINNING=none no memory of others is page-locked.
#include <dirent.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

enum { kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidDevice = 101, kInvalidHandle = 400, kNotFound = 500, kLaunchFailure = 719, kCaptureUnsupported = 900, kCaptureInvalidated = 901 };
std::recursive_mutex gMutex;      // of what follows
std::map<char*, size_t> gMemory;  // device allocations
std::map<char*, size_t> gPinned;
std::map<char*, int> gOwner;  // device of an allocation
thread_local int tDevice = 0;
struct Stream {
  int device;
};
struct Event {
  int queries;
  int device;
  void* stream;  // that it was last recorded in; HIP asks whether that is captured now
};
std::set<std::pair<int, int>> gPeers;  // access that was allowed
size_t gUsed = 0;
// Running kernels takes what tests of a real GPU take.
const size_t kTotal = std::getenv("FAKE_HIP_KERNELS") ? size_t(8) << 30 : size_t(1) << 30;
bool gFaulted = false;

struct Function {
  std::string name;
  void* kernel = nullptr;  // in the library that has `run`; at most `bound` threads a block
  void (*run)(void* kernel, const void* args, const uint32_t* grid, const uint32_t* block) = nullptr;
  uint32_t bound = 0;
};
struct Graph {
  std::vector<std::function<void()>> work;
  bool spoilt = false;
};
std::map<void*, Graph> gCaptures;  // by stream

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}
std::string mode() { return setting("FAKE_HIP"); }
int deviceCount() {
  const std::string count = setting("FAKE_HIP_DEVICES");
  return mode() == "none" ? 0 : count.empty() ? 1 : std::atoi(count.c_str());
}
std::string arch() {
  const std::string named = setting("FAKE_HIP_ARCH");
  return named.empty() ? "gfx90a:sramecc+:xnack-" : named;
}

const std::vector<void*>& libraries() {
  static const std::vector<void*> all = [] {
    std::vector<void*> found;
    const std::string directory = setting("FAKE_HIP_KERNELS");
    if (DIR* entries = directory.empty() ? nullptr : opendir(directory.c_str()))
      while (const dirent* entry = readdir(entries))
        if (std::string(entry->d_name).find(".so") != std::string::npos)
          found.push_back(dlopen((directory + "/" + entry->d_name).c_str(), RTLD_NOW | RTLD_LOCAL));
    return found;
  }();
  return all;
}

bool emulate(Function& function) {
  for (void* library : libraries()) {
    if (!(function.kernel = dlsym(library, function.name.c_str()))) continue;
    function.run = reinterpret_cast<decltype(function.run)>(dlsym(library, "emulatedRun"));
    function.bound = *static_cast<const uint32_t*>(dlsym(library, ("x_bound_" + function.name).c_str()));
    return true;
  }
  return false;
}

void record(const std::string& kernel) {
  static std::FILE* file = [] {
    const std::string path = setting("FAKE_HIP_LAUNCHES");
    return path.empty() ? nullptr : std::fopen(path.c_str(), "a");
  }();
  static std::set<std::string> known;
  std::lock_guard<std::recursive_mutex> lock(gMutex);
  if (!file || !known.insert(kernel).second) return;
  std::fputs((kernel + "\n").c_str(), file);
  std::fflush(file);
}

bool inside(const std::map<char*, size_t>& ranges, const void* pointer, size_t bytes) {
  char* p = static_cast<char*>(const_cast<void*>(pointer));
  auto after = ranges.upper_bound(p);
  if (after == ranges.begin()) return false;
  --after;
  return p + bytes <= after->first + after->second;
}

int settle() { return gFaulted ? kLaunchFailure : kSuccess; }

// Work of a stream: done now, or kept by the graph that is being captured.
int enqueue(void* stream, std::function<void()> work) {
  {
    std::lock_guard<std::recursive_mutex> lock(gMutex);
    auto captured = gCaptures.find(stream);
    if (captured != gCaptures.end()) return captured->second.work.push_back(std::move(work)), kSuccess;
  }
  return work(), kSuccess;
}
// What a stream cannot be given while it is captured; afterwards the capture is good for nothing.
bool spoils(void* stream) {
  std::lock_guard<std::recursive_mutex> lock(gMutex);
  auto captured = gCaptures.find(stream);
  return captured != gCaptures.end() && (captured->second.spoilt = true);
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))
#define LOCKED std::lock_guard<std::recursive_mutex> lock(gMutex)

API int hipInit(unsigned) { return mode() == "none" ? kInvalidDevice : kSuccess; }
API int hipRuntimeGetVersion(int* v) { return *v = 60443484, kSuccess; }
API const char* hipGetErrorName(int e) {
  switch (e) {
    case kSuccess: return "hipSuccess";
    case kInvalidValue: return "hipErrorInvalidValue";
    case kOutOfMemory: return "hipErrorOutOfMemory";
    case kNoDevice: return "hipErrorNoDevice";
    case kInvalidDevice: return "hipErrorInvalidDevice";
    case 200: return "hipErrorInvalidImage";
    case kNotFound: return "hipErrorNotFound";
    case kLaunchFailure: return "hipErrorLaunchFailure";
    case kCaptureUnsupported: return "hipErrorStreamCaptureUnsupported";
    case kCaptureInvalidated: return "hipErrorStreamCaptureInvalidated";
    default: return "hipErrorUnknown";
  }
}
API const char* hipGetErrorString(int e) { return hipGetErrorName(e); }
API int hipGetLastError() { return kSuccess; }
API int hipGetDeviceCount(int* n) {
  *n = deviceCount();
  return *n ? kSuccess : kNoDevice;
}
API int hipSetDevice(int d) { return d >= 0 && d < deviceCount() ? tDevice = d, kSuccess : kInvalidDevice; }
API int hipDeviceGetName(char* text, int bytes, int) { return std::strncpy(text, "Fake Instinct", size_t(bytes)), kSuccess; }
API int hipDeviceGetAttribute(int* value, int which, int) {
  static const std::map<int, int> values = {{5, 1700000}, {16, 0}, {19, 8388608}, {56, 1024}, {57, 2048}, {59, 4096},
                                            {60, 1600000}, {63, 104}, {74, 65536}, {87, arch().rfind("gfx9", 0) == 0 ? 64 : 32}};
  auto found = values.find(which);
  if (found == values.end()) return kInvalidValue;
  return *value = found->second, kSuccess;
}
API int hipDeviceTotalMem(size_t* bytes, int) { return *bytes = kTotal, kSuccess; }
API int hipDeviceGetPCIBusId(char* text, int bytes, int) { return std::strncpy(text, "0000:c3:00.0", size_t(bytes)), kSuccess; }

// The other struct's place holds something else, so reading from the wrong one shows.
static int properties(char* out, size_t bytes, size_t at, size_t wrong) {
  std::memset(out, 0, bytes);
  std::strcpy(out + wrong, "WRONG");
  std::strcpy(out + at, arch().c_str());
  return kSuccess;
}
#ifdef FAKE_R0600
API int hipGetDevicePropertiesR0600(char* out, int) { return properties(out, 1472, 1160, 396); }
API int hipGetDeviceProperties(char* out, int) { return std::memset(out, 'x', 792), kSuccess; }
#else
API int hipGetDeviceProperties(char* out, int) { return properties(out, 792, 396, 700); }
#endif

API int hipDeviceSynchronize() {
  LOCKED;
  bool isCaptured = false;
  for (auto& captured : gCaptures)
    if (static_cast<Stream*>(captured.first)->device == tDevice) isCaptured = spoils(captured.first);
  return isCaptured ? kCaptureUnsupported : settle();
}
API int hipMemGetInfo(size_t* f, size_t* t) {
  LOCKED;
  return *f = kTotal - gUsed, *t = kTotal, kSuccess;
}
API int hipMalloc(void** out, size_t bytes) {
  LOCKED;
  if (gUsed + bytes > kTotal) return kOutOfMemory;
  char* memory = static_cast<char*>(std::malloc(bytes));
  gMemory[memory] = bytes;
  gOwner[memory] = tDevice;
  gUsed += bytes;
  return *out = memory, kSuccess;
}
API int hipFree(void* p) {
  LOCKED;
  auto found = gMemory.find(static_cast<char*>(p));
  if (found == gMemory.end()) return kInvalidValue;
  gUsed -= found->second;
  gOwner.erase(found->first);
  gMemory.erase(found);
  return std::free(p), kSuccess;
}
API int hipHostMalloc(void** out, size_t bytes, unsigned) {
  LOCKED;
  char* memory = static_cast<char*>(std::malloc(bytes));
  gPinned[memory] = bytes;
  return *out = memory, kSuccess;
}
API int hipHostFree(void* p) {
  LOCKED;
  if (!gPinned.erase(static_cast<char*>(p))) return kInvalidValue;
  return std::free(p), kSuccess;
}
API int hipHostRegister(void* p, size_t bytes, unsigned) {
  LOCKED;
  char* memory = static_cast<char*>(p);
  if (setting("FAKE_HIP_PINNING") == "none" || !bytes || gPinned.count(memory)) return kInvalidValue;
  return gPinned[memory] = bytes, kSuccess;
}
API int hipHostUnregister(void* p) {
  LOCKED;
  return gPinned.erase(static_cast<char*>(p)) ? kSuccess : kInvalidValue;
}
static int copy(void* dst, const void* src, size_t n) { return std::memmove(dst, src, n), kSuccess; }
// Small uploads must come from page-locked memory; only large ones may be pageable.
API int hipMemcpyHtoDAsync(void* d, void* s, size_t n, void* stream) {
  LOCKED;
  if (spoils(stream)) return kCaptureUnsupported;
  if (!inside(gMemory, d, n) || (n <= 256 * 1024 && !inside(gPinned, s, n))) return kInvalidValue;
  return copy(d, s, n);
}
API int hipMemcpyDtoHAsync(void* d, void* s, size_t n, void* stream) {
  LOCKED;
  if (spoils(stream)) return kCaptureUnsupported;
  if (!inside(gMemory, s, n) || !inside(gPinned, d, n)) return kInvalidValue;
  return copy(d, s, n);
}
API int hipMemcpyDtoDAsync(void* d, void* s, size_t n, void* stream) {
  return enqueue(stream, [=] { copy(d, s, n); });
}
// Zeros of what groups meet in, of which they use little, are whole pages that the system clears when they are touched.
static void fill(char* d, unsigned char v, size_t n) {
  constexpr uintptr_t kPage = 4096;
  const size_t head = -uintptr_t(d) % kPage, pages = (n - head) / kPage * kPage;
  if (v == 0 && n >= size_t{1} << 25 && madvise(d + head, pages, MADV_DONTNEED) == 0) {
    std::memset(d, 0, head);
    d += head + pages, n -= head + pages;
  }
  std::memset(d, v, n);
}
API int hipMemsetD8Async(void* d, unsigned char v, size_t n, void* stream) {
  return enqueue(stream, [=] { fill(static_cast<char*>(d), v, n); });
}

API int hipDeviceCanAccessPeer(int* can, int device, int peer) {
  return *can = device != peer && setting("FAKE_HIP_PEER") != "none", kSuccess;
}
API int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  LOCKED;
  if (flags || peer == tDevice) return kInvalidValue;
  return gPeers.emplace(tDevice, peer).second ? kSuccess : 704;
}
static bool isOn(void* p, size_t n, int device) {
  return inside(gMemory, p, n) && std::prev(gOwner.upper_bound(static_cast<char*>(p)))->second == device;
}
// The stream is that of the target, which may reach the source.
API int hipMemcpyPeerAsync(void* d, int to, void* s, int from, size_t n, void* stream) {
  LOCKED;
  if (!isOn(d, n, to) || !isOn(s, n, from) || static_cast<Stream*>(stream)->device != to || !gPeers.count({to, from})) return kInvalidValue;
  return enqueue(stream, [=] { setting("FAKE_HIP_PEER") == "wrong" ? (void)std::memset(d, 0, n) : (void)copy(d, s, n); });
}

// Memory for kernels of other devices has flags of its own; a handle of it is its address, and a process has no use for its own.
API int hipExtMallocWithFlags(void** out, size_t bytes, unsigned flags) {
  return flags == 3 || flags == 1 ? hipMalloc(out, bytes) : kInvalidValue;
}
struct Handle {
  char bytes[64];
};
API int hipIpcGetMemHandle(Handle* handle, void* p) {
  LOCKED;
  if (!gMemory.count(static_cast<char*>(p))) return kInvalidValue;
  std::memcpy(handle->bytes, &p, sizeof p);
  return kSuccess;
}
API int hipIpcOpenMemHandle(void**, Handle, unsigned) { return kInvalidValue; }
API int hipIpcCloseMemHandle(void*) { return kInvalidValue; }

API int hipStreamCreateWithFlags(void** s, unsigned flags) {
  if (flags != 1) return kInvalidValue;
  return *s = new Stream{tDevice}, kSuccess;
}
API int hipStreamDestroy(void* s) { return delete static_cast<Stream*>(s), kSuccess; }
API int hipStreamSynchronize(void* s) {
  LOCKED;
  return spoils(s) ? kCaptureUnsupported : settle();
}
API int hipStreamWaitEvent(void*, void*, unsigned) { return kSuccess; }
API int hipStreamBeginCapture(void* s, int mode) {
  LOCKED;
  return mode == 2 && gCaptures.emplace(s, Graph{}).second ? kSuccess : kInvalidValue;
}
API int hipStreamEndCapture(void* s, void** g) {
  LOCKED;
  auto captured = gCaptures.find(s);
  if (captured == gCaptures.end()) return kInvalidValue;
  const bool spoilt = captured->second.spoilt;
  *g = spoilt ? nullptr : new Graph(std::move(captured->second));
  gCaptures.erase(captured);
  return spoilt ? kCaptureInvalidated : kSuccess;
}
// For the stand-in for RCCL: whether the stream is captured, and keeps the work then, which every launch of the graph does.
API int fakeHipKeep(void* s, const std::function<void()>& work) {
  LOCKED;
  auto captured = gCaptures.find(s);
  return captured != gCaptures.end() && (captured->second.work.push_back(work), true);
}
API int hipEventCreate(void** e) { return *e = new Event{0, tDevice, nullptr}, kSuccess; }
API int hipEventDestroy(void* e) { return delete static_cast<Event*>(e), kSuccess; }
API int hipEventRecord(void* e, void* s) {
  LOCKED;
  if (spoils(s)) return kCaptureUnsupported;
  auto* event = static_cast<Event*>(e);
  if (event->device != static_cast<Stream*>(s)->device) return kInvalidHandle;
  event->stream = s;
  return event->queries = 3, kSuccess;
}
API int hipEventSynchronize(void* e) {
  LOCKED;
  auto* event = static_cast<Event*>(e);
  return spoils(event->stream) ? kCaptureUnsupported : (event->queries = 0, settle());
}
// Not ready a few times, so that waiting is exercised.
API int hipEventQuery(void* e) {
  LOCKED;
  if (spoils(static_cast<Event*>(e)->stream)) return kCaptureUnsupported;
  int& queries = static_cast<Event*>(e)->queries;
  return gFaulted ? kLaunchFailure : queries-- > 0 ? 600 : (queries = 0);
}
API int hipEventElapsedTime(float* ms, void*, void*) { return *ms = 1.5f, kSuccess; }

API int hipModuleLoadData(void** m, const void* image) { return *m = const_cast<void*>(image), kSuccess; }
API int hipModuleUnload(void*) { return kSuccess; }
API int hipModuleGetFunction(void** f, void*, const char* name) {
  if (!std::strcmp(name, "missing")) return kNotFound;
  auto* function = new Function{name};
  if (!libraries().empty() && !emulate(*function)) return delete function, kNotFound;
  return *f = function, kSuccess;
}
API int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, void* stream, void** params, void** extra) {
  bool protocol = stream && !params && extra && extra[0] == reinterpret_cast<void*>(1) &&
                  extra[2] == reinterpret_cast<void*>(2) && extra[4] == reinterpret_cast<void*>(3);
  if (!protocol || bx * by * bz > 1024) return kInvalidValue;
  const Function& function = *static_cast<Function*>(f);
  if (function.run) {
    if (bx * by * bz > function.bound) return kInvalidValue;
    const uint32_t grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    const auto* first = static_cast<const char*>(extra[1]);
    const std::vector<char> args(first, first + *static_cast<size_t*>(extra[3]));
    return enqueue(stream, [=] {
      record(function.name);
      function.run(function.kernel, args.data(), grid, block);
    });
  }
  if (function.name == "bad_kernel") return gFaulted = mode() == "faulty", kSuccess;
  size_t bytes = *static_cast<size_t*>(extra[3]);
  unsigned geometry[] = {gx, gy, gz, bx, by, bz, shared, unsigned(bytes)};
  char* out;
  std::memcpy(&out, extra[1], sizeof out);
  std::memcpy(out, geometry, sizeof geometry);
  std::memcpy(out + sizeof geometry, extra[1], bytes);
  return kSuccess;
}
API int hipGraphInstantiate(void** x, void* g, void**, char*, size_t) {
  return *x = new Graph(*static_cast<Graph*>(g)), kSuccess;
}
API int hipGraphExecUpdate(void*, void*, void**, int* result) { return *result = 2, 910; }
API int hipGraphLaunch(void* x, void* stream) {
  if (spoils(stream)) return kCaptureUnsupported;
  for (const auto& work : static_cast<Graph*>(x)->work) work();
  return settle();
}
API int hipGraphDestroy(void* g) { return delete static_cast<Graph*>(g), kSuccess; }
API int hipGraphExecDestroy(void* g) { return delete static_cast<Graph*>(g), kSuccess; }
