// What a file that wraps one vendor library keeps of it: the report and the functions, loaded when first asked for.
#pragma once

#include <mutex>

#include "vendor_library.h"

// A row of a symbol table whose functions are members of `api`.
#define X_SYMBOL(name, optional) \
  { #name, reinterpret_cast<void**>(&api.name), optional }

namespace xhip {

template <class Functions>
struct LoadedLibrary {
  LibraryInfo info;
  Functions api = {};
};

// The one L of the process. As long as the library is not there, each call lets `load` look for it again.
template <class L, class Load>
L& loadedOnce(Load load) {
  static std::mutex mutex;
  static L entry;
  std::lock_guard<std::mutex> lock(mutex);
  if (!entry.info.available) load(entry);
  return entry;
}

}  // namespace xhip
