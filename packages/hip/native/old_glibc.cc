// What headers and the C++ runtime of a newer machine ask of glibc, and glibc 2.28 does not have (scripts/portable.mjs).
#if defined(__linux__) && defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define X_HIDDEN __attribute__((visibility("hidden")))

extern "C" {

// Since 2.32: whether plain arithmetic will do for reference counts. Node always has threads.
X_HIDDEN extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// Functions since 2.33. The structure is the kernel's own on these processors.
X_HIDDEN int stat(const char* path, struct stat* out) noexcept { return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, out, 0)); }
X_HIDDEN int fstat(int file, struct stat* out) noexcept { return static_cast<int>(syscall(SYS_fstat, file, out)); }
X_HIDDEN int fstat64(int file, struct stat64* out) noexcept { return static_cast<int>(syscall(SYS_fstat, file, out)); }

}  // extern "C"

#endif
