// Symbols, versions, relocations and initialisers of an ELF object (elf_image.h).
#include <algorithm>
#include <iterator>
#include <utility>

#include "elf_image.h"

namespace xhip::host {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kRelative = R_X86_64_RELATIVE;
constexpr uint32_t kAddresses[] = {R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
constexpr uint32_t kThreadLocal[] = {R_X86_64_DTPMOD64, R_X86_64_DTPOFF64, R_X86_64_TPOFF64, R_X86_64_TLSDESC};
constexpr uint32_t kDescriptor = R_X86_64_TLSDESC;
#elif defined(__aarch64__)
constexpr uint32_t kRelative = R_AARCH64_RELATIVE;
constexpr uint32_t kAddresses[] = {R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT};
constexpr uint32_t kThreadLocal[] = {R_AARCH64_TLS_DTPMOD, R_AARCH64_TLS_DTPREL, R_AARCH64_TLS_TPREL, R_AARCH64_TLSDESC};
constexpr uint32_t kDescriptor = R_AARCH64_TLSDESC;
#else
constexpr uint32_t kRelative = 0, kDescriptor = 0;
constexpr uint32_t kAddresses[] = {0}, kThreadLocal[] = {0};
#endif

template <size_t N>
bool isOneOf(const uint32_t (&types)[N], uint32_t type) {
  return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

}  // namespace

// Counts the symbols as the linker finds them, through the hash table.
const char* ElfImage::countSymbols() {
  uint64_t address = 0, offset = 0;
  if (entry(DT_GNU_HASH, &address)) {
    if (!fileOffset(address, 16, &offset)) return "its hash table lies outside";
    const uint32_t buckets = at<uint32_t>(offset), first = at<uint32_t>(offset + 4), filter = at<uint32_t>(offset + 8);
    if (buckets == 0 || filter == 0 || (filter & (filter - 1))) return "its hash table is damaged";
    const uint64_t fixed = 16 + uint64_t{filter} * 8 + uint64_t{buckets} * 4;
    if (!fileOffset(address, fixed, &offset)) return "its hash table lies outside";
    uint64_t last = 0;
    const uint64_t bucketsAt = offset + 16 + uint64_t{filter} * 8;
    symbols_ = first;
    for (uint32_t i = 0; i < buckets; ++i) {
      const uint32_t symbol = at<uint32_t>(bucketsAt + uint64_t{i} * 4);
      if (symbol != 0 && symbol < first) return "its hash table is damaged";
      if (symbol > last) last = symbol;
    }
    if (last == 0) return nullptr;
    for (;; ++last) {  // the chain of the highest bucket ends with a set low bit
      uint64_t at = 0;
      if (!fileOffset(address + fixed + (last - first) * 4, 4, &at)) return "its hash table has no end";
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
  // A chain that comes back to where it was would be followed for ever.
  for (uint64_t i = 0; i < buckets; ++i) {
    uint64_t steps = 0;
    for (uint32_t symbol = at<uint32_t>(offset + 8 + 4 * i); symbol != 0; ++steps) {
      if (steps > symbols_) return "its hash table has no end";
      symbol = at<uint32_t>(offset + 8 + 4 * (buckets + symbol));
    }
  }
  return nullptr;
}

const char* ElfImage::checkSymbols() {
  if (const char* wrong = countSymbols()) return wrong;
  // Of symbols that are only imported the hash table says nothing.
  if (symbols_ > declaredSymbols_) return "its hash table names more symbols than there are";
  symbols_ = declaredSymbols_;
  uint64_t address = 0, bytes = 0, offset = 0;
  if (!entry(DT_SYMTAB, &address) || !fileOffset(address, symbols_ * sizeof(Elf64_Sym), &offset)) return "its symbols lie outside";
  symbolsAt_ = offset;
  if (entry(DT_SYMENT, &bytes) && bytes != sizeof(Elf64_Sym)) return "its symbols have a strange size";
  for (uint64_t i = 0; i < symbols_; ++i) {
    const auto symbol = at<Elf64_Sym>(offset + i * sizeof(Elf64_Sym));
    if (symbol.st_name >= stringBytes_) return "a symbol's name lies outside";
    const int type = ELF64_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS) continue;
    if (type == STT_GNU_IFUNC) return "it resolves functions while it is loaded";
    if (type == STT_FUNC && !inSegment(symbol.st_value, 1, PF_X)) return "a function lies outside its code";
    if (type == STT_OBJECT && !inSegment(symbol.st_value, 0, 0)) return "an object lies outside its memory";
    if (type == STT_TLS && (tls_.empty() || symbol.st_value > tls_.front().p_memsz)) return "a thread-local variable lies outside its segment";
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
const char* ElfImage::checkVersionNeeds() {
  uint64_t address = 0, count = 0;
  if (entry(DT_VERDEF, &address)) return "it defines symbol versions";
  if (!entry(DT_VERNEED, &address)) return nullptr;
  entry(DT_VERNEEDNUM, &count);
  if (count == 0) return "its version needs are damaged";
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t offset = 0;
    if (!fileOffset(address, sizeof(Elf64_Verneed), &offset)) return "its version needs lie outside";
    const auto need = at<Elf64_Verneed>(offset);
    if (need.vn_file >= stringBytes_) return "a version's file name lies outside";
    if (need.vn_version != VER_NEED_CURRENT || need.vn_cnt == 0) return "its version needs are damaged";
    if (!isNeeded(text(need.vn_file))) return "it needs a version of a library that it does not need";
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

bool ElfImage::isNeeded(const char* library) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Elf64_Dyn& entry) {
    return entry.d_tag == DT_NEEDED && std::strcmp(text(entry.d_un.d_val), library) == 0;
  });
}

const char* ElfImage::checkRelocations(int64_t tableTag, int64_t bytesTag) {
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
    if (tableTag == DT_RELA && i < relative && ELF64_R_TYPE(relocation.r_info) != kRelative) return "its relocations are miscounted";
    if (const char* wrong = checkRelocation(relocation)) return wrong;
  }
  return nullptr;
}

const char* ElfImage::checkRelocation(const Elf64_Rela& relocation) {
  const uint32_t type = ELF64_R_TYPE(relocation.r_info);
  const uint64_t index = ELF64_R_SYM(relocation.r_info);
  // The linker reads the symbol of every relocation, of one that does nothing too.
  if (index >= symbols_ && index != 0) return "a relocation names no symbol";
  if (type == 0) return nullptr;
  const bool threadLocal = isOneOf(kThreadLocal, type);
  if (type != kRelative && !threadLocal && !isOneOf(kAddresses, type)) return "it has a kind of relocation that kernels do not need";
  const uint64_t bytes = type == kDescriptor ? 16 : 8;
  if (relocation.r_offset % 8 != 0 || !inSegment(relocation.r_offset, bytes, PF_W) || inDynamic(relocation.r_offset, bytes)) {
    return "a relocation points outside its data";
  }
  if (type == kRelative && (index != 0 || !inSegment(uint64_t(relocation.r_addend), 0, 0))) return "a relocation gives an address outside its memory";
  if (threadLocal && tls_.empty()) return "a relocation is for thread-local variables, of which it has none";
  if (isOneOf(kAddresses, type) && index == 0) return "a relocation names no symbol";
  if (index != 0) {
    const auto symbol = at<Elf64_Sym>(symbolsAt_ + index * sizeof(Elf64_Sym));
    const bool ofThread = ELF64_ST_TYPE(symbol.st_info) == STT_TLS;
    if (ofThread != threadLocal || (ofThread && symbol.st_shndx == SHN_UNDEF)) return "a relocation names a symbol of another kind";
  }
  if (initialiser(relocation.r_offset)) {
    if (type == kRelative && !inSegment(relocation.r_addend, 1, PF_X)) return "an initialiser lies outside its code";
    relocated_.push_back(relocation.r_offset);
  }
  return nullptr;
}

// The linker keeps reading the dynamic section while it relocates.
bool ElfImage::inDynamic(uint64_t address, uint64_t length) const {
  return address < dynamic_.p_vaddr + dynamic_.p_filesz && address + length > dynamic_.p_vaddr;
}

// DT_RELR: addresses, each followed by bit masks of the words after it.
const char* ElfImage::checkPackedRelocations() {
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

const char* ElfImage::checkPackedWord(uint64_t address) {
  uint64_t offset = 0;
  if (address % 8 != 0 || !inSegment(address, 8, PF_W) || inDynamic(address, 8)) return "a relocation points outside its data";
  if (!initialiser(address)) return nullptr;
  if (!fileOffset(address, 8, &offset) || !inSegment(at<uint64_t>(offset), 1, PF_X)) return "an initialiser lies outside its code";
  relocated_.push_back(address);
  return nullptr;
}

bool ElfImage::initialiser(uint64_t address) const {
  for (auto tags : {std::pair<int64_t, int64_t>{DT_INIT_ARRAY, DT_INIT_ARRAYSZ}, {DT_FINI_ARRAY, DT_FINI_ARRAYSZ}}) {
    uint64_t start = 0, bytes = 0;
    if (entry(tags.first, &start) && entry(tags.second, &bytes) && address >= start && address - start < bytes) return true;
  }
  return false;
}

const char* ElfImage::checkInitialisers() {
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

}  // namespace xhip::host
