// The dynamic linker trusts its input: a truncated or damaged shared object makes it read past the file (SIGBUS) or
// write through wild relocations. This walks the same tables first (program headers, dynamic section, symbols, hash
// tables, relocations, initialisers) and refuses whatever points outside. Damaged machine code cannot be recognised.
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "module.h"
#include "status.h"

#if !defined(PT_GNU_PROPERTY)
#define PT_GNU_PROPERTY 0x6474e553
#endif

namespace xhip::host {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
constexpr uint32_t kRelative = R_X86_64_RELATIVE;
constexpr uint32_t kTypes[] = {kRelative, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_DTPMOD64,
                               R_X86_64_DTPOFF64, R_X86_64_TPOFF64, R_X86_64_TLSDESC};
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr uint32_t kRelative = R_AARCH64_RELATIVE;
constexpr uint32_t kTypes[] = {kRelative, R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_TLS_DTPMOD,
                               R_AARCH64_TLS_DTPREL, R_AARCH64_TLS_TPREL, R_AARCH64_TLSDESC};
#else
constexpr uint16_t kMachine = EM_NONE;
constexpr uint32_t kRelative = 0;
constexpr uint32_t kTypes[] = {0};
#endif

// DT_RELR and its companions, which older headers lack.
constexpr int64_t kRelrBytes = 35, kRelr = 36, kRelrEntry = 37;
constexpr uint64_t kMaxAddress = uint64_t{1} << 32;

class ElfImage {
 public:
  ElfImage(const unsigned char* bytes, size_t size) : bytes_(bytes), size_(size) {}

  // Null when sound, else what is wrong.
  const char* check() {
    const char* wrong = checkHeader();
    if (!wrong) wrong = checkSegments();
    if (!wrong) wrong = readDynamic();
    if (!wrong) wrong = checkStrings();
    if (!wrong) wrong = checkSymbols();
    if (!wrong) wrong = checkRelocations(DT_RELA, DT_RELASZ);
    if (!wrong) wrong = checkRelocations(DT_JMPREL, DT_PLTRELSZ);
    if (!wrong) wrong = checkPackedRelocations();
    if (!wrong) wrong = checkInitialisers();
    return wrong;
  }

 private:
  template <class T>
  T at(uint64_t offset) const {  // within the file: the caller has checked
    T value;
    std::memcpy(&value, bytes_ + offset, sizeof value);
    return value;
  }
  bool inFile(uint64_t offset, uint64_t length) const { return offset <= size_ && length <= size_ - offset; }

