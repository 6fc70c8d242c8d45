// An ELF shared object that is about to be loaded: what its headers and tables say, and whether the dynamic linker may
// believe it. The linker trusts its input: a truncated or damaged object makes it read past the file (SIGBUS) or write
// through wild relocations. Everything it walks is walked here first (elf_check.cc: headers, segments, sections, the
// dynamic section; elf_tables.cc: symbols, versions, relocations, initialisers), and whatever points outside, or
// contradicts what another table says, is refused. Damaged machine code cannot be recognised.
#pragma once

#include <elf.h>

#include <cstring>
#include <vector>

#include "status.h"

namespace xhip::host {

// DT_RELR and its companions, which older headers lack.
constexpr int64_t kRelrBytes = 35, kRelr = 36, kRelrEntry = 37;

class ElfImage {
 public:
  ElfImage(const unsigned char* bytes, size_t size) : bytes_(bytes), size_(size) {}

  // Null when sound, else what is wrong.
  const char* check();

 private:
  template <class T>
  T at(uint64_t offset) const {  // within the file: the caller has checked
    T value;
    std::memcpy(&value, bytes_ + offset, sizeof value);
    return value;
  }
  bool inFile(uint64_t offset, uint64_t length) const { return offset <= size_ && length <= size_ - offset; }
  // Whether memory [address, address + length) lies in one segment with all of `flags`.
  bool inSegment(uint64_t address, uint64_t length, uint32_t flags) const;
  // Where that memory comes from in the file.
  bool fileOffset(uint64_t address, uint64_t length, uint64_t* offset) const;
  bool entry(int64_t tag, uint64_t* value) const;
  const char* text(uint64_t offset) const { return reinterpret_cast<const char*>(bytes_ + strings_ + offset); }

  const char* checkHeader();
  const char* checkSegments();
  const char* checkInner(uint64_t end) const;
  const char* checkSections() const;
  const char* checkSection(const Elf64_Shdr& section) const;
  bool writtenByLinkerOnly(const Elf64_Shdr& section) const;
  const char* readDynamic();
  const char* checkCompanions() const;
  const char* checkPlaces();
  const char* checkStrings();

  const char* countSymbols();
  const char* checkSymbols();
  const char* checkVersionNeeds();
  const char* checkRelocations(int64_t tableTag, int64_t bytesTag);
  const char* checkRelocation(const Elf64_Rela& relocation);
  const char* checkPackedRelocations();
  const char* checkPackedWord(uint64_t address);
  const char* checkInitialisers();
  bool inDynamic(uint64_t address, uint64_t length) const;
  bool isNeeded(const char* library) const;
  bool initialiser(uint64_t address) const;

  const unsigned char* bytes_;
  size_t size_;
  Elf64_Ehdr header_{};
  Elf64_Phdr dynamic_{}, protected_{};
  std::vector<Elf64_Phdr> loads_, tls_, inMemory_;
  std::vector<Elf64_Dyn> entries_;
  uint64_t strings_ = 0, stringBytes_ = 0, symbolsAt_ = 0, symbols_ = 0, declaredSymbols_ = 0;
  std::vector<uint64_t> relocated_;  // slots of the initialiser arrays that a relocation fills
  uint16_t lastVersion_ = 1;  // 0 is local, 1 is unversioned
};

}  // namespace xhip::host
