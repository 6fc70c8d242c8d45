// The selective scan of Mamba (scan.h), a chunk of rows at a time: for prompts. Four threads share a channel, so that few
// channels fill a GPU. The next rows are on their way from memory while a chunk is computed, and steps are made once a row
// and channel. The host, which has one thread for them, goes row by row.
#pragma once

namespace recurrent {

#if X_HOST
X_DEVICE void scanChunks(const Scan& p) { scan(p); }
#else

/** Threads of a block: exactly so many. Rows go through registers SCAN_TURN at a time, whose sums are exchanged together. */
constexpr u32 SCAN_THREADS = 128;  // launchers: SCAN_CHUNK_THREADS
constexpr u32 SCAN_LANES = 4;  // launchers: SCAN_CHUNK_LANES
constexpr u32 SCAN_CHANNELS = SCAN_THREADS / SCAN_LANES, SCAN_ROWS = 16, SCAN_TURN = 4;

X_DEVICE u32 rowsLeft(u64 row, u64 end) { return end - row < SCAN_ROWS ? (u32)(end - row) : SCAN_ROWS; }

struct ScanChunk {
  Vec<float, 2> steps[SCAN_ROWS * SCAN_CHANNELS];  // step, and step times x
  float x[SCAN_ROWS * SCAN_CHANNELS];
  float b[SCAN_ROWS * PIECE], c[SCAN_ROWS * PIECE];
};

/** A thread's part of a chunk on its way. Rows from `count` on are steps of 0. */
struct ScanLoad {
  static constexpr u32 VALUES = SCAN_ROWS * SCAN_CHANNELS / SCAN_THREADS, WEIGHTS = SCAN_ROWS * PIECE / SCAN_THREADS;
  static constexpr u32 STEP = SCAN_ROWS / VALUES, WEIGHT_STEP = SCAN_ROWS / WEIGHTS;  // from a thread's row to its next
  float x[VALUES], dt[VALUES], b[WEIGHTS], c[WEIGHTS];

  X_DEVICE void begin(const Scan& p, u64 row, u32 count, u32 channel0, u32 piece) {
    const u32 thread = opaque(threadIndex()), channel = channel0 + thread % SCAN_CHANNELS;
    const u32 first = thread / SCAN_CHANNELS, weights = thread / PIECE;
    const u32 rows = channel < p.channels ? count : 0;
    const float *xs = p.x + (row + first) * p.xRow + channel, *dts = p.dt + (row + first) * p.dtRow + channel;
#pragma unroll
    for (u32 i = 0; i < VALUES; ++i) {
      const bool inside = first + i * STEP < rows;
      x[i] = inside ? *xs : 0.0f;
      dt[i] = inside ? *dts : 0.0f;
      xs += STEP * p.xRow, dts += STEP * p.dtRow;
    }
    const u64 e = piece + thread % PIECE;
    const float *bs = p.b + (row + weights) * p.bRow + e, *cs = p.c + (row + weights) * p.cRow + e;
#pragma unroll
    for (u32 i = 0; i < WEIGHTS; ++i) {
      const bool inside = weights + i * WEIGHT_STEP < count;
      b[i] = inside ? *bs : 0.0f;
      c[i] = inside ? *cs : 0.0f;
      bs += WEIGHT_STEP * p.bRow, cs += WEIGHT_STEP * p.cRow;
    }
  }

  /** @param bias of the channel whose values the thread brings */
  X_DEVICE void end(ScanChunk& to, u32 count, float bias) const {
#pragma unroll
    for (u32 i = 0; i < VALUES; ++i) {
      const u32 place = threadIndex() + i * SCAN_THREADS;
      const float step = place / SCAN_CHANNELS < count ? softplus(dt[i] + bias) : 0.0f;
      to.steps[place] = {step, step * x[i]};
      to.x[place] = x[i];
    }
#pragma unroll
    for (u32 i = 0; i < WEIGHTS; ++i) {
      to.b[threadIndex() + i * SCAN_THREADS] = b[i];
      to.c[threadIndex() + i * SCAN_THREADS] = c[i];
    }
  }
};

/** A thread's values of a channel's state. */
struct ScanState {
  static constexpr u32 EACH = PIECE / SCAN_LANES;
  // Threads whose lanes differ in the lowest bits read the same b and c.
  static constexpr u32 STRIDE = WARP / SCAN_LANES;
  u32 part, own;  // of the block's channels
  float h[EACH], rate[EACH];

