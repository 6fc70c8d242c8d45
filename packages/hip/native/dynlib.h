// Finding and opening a vendor library at run time, and resolving its symbols into a table. The library is never closed:
// libamdhip64 and libcuda start threads and register exit handlers, and unloading them under those ends in a crash.
#pragma once

#include <string>
#include <vector>

#include "driver.h"

namespace xhip {

struct Library {
  void* handle = nullptr;
  std::string path;                   // where the loader found it
  std::vector<std::string> searched;  // what was tried, in order
  std::string lastError;              // the loader's sentence about the last candidate that exists but cannot be loaded
};

// Opens the first candidate that loads. A candidate with a '/' is a path and is skipped when no such file exists.
Library openFirst(const std::vector<std::string>& candidates);

// Existing directories that match a glob pattern, the highest version first (10 after 9).
std::vector<std::string> globDirectories(const std::string& pattern);

// The file that a symbol of an open library comes from; empty when unknown.
std::string pathOfSymbol(void* symbol);

std::string directoryOf(const std::string& path);
bool fileExists(const std::string& path);

// An environment variable, or empty.
std::string environment(const char* name);

// One entry of a symbol table: where the address goes and whether the platform can do without it.
struct Symbol {
  const char* name;
  void** target;
  bool optional;
};

// Fills the table; returns the names of required symbols that the library lacks.
std::vector<std::string> resolve(const Library& library, const std::vector<Symbol>& symbols);

}  // namespace xhip
