// Loading a code object: the bytes become an anonymous file (memfd, or a temporary file where that is not allowed) that
// the dynamic linker opens. The linker recognises a library by its path, and the path holds the descriptor's number,
// so the descriptor stays open as long as the library is loaded: a reused number would give the wrong library.
#include "module.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "status.h"

namespace xhip::host {
namespace {

bool writeAll(int file, const unsigned char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(file, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

int anonymousFile() {
#if defined(SYS_memfd_create)
  constexpr unsigned kCloseOnExec = 1u;
  constexpr unsigned kExecutable = 16u;  // since Linux 6.3; older kernels reject the flag
  int file = static_cast<int>(syscall(SYS_memfd_create, "x-host-module", kCloseOnExec | kExecutable));
  if (file < 0) file = static_cast<int>(syscall(SYS_memfd_create, "x-host-module", kCloseOnExec));
  return file;
#else
  return -1;
#endif
}

const char* linkerMessage() {
  const char* message = dlerror();
  return message ? message : "no message from the dynamic linker";
}

// Whether a symbol is a variable, such as x_amx: to call it would end the process.
bool isData(void* symbol) {
#if defined(__GLIBC__)
  Dl_info where{};
  const ElfW(Sym)* entry = nullptr;
  const bool known = dladdr1(symbol, &where, const_cast<void**>(reinterpret_cast<const void**>(&entry)), RTLD_DL_SYMENT) != 0;
  return known && entry && ELF64_ST_TYPE(entry->st_info) == STT_OBJECT;
#else
  (void)symbol;
  return false;
#endif
}

}  // namespace

Status ModuleImage::load(std::shared_ptr<ModuleImage>* out, const void* bytes, size_t size) {
  if (Status status = checkElf(bytes, size)) return status;
  std::shared_ptr<ModuleImage> image(new ModuleImage);
  image->file_ = anonymousFile();
  if (image->file_ >= 0 && writeAll(image->file_, static_cast<const unsigned char*>(bytes), size)) {
    image->path_ = "/proc/self/fd/" + std::to_string(image->file_);
    image->library_ = dlopen(image->path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (!image->library_) {
    const std::string first = image->path_.empty() ? std::strerror(errno) : linkerMessage();
    if (image->file_ >= 0) ::close(image->file_);
    image->file_ = -1;
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder && *folder ? folder : "/tmp") + "/x-host-module-XXXXXX";
    const int file = mkostemp(&path[0], O_CLOEXEC);
    if (file < 0) {
      return fail(kSharedObjectInitFailed, "%s; no temporary file either: %s", first.c_str(), std::strerror(errno));
    }
    const bool written = writeAll(file, static_cast<const unsigned char*>(bytes), size);
    ::close(file);
    if (written) image->library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const std::string second = written ? (image->library_ ? "" : linkerMessage()) : "the temporary file cannot be written";
    ::unlink(path.c_str());
    if (!image->library_) return fail(kSharedObjectInitFailed, "%s", (first == second ? first : first + "; " + second).c_str());
    image->path_ = path;
  }
  *out = std::move(image);
  return kSuccess;
}

ModuleImage::~ModuleImage() {
  if (library_) dlclose(library_);
  if (file_ < 0) return;
  // A library may refuse to go (thread-local destructors, unique symbols): then its number must not come back.
  void* still = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (still) {
    dlclose(still);
  } else {
    ::close(file_);
  }
}

void ModuleImage::allowTiles() {
  if (void* symbol = ownSymbol("x_amx")) *static_cast<int32_t*>(symbol) = 1;
}

// dlsym also searches what the object depends on: `memcpy` is not one of its kernels.
void* ModuleImage::ownSymbol(const char* name) {
  dlerror();
  void* symbol = *name ? dlsym(library_, name) : nullptr;
  Dl_info where{};
  const bool foreign = symbol && dladdr(symbol, &where) && where.dli_fname && path_ != where.dli_fname;
  return foreign ? nullptr : symbol;
}

Status ModuleImage::kernel(Kernel** out, const char* name) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto known = kernels_.find(name);
  if (known == kernels_.end()) {
    void* symbol = ownSymbol(name);
    if (!symbol || isData(symbol)) return fail(kNotFound, "no function \"%.200s\" in the module", name);
    auto kernel = std::make_unique<Kernel>();
    std::memcpy(&kernel->entry, &symbol, sizeof symbol);
    kernel->image = this;
    known = kernels_.emplace(name, std::move(kernel)).first;
  }
  *out = known->second.get();
  return kSuccess;
}

}  // namespace xhip::host
