// Behind rtc.h. The library is opened once for the process and kept; compilations are serialised, because older hiprtc
// versions share state between programs.
#include "rtc.h"

#include <cstring>
#include <mutex>

#include "driver.h"
#include "dynlib.h"
#include "failure.h"
#include "library_paths.h"

namespace xhip {
namespace {

struct RtcApi {
  int (*version)(int*, int*);
  const char* (*errorString)(int);
  int (*createProgram)(void**, const char* source, const char* name, int headers, const char* const*, const char* const*);
  int (*destroyProgram)(void**);
  int (*compileProgram)(void*, int count, const char* const* options);
  int (*logSize)(void*, size_t*);
  int (*log)(void*, char*);
  int (*codeSize)(void*, size_t*);
  int (*code)(void*, char*);
};

struct Compiler {
  CompilerInfo info;
  RtcApi api;
  std::string failureCode;
};

std::mutex gMutex;
Compiler gCompilers[2];

std::vector<Symbol> symbolsOf(Platform platform, RtcApi& api) {
  auto at = [](auto& field) { return reinterpret_cast<void**>(&field); };
  if (platform == Platform::Rocm) {
    return {{"hiprtcVersion", at(api.version), false},
            {"hiprtcGetErrorString", at(api.errorString), false},
            {"hiprtcCreateProgram", at(api.createProgram), false},
            {"hiprtcDestroyProgram", at(api.destroyProgram), false},
            {"hiprtcCompileProgram", at(api.compileProgram), false},
            {"hiprtcGetProgramLogSize", at(api.logSize), false},
            {"hiprtcGetProgramLog", at(api.log), false},
            {"hiprtcGetCodeSize", at(api.codeSize), false},
            {"hiprtcGetCode", at(api.code), false}};
  }
  return {{"nvrtcVersion", at(api.version), false},
          {"nvrtcGetErrorString", at(api.errorString), false},
          {"nvrtcCreateProgram", at(api.createProgram), false},
          {"nvrtcDestroyProgram", at(api.destroyProgram), false},
          {"nvrtcCompileProgram", at(api.compileProgram), false},
          {"nvrtcGetProgramLogSize", at(api.logSize), false},
          {"nvrtcGetProgramLog", at(api.log), false},
          {"nvrtcGetPTXSize", at(api.codeSize), false},
          {"nvrtcGetPTX", at(api.code), false}};
}

// The compiler should be of the runtime's version, so the directory of the loaded libamdhip64 comes first, then that
// library itself (ROCm 5), then everything else.
std::vector<std::string> candidates(Platform platform) {
  if (platform == Platform::Cuda) return cudaToolkitCandidates({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
  const std::vector<std::string> names = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"};
  std::vector<std::string> list;
  LoadResult runtime = loadRocmDriver();
  if (runtime.driver) {
    std::string path = runtime.driver->libraryPath();
    for (const std::string& name : names) list.push_back(directoryOf(path) + "/" + name);
    list.push_back(path);
  }
  for (const std::string& path : rocmLibraryCandidates(names)) list.push_back(path);
  return list;
}

void load(Platform platform, Compiler* compiler) {
  compiler->info = CompilerInfo();
  compiler->failureCode.clear();
  std::vector<std::string> remaining = candidates(platform);
  std::string lacking;
  while (!remaining.empty()) {
    Library library = openFirst(remaining);
    auto& searched = compiler->info.searched;
    searched.insert(searched.end(), library.searched.begin(), library.searched.end());
    if (!library.handle) {
      if (!library.lastError.empty()) lacking = library.lastError;
      break;
    }
    remaining.erase(remaining.begin(), remaining.begin() + long(library.searched.size()));
    std::vector<std::string> missing = resolve(library, symbolsOf(platform, compiler->api));
    if (missing.empty()) {
      int major = 0;
      int minor = 0;
      (void)compiler->api.version(&major, &minor);
      std::string path = pathOfSymbol(reinterpret_cast<void*>(compiler->api.createProgram));
      compiler->info.available = true;
      compiler->info.library = path.empty() ? library.path : path;
      compiler->info.version = std::to_string(major) + "." + std::to_string(minor);
      return;
    }
    lacking = library.path + " lacks " + missing.front();
    compiler->failureCode = "SYMBOL_MISSING";
  }
  if (compiler->failureCode.empty()) compiler->failureCode = "LIBRARY_NOT_FOUND";
  compiler->info.reason = platform == Platform::Rocm ? "hiprtc was not found" : "NVRTC was not found";
  if (!lacking.empty()) compiler->info.reason += " (" + lacking + ")";
  compiler->info.reason += platform == Platform::Rocm
                               ? ". Install ROCm's hiprtc, or set ROCM_PATH or X_HIP_LIBRARY"
                               : ". Install the CUDA toolkit's NVRTC, or set CUDA_PATH";
}

Compiler& compilerFor(Platform platform) {
  Compiler& compiler = gCompilers[platform == Platform::Rocm ? 0 : 1];
  if (!compiler.info.available) load(platform, &compiler);
  return compiler;
}

std::string readLog(const RtcApi& api, void* program) {
  size_t bytes = 0;
  if (api.logSize(program, &bytes) != 0 || bytes == 0) return "";
  std::vector<char> text(bytes + 1, 0);
  if (api.log(program, text.data()) != 0) return "";
  std::string log = text.data();
  while (!log.empty() && (log.back() == '\n' || log.back() == ' ')) log.pop_back();
  return log;
}

// Frees the program on every way out.
struct Program {
  const RtcApi& api;
  void* handle = nullptr;
  ~Program() {
    if (handle) (void)api.destroyProgram(&handle);
  }
};

}  // namespace

CompilerInfo findCompiler(Platform platform) {
  std::lock_guard<std::mutex> lock(gMutex);
  return compilerFor(platform).info;
}

CompileResult compileProgram(Platform platform, const std::string& source, const std::string& name,
                             const std::vector<std::string>& options) {
  std::lock_guard<std::mutex> lock(gMutex);
  Compiler& compiler = compilerFor(platform);
  FailureInfo failure;
  failure.platform = platformName(platform);
  if (!compiler.info.available) {
    failure.code = compiler.failureCode;
    failure.message = compiler.info.reason;
    throw HipFailure{std::move(failure)};
  }
  const RtcApi& api = compiler.api;
  const char* prefix = platform == Platform::Rocm ? "hiprtc" : "nvrtc";
  auto fail = [&](const char* call, int status, const std::string& log) {
    failure.code = "COMPILE_FAILED";
    failure.call = std::string(prefix) + call;
    failure.status = status;
    failure.driverName = api.errorString(status);
    failure.message = failure.call + " of '" + name + "' failed with " + failure.driverName + " (" +
                      compiler.info.library + ", options";
    for (const std::string& option : options) failure.message += " " + option;
    failure.message += ")" + (log.empty() ? std::string(". Check the options and the arch") : ":\n" + log);
    throw HipFailure{std::move(failure)};
  };
  Program program{api};
  int status = api.createProgram(&program.handle, source.c_str(), name.c_str(), 0, nullptr, nullptr);
  if (status != 0) fail("CreateProgram", status, "");
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  status = api.compileProgram(program.handle, int(texts.size()), texts.data());
  CompileResult result;
  result.log = readLog(api, program.handle);
  if (status != 0) fail("CompileProgram", status, result.log);
  size_t bytes = 0;
  status = api.codeSize(program.handle, &bytes);
  if (status != 0) fail(platform == Platform::Rocm ? "GetCodeSize" : "GetPTXSize", status, "");
  result.code.resize(bytes);
  status = api.code(program.handle, result.code.data());
  if (status != 0) fail(platform == Platform::Rocm ? "GetCode" : "GetPTX", status, "");
  return result;
}

}  // namespace xhip
