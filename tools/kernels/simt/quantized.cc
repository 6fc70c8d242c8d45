// mul_mat_mma_* of AMD GPUs in a workgroup of 8 waves on the host, against sums in f64 of dequantised weights: one line a
// case, "ok" or "wrong". See simt.h for the macros that choose the chip.
#define BLOCK_THREADS (8 * WAVE)
#include "simt.h"

#include "../../../kernels/shared/mma.h"
#include "../../../kernels/quantized/formats.h"
#include "../../../kernels/quantized/matmul.h"
#include "../../../kernels/quantized/mma.h"

using namespace quant;

u32 randomBits() {
  static u32 state = 1;
  state = state * 1664525 + 1013904223;
  return state >> 8;
}
void putHalf(u8* at, float value) {
  const f16 half = (f16)value;
  std::memcpy(at, &half, 2);
}

/** One product; scales lie at `d`, minima at `m` (or at `d` again) of a block, columns are padded elements long. */
template <class Q, u32 ROWS, u32 COLUMNS>
bool product(const char* name, u32 d, u32 m, u32 columns, u32 rows, u32 k, u32 padded) {
  const u64 rowBytes = k / Q::SIZE * Q::BYTES, columnBytes = padded / 32 * Q8_1::BYTES;
  std::vector<u8> x(rows * rowBytes), storage(columns * columnBytes + 16);
  u8* y = (u8*)(((uintptr_t)storage.data() + 15) & ~(uintptr_t)15);
  for (u8& byte : x) byte = (u8)randomBits();
  for (u64 at = 0; at < x.size(); at += Q::BYTES)
    for (const u32 half : {d, m}) putHalf(&x[at + half], ((float)(randomBits() % 2000) - 1000) / 4096);
  for (u64 at = 0; at < columns * columnBytes; at += Q8_1::BYTES) {
    putHalf(y + at, (float)(randomBits() % 1000) / 512);
    putHalf(y + at + 2, NAN);  // the sum, which is not used
    for (u32 i = 0; i < 32; ++i) y[at + 4 + i] = (u8)(randomBits() % 255 - 127);
  }
  const u32 stride = rows + 3;
  std::vector<float> out(columns * stride, -7.0f);
  alignas(16) static u8 memory[MmaMemory<Q, ROWS, COLUMNS>];
  std::memset(memory, 0xff, sizeof memory);
  runBlock([&] {
    mulMatMma<Q, ROWS, COLUMNS>(x.data(), y, out.data(), (i32)k, (i32)rows, (i32)columns, (i32)padded, (i32)stride, memory);
  });
  double worst = 0;
  for (u32 c = 0; c < columns; ++c)
    for (u32 r = 0; r < stride; ++r) {
      const float got = out[c * stride + r];
      if (r >= rows) {
        if (got != -7.0f) worst = NAN;
        continue;
      }
      double sum = 0, magnitude = 0;
      for (u32 e = 0; e < k; ++e) {
        float values[4];
        dequantizeQuad<Q>(&x[r * rowBytes + e / Q::SIZE * Q::BYTES], e % Q::SIZE / 4, values);
        const u8* b = y + c * columnBytes + e / 32 * Q8_1::BYTES;
        const double term = (double)values[e % 4] * Q8_1::scale(b) * (i8)b[4 + e % 32];
        sum += term;
        magnitude += std::fabs(term);
      }
      const double error = std::fabs(got - sum) / magnitude;
      if (!(error <= worst)) worst = error;
    }
  const bool ok = worst <= 1e-6;  // false for NaN
  std::printf("%s, tiles of %u x %u, %ux%ux%u: error %.2g, %s\n", name, ROWS, COLUMNS, columns, rows, k, worst, ok ? "ok" : "wrong");
  return ok;
}

template <class Q>
bool both(const char* name, u32 d, u32 m) {
  // Columns that end within a slab, and paddings that 16 bytes do and do not divide.
  const u32 k = Q::SIZE == 32 ? 160 : 256, padded = Q::SIZE == 32 ? 256 : k;
  const bool large = product<Q, 64, 128>(name, d, m, 130, 67, k, padded);
  return product<Q, 32, 64>(name, d, m, 20, 35, k, k) && large;
}

int main() {
  bool ok = both<Q4_0>("q4_0", 0, 0);
  ok &= both<Q5_1>("q5_1", 0, 2);
  ok &= both<Q8_0>("q8_0", 0, 0);
  ok &= both<Q2_K>("q2_K", 80, 82);
  ok &= both<Q3_K>("q3_K", 108, 108);
  ok &= both<Q4_K>("q4_K", 0, 2);
  ok &= both<Q6_K>("q6_K", 208, 208);
  return ok ? 0 : 1;
}
