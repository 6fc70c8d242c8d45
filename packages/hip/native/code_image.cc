// ELF, offload-bundle and fat-binary structure checks behind code_image.h.
#include "code_image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

namespace xhip {
namespace {

constexpr uint16_t kMachineAmdgpu = 224;  // EM_AMDGPU
constexpr uint16_t kMachineCuda = 190;    // EM_CUDA
constexpr uint32_t kFatbinMagic = 0xba55ed50;
constexpr char kBundleMagic[] = "__CLANG_OFFLOAD_BUNDLE__";
constexpr size_t kBundleMagicBytes = sizeof kBundleMagic - 1;

bool inside(uint64_t offset, uint64_t length, uint64_t total) { return offset <= total && length <= total - offset; }

ImageCheck checkElf(const unsigned char* image, size_t bytes, uint16_t machine) {
  ImageCheck check;
  Elf64_Ehdr header;
  if (bytes < sizeof header) {
    check.detail = "the code object is truncated: " + std::to_string(bytes) + " bytes cannot hold an ELF header";
    return check;
  }
  std::memcpy(&header, image, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != machine) {
    check.detail = std::string("the ELF file is not for an ") + (machine == kMachineCuda ? "NVIDIA" : "AMD") +
                   " GPU (machine " + std::to_string(header.e_machine) + ")";
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
  check.detail = machine == kMachineCuda ? "a cubin" : "code object version " + std::to_string(header.e_ident[EI_ABIVERSION] + 2);
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

bool isElf(const unsigned char* data, size_t bytes) { return bytes >= SELFMAG && std::memcmp(data, ELFMAG, SELFMAG) == 0; }

}  // namespace

ImageCheck checkAmdImage(const void* image, size_t bytes) {
  const unsigned char* data = static_cast<const unsigned char*>(image);
  if (isElf(data, bytes)) return checkElf(data, bytes, kMachineAmdgpu);
  if (bytes >= kBundleMagicBytes && std::memcmp(data, kBundleMagic, kBundleMagicBytes) == 0) {
    return checkBundle(data, bytes);
  }
  ImageCheck check;
  check.detail = "the bytes are neither an ELF code object nor an uncompressed offload bundle";
  return check;
}

ImageCheck checkNvidiaImage(const void* image, size_t bytes) {
  const unsigned char* data = static_cast<const unsigned char*>(image);
  if (isElf(data, bytes)) return checkElf(data, bytes, kMachineCuda);
  ImageCheck check;
  check.detail = "the module is empty";
  if (bytes == 0) return check;
  // A fat binary begins with its magic, a version, its header's size (16 bits each) and the size of the rest (64 bits).
  uint32_t magic = 0;
  if (bytes >= sizeof magic) std::memcpy(&magic, data, sizeof magic);
  if (magic == kFatbinMagic) {
    check.detail = "the fat binary is truncated or damaged";
    uint16_t headerBytes = 0;
    uint64_t bodyBytes = 0;
    if (bytes < 16) return check;
    std::memcpy(&headerBytes, data + 6, sizeof headerBytes);
    std::memcpy(&bodyBytes, data + 8, sizeof bodyBytes);
    check.valid = inside(headerBytes, bodyBytes, bytes);
    return check;
  }
  check.valid = true;  // text: the caller terminates it, and the JIT compiler judges it
  check.detail = "PTX";
  return check;
}

}  // namespace xhip
