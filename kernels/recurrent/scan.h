// The selective scan of Mamba: a state of n values for each channel, which decay by numbers of their own. A thread has a
// channel, of which it goes through the sequence once for each PIECE of values that it has in registers; n is a multiple.
#pragma once

namespace recurrent {

constexpr u32 PIECE = 16;  // launchers: SCAN_PIECE
/** Channels that a thread takes at once: on the host what one cache line of a row holds. */
constexpr u32 SIDE = X_HOST ? 16 : 1;

struct Scan {
  Spans at;
  u32 channels, n;
  const float* x;  // [rows, channels], as dt; rows begin every so many values
  u64 xRow;
  const float* dt;
  u64 dtRow;
  const float* dtBias;  // [channels]
  const float* a;       // [channels, n]
  const float* b;       // [rows, n], as c
  u64 bRow;
  const float* c;
  u64 cRow;
  const float* d;  // [channels]
  float* states;   // [slots, channels, n]
  float* out;      // [rows, channels]

  X_DEVICE void piece(u32 sequence, u32 channel, u32 count, u32 begin) const {
    const u64 size = (u64)channels * n;
    const float* first = at.first(states, sequence, size);
    float* last = at.last(states, sequence, size);
    float h[SIDE][PIECE], decay[SIDE][PIECE];
#pragma unroll
    for (u32 j = 0; j < SIDE; ++j) {
#pragma unroll
      for (u32 e = 0; e < PIECE; ++e) {
        const u64 place = (u64)(channel + j) * n + begin + e;
        h[j][e] = j < count && first ? first[place] : 0.0f;
        decay[j][e] = j < count ? a[place] : 0.0f;
      }
    }
    const u64 end = at.end(sequence);
    for (u64 row = at.starts[sequence]; row < end; ++row) {
      float write[PIECE], read[PIECE];
#pragma unroll
      for (u32 e = 0; e < PIECE; ++e) {
        write[e] = b[row * bRow + begin + e];
        read[e] = c[row * cRow + begin + e];
      }
#pragma unroll
      for (u32 j = 0; j < SIDE; ++j) {
        if (j >= count) break;
        const u32 own = channel + j;
        const float value = x[row * xRow + own], step = softplus(dt[row * dtRow + own] + dtBias[own]);
        float sum = 0.0f;
#pragma unroll
        for (u32 e = 0; e < PIECE; ++e) {
          h[j][e] = m::exp(step * decay[j][e]) * h[j][e] + step * value * write[e];
          sum += h[j][e] * read[e];
        }
        float* y = out + row * channels + own;
        *y = (begin == 0 ? d[own] * value : *y) + sum;
      }
    }
    if (!last) return;
#pragma unroll
    for (u32 j = 0; j < SIDE; ++j) {
#pragma unroll
      for (u32 e = 0; e < PIECE; ++e)
        if (j < count) last[(u64)(channel + j) * n + begin + e] = h[j][e];
    }
  }
};

X_DEVICE void scan(const Scan& p) {
  early::await();
  early::letNextBegin();
  const u32 sides = (p.channels + SIDE - 1) / SIDE;
  X_FOR_EACH(item, (u64)p.at.sequences * sides) {
    const u32 channel = (u32)(item % sides) * SIDE, left = p.channels - channel;
    for (u32 begin = 0; begin < p.n; begin += PIECE)
      p.piece((u32)(item / sides), channel, left < SIDE ? left : SIDE, begin);
  }
}

}  // namespace recurrent
