// The states of chunks.h on NVIDIA's matrix units: a warp has 16 columns of a state as the results of products of 16 x 8 x 8, whose
// eight rows or depths are a chunk's. Numbers are split into two of 11 bits (tf32), of which all but the product of the lower parts is
// computed. The units cut off what does not fit a sum, so sums of eight are added up here: results are those of f32 but for a unit or so
// in the last place.
// Which keys and rows of a chunk a product's depths are is ours to say: depth t is number 2t of eight and depth t + 4 the one behind
// it, so that what one product gives is another's left operand as it lies in registers. PTX ISA "mma.m16n8k8".
#pragma once

#if X_MMA_NVIDIA
namespace recurrent {

/** A number as the sum of two. */
struct Halves {
  u32 high, low;

  X_DEVICE Halves() {}
  X_DEVICE explicit Halves(float v) {
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(v));
    // What is behind 11 bits is not looked at; a half there rounds up.
    low = bitCast<u32>(v - bitCast<float>(high)) + 0x1000;
  }
};

/** A left operand, of what lies as a result: 16 columns by numbers 2t and 2t + 1 of eight. */
struct Left {
  Halves v[4];

  X_DEVICE explicit Left(const float (&tile)[4])
      : v{Halves(tile[0]), Halves(tile[2]), Halves(tile[1]), Halves(tile[3])} {}
};

X_DEVICE void multiplyTf32(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/** A product, and added to `small` and `other` what the lower parts add to it: none waits for another. */
X_DEVICE void multiplyHalves(float (&large)[4], float (&small)[4], float (&other)[4], const Left& a, Halves b0, Halves b1) {
#pragma unroll
  for (u32 e = 0; e < 4; ++e) large[e] = 0.0f;
  multiplyTf32(large, a.v[0].high, a.v[1].high, a.v[2].high, a.v[3].high, b0.high, b1.high);
  multiplyTf32(small, a.v[0].low, a.v[1].low, a.v[2].low, a.v[3].low, b0.high, b1.high);
  multiplyTf32(other, a.v[0].high, a.v[1].high, a.v[2].high, a.v[3].high, b0.low, b1.low);
}

/** A warp's 16 columns of a state: element e of a tile of eight keys is of column `column(e)` and key 2 * third + e % 2. */
template <u32 KEYS, bool DELTA>
struct ChunkTiles {
  typedef Chunk<KEYS, DELTA> Staged;
  typedef ChunkTable<DELTA> Table;
  static constexpr u32 TILES = KEYS / 8, PITCH = Staged::Shape::PITCH, WIDTH = Staged::Shape::WIDTH;
  u32 line, third;  // lane / 4 and lane % 4
  float s[TILES][4];

  X_DEVICE ChunkTiles(float*) : line(laneId() / 4), third(laneId() % 4) {}

  X_DEVICE u32 first() const { return warpId() * 16; }
  X_DEVICE u32 column(u32 e) const { return line + e / 2 * 8; }
  /** Of the chunk, the row that element e of a result is of. */
  X_DEVICE u32 row(u32 e) const { return 2 * third + e % 2; }

  /** @param from the head's [valueDim, KEYS] from the warp's first column on, or null; columns from `left` on are none */
  X_DEVICE void load(const float* from, u32 left) {
#pragma unroll
    for (u32 i = 0; i < TILES; ++i)
#pragma unroll
      for (u32 e = 0; e < 4; ++e)
        s[i][e] = from && column(e) < left ? from[(u64)column(e) * KEYS + i * 8 + row(e)] : 0.0f;
  }
  X_DEVICE void store(float* to, u32 left) const {
#pragma unroll
    for (u32 i = 0; i < TILES; ++i)
#pragma unroll
      for (u32 e = 0; e < 4; ++e)
        if (column(e) < left) to[(u64)column(e) * KEYS + i * 8 + row(e)] = s[i][e];
  }

  /** Two neighbouring numbers of the row of a chunk that is this lane's as a right operand. */
  X_DEVICE void pairOf(const float* rows, u32 i, Halves& b0, Halves& b1) const {
    const Vec<float, 2> two = loadVec<2>(rows + line * PITCH + i * 8 + 2 * third);
    b0 = Halves(two[0]), b1 = Halves(two[1]);
  }

  /** What the state has for all rows' queries and, of the delta rule, keys. */
  X_DEVICE void products(const Staged& chunk, float (&known)[4], float (&asked)[4]) const {
    float k[3][4] = {}, q[3][4] = {}, large[4];
#pragma unroll
    for (u32 i = 0; i < TILES; ++i) {
      const Left a(s[i]);
      Halves b0, b1;
      pairOf(chunk.q, i, b0, b1);
      multiplyHalves(large, q[1], q[2], a, b0, b1);
#pragma unroll
      for (u32 e = 0; e < 4; ++e) q[0][e] += large[e];
      if constexpr (DELTA) {
        pairOf(chunk.k, i, b0, b1);
        multiplyHalves(large, k[1], k[2], a, b0, b1);
#pragma unroll
        for (u32 e = 0; e < 4; ++e) k[0][e] += large[e];
      }
    }
#pragma unroll
    for (u32 e = 0; e < 4; ++e) known[e] = k[1][e] + k[2][e] + k[0][e], asked[e] = q[1][e] + q[2][e] + q[0][e];
  }

  /** Goes through a chunk of `count` rows. @param out of its first row and the warp's first column */
  X_DEVICE void advance(const Staged& chunk, u32 count, float* out, u64 outRow, u32 left) {
    float known[4], asked[4], rest[4], write[4] = {};
    products(chunk, known, asked);
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
      rest[e] = chunk.v[row(e) * WIDTH + first() + column(e)];
      if constexpr (DELTA) rest[e] -= chunk.table[Table::KNOWN + row(e)] * known[e];
      asked[e] *= chunk.table[Table::BEFORE + row(e)];
    }
#pragma unroll
    for (u32 i = 0; i < CHUNK; ++i) {
      const u32 from = line * 4 + i / 2;
      const float others[2] = {shuffle(rest[i % 2], from), shuffle(rest[2 + i % 2], from)};
#pragma unroll
      for (u32 e = 0; e < 4; ++e) {
        // A row that is not finite does nothing to those before it.
        const float value = i <= row(e) ? others[e / 2] : 0.0f;
        asked[e] += chunk.table[Table::READ + row(e) * CHUNK + i] * value;
        if constexpr (DELTA) write[e] += chunk.table[Table::WRITE + row(e) * CHUNK + i] * value;
      }
    }
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
      if constexpr (!DELTA) write[e] = chunk.table[Table::WRITE + row(e)] * rest[e];
      if (row(e) < count && column(e) < left) out[row(e) * outRow + column(e)] = asked[e];
    }
    const float decay = chunk.table[Table::DECAY];
    const Left a(write);
#pragma unroll
    for (u32 i = 0; i < TILES; ++i) {
      const float* k = chunk.k + 2 * third * PITCH + i * 8 + line;
      const Halves b0(k[0]), b1(k[PITCH]);
      float large[4], small[4] = {};
      multiplyHalves(large, small, small, a, b0, b1);
#pragma unroll
      for (u32 e = 0; e < 4; ++e) s[i][e] = s[i][e] * decay + (large[e] + small[e]);
    }
  }
};

}  // namespace recurrent
#endif
