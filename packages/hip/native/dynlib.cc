// dlopen and dlsym behind dynlib.h.
#include "dynlib.h"

#include <dlfcn.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace xhip {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string directoryOf(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool fileExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

Library openFirst(const std::vector<std::string>& candidates) {
  Library library;
  for (const std::string& candidate : candidates) {
    library.searched.push_back(candidate);
    bool isPath = candidate.find('/') != std::string::npos;
    if (isPath && !fileExists(candidate)) continue;
    library.handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle) {
      library.path = candidate;
      return library;
    }
    const char* error = dlerror();
    std::string sentence = error ? error : "dlopen failed without a reason";
    // "No such file" about the name itself is an ordinary miss; anything else (a missing dependency, a wrong
    // architecture, no permission) is what the user needs to see.
    bool plainMiss = !isPath && sentence.rfind(candidate + ": cannot open shared object file: No such file", 0) == 0;
    if (!plainMiss) library.lastError = sentence;
  }
  return library;
}

#if !defined(GLOB_ONLYDIR)
#define GLOB_ONLYDIR 0  // musl has no such hint; whoever asks looks at what is in the directory
#endif

std::vector<std::string> globDirectories(const std::string& pattern) {
  std::vector<std::string> found;
  glob_t matches;
  std::memset(&matches, 0, sizeof matches);
  if (glob(pattern.c_str(), GLOB_ONLYDIR, nullptr, &matches) == 0) {
    for (size_t i = 0; i < matches.gl_pathc; i++) found.emplace_back(matches.gl_pathv[i]);
  }
  globfree(&matches);
  std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
    return strverscmp(a.c_str(), b.c_str()) > 0;
  });
  return found;
}

std::string pathOfSymbol(void* symbol) {
  Dl_info info;
  if (!symbol || !dladdr(symbol, &info) || !info.dli_fname) return "";
  char* real = realpath(info.dli_fname, nullptr);
  std::string path = real ? real : info.dli_fname;
  std::free(real);
  return path;
}

std::vector<std::string> resolve(const Library& library, const std::vector<Symbol>& symbols) {
  std::vector<std::string> missing;
  for (const Symbol& symbol : symbols) {
    *symbol.target = dlsym(library.handle, symbol.name);
    if (!*symbol.target && !symbol.optional) missing.emplace_back(symbol.name);
  }
  return missing;
}

}  // namespace xhip
