// States that decay by one number a row (decayed.h), several rows at a time: for prompts. What the rows of a chunk do to each
// other depends on no state and is in a table (chunk-tables.h), so that with S the state before the chunk and t, i its rows
//   rest_t = v_t - known_t (S k_t)                          of Mamba 2 just v_t
//   out_t = before_t (S q_t) + sum over i of read_ti rest_i
//   S' = decay S + sum over t of (sum over i of write_ti rest_i) k_tT
// The products with S of all rows are independent, and a state is written once a chunk. The next chunk is on its way from
// memory while one is computed.
#pragma once

namespace recurrent {

constexpr u32 CHUNK = 8;  // launchers: RECURRENT_CHUNK

/** The table of a chunk and head: where its parts begin. write of Mamba 2 is a diagonal. */
template <bool DELTA>
struct ChunkTable {
  static constexpr u32 READ = 0, BEFORE = CHUNK * CHUNK, WRITE = BEFORE + CHUNK;
  static constexpr u32 KNOWN = WRITE + (DELTA ? CHUNK * CHUNK : CHUNK), DECAY = KNOWN + (DELTA ? CHUNK : 0);
  static constexpr u32 SIZE = DECAY + 4;  // whole vectors of 16 bytes
};

/** The number of a sequence's first chunk. All are below rows / CHUNK + sequences; some stand for no chunk. */
X_DEVICE u64 firstChunk(const Spans& at, u32 sequence) { return (u64)at.starts[sequence] / CHUNK + sequence; }
/** Rows of the chunk that begins at `row` of a sequence that goes to `end`. */
X_DEVICE u32 rowsOfChunk(u64 row, u64 end) { return end - row < CHUNK ? (u32)(end - row) : CHUNK; }

#if X_HOST

/** The host goes row by row, without tables. */
template <u32 KEYS, class Rule>
X_DEVICE void decayedChunks(const Decayed& p, const Rule& rule, const float*) {
  decayed<KEYS>(p, rule);
}

#else

/** Threads of a block: exactly so many. */
constexpr u32 CHUNK_THREADS = 128;  // launchers: RECURRENT_CHUNK_THREADS

/**
 * Sums each of N values over LANES threads that are STRIDE lanes apart; a thread gets that of value `part` % N, where `part` is
 * its place among them. Each step halves what a thread has.
 */
template <u32 LANES, u32 STRIDE, u32 N>
X_DEVICE float sumOfPart(float (&v)[N], u32 part) {
#pragma unroll
  for (u32 half = N / 2; half > 0; half /= 2) {
    const bool upper = (part & half) != 0;
#pragma unroll
    for (u32 i = 0; i < N / 2; ++i) {
      if (i >= half) continue;
      const float kept = upper ? v[i + half] : v[i], given = upper ? v[i] : v[i + half];
      v[i] = kept + shuffleXor(given, half * STRIDE);
    }
  }
#pragma unroll
  for (u32 mask = N; mask < LANES; mask *= 2) v[0] += shuffleXor(v[0], mask * STRIDE);
  return v[0];
}

/** LANES threads share 4 columns of a state, of which each has EACH keys, four of them beside each other. */
template <u32 KEYS, bool DELTA>
struct ChunkShape {
  static constexpr u32 LANES = KEYS == 256 || (DELTA && KEYS == 128) ? 16 : 8;
  static constexpr u32 EACH = KEYS / LANES, GROUPS = CHUNK_THREADS / LANES;
  /** Whether NVIDIA's units do it (chunk-tiles.h): warps have 16 columns each. Registers have no room for states of longer keys. */
  static constexpr bool TILED = X_MMA_NVIDIA && KEYS <= 128;
  static constexpr u32 WIDTH = TILED ? CHUNK_THREADS / WARP * 16 : GROUPS * 4;  // columns of a block
  static constexpr u32 PITCH = TILED ? KEYS + 8 : KEYS;  // lanes read the same keys of all rows at once
  static constexpr u32 SUMS = DELTA ? 8 : 4;     // S k and S q of four columns, or S q
  static constexpr u32 COLUMNS = 4 * CHUNK / LANES;  // that a thread has of a row's results
  // Threads whose lanes differ in the lowest bits read the same keys.
  static constexpr u32 STRIDE = WARP / LANES;
  // Of what a group exchanges; groups of a warp begin in different banks.
  static constexpr u32 HELD = TILED ? 0 : CHUNK * (SUMS + 4) + 8;
};

template <u32 KEYS, bool DELTA>
struct Chunk {
  typedef ChunkShape<KEYS, DELTA> Shape;
  alignas(16) float k[CHUNK * Shape::PITCH], q[CHUNK * Shape::PITCH];
  float v[CHUNK * Shape::WIDTH];
  alignas(16) float table[ChunkTable<DELTA>::SIZE];
};

/** A thread's part of a chunk on its way. Rows from `count` on are zeros. */
template <u32 KEYS, bool DELTA>
struct ChunkLoad {
  typedef ChunkShape<KEYS, DELTA> Shape;
  static constexpr u32 WIDTH = Shape::WIDTH, PITCH = Shape::PITCH, FOURS = CHUNK * KEYS / 4;
  static constexpr u32 EACH = (FOURS + CHUNK_THREADS - 1) / CHUNK_THREADS, VALUES = CHUNK * WIDTH / CHUNK_THREADS;
  static constexpr u32 TABLE = ChunkTable<DELTA>::SIZE / 4;
  Vec<float, 4> k[EACH], q[EACH], table;
  float v[VALUES];