  X_DEVICE ScanState() {
    part = laneId() / STRIDE;
    own = warpId() * STRIDE + laneId() % STRIDE;
  }

  X_DEVICE void load(const float* a, const float* first, u64 place, bool inside) {
#pragma unroll
    for (u32 e = 0; e < EACH; ++e) {
      h[e] = inside && first ? first[place + part * EACH + e] : 0.0f;
      rate[e] = inside ? a[place + part * EACH + e] * 1.44269504f : 0.0f;  // of 2 to that power
    }
  }

  /** SCAN_TURN rows from `row` of a chunk on. @return the sum of row + `part` */
  X_DEVICE float advance(const ScanChunk& chunk, u32 row) {
    float sums[SCAN_TURN] = {};
#pragma unroll
    for (u32 r = 0; r < SCAN_TURN; ++r) {
      const Vec<float, 2> step = loadVec<2>((const float*)(chunk.steps + (row + r) * SCAN_CHANNELS + own));
      const Vec<float, EACH> b = loadVec<EACH>(chunk.b + (row + r) * PIECE + part * EACH);
      const Vec<float, EACH> c = loadVec<EACH>(chunk.c + (row + r) * PIECE + part * EACH);
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) {
        h[e] = rough::exp2Normal(step[0] * rate[e]) * h[e] + step[1] * b[e];
        sums[r] += h[e] * c[e];
      }
    }
    return sumOfPart<SCAN_LANES, STRIDE>(sums, part);
  }
};

/** A block a sequence and part of its channels. */
X_DEVICE void scanChunks(const Scan& p) {
  static_assert(SCAN_TURN == SCAN_LANES, "a thread has the sum of one row");
  X_SHARED(ScanChunk, chunks, 2);
  early::await();
  early::letNextBegin();
  const u32 parts = (p.channels + SCAN_CHANNELS - 1) / SCAN_CHANNELS;
  const u64 size = (u64)p.channels * p.n;
  ScanState state;
  ScanLoad load;
  u32 turn = 0;
  X_FOR_SPLIT(item, (u64)p.at.sequences * parts) {
    const u32 sequence = (u32)(item / parts), channel0 = (u32)(item % parts) * SCAN_CHANNELS;
    const u32 channel = channel0 + state.own, brought = channel0 + threadIndex() % SCAN_CHANNELS;
    const bool inside = channel < p.channels;
    const float* first = p.at.first(p.states, sequence, size);
    float* last = p.at.last(p.states, sequence, size);
    const u64 start = p.at.starts[sequence], end = p.at.end(sequence);
    const float bias = brought < p.channels ? p.dtBias[brought] : 0.0f, skip = inside ? p.d[channel] : 0.0f;
    for (u32 begin = 0; begin < p.n; begin += PIECE) {
      const u64 place = (u64)channel * p.n + begin;
      state.load(p.a, first, place, inside);
      if (start < end) load.begin(p, start, rowsLeft(start, end), channel0, begin);
      for (u64 row = start; row < end; row += SCAN_ROWS, turn ^= 1) {
        // What others may still read is the chunk before, in the other place.
        const u32 count = rowsLeft(row, end);
        const u64 next = row + SCAN_ROWS;
        load.end(chunks[turn], count, bias);
        barrier();
        if (next < end) load.begin(p, next, rowsLeft(next, end), channel0, begin);
#pragma unroll 1
        for (u32 r = 0; r < count; r += SCAN_TURN) {
          const float sum = state.advance(chunks[turn], r);
          const u32 t = r + state.part;
          if (inside && t < count) {
            float* y = p.out + (row + t) * p.channels + channel;
            *y = (begin == 0 ? skip * chunks[turn].x[t * SCAN_CHANNELS + state.own] : *y) + sum;
          }
        }
      }
      if (!last || !inside) continue;
#pragma unroll
      for (u32 e = 0; e < ScanState::EACH; ++e) last[place + state.part * ScanState::EACH + e] = state.h[e];
    }
  }
}

#endif

}  // namespace recurrent
