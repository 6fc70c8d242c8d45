// Headers, segments, sections and the dynamic section of an ELF object (elf_image.h).
#include "elf_image.h"

#include <algorithm>
#include <iterator>

#include "module.h"

#if !defined(PT_GNU_PROPERTY)
#define PT_GNU_PROPERTY 0x6474e553
#endif

namespace xhip::host {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_NONE;
#endif

constexpr uint64_t kMaxAddress = uint64_t{1} << 32;
constexpr uint64_t kPage = 4096;
constexpr uint32_t kSectionRelr = 19;  // SHT_RELR

bool knownTag(int64_t tag) {
  constexpr int64_t kKnown[] = {
      DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH, DT_INIT, DT_FINI, DT_INIT_ARRAY, DT_INIT_ARRAYSZ, DT_FINI_ARRAY,
      DT_FINI_ARRAYSZ, DT_GNU_HASH, DT_HASH, DT_STRTAB, DT_STRSZ, DT_SYMTAB, DT_SYMENT, DT_PLTGOT, DT_PLTRELSZ, DT_PLTREL,
      DT_JMPREL, DT_RELA, DT_RELASZ, DT_RELAENT, DT_RELACOUNT, kRelr, kRelrBytes, kRelrEntry, DT_VERSYM, DT_VERNEED,
      DT_VERNEEDNUM, DT_FLAGS, DT_FLAGS_1, DT_BIND_NOW, DT_SYMBOLIC, DT_TLSDESC_PLT, DT_TLSDESC_GOT,
      0x70000000, 0x70000001, 0x70000003, 0x70000005,  // the processors' own: procedure tables, calling convention
  };
  return std::find(std::begin(kKnown), std::end(kKnown), tag) != std::end(kKnown);
}

}  // namespace

const char* ElfImage::check() {
  const char* wrong = checkHeader();
  if (!wrong) wrong = checkSegments();
  if (!wrong) wrong = checkSections();
  if (!wrong) wrong = readDynamic();
  if (!wrong) wrong = checkPlaces();
  if (!wrong) wrong = checkStrings();
  if (!wrong) wrong = checkSymbols();
  if (!wrong) wrong = checkRelocations(DT_RELA, DT_RELASZ);
  if (!wrong) wrong = checkRelocations(DT_JMPREL, DT_PLTRELSZ);
  if (!wrong) wrong = checkPackedRelocations();
  if (!wrong) wrong = checkInitialisers();
  return wrong;
}

const char* ElfImage::checkHeader() {
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

const char* ElfImage::checkSegments() {
  uint64_t end = 0;
  bool stack = false;
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
    } else if (segment.p_type == PT_GNU_RELRO) {
      protected_ = segment;
    } else if (segment.p_type == PT_GNU_STACK) {
      stack = true;
      if (segment.p_flags & PF_X) return "it asks for an executable stack";
    } else if (segment.p_type == PT_NOTE || segment.p_type == PT_PHDR || segment.p_type == PT_GNU_PROPERTY) {
      inMemory_.push_back(segment);
    }
  }
  if (loads_.empty()) return "it has nothing to load";
  // Without the mark the linker makes every stack of the process executable.
  if (!stack) return "it does not say that its stack is data";
  return checkInner(end);
}

// The headers that describe parts of loaded segments; `end` is the first address after those.
const char* ElfImage::checkInner(uint64_t end) const {
  for (const auto& segment : tls_) {
    if (segment.p_filesz > 0 && !fileOffset(segment.p_vaddr, segment.p_filesz, nullptr)) return "its thread-local segment lies outside";
  }
  for (const auto& segment : inMemory_) {
    if (segment.p_memsz > 0 && !inSegment(segment.p_vaddr, segment.p_memsz, 0)) return "a header describes memory outside its segments";
  }
  if (protected_.p_memsz == 0) return nullptr;
  if (!inSegment(protected_.p_vaddr, 1, PF_W) || protected_.p_vaddr + protected_.p_memsz > ((end + kPage - 1) & ~(kPage - 1))) {
    return "the memory to protect lies outside its data";
  }
  return nullptr;
}

// Sections say again where everything is. The linker ignores them; here they confirm the segments, of which a damaged one
// would load other bytes, or protect data that code writes to.
const char* ElfImage::checkSections() const {
  if (header_.e_shnum == 0 || header_.e_shstrndx >= header_.e_shnum || header_.e_shentsize != sizeof(Elf64_Shdr) ||
      !inFile(header_.e_shoff, uint64_t{header_.e_shnum} * sizeof(Elf64_Shdr))) {
    return "its section headers are missing or lie outside the file";
  }
  bool dynamic = false;
  for (uint16_t i = 0; i < header_.e_shnum; ++i) {
    const auto section = at<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr));
    if ((section.sh_flags & SHF_ALLOC) == 0 || section.sh_size == 0) continue;
    if (const char* wrong = checkSection(section)) return wrong;
    dynamic = dynamic || (section.sh_type == SHT_DYNAMIC && section.sh_addr == dynamic_.p_vaddr);
  }
  return dynamic ? nullptr : "it has no dynamic section";
}