  static X_DEVICE Vec<float, 4> four(const float* from, bool wide) {
    if (wide) return loadVec<4>(from);
    return {from[0], from[1], from[2], from[3]};
  }

  /** @param wide whether rows of keys and queries begin at multiples of 16 bytes */
  X_DEVICE void begin(const Decayed& p, const float* tables, bool wide, u64 row, u32 count, u64 chunk, u32 head,
                      u32 keyHead, u32 column) {
    const u32 thread = opaque(threadIndex());
    const u32 t0 = thread / (KEYS / 4), key = keyHead * KEYS + thread % (KEYS / 4) * 4;
    const float *ks = p.k + (row + t0) * p.kRow + key, *qs = p.q + (row + t0) * p.qRow + key;
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) {
      constexpr u32 STEP = CHUNK_THREADS / (KEYS / 4);
      k[i] = q[i] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (t0 + i * STEP >= count) continue;
      k[i] = four(ks, wide);
      q[i] = four(qs, wide);
      ks += STEP * p.kRow, qs += STEP * p.qRow;
    }
    const u32 first = thread / WIDTH, own = column + thread % WIDTH, rows = own < p.valueDim ? count : 0;
    const float* vs = p.v + (row + first) * p.vRow + (u64)head * p.valueDim + own;
#pragma unroll
    for (u32 i = 0; i < VALUES; ++i) {
      constexpr u32 STEP = CHUNK_THREADS / WIDTH;
      v[i] = first + i * STEP < rows ? *vs : 0.0f;
      vs += STEP * p.vRow;
    }
    if (thread < TABLE) table = loadVec<4>(tables + (chunk * p.heads + head) * ChunkTable<DELTA>::SIZE + thread * 4);
  }

  X_DEVICE void end(Chunk<KEYS, DELTA>& to) const {
    const u32 thread = threadIndex();
#pragma unroll
    for (u32 i = 0; i < EACH; ++i) {
      const u32 place = thread + i * CHUNK_THREADS;
      if (place >= FOURS) continue;
      const u32 at = place / (KEYS / 4) * PITCH + place % (KEYS / 4) * 4;
      storeVec(to.k + at, k[i]);
      storeVec(to.q + at, q[i]);
    }
#pragma unroll
    for (u32 i = 0; i < VALUES; ++i) to.v[thread + i * CHUNK_THREADS] = v[i];
    if (thread < TABLE) storeVec(to.table + thread * 4, table);
  }
};

/** Rows whose products are under way together: a warp that is alone waits for each exchange between lanes. */
constexpr u32 UNROLLED = X_NVPTX ? CHUNK : 2;

/** A thread's keys of its group's four columns. */
template <u32 KEYS, bool DELTA>
struct ChunkState {
  typedef ChunkShape<KEYS, DELTA> Shape;
  typedef ChunkTable<DELTA> Table;
  static constexpr u32 LANES = Shape::LANES, EACH = Shape::EACH, SUMS = Shape::SUMS, COLUMNS = Shape::COLUMNS;
  u32 part, group;
  float* held;  // of the group: [CHUNK][SUMS], then what is written, [CHUNK][4]
  float s[4][EACH];

  X_DEVICE ChunkState(float* shared) {
    part = laneId() / Shape::STRIDE;
    group = warpId() * Shape::STRIDE + laneId() % Shape::STRIDE;
    held = shared + group * Shape::HELD;
  }

  /** Of its block's columns, the group's first. */
  X_DEVICE u32 first() const { return group * 4; }
  X_DEVICE u32 key(u32 e) const { return e / 4 * 4 * LANES + part * 4 + e % 4; }

