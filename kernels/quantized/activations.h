// Values to q8_1 blocks, which products with quantised weights read their activations in: of a row of k values, padded with
// zeros to whole multiples of what the launch says, block g holds the values from 32 * g on. For quantize_q8_1 and for the
// kernels of the module `decode`, which have the values in registers.
#pragma once

namespace quant {

#if X_HOST && defined(__F16C__) && !X_F16_BITS
// By way of a word: loads of 16 bits keep the rest of a vector register, and so wait for what was in it.
X_DEVICE float half(const u8* p) {
  typedef _Float16 Halves __attribute__((vector_size(16)));
  u32 bits = *(const u16*)p;
  asm("" : "+r"(bits));
  const u32 words __attribute__((vector_size(16))) = {bits, 0, 0, 0};
  return (float)((Halves)words)[0];
}
#else
X_DEVICE float half(const u8* p) { return to_acc(bitCast<f16>(*(const u16*)p)); }
#endif

/** f16 d, f16 sum of the source values, 32 int8. */
struct Q8_1 {
  static constexpr u32 SIZE = 32, BYTES = 36;
  static X_DEVICE float scale(const u8* b) { return half(b); }
  static X_DEVICE u32 quad(const u8* b, u32 e4) { return *(const u32*)(b + 4 + 4 * e4); }
};

#if X_HOST
/** `quantizeGroup` of 32 values as vectors, with the same operations in the same order. */
X_DEVICE void quantizeVectors(const float* x, u8* out) {
  typedef float Eight __attribute__((vector_size(32)));
  typedef float All __attribute__((vector_size(128)));
  typedef i32 Integers __attribute__((vector_size(128)));
  typedef i8 Quants __attribute__((vector_size(32)));
  Eight v[4], largest = {}, sums = {};
  __builtin_memcpy(v, x, sizeof(v));
#pragma unroll
  for (u32 j = 0; j < 4; ++j) {
    const Eight magnitude = __builtin_elementwise_abs(v[j]);
    largest = largest > magnitude ? largest : magnitude;
    sums += v[j];
  }
#define HALVED(...)                                                        \
  {                                                                        \
    const Eight other = __builtin_shufflevector(largest, largest, __VA_ARGS__); \
    largest = largest > other ? largest : other;                           \
    sums += __builtin_shufflevector(sums, sums, __VA_ARGS__);              \
  }
  HALVED(4, 5, 6, 7, 4, 5, 6, 7)
  HALVED(2, 3, 2, 3, 2, 3, 2, 3)
  HALVED(1, 1, 1, 1, 1, 1, 1, 1)
#undef HALVED
  const float d = largest[0] / 127.0f, divisor = d > 0.0f ? d : 1.0f;
  All all;
  __builtin_memcpy(&all, v, sizeof(all));
  const All scaled = all / divisor;
  const Quants quants = __builtin_convertvector(__builtin_convertvector(scaled < 0.0f ? scaled - 0.5f : scaled + 0.5f, Integers), Quants);
  *(u16*)out = bitCast<u16>(cast<f16>(d));
  *(u16*)(out + 2) = bitCast<u16>(cast<f16>(sums[0]));
  __builtin_memcpy(out + 4, &quants, 32);
}
#endif

/** 32 values of x (zeros past kx) as q8_1: d = largest magnitude / 127, quants rounded to nearest, halves away from zero. */
template <class T>
X_DEVICE void quantizeGroup(const T* x, u64 available, u8* out) {
#if X_HOST
  if constexpr (sameType<T, float>)
    if (available >= 32) return quantizeVectors(x, out);
#endif
  float values[32];
  float largest[8] = {}, sums[8] = {};
#pragma unroll
  for (u32 i = 0; i < 32; ++i) values[i] = i < available ? to_acc(x[i]) : 0.0f;
#pragma unroll
  for (u32 j = 0; j < 4; ++j) {
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
      const float magnitude = m::fabs(values[8 * j + i]);
      largest[i] = largest[i] > magnitude ? largest[i] : magnitude;
      sums[i] += values[8 * j + i];
    }
  }
#pragma unroll
  for (u32 w = 4; w > 0; w /= 2) {
#pragma unroll
    for (u32 i = 0; i < w; ++i) {
      largest[i] = largest[i] > largest[i + w] ? largest[i] : largest[i + w];
      sums[i] += sums[i + w];
    }
  }
  const float d = largest[0] / 127.0f;
  const float divisor = d > 0.0f ? d : 1.0f;
  i8 quants[32];
#pragma unroll
  for (u32 i = 0; i < 32; ++i) {
    const float scaled = values[i] / divisor;
    quants[i] = (i8)(i32)(scaled < 0.0f ? scaled - 0.5f : scaled + 0.5f);
  }
  *(u16*)out = bitCast<u16>(cast<f16>(d));
  *(u16*)(out + 2) = bitCast<u16>(cast<f16>(sums[0]));
#if X_HOST
  __builtin_memcpy(out + 4, quants, 32);
#else
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    ((u32*)(out + 4))[i] = (u32)(u8)quants[4 * i] | (u32)(u8)quants[4 * i + 1] << 8 | (u32)(u8)quants[4 * i + 2] << 16 |
                           (u32)(u8)quants[4 * i + 3] << 24;
  }
