// Blocks to values: dequantize_block_* and get_rows_*. candle gives each format its own thread layout; here a thread takes
// quads of four elements (a host thread groups of 32), so any block size covers everything.
#pragma once

namespace quant {

template <class T>
X_DEVICE void store4(T* y, const float* values) {
  Vec<T, 4> v;
#pragma unroll
  for (u32 i = 0; i < 4; ++i) v[i] = from_acc<T>(values[i]);
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

/** As {@link dequantizeAll}, two quads a thread and an access of 16 bytes for elements of 2. */
template <class Q, class T>
X_DEVICE void dequantizePairs(const u8* x, T* y, u64 blocks) {
#if X_HOST
  dequantizeAll<Q>(x, y, blocks);
#else
  const u64 pairs = blocks * (Q::SIZE / 8), step = split::blocks() * blockThreads();
  for (u64 pair = split::block() * blockThreads() + threadIndex(); pair < pairs; pair += step) {
    const u8* block = x + pair / (Q::SIZE / 8) * Q::BYTES;
    const u32 quad = (u32)(pair % (Q::SIZE / 8)) * 2;
    float values[8];
    dequantizeQuad<Q>(block, quad, values);
    dequantizeQuad<Q>(block, quad + 1, values + 4);
    Vec<T, 8> v;
#pragma unroll
    for (u32 i = 0; i < 8; ++i) v[i] = from_acc<T>(values[i]);
    storeVec(y + pair * 8, v);
  }
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

}  // namespace quant
