// A short convolution along each sequence: a row's value in a channel is a weighted sum of that channel in the last rows, of
// which those in front of the sequence's are its state.
#pragma once

namespace recurrent {

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

  /** A channel at a place of a sequence, which begins at row `begin`; places below 0 are in front of it. */
  X_DEVICE float value(u64 begin, i32 place, u32 channel, const float* state) const {
    if (place >= 0) return x[(begin + (u32)place) * xRow + channel];
    return state ? state[(u64)(taps - 1 + place) * channels + channel] : 0.0f;
  }

  X_DEVICE void compute(u64 row, u32 sequence, u32 channel) const {
    const u64 begin = at.starts[sequence], size = (u64)(taps - 1) * channels;
    const float* state = at.first(states, sequence, size);
    const i32 place = (i32)(row - begin);
    float sum = bias ? bias[channel] : 0.0f;
    for (u32 tap = 0; tap < taps; ++tap)
      sum += weight[(u64)channel * taps + tap] * value(begin, place - (i32)(taps - 1 - tap), channel, state);
    out[row * channels + channel] = silu ? sum * sigmoid(sum) : sum;
    if (row + 1 != at.starts[sequence + 1]) return;
    float* next = at.last(states, sequence, size);
    if (!next) return;
    for (u32 i = 0; i + 1 < taps; ++i)
      next[(u64)i * channels + channel] = value(begin, place - (i32)(taps - 2 - i), channel, state);
  }
};

/** A block a row and a part of its channels. */
X_DEVICE void convolve(const Conv& p) {
  early::await();
  early::letNextBegin();
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
