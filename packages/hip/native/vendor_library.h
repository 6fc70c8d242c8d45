// The vendor libraries behind matrix products, convolutions and collectives: what each is called, which platform it serves, where it is
// looked for and what to install. None is linked; each is opened when a report or a handle is asked for, and kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "calls.h"
#include "dynlib.h"
#include "failure.h"

namespace xhip {

enum class LibraryId : uint32_t { RocBlas = 0, HipBlasLt = 1, MiOpen = 2, CuBlas = 3, CuDnn = 4, OpenBlas = 5, Rccl = 6, Nccl = 7 };
constexpr uint32_t kLibraryCount = 8;

struct LibraryInfo {
  bool available = false;
  std::string library;                // the file that was loaded
  std::string version;                // as far as it says
  std::vector<std::string> searched;  // every path and name tried, in order
  std::string code;                   // LIBRARY_NOT_FOUND or SYMBOL_MISSING
  std::string message;                // why not
  std::string remedy;                 // what to do
};

const char* libraryName(LibraryId);  // "rocBLAS"
Platform libraryPlatform(LibraryId);

// Loads the library if that has not succeeded before.
LibraryInfo findLibrary(LibraryId);

// For the files that wrap one library: opens the first candidate that has every required symbol.
LibraryInfo loadVendorLibrary(LibraryId, const std::vector<Symbol>& symbols);

// Throws the report's failure when the library is not there.
void requireLibrary(LibraryId, const LibraryInfo&);

// A handle of a library on one device. It is created and destroyed with the device current.
class VendorHandle {
 public:
  virtual ~VendorHandle() = default;
};

// A failed call of a library, in its own words: LIBRARY_ERROR, or OUT_OF_MEMORY for its allocation failures.
[[noreturn]] void throwLibraryFailure(LibraryId, const char* call, int status, const std::string& statusName,
                                      const std::string& context, bool outOfMemory = false);

// Each library's own loader, called by findLibrary.
LibraryInfo findRocBlas();
LibraryInfo findHipBlasLt();
LibraryInfo findMiOpen();
LibraryInfo findCuBlas();
LibraryInfo findCuDnn();
LibraryInfo findOpenBlas();
LibraryInfo findRccl();
LibraryInfo findNccl();

}  // namespace xhip
