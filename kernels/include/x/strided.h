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

/** Storage offset, in elements, of the i-th element in row-major order. */
X_DEVICE u64 stridedOffset(u64 i, u64 num_dims, const u64* dims, const u64* strides) {
  u64 offset = 0;
  for (u64 d = num_dims; d-- > 0;) {
    const u64 size = dims[d];
    u64 quotient;
    // GPUs have no integer divider: 32-bit division is several times cheaper than 64-bit.
    if (((i | size) >> 32) == 0) quotient = (u32)i / (u32)size;
    else quotient = i / size;
    offset += (i - quotient * size) * strides[d];
    i = quotient;
  }
  return offset;
}
