// What the stand-in libraries share: numbers of every format, rounded to nearest even, and the log of their calls.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

inline float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// A line for the test to read, in the file that FAKE_LOG names.
inline void note(const std::string& line) {
  const char* path = std::getenv("FAKE_LOG");
  FILE* file = path ? std::fopen(path, "a") : nullptr;
  if (!file) return;
  std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
}

enum class Format { F16, BF16, F32, F64 };

inline size_t bytesOf(Format f) { return f == Format::F64 ? 8 : f == Format::F32 ? 4 : 2; }

inline double load(Format f, const void* base, int64_t index) {
  const char* at = static_cast<const char*>(base) + index * int64_t(bytesOf(f));
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  if (f == Format::BF16) return floatOf(uint32_t(half) << 16);
  if (f == Format::F16) {
    const int exponent = half >> 10 & 31;
    const double magnitude = exponent == 0 ? std::ldexp(half & 1023, -24) : std::ldexp(1024 + (half & 1023), exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
  }
  if (f == Format::F32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  double value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline void store(Format f, void* base, int64_t index, double value) {
  char* at = static_cast<char*>(base) + index * int64_t(bytesOf(f));
  if (f == Format::F64) {
    std::memcpy(at, &value, sizeof value);
  } else if (f == Format::F32) {
    const float narrow = float(value);
    std::memcpy(at, &narrow, sizeof narrow);
  } else if (f == Format::BF16) {
    const uint32_t bits = bitsOf(float(value));
    const uint16_t half = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(at, &half, sizeof half);
  } else {
    int exponent = 0;
    const double magnitude = std::fabs(value);
    std::frexp(magnitude, &exponent);
    const int lowest = exponent < -13 ? -13 : exponent;
    const double steps = std::nearbyint(std::ldexp(magnitude, 11 - lowest));
    uint16_t half = magnitude == 0 ? 0 : uint16_t((lowest + 13) * 1024 + int(steps));
    half = uint16_t(half | (std::signbit(value) ? 0x8000 : 0));
    std::memcpy(at, &half, sizeof half);
  }
}
