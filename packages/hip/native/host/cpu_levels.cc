// The level of an x64 CPU by CPUID, that of an ARM one by what Linux says in the auxiliary vector.
#include "cpu_levels.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "status.h"

namespace xhip::host {

namespace {

bool hasBits(uint64_t value, std::initializer_list<int> bits) {
  return std::all_of(bits.begin(), bits.end(), [value](int bit) { return (value >> bit) & 1u; });
}

}  // namespace

std::vector<std::string> armLevels(uint64_t capabilities, uint64_t more) {
  std::vector<std::string> levels = {"aarch64"};
  // Linux's numbers: atomics, FP16 of scalars and of vectors, rounding multiplication, dot products.
  if (!hasBits(capabilities, {8, 9, 10, 12, 20})) return levels;
  levels.push_back("aarch64-dotprod");
  if (hasBits(more, {13, 14})) levels.push_back("aarch64-i8mm");  // I8MM, BF16
  return levels;
}

#if defined(__x86_64__)

namespace {

uint64_t enabledState() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// The psABI's level: 0 for below x86-64-v2, else 2, 3 or 4; the system must save the wide registers.
int psabiLevel() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT
  if (!hasBits(c, {0, 9, 13, 19, 20, 23})) return 0;
  uint32_t a1, b1, c1, d1;
  if (!__get_cpuid(0x80000001u, &a1, &b1, &c1, &d1) || !hasBits(c1, {0})) return 0;  // LAHF
  // FMA, MOVBE, OSXSAVE, AVX, F16C; then LZCNT; then BMI1, AVX2, BMI2
  if (!hasBits(c, {12, 22, 27, 28, 29}) || !hasBits(c1, {5})) return 2;
  uint32_t a7, b7, c7, d7;
  if (!__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7) || !hasBits(b7, {3, 5, 8})) return 2;
  const uint64_t state = enabledState();
  if ((state & 0x6) != 0x6) return 2;  // SSE and AVX registers
  // AVX512F, DQ, CD, BW, VL; mask registers and both ZMM halves
  if (!hasBits(b7, {16, 17, 28, 30, 31}) || (state & 0xe6) != 0xe6) return 3;
  return 4;
}

// The levels of this CPU that kernels are built for, the one to prefer last. A psABI level may come with int8 dot products:
// AVX-VNNI, AVX512-VNNI.
std::vector<std::string> hostLevels() {
  uint32_t a = 0, b, c = 0, d, a1 = 0;
  const bool known = __get_cpuid_count(7, 0, &a, &b, &c, &d);
  if (known && a >= 1) __get_cpuid_count(7, 1, &a1, &b, &d, &d);
  std::vector<std::string> levels;
#if defined(__GLIBC__)
  const int highest = psabiLevel();
#else
  const int highest = std::min(psabiLevel(), 2);  // kernels of higher levels call libmvec, which is glibc's
#endif
  for (int level = 2; level <= highest; ++level) {
    levels.push_back("x86-64-v" + std::to_string(level));
    const bool products = level == 3 ? hasBits(a1, {4}) : level == 4 && hasBits(c, {11});
    if (products) levels.push_back(levels.back() + "-vnni");
  }
  return levels;
}

}  // namespace

// AVX512-BF16, whose registers the level's name vouches for.
bool multipliesPairs(const std::string& arch) {
  uint32_t a = 0, b, c, d;
  if (arch.compare(0, 9, "x86-64-v4") != 0 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || a < 1) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && hasBits(a, {5});
}

// AMX-BF16, AMX-TILE and AMX-INT8, whose registers the system saves for processes that ask.
bool allowsTiles() {
  uint32_t a = 0, b, c, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !hasBits(d, {22, 24, 25}) || (enabledState() & 0x60000) != 0x60000) return false;
#if defined(SYS_arch_prctl)
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, since Linux 5.16
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
#else
  return false;
#endif
}

std::string cpuName() {
  uint32_t highest = __get_cpuid_max(0x80000000u, nullptr);
  if (highest < 0x80000004u) return "";
  char text[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    uint32_t r[4];
    __get_cpuid(0x80000002u + i, &r[0], &r[1], &r[2], &r[3]);
    std::memcpy(text + 16 * i, r, 16);
  }
  std::string name = text;
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
  return name;
}

#else

namespace {

std::vector<std::string> hostLevels() {
#if defined(__aarch64__)
  return armLevels(getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
#else
  return {};
#endif
}

}  // namespace

bool multipliesPairs(const std::string&) { return false; }
bool allowsTiles() { return false; }

std::string cpuName() {
  std::ifstream file("/sys/firmware/devicetree/base/model");
  std::string name;
  std::getline(file, name, '\0');
  return name;
}

#endif

Status chooseLevel(std::string* level, bool* named) {
  const std::vector<std::string> levels = hostLevels();
  *level = levels.empty() ? "" : levels.back();
  *named = false;
  const char* wanted = std::getenv("X_HOST_ARCH");
  if (!wanted || !*wanted) return kSuccess;
  const std::string name = wanted;
#if defined(__x86_64__)
  const bool baseline = name == "x86-64" || name == "x86-64-v1";  // which has no kernels
  std::string known = "x86-64";
#else
  const bool baseline = false;
  std::string known;
#endif
  if (!baseline && std::find(levels.begin(), levels.end(), name) == levels.end()) {
    for (const std::string& each : levels) known += (known.empty() ? "" : ", ") + each;
    return fail(kInvalidValue, "X_HOST_ARCH=%.40s is none that this CPU has (%s): unset it", wanted, known.c_str());
  }
  *level = baseline ? "" : name;
  *named = true;
  return kSuccess;
}

}  // namespace xhip::host
