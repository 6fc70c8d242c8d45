// Code objects that are damaged: refused with a reason, and never a crash of the dynamic linker.
#include <elf.h>

#include <algorithm>
#include <random>

#include "host_test.h"

using namespace hosttest;
using namespace xhip::host;

namespace {

using Bytes = std::vector<unsigned char>;

// An image without start files, so that nothing of it runs while it is loaded: damaged code cannot be recognised.
const Bytes& plainImage() {
  static const Bytes image = compileKernels("-nostartfiles");
  return image;
}

template <class T>
T* at(Bytes& image, uint64_t offset) {
  return reinterpret_cast<T*>(image.data() + offset);
}

Elf64_Phdr* segment(Bytes& image, uint32_t type, uint32_t flags = 0) {
  const auto* header = at<Elf64_Ehdr>(image, 0);
  for (uint16_t i = 0; i < header->e_phnum; ++i) {
    auto* found = at<Elf64_Phdr>(image, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (found->p_type == type && (found->p_flags & flags) == flags) return found;
  }
  return nullptr;
}

Elf64_Shdr* section(Bytes& image, uint32_t type) {
  const auto* header = at<Elf64_Ehdr>(image, 0);
  for (uint16_t i = 0; i < header->e_shnum; ++i) {
    auto* found = at<Elf64_Shdr>(image, header->e_shoff + i * sizeof(Elf64_Shdr));
    if (found->sh_type == type && (found->sh_flags & SHF_ALLOC)) return found;
  }
  return nullptr;
}

Elf64_Rela* relocation(Bytes& image) { return at<Elf64_Rela>(image, section(image, SHT_RELA)->sh_offset); }

}  // namespace

TEST(damaged_images_are_refused) {
  Fixture f;
  const auto& image = kernelImage();
  Module module = f.stream;
  auto load = [&](const std::vector<unsigned char>& bytes) { return f.d.moduleLoad(&module, bytes.data(), bytes.size()); };
  CHECK_EQ(f.d.moduleLoad(&module, nullptr, 100), kInvalidValue);
  CHECK(module == nullptr);
  const std::vector<unsigned char> tiny{0x7f, 'E', 'L', 'F'};
  CHECK_EQ(f.d.moduleLoad(&module, tiny.data(), 0), kInvalidImage);
  CHECK_EQ(load(tiny), kInvalidImage);
  CHECK_EQ(load(std::vector<unsigned char>(100000, 0x5a)), kInvalidImage);
  const std::string text = "#!/bin/sh\nexit 1\n";
  CHECK_EQ(load({text.begin(), text.end()}), kInvalidImage);
  auto changed = [&](size_t at, unsigned char value) {
    std::vector<unsigned char> bytes = image;
    bytes[at] = value;
    return bytes;
  };
  CHECK_EQ(load(changed(4, 1)), kInvalidImage);      // 32-bit
  CHECK_EQ(load(changed(18, 0x28)), kInvalidImage);  // another machine
  CHECK_EQ(load(changed(16, 1)), kInvalidImage);     // an object file
  CHECK_EQ(load(changed(16, 2)), kInvalidImage);     // an executable
  CHECK(std::string(f.d.errorString(kInvalidImage)).find("shared object") != std::string::npos);
  // Every truncation that cuts into a loaded segment; what follows the segments is not needed.
  uint32_t refused = 0;
  for (size_t length = 1; length < image.size(); length += 1 + image.size() / 200) {
    const Status status = load({image.begin(), image.begin() + static_cast<long>(length)});
    if (status == kInvalidImage) ++refused;
    if (status == kSuccess) OK(f.d.moduleUnload(module));
    CHECK(status == kInvalidImage || status == kSuccess || status == kSharedObjectInitFailed);
  }
  CHECK(refused > 50);
  OK(load(image));
}

TEST(refused_by_the_linker_with_its_words) {
  Fixture f;
  // Renaming a library that the image needs keeps it sound, but it cannot be loaded.
  std::vector<unsigned char> image = kernelImage();
  const std::string name = "libstdc++.so.6";
  auto at = std::search(image.begin(), image.end(), name.begin(), name.end());
  CHECK(at != image.end());
  if (at == image.end()) return;
  *(at + 3) = 'Q';
  Module module = nullptr;
  CHECK_EQ(f.d.moduleLoad(&module, image.data(), image.size()), kSharedObjectInitFailed);
  CHECK(std::string(f.d.errorString(kSharedObjectInitFailed)).find("libQtdc++") != std::string::npos);
}

TEST(damage_that_the_linker_would_believe) {
  Fixture f;
  struct Damage {
    const char* what;
    std::function<void(Bytes&)> apply;
  };
  const Damage damages[] = {
      {"relocation into the dynamic section", [](Bytes& b) { relocation(b)->r_offset = segment(b, PT_DYNAMIC)->p_vaddr + 8; }},
      {"relocation at an odd address", [](Bytes& b) { relocation(b)->r_offset += 1; }},
      {"relocation of no symbol", [](Bytes& b) { relocation(b)->r_info = ELF64_R_INFO(1u << 31, 0); }},
      {"address of symbol 0", [](Bytes& b) { relocation(b)->r_info = ELF64_R_INFO(0, 6); }},
      {"thread-local variable of an object without any", [](Bytes& b) { relocation(b)->r_info = ELF64_R_INFO(0, 16); }},
      {"segment from another place of the file", [](Bytes& b) { segment(b, PT_LOAD, PF_X)->p_offset -= 4096; }},
      {"segment at another address", [](Bytes& b) { segment(b, PT_LOAD, PF_W)->p_vaddr += 4096; }},
      {"segment cut short", [](Bytes& b) { segment(b, PT_LOAD, PF_X)->p_filesz /= 2; }},
      {"executable stack", [](Bytes& b) { segment(b, PT_GNU_STACK)->p_flags |= PF_X; }},
      {"no word about the stack", [](Bytes& b) { segment(b, PT_GNU_STACK)->p_type = PT_NULL; }},
      {"version of a library that it does not need", [](Bytes& b) { at<Elf64_Verneed>(b, section(b, SHT_GNU_verneed)->sh_offset)->vn_file += 1; }},
      {"no versions where some are due", [](Bytes& b) { at<Elf64_Verneed>(b, section(b, SHT_GNU_verneed)->sh_offset)->vn_cnt = 0; }},
      {"symbols elsewhere", [](Bytes& b) { section(b, SHT_DYNSYM)->sh_addr += 24; }},
      {"no sections", [](Bytes& b) { at<Elf64_Ehdr>(b, 0)->e_shnum = 0; }},
  };
  for (const Damage& damage : damages) {
    Bytes image = plainImage();
    damage.apply(image);
    Module module = nullptr;
    const Status status = f.d.moduleLoad(&module, image.data(), image.size());
    if (status != kInvalidImage) failed(__FILE__, __LINE__, std::string(damage.what) + " gives " + statusName(status));
  }
  // What start files bring: data that is written to, beside data that may be protected.
  Bytes image = kernelImage();
  if (auto* relro = segment(image, PT_GNU_RELRO)) {
    relro->p_memsz += 4096;
    Module module = nullptr;
    CHECK_EQ(f.d.moduleLoad(&module, image.data(), image.size()), kInvalidImage);
  }
}

TEST(random_damage_of_tables) {
  Fixture f;
  Bytes original = plainImage();
  std::vector<std::pair<uint64_t, uint64_t>> tables = {{0, sizeof(Elf64_Ehdr)}};
  const auto* header = at<Elf64_Ehdr>(original, 0);
  tables.push_back({header->e_phoff, header->e_phnum * sizeof(Elf64_Phdr)});
  for (uint32_t type : {SHT_DYNSYM, SHT_RELA, SHT_DYNAMIC, SHT_GNU_HASH, SHT_GNU_versym, SHT_GNU_verneed, SHT_STRTAB}) {
    if (auto* found = section(original, type)) tables.push_back({found->sh_offset, found->sh_size});
  }
  std::mt19937_64 random(7);
  uint32_t refused = 0, loaded = 0;
  for (uint32_t round = 0; round < 4000; ++round) {
    Bytes image = original;
    const auto& table = tables[random() % tables.size()];
    const uint64_t where = table.first + random() % table.second;
    if (random() % 2) {
      image[where] = static_cast<unsigned char>(random());
    } else if (where + 8 <= image.size()) {
      uint64_t value = 0;
      std::memcpy(&value, &image[where & ~7ull], 8);
      value = random() % 2 ? value + random() % 4096 : random() % (2 * image.size());
      std::memcpy(&image[where & ~7ull], &value, 8);
    }
    Module module = nullptr;
    const Status status = f.d.moduleLoad(&module, image.data(), image.size());
    CHECK(status == kInvalidImage || status == kSuccess || status == kSharedObjectInitFailed);
    refused += status == kInvalidImage;
    if (status != kSuccess) continue;
    ++loaded;
    OK(f.d.moduleUnload(module));
  }
  CHECK(refused > 1000);
  CHECK(loaded > 100);
}