#endif
}

/**
 * The same by 8 neighbouring threads, of which each has four values; `out` is their common block, which is written if
 * `writes`. All lanes of a warp come here, and blocks have a multiple of 8 threads.
 */
X_DEVICE void quantizeQuad(const float (&values)[4], u8* out, bool writes) {
  const u32 member = threadIndex() % 8;
  float largest = 0.0f, sum = 0.0f;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) {
    largest = Max::apply(largest, m::fabs(values[i]));
    sum += values[i];
  }
#pragma unroll
  for (u32 mask = 4; mask > 0; mask /= 2) {
    largest = Max::apply(largest, shuffleXor(largest, mask));
    sum += shuffleXor(sum, mask);
  }
  if (!writes) return;
  const float d = largest / 127.0f;
  u32 packed = 0;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) packed |= (u32)(u8)(i8)(largest > 0.0f ? m::round(values[i] / d) : 0.0f) << (8 * i);
  *(u32*)(out + 4 + 4 * member) = packed;
  if (member == 0) *(u32*)out = (u32)bitCast<u16>(cast<f16>(d)) | (u32)bitCast<u16>(cast<f16>(sum)) << 16;
}

/** The blocks of get(0) .. get(n - 1), n a multiple of 32, by the whole block, on GPUs of whole warps. */
template <class Get>
X_DEVICE void quantizeEach(u32 n, u8* out, Get get) {
#if X_HOST
  for (u32 g = 0; g < n / 32; ++g) {
    float values[32];
    for (u32 i = 0; i < 32; ++i) values[i] = get(g * 32 + i);
    quantizeGroup(values, 32, out + g * Q8_1::BYTES);
  }
#else
  // All threads go through every step, since lanes share blocks.
#pragma unroll 1
  for (u32 base = 0; base < n; base += 4 * blockThreads()) {
    const u32 c = base + 4 * threadIndex();
    float values[4];
#pragma unroll
    for (u32 e = 0; e < 4; ++e) values[e] = c < n ? get(c + e) : 0.0f;
    quantizeQuad(values, out + c / 32 * Q8_1::BYTES, c < n);
  }
#endif
}

/** Zeros behind the blocks of a row of n values, by the whole block. */
X_DEVICE void padRow(u8* row, u32 n, u32 padded) {
  constexpr u32 WORDS = Q8_1::BYTES / 4;
  for (u32 i = n / 32 * WORDS + threadIndex(); i < padded / 32 * WORDS; i += blockThreads()) ((u32*)row)[i] = 0;
}

/** Row blockY() of x: the kernel carries no row count, so grid.y is the number of rows. Each 8 threads share 32 values. */
template <class T>
X_DEVICE void quantizeRows(const T* x, u8* y, u32 kx, u32 kxPadded) {
  // In this order: blocks that begin sooner wait for longer beside the kernel before this one.
  early::await();
  early::letNextBegin();
  const T* row = x + (u64)blockY() * kx;
  const u32 groups = kxPadded / 32;
  u8* out = y + (u64)blockY() * groups * Q8_1::BYTES;
  if (WARP < 8 || blockThreads() % 8 != 0) {
    for (u64 g = blockX() * (u64)blockThreads() + threadIndex(); g < groups; g += (u64)gridX() * blockThreads())
      quantizeGroup(row + g * 32, g * 32 < kx ? kx - g * 32 : 0, out + g * Q8_1::BYTES);
    return;
  }
  const u32 perBlock = blockThreads() / 8;
  const u32 member = threadIndex() % 8;
  for (u64 base = (u64)blockX() * perBlock; base < groups; base += (u64)gridX() * perBlock) {
    const u64 g = base + threadIndex() / 8;
    float values[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u64 at = g * 32 + 4 * member + i;
      values[i] = at < kx ? to_acc(row[at]) : 0.0f;
    }
    quantizeQuad(values, out + g * Q8_1::BYTES, g < groups);
  }
}

/** Where the elements of a span of 256 lie in operands of matrix units (operands.h): formats are cut in one of two ways. */
namespace operands {

/** Word w of the 32 elements g is of a quarter, in a step. */
X_DEVICE u32 quarterOf(bool fourWay, u32 g, u32 w) { return fourWay ? g / 4 * 2 + w / 4 : g / 2; }
X_DEVICE u32 stepOf(bool fourWay, u32 g, u32 w) { return fourWay ? g % 4 * 4 + w % 4 : g % 2 * 8 + w; }

/** Four elements of a row from `at` on, a multiple of 4, as a sixteenth in f16: 32 bytes a step, whose halves have two elements of each quarter. */
X_DEVICE void write(f16* row, u32 at, bool fourWay, const float (&values)[4]) {
  const u32 g = at % 256 / 32, w = at % 32 / 4;
  f16* to = row + at / 256 * 256 + stepOf(fourWay, g, w) * 16 + quarterOf(fourWay, g, w) * 2;
#pragma unroll
  for (u32 e = 0; e < 4; ++e) to[e / 2 * 8 + e % 2] = cast<f16>(values[e] * 0.0625f);
}

}  // namespace operands

}  // namespace quant
