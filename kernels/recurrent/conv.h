// A short convolution along each sequence: a row's value in a channel is a weighted sum of that channel in the last rows, of
// which those in front of the sequence's are its state. Gates may multiply what goes in and what comes out.
#pragma once

namespace recurrent {

/** Rows that a thread goes through on GPUs, and taps whose values it has in registers meanwhile. */
[[maybe_unused]] constexpr u32 CONV_ROWS = 8;  // launchers: CONV_ROWS
[[maybe_unused]] constexpr u32 CONV_TAPS = 4;

/** Factors of rows, which begin as those of x do; null: none. With strides of their own there are not enough scalar registers. */
struct Gates {
  const float *in, *out;
};

struct Conv {
  Spans at;
  u32 channels, taps;  // the last tap is the row itself
  bool silu;
  const float* x;  // rows begin every xRow values
  u64 xRow;
  const float* weight;  // [channels, taps]
  const float* bias;    // [channels], or null
  float* states;        // [slots, taps - 1, channels]
  float* out;           // [rows, channels]
  Gates gates;

  /** A channel of a row, as it goes in. */
  X_DEVICE float input(u64 row, u32 channel) const {
    const float own = x[row * xRow + channel];
    return gates.in ? gates.in[row * xRow + channel] * own : own;
  }

  /** What comes out of a row's sum. */
  X_DEVICE void put(u64 row, u32 channel, float sum) const {
    const float own = silu ? sum * sigmoid(sum) : sum;
    out[row * channels + channel] = gates.out ? gates.out[row * xRow + channel] * own : own;
  }

  /** A channel at a place of a sequence, which begins at row `begin`; places below 0 are in front of it. */
  X_DEVICE float value(u64 begin, i32 place, u32 channel, const float* state) const {
    if (place >= 0) return input(begin + (u32)place, channel);
    return state ? state[(u64)(taps - 1 + place) * channels + channel] : 0.0f;
  }

  X_DEVICE void compute(u64 row, u32 sequence, u32 channel) const {
    const u64 begin = at.starts[sequence], size = (u64)(taps - 1) * channels;
    const float* state = at.first(states, sequence, size);
    const i32 place = (i32)(row - begin);
    float sum = bias ? bias[channel] : 0.0f;
    for (u32 tap = 0; tap < taps; ++tap)
      sum += weight[(u64)channel * taps + tap] * value(begin, place - (i32)(taps - 1 - tap), channel, state);
    put(row, channel, sum);
    if (row + 1 != at.starts[sequence + 1]) return;
    float* next = at.last(states, sequence, size);
    if (!next) return;
    for (u32 i = 0; i + 1 < taps; ++i)
      next[(u64)i * channels + channel] = value(begin, place - (i32)(taps - 2 - i), channel, state);
  }

#if !X_HOST
  /** The same of rows [row, end), of up to CONV_TAPS taps: a row's values are the last ones of what the thread holds. */
  X_DEVICE void computeRows(u64 row, u64 end, u32 channel) const {
    const u32 absent = CONV_TAPS - taps;
    const float base = bias ? bias[channel] : 0.0f;
    float weights[CONV_TAPS], held[CONV_TAPS];
#pragma unroll
    for (u32 i = 0; i < CONV_TAPS; ++i) weights[i] = i < absent ? 0.0f : weight[(u64)channel * taps + i - absent];
    u32 sequence = at.of(row);
    u64 begin = at.starts[sequence], next = at.end(sequence);
    bool fresh = true;
    for (; row < end; ++row) {
      while (row >= next && sequence + 1 < at.sequences)
        begin = at.starts[++sequence], next = at.end(sequence), fresh = true;
      const i32 place = (i32)(row - begin);
      if (fresh) {
        const float* state = at.first(states, sequence, (u64)(taps - 1) * channels);
#pragma unroll
        for (u32 i = 0; i + 1 < CONV_TAPS; ++i)
          held[i + 1] = i < absent ? 0.0f : value(begin, place - (i32)(CONV_TAPS - 1 - i), channel, state);
        fresh = false;
      }
#pragma unroll
      for (u32 i = 0; i + 1 < CONV_TAPS; ++i) held[i] = held[i + 1];
      held[CONV_TAPS - 1] = input(row, channel);
      float sum = base;
#pragma unroll
      for (u32 i = 0; i < CONV_TAPS; ++i)
        if (i >= absent) sum += weights[i] * held[i];
      put(row, channel, sum);
      if (row + 1 != next) continue;
      float* last = at.last(states, sequence, (u64)(taps - 1) * channels);
      if (!last) continue;
#pragma unroll
      for (u32 i = 1; i < CONV_TAPS; ++i)
        if (i > absent) last[(u64)(i - 1 - absent) * channels + channel] = held[i];
    }
  }
#endif
};

/** A block a row, or a few of them, and a part of the channels. */
X_DEVICE void convolve(const Conv& p) {
  early::await();
  early::letNextBegin();
#if !X_HOST
  if (p.taps <= CONV_TAPS) {
    const u32 parts = (p.channels + blockThreads() - 1) / blockThreads();
    X_FOR_SPLIT(item, (p.at.rows + CONV_ROWS - 1) / CONV_ROWS * parts) {
      const u64 row = item / parts * CONV_ROWS;
      const u32 channel = (u32)(item % parts) * blockThreads() + threadIndex();
      if (channel < p.channels) p.computeRows(row, row + CONV_ROWS < p.at.rows ? row + CONV_ROWS : p.at.rows, channel);
    }
    return;
  }
#endif
  const u32 width = X_HOST ? p.channels : blockThreads();
  const u32 parts = (p.channels + width - 1) / width;
  X_FOR_SPLIT(item, p.at.rows * parts) {
    const u64 row = item / parts;
    const u32 sequence = p.at.of(row), begin = (u32)(item % parts) * width;
    const u32 left = p.channels - begin;
    X_FOR_BLOCK(i, left < width ? left : width) p.compute(row, sequence, begin + (u32)i);
  }
}

}  // namespace recurrent
