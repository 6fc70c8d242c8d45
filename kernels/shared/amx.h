// Tile registers of a host (AMX): eight of up to sixteen rows of 64 bytes. A product takes the rows of one operand as they lie; of the
// other one a row of the tile holds the four bytes, or the two bf16, that follow each other along k, of each of sixteen columns.
#pragma once

#if X_HOST && defined(__AVX512F__)
#define X_AMX 1

/** Set by the host driver where this process may use tile registers (packages/hip/native/host_abi.h). */
extern "C" __attribute__((visibility("default"))) i32 x_amx;
i32 x_amx = 0;

namespace amx {

/** What each register holds. */
struct alignas(64) Shape {
  u8 palette = 1, startRow = 0, reserved[14] = {};
  u16 rowBytes[16] = {};
  u8 rows[16] = {};
  X_DEVICE void set(u32 tile, u32 height, u32 bytes) {
    rows[tile] = (u8)height;
    rowBytes[tile] = (u16)bytes;
  }
};
static_assert(sizeof(Shape) == 64);

#if defined(X_TILES_BY_LOOPS)
// By loops, for tests on processors without such registers.
inline thread_local Shape shape;
inline thread_local u8 held[8][16][64];
struct Registers {
  Registers(const Shape& given) { shape = given; }
};
template <u32 N>
void load(const void* p, u64 apart) {
  for (u32 r = 0; r < shape.rows[N]; ++r) __builtin_memcpy(held[N][r], (const u8*)p + r * apart, shape.rowBytes[N]);
}
template <u32 N>
void store(void* p, u64 apart) {
  for (u32 r = 0; r < shape.rows[N]; ++r) __builtin_memcpy((u8*)p + r * apart, held[N][r], shape.rowBytes[N]);
}
template <u32 N>
void zero() {
  __builtin_memset(held[N], 0, sizeof(held[N]));
}
/** sums of C += what `dot` gives of four bytes of A and of B. */
template <class T, class Dot>
__attribute__((noinline)) void multiply(u32 c, u32 a, u32 b, Dot dot) {
  for (u32 r = 0; r < shape.rows[a]; ++r)
    for (u32 i = 0; i < 16; ++i) {
      T sum;
      __builtin_memcpy(&sum, held[c][r] + 4 * i, 4);
      for (u32 k = 0; k < shape.rows[b]; ++k) sum += dot(held[a][r] + 4 * k, held[b][k] + 4 * i);
      __builtin_memcpy(held[c][r] + 4 * i, &sum, 4);
    }
}
template <u32 C, u32 A, u32 B>
void multiplyBytes() {
  multiply<i32>(C, A, B, [](const u8* a, const u8* b) {
    i32 sum = 0;
    for (u32 i = 0; i < 4; ++i) sum += (i8)a[i] * (i8)b[i];
    return sum;
  });
}
template <u32 C, u32 A, u32 B>
void multiplyBf16() {
  multiply<float>(C, A, B, [](const u8* a, const u8* b) {
    const bf16 *x = (const bf16*)a, *y = (const bf16*)b;
    return to_acc(x[0]) * to_acc(y[0]) + to_acc(x[1]) * to_acc(y[1]);
  });
}
#else
/** The thread's registers while it lives. */
struct Registers {
  X_DEVICE Registers(const Shape& shape) { asm volatile("ldtilecfg %0" ::"m"(shape)); }
  X_DEVICE ~Registers() { asm volatile("tilerelease"); }
};
template <u32 N>
X_DEVICE void load(const void* p, u64 apart) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(apart), "i"(N) : "memory");
}
template <u32 N>
X_DEVICE void store(void* p, u64 apart) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(apart), "i"(N) : "memory");
}
template <u32 N>
X_DEVICE void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(N));
}
/** Sums of C, i32, += products of signed bytes of A and B. */
template <u32 C, u32 A, u32 B>
X_DEVICE void multiplyBytes() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
/** Sums of C, f32, += products of bf16 of A and B; those below the least normal number are 0. */
template <u32 C, u32 A, u32 B>
X_DEVICE void multiplyBf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}
#endif

/**
 * Registers 0 to 3 = 32 rows of 32 sums, `row` bytes apart, or `first` zeros: 0 and 1 the first 16 columns, 0 and 2 the first 16 rows.
 * Without BOTH there are 16 rows, without WIDE 16 columns.
 */
template <bool BOTH, bool WIDE>
X_DEVICE void loadSums(const float* sums, u64 row, bool first) {
  if (first) {
    zero<0>();
    zero<1>();
    zero<2>();
    zero<3>();
    return;
  }
  const float* below = (const float*)((const u8*)sums + 16 * row);
  load<0>(sums, row);
  if constexpr (BOTH) load<1>(below, row);
  if constexpr (WIDE) load<2>(sums + 16, row);
  if constexpr (BOTH && WIDE) load<3>(below + 16, row);
}

/** The other way. */
template <bool BOTH, bool WIDE>
X_DEVICE void storeSums(float* sums, u64 row) {
  float* below = (float*)((u8*)sums + 16 * row);
  store<0>(sums, row);
  if constexpr (BOTH) store<1>(below, row);
  if constexpr (WIDE) store<2>(sums + 16, row);
  if constexpr (BOTH && WIDE) store<3>(below + 16, row);
}

}  // namespace amx
#else
#define X_AMX 0
#endif
