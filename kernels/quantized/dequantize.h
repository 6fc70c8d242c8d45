// Blocks to values: dequantize_block_*, get_rows_*, and the other way for activations, quantize_q8_1. candle gives each
// format its own thread layout; here a thread takes quads of four elements (a host thread groups of 32), so any block
// size covers everything.
#pragma once

namespace quant {

template <class T>
X_DEVICE void store4(T* y, const float* values) {
#pragma unroll
  for (u32 i = 0; i < 4; ++i) y[i] = from_acc<T>(values[i]);
}
template <>
X_DEVICE void store4<float>(float* y, const float* values) {
  Vec<float, 4> v;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) v[i] = values[i];
  storeVec(y, v);
}

/** Elements [begin, end) of a row of blocks, in units of 32 on the host and of 4 on GPUs, by `threads` threads. */
template <class Q, class T>
X_DEVICE void dequantizeRange(const u8* x, T* y, u64 thread, u64 threads, u64 elements) {
#if X_HOST
  for (u64 g = thread; g < elements / 32; g += threads) {
    float values[32];
    dequantizeGroup<Q>(x + g * 32 / Q::SIZE * Q::BYTES, (u32)(g % (Q::SIZE / 32)), values);
    for (u32 i = 0; i < 32; ++i) y[g * 32 + i] = from_acc<T>(values[i]);
  }
#else
  for (u64 quad = thread; quad < elements / 4; quad += threads) {
    float values[4];
    dequantizeQuad<Q>(x + quad / (Q::SIZE / 4) * Q::BYTES, (u32)(quad % (Q::SIZE / 4)), values);
    store4(y + quad * 4, values);
  }
#endif
}

/** Whole tensor of `blocks` blocks, shared by the grid. */
template <class Q, class T>
X_DEVICE void dequantizeAll(const u8* x, T* y, u64 blocks) {
#if X_HOST
  X_FOR_SPLIT(b, blocks) dequantizeRange<Q>(x + b * Q::BYTES, y + b * Q::SIZE, 0, 1, Q::SIZE);
#else
  const u64 thread = split::block() * blockThreads() + threadIndex();
  dequantizeRange<Q>(x, y, thread, split::blocks() * blockThreads(), blocks * Q::SIZE);
#endif
}

/** The superblock that is this thread block's: the K formats' kernels carry no count, so grid.x is the number of superblocks. */
template <class Q, class T>
X_DEVICE void dequantizeOwn(const u8* x, T* y) {
  const u64 b = blockX();
  dequantizeRange<Q>(x + b * Q::BYTES, y + b * Q::SIZE, threadIndex(), blockThreads(), Q::SIZE);
}

/** Row ids[blockX()] of src as f32; the y axis of the grid shares the columns. */
template <class Q>
X_DEVICE void getRows(const u8* src, const u32* ids, float* dst, u64 columns, u64 rowBytes) {
  const u8* row = src + (u64)ids[blockX()] * rowBytes;
  dequantizeRange<Q>(row, dst + (u64)blockX() * columns, blockY() * (u64)blockThreads() + threadIndex(),
                     (u64)gridY() * blockThreads(), columns);
}

template <class T>
X_DEVICE void getRowsPlain(const u8* src, const u32* ids, float* dst, u64 columns, u64 rowBytes) {
  const T* row = (const T*)(src + (u64)ids[blockX()] * rowBytes);
  float* out = dst + (u64)blockX() * columns;
  const u64 step = (u64)gridY() * blockThreads();
  for (u64 i = blockY() * (u64)blockThreads() + threadIndex(); i < columns; i += step) out[i] = to_acc(row[i]);
}

/** 32 values of x (zeros past kx) as q8_1: d = largest magnitude / 127, quants rounded to nearest, halves away from zero. */
template <class T>
X_DEVICE void quantizeGroup(const T* x, u64 available, u8* out) {
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
    float largest = 0.0f, sum = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u64 at = g * 32 + 4 * member + i;
      values[i] = at < kx ? to_acc(row[at]) : 0.0f;
      largest = Max::apply(largest, m::fabs(values[i]));
      sum += values[i];
    }
#pragma unroll
    for (u32 mask = 4; mask > 0; mask /= 2) {
      largest = Max::apply(largest, shuffleXor(largest, mask));
      sum += shuffleXor(sum, mask);
    }
    if (g >= groups) continue;
    const float d = largest / 127.0f;
    u32 packed = 0;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) packed |= (u32)(u8)(i8)(largest > 0.0f ? m::round(values[i] / d) : 0.0f) << (8 * i);
    u8* block = out + g * Q8_1::BYTES;
    *(u32*)(block + 4 + 4 * member) = packed;
    if (member == 0)
      *(u32*)block = (u32)bitCast<u16>(cast<f16>(d)) | (u32)bitCast<u16>(cast<f16>(sum)) << 16;
  }
}

}  // namespace quant
