// ELF and offload-bundle structure checks behind rocm_image.h.
#include "rocm_image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

namespace xhip {
namespace rocm {
namespace {

constexpr uint16_t kMachineAmdgpu = 224;  // EM_AMDGPU
constexpr char kBundleMagic[] = "__CLANG_OFFLOAD_BUNDLE__";
constexpr size_t kBundleMagicBytes = sizeof kBundleMagic - 1;

bool inside(uint64_t offset, uint64_t length, uint64_t total) { return offset <= total && length <= total - offset; }

ImageCheck checkElf(const unsigned char* image, size_t bytes) {
  ImageCheck check;
  Elf64_Ehdr header;
  if (bytes < sizeof header) {
    check.detail = "the code object is truncated: " + std::to_string(bytes) + " bytes cannot hold an ELF header";
    return check;
  }
  std::memcpy(&header, image, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachineAmdgpu) {
    check.detail = "the ELF file is not for an AMD GPU (machine " + std::to_string(header.e_machine) + ")";
    return check;
  }
  uint64_t sectionBytes = uint64_t(header.e_shnum) * sizeof(Elf64_Shdr);
  uint64_t programBytes = uint64_t(header.e_phnum) * sizeof(Elf64_Phdr);
  bool ok = inside(header.e_shoff, sectionBytes, bytes) && inside(header.e_phoff, programBytes, bytes) &&
            (header.e_shnum == 0 || header.e_shentsize == sizeof(Elf64_Shdr)) &&
            (header.e_phnum == 0 || header.e_phentsize == sizeof(Elf64_Phdr));
  for (unsigned i = 0; ok && i < header.e_shnum; i++) {
    Elf64_Shdr section;
    std::memcpy(&section, image + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS) ok = inside(section.sh_offset, section.sh_size, bytes);
  }
  for (unsigned i = 0; ok && i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    std::memcpy(&segment, image + header.e_phoff + i * sizeof segment, sizeof segment);
    ok = inside(segment.p_offset, segment.p_filesz, bytes);
  }
  if (!ok) {
    check.detail = "the code object is truncated or damaged: its headers point past its " + std::to_string(bytes) + " bytes";
    return check;
  }
  check.valid = true;
  // ELFABIVERSION_AMDGPU_HSA_V2 is 0 and every later version adds one.
  check.detail = "code object version " + std::to_string(header.e_ident[EI_ABIVERSION] + 2);
  return check;
}

ImageCheck checkBundle(const unsigned char* image, size_t bytes) {
  ImageCheck check;
  check.detail = "the offload bundle is truncated or damaged";
  uint64_t count = 0;
  if (!inside(kBundleMagicBytes, sizeof count, bytes)) return check;
  std::memcpy(&count, image + kBundleMagicBytes, sizeof count);
  uint64_t at = kBundleMagicBytes + sizeof count;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t entry[3];  // offset, size, length of the target id that follows
    if (!inside(at, sizeof entry, bytes)) return check;
    std::memcpy(entry, image + at, sizeof entry);
    at += sizeof entry;
    if (!inside(at, entry[2], bytes) || !inside(entry[0], entry[1], bytes)) return check;
    at += entry[2];
  }
  check.valid = true;
  check.detail = "an offload bundle of " + std::to_string(count) + " code objects";
  return check;
}

}  // namespace

ImageCheck checkImage(const void* image, size_t bytes) {
  const unsigned char* data = static_cast<const unsigned char*>(image);
  if (bytes >= SELFMAG && std::memcmp(data, ELFMAG, SELFMAG) == 0) return checkElf(data, bytes);
  if (bytes >= kBundleMagicBytes && std::memcmp(data, kBundleMagic, kBundleMagicBytes) == 0) {
    return checkBundle(data, bytes);
  }
  ImageCheck check;
  check.detail = "the bytes are neither an ELF code object nor an uncompressed offload bundle";
  return check;
}

}  // namespace rocm
}  // namespace xhip