  const char* checkHeader() {
    if (!inFile(0, sizeof header_)) return "it is shorter than an ELF header";
    header_ = at<Elf64_Ehdr>(0);
    const unsigned char* ident = header_.e_ident;
    if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) return "it is not an ELF file";
    if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB || ident[EI_VERSION] != EV_CURRENT) {
      return "it is not a 64-bit little-endian ELF file";
    }
    if (header_.e_machine != kMachine) return "it was built for another processor";
    if (header_.e_type != ET_DYN) return "it is not a shared object";
    if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum == 0 || header_.e_phnum > 256) {
      return "its program headers are damaged";
    }
    if (!inFile(header_.e_phoff, uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr))) return "its program headers lie outside the file";
    return nullptr;
  }

  const char* checkSegments() {
    uint64_t end = 0;
    for (uint16_t i = 0; i < header_.e_phnum; ++i) {
      const auto segment = at<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr));
      if (segment.p_type == PT_NULL) continue;
      if (!inFile(segment.p_offset, segment.p_filesz)) return "a segment lies outside the file: it is truncated";
      if (segment.p_memsz > kMaxAddress || segment.p_vaddr > kMaxAddress) return "a segment has an absurd size";
      if (segment.p_type == PT_LOAD) {
        if ((segment.p_flags & PF_R) == 0) return "a segment cannot be read";
        if (segment.p_filesz > segment.p_memsz) return "a segment is larger in the file than in memory";
        if (segment.p_align == 0 || (segment.p_align & (segment.p_align - 1)) || segment.p_align < 4096 || segment.p_align > (1u << 24) ||
            (segment.p_vaddr - segment.p_offset) % segment.p_align != 0) {
          return "a segment is misaligned";
        }
        if (segment.p_vaddr < end) return "its segments overlap or are out of order";
        end = segment.p_vaddr + segment.p_memsz;
        loads_.push_back(segment);
      } else if (segment.p_type == PT_DYNAMIC) {
        dynamic_ = segment;
      } else if (segment.p_type == PT_TLS) {
        if (segment.p_filesz > segment.p_memsz || segment.p_memsz > (1u << 20) || segment.p_align > 4096 ||
            (segment.p_align & (segment.p_align - 1))) {
          return "its thread-local segment is damaged";
        }
        tls_.push_back(segment);
      } else if (segment.p_type == PT_GNU_RELRO || segment.p_type == PT_NOTE || segment.p_type == PT_PHDR || segment.p_type == PT_GNU_PROPERTY) {
        inMemory_.push_back(segment);
      }
    }
    if (loads_.empty()) return "it has nothing to load";
    for (const auto& segment : tls_) {
      if (segment.p_filesz > 0 && !fileOffset(segment.p_vaddr, segment.p_filesz, nullptr)) return "its thread-local segment lies outside";
    }
    for (const auto& segment : inMemory_) {
      const bool protects = segment.p_type == PT_GNU_RELRO;
      if (segment.p_memsz > 0 && !inSegment(segment.p_vaddr, protects ? 1 : segment.p_memsz, 0)) return "a header describes memory outside its segments";
      if (protects && (segment.p_vaddr + segment.p_memsz > ((end + 4095) & ~uint64_t{4095}))) return "a header describes memory outside its segments";
    }
    return nullptr;
  }

  // Whether memory [address, address + length) lies in one segment with all of `flags`.
  bool inSegment(uint64_t address, uint64_t length, uint32_t flags) const {
    for (const auto& segment : loads_) {
      if (address >= segment.p_vaddr && address - segment.p_vaddr <= segment.p_memsz &&
          length <= segment.p_memsz - (address - segment.p_vaddr) && (segment.p_flags & flags) == flags) {
        return true;
      }
    }
    return false;
  }

  // Where that memory comes from in the file.
  bool fileOffset(uint64_t address, uint64_t length, uint64_t* offset) const {
    for (const auto& segment : loads_) {
      if (address >= segment.p_vaddr && address - segment.p_vaddr <= segment.p_filesz &&
          length <= segment.p_filesz - (address - segment.p_vaddr)) {
        if (offset) *offset = segment.p_offset + (address - segment.p_vaddr);
        return true;
      }
    }
    return false;
  }

  const char* readDynamic() {
    uint64_t offset = 0;
    if (dynamic_.p_type != PT_DYNAMIC || !fileOffset(dynamic_.p_vaddr, dynamic_.p_filesz, &offset) || offset != dynamic_.p_offset ||
        !inSegment(dynamic_.p_vaddr, dynamic_.p_filesz, PF_W)) {
      return "it has no dynamic section";
    }
    for (uint64_t i = 0; i < dynamic_.p_filesz / sizeof(Elf64_Dyn); ++i) {
      const auto entry = at<Elf64_Dyn>(offset + i * sizeof(Elf64_Dyn));
      if (entry.d_tag == DT_NULL) return checkCompanions();
      uint64_t before = 0;
      if (!knownTag(entry.d_tag)) return "its dynamic section has an entry that kernels do not need";
      if (entry.d_tag != DT_NEEDED && this->entry(entry.d_tag, &before)) return "its dynamic section says a thing twice";
      entries_.push_back(entry);
    }
    return "its dynamic section has no end";
  }

  static bool knownTag(int64_t tag) {
    constexpr int64_t kKnown[] = {
        DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH, DT_INIT, DT_FINI, DT_INIT_ARRAY, DT_INIT_ARRAYSZ, DT_FINI_ARRAY,
        DT_FINI_ARRAYSZ, DT_GNU_HASH, DT_HASH, DT_STRTAB, DT_STRSZ, DT_SYMTAB, DT_SYMENT, DT_PLTGOT, DT_PLTRELSZ, DT_PLTREL,
        DT_JMPREL, DT_RELA, DT_RELASZ, DT_RELAENT, DT_RELACOUNT, kRelr, kRelrBytes, kRelrEntry, DT_VERSYM, DT_VERNEED,
        DT_VERNEEDNUM, DT_FLAGS, DT_FLAGS_1, DT_BIND_NOW, DT_SYMBOLIC, DT_TLSDESC_PLT, DT_TLSDESC_GOT,
        0x70000000, 0x70000001, 0x70000003, 0x70000005,  // the processors' own: procedure tables, calling convention
    };
    return std::find(std::begin(kKnown), std::end(kKnown), tag) != std::end(kKnown);
  }

  // The linker takes some entries for granted once it has seen others.
  const char* checkCompanions() const {
    constexpr int64_t kTogether[][3] = {
        {DT_INIT_ARRAY, DT_INIT_ARRAYSZ, DT_INIT_ARRAYSZ}, {DT_FINI_ARRAY, DT_FINI_ARRAYSZ, DT_FINI_ARRAYSZ},
        {DT_STRTAB, DT_STRSZ, DT_SYMTAB}, {DT_SYMTAB, DT_SYMENT, DT_SYMENT}, {DT_JMPREL, DT_PLTRELSZ, DT_PLTREL},
        {DT_RELA, DT_RELASZ, DT_RELAENT}, {kRelr, kRelrBytes, kRelrEntry}, {DT_VERNEED, DT_VERNEEDNUM, DT_VERSYM},
    };
    for (const auto& tags : kTogether) {
      uint64_t value = 0;
      const bool first = entry(tags[0], &value);
      if (entry(tags[1], &value) != first || entry(tags[2], &value) != first) return "its dynamic section is incomplete";
    }
    return nullptr;
  }

  bool entry(int64_t tag, uint64_t* value) const {
    for (const Elf64_Dyn& entry : entries_) {
      if (entry.d_tag == tag) {
        *value = entry.d_un.d_val;
        return true;
      }
    }
    *value = 0;
    return false;
  }

  const char* checkStrings() {
    uint64_t address = 0;
    if (!entry(DT_STRTAB, &address) || !entry(DT_STRSZ, &stringBytes_) || stringBytes_ == 0 || !fileOffset(address, stringBytes_, &strings_)) {
      return "its string table lies outside";
    }
    if (bytes_[strings_ + stringBytes_ - 1] != 0) return "its string table has no end";
    for (const Elf64_Dyn& entry : entries_) {
      const bool name = entry.d_tag == DT_NEEDED || entry.d_tag == DT_SONAME || entry.d_tag == DT_RPATH || entry.d_tag == DT_RUNPATH;
      if (name && entry.d_un.d_val >= stringBytes_) return "a name lies outside its string table";
      const bool search = entry.d_tag == DT_AUDIT || entry.d_tag == DT_DEPAUDIT || entry.d_tag == DT_FILTER || entry.d_tag == DT_AUXILIARY;
      if (search) return "it asks for filters or auditors";
    }
    return nullptr;
  }

  // Counts the symbols as the linker finds them, through the hash table.
  const char* countSymbols() {
    uint64_t address = 0, offset = 0;
    if (entry(DT_GNU_HASH, &address)) {
      if (!fileOffset(address, 16, &offset)) return "its hash table lies outside";
      const uint32_t buckets = at<uint32_t>(offset), first = at<uint32_t>(offset + 4), filter = at<uint32_t>(offset + 8);
      if (buckets == 0 || filter == 0 || (filter & (filter - 1))) return "its hash table is damaged";
      const uint64_t fixed = 16 + uint64_t{filter} * 8 + uint64_t{buckets} * 4;
      if (!fileOffset(address, fixed, &offset)) return "its hash table lies outside";
      uint64_t last = 0;
      const uint64_t bucketsAt = offset + 16 + uint64_t{filter} * 8;
      const uint64_t chainsAt = bucketsAt + uint64_t{buckets} * 4;
      symbols_ = first;
      for (uint32_t i = 0; i < buckets; ++i) {
        const uint32_t symbol = at<uint32_t>(bucketsAt + uint64_t{i} * 4);
        if (symbol != 0 && symbol < first) return "its hash table is damaged";
        if (symbol > last) last = symbol;
      }
      if (last == 0) return nullptr;
      for (;; ++last) {  // the chain of the highest bucket ends with a set low bit
        const uint64_t at = chainsAt + (last - first) * 4;
        if (!inFile(at, 4)) return "its hash table has no end";
        if (this->at<uint32_t>(at) & 1) break;
      }
      symbols_ = last + 1;
      return nullptr;
    }
    if (!entry(DT_HASH, &address) || !fileOffset(address, 8, &offset)) return "it has no hash table";
    const uint32_t buckets = at<uint32_t>(offset);
    symbols_ = at<uint32_t>(offset + 4);
    if (buckets == 0 || !fileOffset(address, 8 + 4 * (buckets + symbols_), &offset)) return "its hash table lies outside";
    for (uint64_t i = 0; i < buckets + symbols_; ++i) {
      if (at<uint32_t>(offset + 8 + 4 * i) >= symbols_ && symbols_ > 0) return "its hash table is damaged";
    }
    return nullptr;
  }

  const char* checkSymbols() {
    if (const char* wrong = countSymbols()) return wrong;
    uint64_t address = 0, bytes = 0, offset = 0;
    if (!entry(DT_SYMTAB, &address) || !fileOffset(address, symbols_ * sizeof(Elf64_Sym), &offset)) return "its symbols lie outside";
    if (entry(DT_SYMENT, &bytes) && bytes != sizeof(Elf64_Sym)) return "its symbols have a strange size";
    for (uint64_t i = 0; i < symbols_; ++i) {
      const auto symbol = at<Elf64_Sym>(offset + i * sizeof(Elf64_Sym));
      if (symbol.st_name >= stringBytes_) return "a symbol's name lies outside";
      const int type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS) continue;
      if (type == STT_GNU_IFUNC) return "it resolves functions while it is loaded";
      if (type == STT_FUNC && !inSegment(symbol.st_value, 1, PF_X)) return "a function lies outside its code";
      if (type == STT_OBJECT && !inSegment(symbol.st_value, 0, 0)) return "an object lies outside its memory";
    }
    if (const char* wrong = checkVersionNeeds()) return wrong;
    if (!entry(DT_VERSYM, &address)) return nullptr;
    if (!fileOffset(address, symbols_ * 2, &offset)) return "its symbol versions lie outside";
    for (uint64_t i = 0; i < symbols_; ++i) {
      if ((at<uint16_t>(offset + i * 2) & 0x7fff) > lastVersion_) return "a symbol's version does not exist";
    }
    return nullptr;
  }

  // The chains of required versions: linked lists that the linker follows without looking.
  const char* checkVersionNeeds() {
    uint64_t address = 0, count = 0;
    if (entry(DT_VERDEF, &address)) return "it defines symbol versions";
    if (!entry(DT_VERNEED, &address)) return nullptr;
    entry(DT_VERNEEDNUM, &count);
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t offset = 0;
      if (!fileOffset(address, sizeof(Elf64_Verneed), &offset)) return "its version needs lie outside";
      const auto need = at<Elf64_Verneed>(offset);
      if (need.vn_file >= stringBytes_) return "a version's file name lies outside";
      uint64_t auxiliary = address + need.vn_aux;
      for (uint16_t j = 0; j < need.vn_cnt; ++j) {
        if (!fileOffset(auxiliary, sizeof(Elf64_Vernaux), &offset)) return "its version needs lie outside";
        const auto version = at<Elf64_Vernaux>(offset);
        if (version.vna_name >= stringBytes_) return "a version's name lies outside";
        lastVersion_ = std::max<uint16_t>(lastVersion_, version.vna_other & 0x7fff);
        if ((version.vna_next == 0) != (j + 1 == need.vn_cnt)) return "its version needs are damaged";
        auxiliary += version.vna_next;
      }
      if ((need.vn_next == 0) != (i + 1 == count)) return "its version needs are damaged";
      address += need.vn_next;
    }
    return nullptr;
  }

  const char* checkRelocations(int64_t tableTag, int64_t bytesTag) {
    uint64_t address = 0, bytes = 0, each = 0, offset = 0, relative = 0;
    if (!entry(tableTag, &address)) return nullptr;
    entry(bytesTag, &bytes);
    if (entry(DT_RELAENT, &each) && each != sizeof(Elf64_Rela)) return "its relocations have a strange size";
    if (entry(DT_PLTREL, &each) && each != DT_RELA) return "its relocations have an unknown form";
    if (bytes % sizeof(Elf64_Rela) != 0 || !fileOffset(address, bytes, &offset)) return "its relocations lie outside";
    entry(DT_RELACOUNT, &relative);
    if (tableTag == DT_RELA && relative > bytes / sizeof(Elf64_Rela)) return "its relocations are miscounted";
    for (uint64_t i = 0; i < bytes / sizeof(Elf64_Rela); ++i) {
      const auto relocation = at<Elf64_Rela>(offset + i * sizeof(Elf64_Rela));
      const uint32_t type = ELF64_R_TYPE(relocation.r_info);
      if (tableTag == DT_RELA && i < relative && type != kRelative) return "its relocations are miscounted";
      if (type == 0) continue;
      if (std::find(std::begin(kTypes), std::end(kTypes), type) == std::end(kTypes)) {
        return "it has a kind of relocation that kernels do not need";
      }
      if (!inSegment(relocation.r_offset, 8, PF_W)) return "a relocation points outside its data";
      if (ELF64_R_SYM(relocation.r_info) >= symbols_ && ELF64_R_SYM(relocation.r_info) != 0) return "a relocation names no symbol";
      if (initialiser(relocation.r_offset)) {
        if (type == kRelative && !inSegment(relocation.r_addend, 1, PF_X)) return "an initialiser lies outside its code";
        relocated_.push_back(relocation.r_offset);
      }
    }
    return nullptr;
  }

  // DT_RELR: addresses, each followed by bit masks of the words after it.
  const char* checkPackedRelocations() {
    uint64_t address = 0, bytes = 0, offset = 0, where = 0;
    if (!entry(kRelr, &address)) return nullptr;
    entry(kRelrBytes, &bytes);
    if (bytes % 8 != 0 || !fileOffset(address, bytes, &offset)) return "its relocations lie outside";
    for (uint64_t i = 0; i < bytes / 8; ++i) {
      const auto word = at<uint64_t>(offset + i * 8);
      if ((word & 1) == 0) {
        if (const char* wrong = checkPackedWord(word)) return wrong;
        where = word + 8;
        continue;
      }
      for (int bit = 0; bit < 63; ++bit) {
        if ((word >> (bit + 1)) & 1) {
          if (const char* wrong = checkPackedWord(where + 8 * bit)) return wrong;
        }
      }
      where += 63 * 8;
    }
    return nullptr;
  }

  const char* checkPackedWord(uint64_t address) {
    uint64_t offset = 0;
    if (!inSegment(address, 8, PF_W)) return "a relocation points outside its data";
    if (!initialiser(address)) return nullptr;
    if (!fileOffset(address, 8, &offset) || !inSegment(at<uint64_t>(offset), 1, PF_X)) return "an initialiser lies outside its code";
    relocated_.push_back(address);
    return nullptr;
  }

  bool initialiser(uint64_t address) const {
    for (auto tags : {std::pair<int64_t, int64_t>{DT_INIT_ARRAY, DT_INIT_ARRAYSZ}, {DT_FINI_ARRAY, DT_FINI_ARRAYSZ}}) {
      uint64_t start = 0, bytes = 0;
      if (entry(tags.first, &start) && entry(tags.second, &bytes) && address >= start && address - start < bytes) return true;
    }
    return false;
  }

  const char* checkInitialisers() {
    uint64_t address = 0, bytes = 0;
    for (int64_t tag : {int64_t{DT_INIT}, int64_t{DT_FINI}}) {
      if (entry(tag, &address) && !inSegment(address, 1, PF_X)) return "an initialiser lies outside its code";
    }
    for (auto tags : {std::pair<int64_t, int64_t>{DT_INIT_ARRAY, DT_INIT_ARRAYSZ}, {DT_FINI_ARRAY, DT_FINI_ARRAYSZ}}) {
      if (!entry(tags.first, &address)) continue;
      entry(tags.second, &bytes);
      if (address % 8 != 0 || bytes % 8 != 0 || !inSegment(address, bytes, 0)) return "its initialisers lie outside";
      for (uint64_t slot = address; slot < address + bytes; slot += 8) {
        const bool set = std::find(relocated_.begin(), relocated_.end(), slot) != relocated_.end();
        if (!set) return "an initialiser has no address";
      }
    }
    if (entry(DT_PLTGOT, &address) && !inSegment(address, 24, PF_W)) return "its procedure table lies outside";
    return nullptr;
  }

  const unsigned char* bytes_;
  size_t size_;
  Elf64_Ehdr header_{};
  Elf64_Phdr dynamic_{};
  std::vector<Elf64_Phdr> loads_, tls_, inMemory_;
  std::vector<Elf64_Dyn> entries_;
  uint64_t strings_ = 0, stringBytes_ = 0, symbols_ = 0;
  std::vector<uint64_t> relocated_;  // slots of the initialiser arrays that a relocation fills
  uint16_t lastVersion_ = 1;  // 0 is local, 1 is unversioned
};

}  // namespace

Status checkElf(const void* bytes, size_t size) {
  ElfImage image(static_cast<const unsigned char*>(bytes), size);
  const char* wrong = image.check();
  return wrong ? fail(kInvalidImage, "%s (%zu bytes)", wrong, size) : kSuccess;
}

}  // namespace xhip::host