  /** @param from the head's [valueDim, KEYS] from the group's first column on, or null; columns from `left` on are none */
  X_DEVICE void load(const float* from, u32 left) {
#pragma unroll
    for (u32 c = 0; c < 4; ++c)
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) s[c][e] = from && c < left ? from[(u64)c * KEYS + key(e)] : 0.0f;
  }
  X_DEVICE void store(float* to, u32 left) const {
#pragma unroll
    for (u32 c = 0; c < 4; ++c)
#pragma unroll
      for (u32 e = 0; e < EACH; ++e)
        if (c < left) to[(u64)c * KEYS + key(e)] = s[c][e];
  }

  /** What the state has for a row's keys and queries: of value `part` % SUMS. */
  X_DEVICE float product(const Chunk<KEYS, DELTA>& chunk, u32 t) const {
    float sums[SUMS] = {};
#pragma unroll
    for (u32 e = 0; e < EACH; e += 4) {
      const Vec<float, 4> q = loadVec<4>(chunk.q + t * KEYS + key(e));
#pragma unroll
      for (u32 c = 0; c < 4; ++c)
#pragma unroll
        for (u32 i = 0; i < 4; ++i) sums[SUMS - 4 + c] += s[c][e + i] * q[i];
      if constexpr (DELTA) {
        const Vec<float, 4> k = loadVec<4>(chunk.k + t * KEYS + key(e));
#pragma unroll
        for (u32 c = 0; c < 4; ++c)
#pragma unroll
          for (u32 i = 0; i < 4; ++i) sums[c] += s[c][e + i] * k[i];
      }
    }
    return sumOfPart<LANES, Shape::STRIDE>(sums, part);
  }

  /** Goes through a chunk of `count` rows. @param out of its first row and the group's first column */
  X_DEVICE void advance(const Chunk<KEYS, DELTA>& chunk, u32 count, float* out, u64 outRow, u32 left) {
    const u32 lane = opaque(part);  // masks of lanes are made again for each chunk
    const bool isRest = DELTA && lane % SUMS < 4;
    const float* factors = chunk.table + (isRest ? Table::KNOWN : Table::BEFORE);
#pragma unroll UNROLLED
    for (u32 t = 0; t < CHUNK; ++t) {
      const float known = factors[t] * product(chunk, t);
      float value = known;
      if constexpr (DELTA) value = isRest ? chunk.v[t * Shape::WIDTH + group * 4 + lane % 4] - known : known;
      if (lane < SUMS) held[t * SUMS + lane] = value;
    }
    warpBarrier();
    results(chunk, count, out, outRow, left);
    warpBarrier();
    const float decay = chunk.table[Table::DECAY];
#pragma unroll
    for (u32 c = 0; c < 4; ++c)
#pragma unroll
      for (u32 e = 0; e < EACH; ++e) s[c][e] *= decay;
#pragma unroll UNROLLED
    for (u32 t = 0; t < CHUNK; ++t) {
      const Vec<float, 4> write = loadVec<4>(held + CHUNK * SUMS + t * 4);
#pragma unroll
      for (u32 e = 0; e < EACH; e += 4) {
        const Vec<float, 4> k = loadVec<4>(chunk.k + t * KEYS + key(e));
#pragma unroll
        for (u32 c = 0; c < 4; ++c)
#pragma unroll
          for (u32 i = 0; i < 4; ++i) s[c][e + i] += write[c] * k[i];
      }
    }
  }

  static X_DEVICE void loadRow(float (&to)[CHUNK], const float* from) {
#pragma unroll
    for (u32 i = 0; i < CHUNK; i += 4) {
      const Vec<float, 4> four = loadVec<4>(from + i);
#pragma unroll
      for (u32 j = 0; j < 4; ++j) to[i + j] = four[j];
    }
  }

  /** A row and COLUMNS of the group's columns: what is read, and what is written along the row's key. */
  X_DEVICE void results(const Chunk<KEYS, DELTA>& chunk, u32 count, float* out, u64 outRow, u32 left) const {
    const u32 t = opaque(part) % CHUNK, first = part / CHUNK * COLUMNS;
    typedef Vec<float, COLUMNS> Columns;
    float reads[CHUNK], writes[CHUNK];
    loadRow(reads, chunk.table + Table::READ + t * CHUNK);
    if constexpr (DELTA) loadRow(writes, chunk.table + Table::WRITE + t * CHUNK);
    Columns read = loadVec<COLUMNS>(held + t * SUMS + SUMS - 4 + first), write = {};
#pragma unroll
    for (u32 i = 0; i < CHUNK; ++i) {
      Columns rest;
      if constexpr (DELTA) rest = loadVec<COLUMNS>(held + i * SUMS + first);
      else rest = loadVec<COLUMNS>(chunk.v + i * Shape::WIDTH + group * 4 + first);
#pragma unroll
      for (u32 c = 0; c < COLUMNS; ++c) {
        // A row that is not finite does nothing to those before it.
        const float value = i <= t ? rest[c] : 0.0f;
        read[c] += reads[i] * value;
        if constexpr (DELTA) write[c] += writes[i] * value;
        else if (i == t) write[c] = chunk.table[Table::WRITE + t] * value;
      }
    }
    storeVec(held + CHUNK * SUMS + t * 4 + first, write);
#pragma unroll
    for (u32 c = 0; c < COLUMNS; ++c)
      if (t < count && first + c < opaque(left)) out[t * outRow + first + c] = read[c];
  }
};

#endif

}  // namespace recurrent
