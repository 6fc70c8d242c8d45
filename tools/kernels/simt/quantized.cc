// mul_mat_mma_* and mul_mat_vec_* of AMD GPUs in a workgroup of 8 waves on the host, against sums in f64 of dequantised
// weights: one line a case, "ok" or "wrong". See simt.h for the macros that choose the chip.
#define BLOCK_THREADS (8 * WAVE)
#include "simt.h"

#include "../../../kernels/shared/mma.h"
#include "../../../kernels/quantized/formats.h"
#include "../../../kernels/quantized/matvec.h"
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

/** Random weights and columns of q8_1 blocks; scales lie at `d`, minima at `m` (or at `d` again) of a weight block. */
template <class Q>
struct Problem {
  u32 columns, rows, k, padded, stride = rows + 3;
  u64 rowBytes = k / Q::SIZE * Q::BYTES, columnBytes = padded / 32 * Q8_1::BYTES;
  std::vector<u8> weights, activations;
  std::vector<float> out;
  // Blocks of some formats begin at multiples of 16, as do slabs of columns.
  u8 *x = aligned(weights, rows * rowBytes), *y = aligned(activations, columns * columnBytes);

  Problem(u32 d, u32 m, u32 columns, u32 rows, u32 k, u32 padded)
      : columns(columns), rows(rows), k(k), padded(padded), out(columns * stride, -7.0f) {
    for (u64 i = 0; i < rows * rowBytes; ++i) x[i] = (u8)randomBits();
    for (u64 at = 0; at < rows * rowBytes; at += Q::BYTES)
      for (const u32 half : {d, m}) putHalf(x + at + half, ((float)(randomBits() % 2000) - 1000) / 4096);
    for (u64 at = 0; at < columns * columnBytes; at += Q8_1::BYTES) {
      putHalf(y + at, (float)(randomBits() % 1000) / 512);
      putHalf(y + at + 2, NAN);  // the sum, which is not used
      for (u32 i = 0; i < 32; ++i) y[at + 4 + i] = (u8)(randomBits() % 255 - 127);
    }
  }
  static u8* aligned(std::vector<u8>& storage, u64 bytes) {
    storage.resize(bytes + 16);
    return (u8*)(((uintptr_t)storage.data() + 15) & ~(uintptr_t)15);
  }

  /** Prints whether `out` is right and nothing was written past the last row. */
  bool report(const char* kernel, const char* name) const {
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
          dequantizeQuad<Q>(x + r * rowBytes + e / Q::SIZE * Q::BYTES, e % Q::SIZE / 4, values);
          const u8* b = y + c * columnBytes + e / 32 * Q8_1::BYTES;
          const double term = (double)values[e % 4] * Q8_1::scale(b) * (i8)b[4 + e % 32];
          sum += term;
          magnitude += std::fabs(term);
        }
        const double error = std::fabs(got - sum) / magnitude;
        if (!(error <= worst)) worst = error;
      }
    const bool ok = worst <= 1e-6;  // false for NaN
    std::printf("%s, %s, %ux%ux%u: error %.2g, %s\n", name, kernel, columns, rows, k, worst, ok ? "ok" : "wrong");
    return ok;
  }
};

template <class Q, u32 ROWS, u32 COLUMNS>
bool tiles(const char* name, Problem<Q> p) {
  alignas(16) static u8 memory[MmaMemory<Q, ROWS, COLUMNS>];
  std::memset(memory, 0xff, sizeof memory);
  runBlock([&] {
    mulMatMma<Q, ROWS, COLUMNS>(p.x, p.y, p.out.data(), (i32)p.k, (i32)p.rows, (i32)p.columns, (i32)p.padded, (i32)p.stride, memory);
  });
  return p.report(ROWS == 64 ? "large tiles" : "small tiles", name);
}

template <class Q, u32 COLS>
bool vectors(const char* name, Problem<Q> p) {
  runBlock([&] {
    mulMatVecKernel<Q, COLS>(p.x, p.y, p.out.data(), (i32)p.k, (i32)p.rows, (i32)p.padded, (i32)p.stride);
  });
  return p.report("rows", name);
}

template <class Q>
bool all(const char* name, u32 d, u32 m) {
  // Columns that end within a slab, and paddings that 16 bytes do and do not divide.
  const u32 k = Q::SIZE == 32 ? 160 : 256, padded = Q::SIZE == 32 ? 256 : k;
  bool ok = tiles<Q, 64, 128>(name, {d, m, 130, 67, k, padded});
  ok &= tiles<Q, 32, 64>(name, {d, m, 20, 35, k, k});
  // A wave a pair of rows, and the block for one pair.
  ok &= vectors<Q, 1>(name, {d, m, 1, 67, 9 * k, 9 * k});
  return vectors<Q, 3>(name, {d, m, 3, 5, 9 * k, 10 * k}) && ok;
}

int main() {
  bool ok = all<Q4_0>("q4_0", 0, 0);
  ok &= all<Q5_0>("q5_0", 0, 0);
  ok &= all<Q5_1>("q5_1", 0, 2);
  ok &= all<Q8_0>("q8_0", 0, 0);
  ok &= all<Q2_K>("q2_K", 80, 82);
  ok &= all<Q3_K>("q3_K", 108, 108);
  ok &= all<Q4_K>("q4_K", 0, 2);
  ok &= all<Q5_K>("q5_K", 0, 2);
  ok &= all<Q6_K>("q6_K", 208, 208);
  return ok ? 0 : 1;
}