const char* ElfImage::checkSection(const Elf64_Shdr& section) const {
  constexpr const char* kContradicts = "its sections and segments contradict each other";
  uint32_t flags = PF_R;
  if (section.sh_flags & SHF_WRITE) flags |= PF_W;
  if (section.sh_flags & SHF_EXECINSTR) flags |= PF_X;
  if (section.sh_flags & SHF_TLS) {
    if (tls_.size() != 1) return kContradicts;
    const Elf64_Phdr& tls = tls_.front();
    const bool inside = section.sh_addr >= tls.p_vaddr && section.sh_size <= tls.p_memsz && section.sh_addr - tls.p_vaddr <= tls.p_memsz - section.sh_size;
    if (!inside) return kContradicts;
    if (section.sh_type == SHT_NOBITS) return nullptr;  // has no memory but a thread's
  } else if (!inSegment(section.sh_addr, section.sh_size, flags)) {
    return kContradicts;
  }
  uint64_t offset = 0;
  if (section.sh_type != SHT_NOBITS && (!fileOffset(section.sh_addr, section.sh_size, &offset) || offset != section.sh_offset)) return kContradicts;
  // Only whole pages are protected.
  const uint64_t end = (protected_.p_vaddr + protected_.p_memsz) & ~(kPage - 1);
  const bool isProtected = section.sh_addr < end && section.sh_addr + section.sh_size > (protected_.p_vaddr & ~(kPage - 1));
  if (isProtected && (section.sh_flags & SHF_WRITE) && !writtenByLinkerOnly(section)) return "it protects memory that its code writes to";
  return nullptr;
}

// Data that is complete once the object is loaded.
bool ElfImage::writtenByLinkerOnly(const Elf64_Shdr& section) const {
  if (section.sh_type == SHT_DYNAMIC || section.sh_type == SHT_INIT_ARRAY || section.sh_type == SHT_FINI_ARRAY) return true;
  if (section.sh_flags & SHF_TLS) return true;  // threads have copies
  const auto names = at<Elf64_Shdr>(header_.e_shoff + header_.e_shstrndx * sizeof(Elf64_Shdr));
  if (!inFile(names.sh_offset, names.sh_size) || section.sh_name >= names.sh_size || bytes_[names.sh_offset + names.sh_size - 1] != 0) {
    return false;
  }
  const char* name = reinterpret_cast<const char*>(bytes_ + names.sh_offset + section.sh_name);
  for (const char* known : {".got", ".data.rel.ro", ".relro_padding", ".ctors", ".dtors", ".jcr"}) {
    if (std::strncmp(name, known, std::strlen(known)) == 0) return true;
  }
  return false;
}

bool ElfImage::inSegment(uint64_t address, uint64_t length, uint32_t flags) const {
  for (const auto& segment : loads_) {
    if (address >= segment.p_vaddr && address - segment.p_vaddr <= segment.p_memsz &&
        length <= segment.p_memsz - (address - segment.p_vaddr) && (segment.p_flags & flags) == flags) {
      return true;
    }
  }
  return false;
}

bool ElfImage::fileOffset(uint64_t address, uint64_t length, uint64_t* offset) const {
  for (const auto& segment : loads_) {
    if (address >= segment.p_vaddr && address - segment.p_vaddr <= segment.p_filesz &&
        length <= segment.p_filesz - (address - segment.p_vaddr)) {
      if (offset) *offset = segment.p_offset + (address - segment.p_vaddr);
      return true;
    }
  }
  return false;
}

const char* ElfImage::readDynamic() {
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

// The linker takes some entries for granted once it has seen others.
const char* ElfImage::checkCompanions() const {
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

bool ElfImage::entry(int64_t tag, uint64_t* value) const {
  for (const Elf64_Dyn& entry : entries_) {
    if (entry.d_tag == tag) {
      *value = entry.d_un.d_val;
      return true;
    }
  }
  *value = 0;
  return false;
}

// Every table of the dynamic section is a section too.
const char* ElfImage::checkPlaces() {
  constexpr const char* kContradicts = "its dynamic section and its sections contradict each other";
  constexpr int64_t kTables[][2] = {{DT_SYMTAB, SHT_DYNSYM}, {DT_GNU_HASH, SHT_GNU_HASH}, {DT_HASH, SHT_HASH}, {DT_STRTAB, SHT_STRTAB},
                                    {DT_VERSYM, SHT_GNU_versym}, {DT_VERNEED, SHT_GNU_verneed}, {DT_RELA, SHT_RELA}, {DT_JMPREL, SHT_RELA},
                                    {kRelr, kSectionRelr}, {DT_INIT_ARRAY, SHT_INIT_ARRAY}, {DT_FINI_ARRAY, SHT_FINI_ARRAY},
                                    {DT_INIT, SHT_PROGBITS}, {DT_FINI, SHT_PROGBITS}};
  for (const auto& [tag, type] : kTables) {
    uint64_t address = 0;
    if (!entry(tag, &address)) continue;
    bool found = false;
    for (uint16_t i = 0; i < header_.e_shnum && !found; ++i) {
      const auto section = at<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr));
      found = (section.sh_flags & SHF_ALLOC) && section.sh_type == type && section.sh_addr == address;
      if (found && tag == DT_SYMTAB) declaredSymbols_ = section.sh_size / sizeof(Elf64_Sym);
      // An initialiser need not be a section of its own.
      if (type == SHT_PROGBITS && !found) found = (section.sh_flags & SHF_EXECINSTR) && address - section.sh_addr < section.sh_size;
    }
    if (!found) return kContradicts;
  }
  return nullptr;
}

const char* ElfImage::checkStrings() {
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

Status checkElf(const void* bytes, size_t size) {
  ElfImage image(static_cast<const unsigned char*>(bytes), size);
  const char* wrong = image.check();
  return wrong ? fail(kInvalidImage, "%s (%zu bytes)", wrong, size) : kSuccess;
}

}  // namespace xhip::host
