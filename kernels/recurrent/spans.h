// Sequences one behind the other in the rows of a batch, and where their states lie in a pool.
#pragma once

namespace recurrent {

struct Spans {
  u32 sequences;
  u64 rows;
  const u32* starts;  // [sequences + 1]: the first row of each, and behind the last one the number of rows
  const u32 *from, *to;  // [sequences]; a slot beyond the pool is zeros to read, and not written
  u32 slots;

  /** Behind the last row of a sequence; never behind all rows, whatever a caller wrote into `starts`. */
  X_DEVICE u32 end(u32 sequence) const {
    // In 32 bits, as starts are: 64 take scalar registers that the delta rule has none left of.
    const u32 next = starts[sequence + 1], all = (u32)rows;
    return next < all ? next : all;
  }
  /** The sequence of a row. */
  X_DEVICE u32 of(u64 row) const {
    u32 low = 0, high = sequences;
    while (high - low > 1) {
      const u32 middle = (low + high) / 2;
      if (starts[middle] <= row) low = middle;
      else high = middle;
    }
    return low;
  }
  /** The state that a sequence begins with, or null for zeros. @param size values of a state */
  X_DEVICE const float* first(const float* states, u32 sequence, u64 size) const {
    return from[sequence] < slots ? states + from[sequence] * size : nullptr;
  }
  /** Where its last state goes, or null. */
  X_DEVICE float* last(float* states, u32 sequence, u64 size) const {
    return to[sequence] < slots ? states + to[sequence] * size : nullptr;
  }
};

X_DEVICE float softplus(float x) { return (x < 0.0f ? 0.0f : x) + m::log1p(m::exp(-m::abs(x))); }
X_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + m::exp(-x)); }

}  // namespace recurrent
