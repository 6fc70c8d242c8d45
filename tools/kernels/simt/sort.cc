// sort_radix_* in a workgroup on the host, of waves of 32 and 64 lanes, against a stable sort: one line a case, "ok" or
// "wrong". See simt.h for the macros that choose the chip.
#include "simt.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

template <class T>
constexpr bool isFloatType = std::is_floating_point_v<T> || sameType<T, f16>;
inline float to_acc(float v) { return v; }
inline double to_acc(double v) { return v; }
typedef int16_t i16;
struct f8e4m3 {};
namespace vec {
template <u32 bytes>
struct Word;
template <>
struct Word<2> {
  typedef u16 type;
};
}  // namespace vec

inline u32 atomicAdd(u32* p, u32 v) {
  *p += v;
  return *p - v;
}

/** A value of every lane of this wave. Two buffers in turn: a lane may write its next one while others read. */
inline u32* exchange(u32 v) {
  static u32 values[2][BLOCK];
  static u32 turns[BLOCK];
  u32* mine = values[turns[thread]++ % 2];
  mine[thread] = v;
  waveBarrier();
  return mine + warpId() * WARP;
}
inline u32 shuffle(u32 v, u32 lane) { return exchange(v)[lane]; }
inline u64 votesOf(bool v) {
  const u32* votes = exchange(v);
  u64 mask = 0;
  for (u32 lane = 0; lane < WARP; ++lane) mask |= (u64)votes[lane] << lane;
  return mask;
}
inline u32 lanesBelow(u32 mask, u32 first) {
  const u32 lane = laneId();
  if (lane <= first) return 0;
  return (u32)__builtin_popcount(lane - first >= 32 ? mask : mask & ((1u << (lane - first)) - 1));
}
#define __builtin_amdgcn_ballot_w32(v) ((u32)votesOf(v))
#define __builtin_amdgcn_ballot_w64(v) votesOf(v)
#define __builtin_amdgcn_mbcnt_lo(mask, sum) (lanesBelow(mask, 0) + (sum))
#define __builtin_amdgcn_mbcnt_hi(mask, sum) (lanesBelow(mask, 32) + (sum))

#include "../../../kernels/sort/key.h"
#include "../../../kernels/sort/radix.h"

u32 randomBits() {
  static u32 state = 1;
  state = state * 1664525 + 1013904223;
  return state >> 8;
}

template <class T>
T valueOf(u32 distinct) {
  const u32 pick = randomBits() % distinct;
  if constexpr (isFloatType<T>) {
    const double special[] = {0.0, -0.0, NAN, -NAN, INFINITY, -INFINITY};
    return pick < 6 ? (T)special[pick] : (T)(((double)pick - distinct / 2) / 64);
  } else {
    return (T)((u64)pick * 0x9e3779b97f4a7c15ull);
  }
}

template <bool ascending, class T>
bool goesBefore(T a, T b) {
  if constexpr (isFloatType<T>) {
    if (a != a || b != b) return ascending ? a == a && b != b : a != a && b == b;
  }
  return ascending ? a < b : a > b;
}

constexpr u32 GUARD = 8;

template <bool ascending, class T>
bool sorted(const char* name, u64 rows, u64 cols, u64 part, u32 distinct) {
  using namespace sort::radix;
  typedef Values<ascending, T> First;
  typedef typename First::K K;
  const u64 n = rows * cols, parts = (cols + part - 1) / part;
  std::vector<T> x(n);
  for (T& v : x) v = valueOf<T>(distinct);
  std::vector<u32> counts(rows * parts * DIGITS + GUARD, 7), positions[2];
  std::vector<K> keys[2];
  for (u32 i = 0; i < 2; ++i) positions[i].assign(n + GUARD, 7), keys[i].assign(n + GUARD, 7);
  for (u32 pass = 0; pass < sizeof(T); ++pass) {
    const auto run = [&](auto from) {
      K* out = pass + 1 == sizeof(T) ? nullptr : keys[pass % 2].data();
      runBlock([&] { count(rows, cols, part, from, counts.data()); });
      runBlock([&] { scatter(rows, cols, part, from, counts.data(), out, positions[pass % 2].data()); });
    };
    if (pass == 0) run(First{x.data()});
    else run(Keys<K>{keys[1 - pass % 2].data(), positions[1 - pass % 2].data(), 8 * pass});
  }
  const std::vector<u32>& got = positions[(sizeof(T) - 1) % 2];
  std::vector<u32> expected(cols);
  bool ok = true;
  for (u64 row = 0; row < rows; ++row) {
    const T* values = &x[row * cols];
    std::iota(expected.begin(), expected.end(), 0u);
    std::sort(expected.begin(), expected.end(), [&](u32 a, u32 b) {
      if (goesBefore<ascending>(values[a], values[b])) return true;
      return !goesBefore<ascending>(values[b], values[a]) && a < b;
    });
    ok &= std::equal(expected.begin(), expected.end(), &got[row * cols]);
  }
  for (u32 i = 0; i < GUARD; ++i) {
    ok &= counts[rows * parts * DIGITS + i] == 7;
    for (u32 b = 0; b < 2; ++b) ok &= positions[b][n + i] == 7 && keys[b][n + i] == 7;
  }
  std::printf("%s %s, %u x %u in parts of %u, %u values: %s\n", name, ascending ? "up" : "down", (u32)rows, (u32)cols,
              (u32)part, distinct, ok ? "ok" : "wrong");
  return ok;
}

bool all() {
  bool ok = true;
  // One tile and a part of one, several tiles a part, rows and parts that end within a wave; few and many values.
  ok &= sorted<true, u8>("u8", 1, 1, 1, 1) && sorted<true, u8>("u8", 2, 4097, 4096, 3);
  ok &= sorted<false, u8>("u8", 1, 9000, 9000, 1000) && sorted<false, u8>("u8", 3, 255, 100, 1);
  ok &= sorted<true, f16>("f16", 1, 5000, 4096, 60000) && sorted<false, f16>("f16", 2, 257, 64, 20);
  ok &= sorted<true, i16>("i16", 1, 4096, 4096, 1 << 20) && sorted<false, i16>("i16", 1, 300, 300, 1 << 20);
  ok &= sorted<true, float>("f32", 1, 4500, 2000, 1 << 20) && sorted<false, float>("f32", 2, 1000, 1000, 12);
  ok &= sorted<false, i32>("i32", 1, 700, 700, 1 << 20) && sorted<true, u32>("u32", 1, 33, 10, 1 << 20);
  ok &= sorted<true, double>("f64", 1, 2050, 2048, 1 << 20) && sorted<false, i64>("i64", 1, 600, 256, 9);
  return ok;
}

int main() {
  const bool forwards = all();
  backwards = true;
  return all() && forwards ? 0 : 1;
}
