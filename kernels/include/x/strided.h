// Layouts as candle passes them: `info` is dims followed by strides (elements) in device memory.
#pragma once

/** Whether the strides are those of a row-major tensor; axes of size 1 do not count (candle's is_contiguous). */
X_DEVICE bool isContiguous(u64 num_dims, const u64* dims, const u64* strides) {
  u64 expected = 1;
  for (u64 d = num_dims; d-- > 0;) {
    if (dims[d] > 1 && strides[d] != expected) return false;
    expected *= dims[d];
  }
  return true;
}

/**
 * a / b, by 32-bit division where that is enough: it is several times cheaper than 64-bit. For AMD's GPUs clang asks that
 * itself, in its last steps, and a division is one instruction up to there.
 */
X_DEVICE u64 quotientOf(u64 a, u64 b) {
#if X_HOST || X_NVRTC || X_NVPTX
  if (((a | b) >> 32) == 0) return (u32)a / (u32)b;
#endif
  return a / b;
}

/** Storage offset, in elements, of the i-th element in row-major order. */
X_OUTLINED u64 stridedOffset(u64 i, u64 num_dims, const u64* dims, const u64* strides) {
  u64 offset = 0;
  for (u64 d = num_dims; d-- > 0;) {
    const u64 size = dims[d];
    const u64 quotient = quotientOf(i, size);
    offset += (i - quotient * size) * strides[d];
    i = quotient;
  }
  return offset;
}
