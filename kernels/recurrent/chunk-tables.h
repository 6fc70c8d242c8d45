// What the rows of a chunk do to each other, for each head: all that chunks.h wants to know beside the state. With g_t the
// decays of the chunk up to row t, and keys and queries divided by their norms, the delta rule's writes are u with
//   u_t = share_t (v_t - g_t S k_t - sum over i < t of g_t / g_i (k_i . k_t) u_i)
// which is (1 + A) u = share rest: A is below the diagonal, and its inverse takes as many steps as there are rows. Ratios of
// decays are made of the sums between two rows, so they neither overflow nor cancel.
#pragma once

namespace recurrent {

#if X_HOST
template <u32 KEYS, class Rule>
X_DEVICE void tabulate(const Decayed&, const Rule&, float*) {}
#else

/** Heads of a block at once: a row of the chunk is a lane's. */
constexpr u32 TABLES = CHUNK_THREADS / CHUNK;

/** Products of a chunk's rows. */
template <u32 KEYS, bool DELTA>
struct ChunkProducts {
  static constexpr u32 PITCH = KEYS + 4, COUNT = CHUNK * CHUNK;
  float rows[2 * CHUNK * PITCH];      // keys, then queries
  float dots[(DELTA ? 2 : 1) * COUNT];  // [t][i] of q_t . k_i, then of k_t . k_i
  float perQuery[CHUNK];              // of the delta rule

  X_DEVICE void load(const Decayed& p, u64 row, u32 count, u32 keyHead) {
    for (u32 place = threadIndex(); place < 2 * CHUNK * KEYS; place += CHUNK_THREADS) {
      const u32 line = place / KEYS, t = line % CHUNK, key = place % KEYS;
      const float* from = line < CHUNK ? p.k + (row + t) * p.kRow : p.q + (row + t) * p.qRow;
      rows[line * PITCH + key] = t < count ? from[(u64)keyHead * KEYS + key] : 0.0f;
    }
  }

  /** Eight threads have the products of two rows with two others. */
  X_DEVICE void multiply() {
    const u32 part = threadIndex() % 8, tile = threadIndex() / 8, i0 = tile / 4 * 2, t0 = tile % 4 * 2;
    float sums[DELTA ? 8 : 4] = {};
#pragma unroll 2
    for (u32 key = part * 4; key < KEYS; key += 32) {
      Vec<float, 4> left[2];
#pragma unroll
      for (u32 a = 0; a < 2; ++a) left[a] = loadVec<4>(rows + (i0 + a) * PITCH + key);
#pragma unroll
      for (u32 kind = 0; kind < (DELTA ? 2 : 1); ++kind)
#pragma unroll
        for (u32 b = 0; b < 2; ++b) {
          const Vec<float, 4> right = loadVec<4>(rows + ((kind == 0 ? CHUNK : 0) + t0 + b) * PITCH + key);
#pragma unroll
          for (u32 a = 0; a < 2; ++a)
#pragma unroll
            for (u32 j = 0; j < 4; ++j) sums[kind * 4 + b * 2 + a] += left[a][j] * right[j];
        }
    }
    const float sum = sumOfPart<8, 1>(sums, part);
    if (DELTA || part < 4) dots[part / 4 * COUNT + (t0 + part / 2 % 2) * CHUNK + i0 + part % 2] = sum;
  }

  /** Sixteen threads have the norm of a query. */
  X_DEVICE void norms(u32 count, float scale, float eps) {
    const u32 t = threadIndex() / 16, lane = threadIndex() % 16;
    const float* query = rows + (CHUNK + t) * PITCH;
    float sum = 0.0f;
#pragma unroll
    for (u32 key = 0; key < KEYS; key += 16) sum += query[key + lane] * query[key + lane];
#pragma unroll
    for (u32 mask = 8; mask > 0; mask /= 2) sum += shuffleXor(sum, mask);
    if (lane == 0) perQuery[t] = t < count ? scale / m::sqrt(sum + eps) : 0.0f;
  }
};

/** A lane's row of a chunk, for one head. */
struct ChunkRow {
  u32 c;                  // the row's place in the chunk
  float step;             // 0 of rows that there are not, as `each`
  float each[CHUNK];      // logarithms of the rows' decays
  float between[CHUNK];   // decays from behind this row up to each later one
  float upTo;             // decays up to this row

  /** @param rate of a row: its logarithm by step */
  X_DEVICE ChunkRow(u32 c, float step, float rate) : c(c), step(step) {
    const float own = rate * step;
    const u32 first = laneId() / CHUNK * CHUNK;
#pragma unroll
    for (u32 t = 0; t < CHUNK; ++t) each[t] = shuffle(own, first + t);
    float sum = 0.0f, before = 0.0f;
#pragma unroll
    for (u32 t = 0; t < CHUNK; ++t) {
      if (t > c) sum += each[t];
      else before += each[t];
      between[t] = m::exp(sum);
    }
    upTo = m::exp(before);
  }
  /** Decays from behind row `t` to the end. */
  X_DEVICE float after(u32 t) const {
    float sum = 0.0f;
#pragma unroll
    for (u32 later = 1; later < CHUNK; ++later)
      if (later > t) sum += each[later];
    return m::exp(sum);
  }
  X_DEVICE float whole() const {
    float sum = 0.0f;
#pragma unroll
    for (u32 t = 0; t < CHUNK; ++t) sum += each[t];
    return m::exp(sum);
  }
};

/** The table's column of a row, and its places in the others. @param skip added to the row's own value */
template <u32 KEYS>
X_DEVICE void fillTable(float* to, const ChunkRow& row, const ChunkProducts<KEYS, false>& products, float skip) {
  typedef ChunkTable<false> Table;
#pragma unroll
  for (u32 t = 0; t < CHUNK; ++t) {
    float read = t < row.c ? 0.0f : row.between[t] * products.dots[t * CHUNK + row.c] * row.step;
    if (t == row.c) read += skip;
    to[Table::READ + t * CHUNK + row.c] = read;
  }
  to[Table::BEFORE + row.c] = row.upTo;
  to[Table::WRITE + row.c] = row.between[CHUNK - 1] * row.step;
}

/**
 * The same of the delta rule.
 * @param inner the head's two matrices of its block's shared memory: all lanes of the warp come here
 * @param share of a row, 0 of those that there are not, as perKey
 */
template <u32 KEYS>
X_DEVICE void fillTable(float* to, const ChunkRow& row, const ChunkProducts<KEYS, true>& products, float* inner,
                        float perKey, float share, bool wanted) {
  typedef ChunkTable<true> Table;
  constexpr u32 COUNT = CHUNK * CHUNK;
  float *a = inner, *b = inner + COUNT;
  const float own = share * perKey;
  const u32 first = laneId() / CHUNK * CHUNK;
#pragma unroll
  for (u32 t = 0; t < CHUNK; ++t) {
    const float factor = shuffle(own * perKey, first + t);
    const u32 c = row.c, at = t * CHUNK + c;
    a[at] = t > c ? factor * row.between[t] * products.dots[COUNT + at] : 0.0f;
    b[at] = t < c ? 0.0f : products.perQuery[t] * row.between[t] * products.dots[at];
  }
  warpBarrier();
  const u32 c = opaque(row.c);  // as masks that are not kept
  float inverse[CHUNK], read[CHUNK];
#pragma unroll
  for (u32 t = 0; t < CHUNK; ++t) {
    inverse[t] = t == c ? 1.0f : 0.0f;
    read[t] = 0.0f;
#pragma unroll
    for (u32 j = 0; j < t; ++j) {
      inverse[t] -= a[t * CHUNK + j] * inverse[j];
      read[t] += b[t * CHUNK + j] * inverse[j];
    }
    read[t] += b[t * CHUNK + t] * inverse[t];
  }
  warpBarrier();
  if (!wanted) return;
#pragma unroll
  for (u32 t = 0; t < CHUNK; ++t) {
    // Zeros above the diagonal, also of a row that is not finite.
    to[Table::READ + t * CHUNK + c] = t < c ? 0.0f : read[t] * own;
    to[Table::WRITE + t * CHUNK + c] = t < c ? 0.0f : row.after(t) * inverse[t] * own;
  }
  to[Table::BEFORE + c] = products.perQuery[c] * row.upTo;
  to[Table::KNOWN + c] = perKey * row.upTo;
}

/** Whose chunk a number stands for. */
X_DEVICE u32 sequenceOfChunk(const Spans& at, u64 chunk) {
  u32 low = 0, high = at.sequences;
  while (high - low > 1) {
    const u32 middle = (low + high) / 2;
    if (firstChunk(at, middle) <= chunk) low = middle;
    else high = middle;
  }
  return low;
}

/** A block a chunk and head of keys. @param tables [rows / CHUNK + sequences, heads, ChunkTable::SIZE] */
template <u32 KEYS, class Rule>
X_DEVICE void tabulate(const Decayed& p, const Rule& rule, float* tables) {
  constexpr bool DELTA = sameType<Rule, Delta>;
  typedef ChunkTable<DELTA> Table;
  typedef ChunkProducts<KEYS, DELTA> Products;
  X_SHARED(Products, shared, 1);
  X_SHARED(float, inner, DELTA ? TABLES * 2 * CHUNK * CHUNK : 1);
  early::await();
  early::letNextBegin();
  Products& products = shared[0];
  const u32 sharing = p.heads / p.keyHeads;
  X_FOR_SPLIT(item, (p.at.rows / CHUNK + p.at.sequences) * p.keyHeads) {
    const u64 chunk = item / p.keyHeads;
    const u32 keyHead = (u32)(item % p.keyHeads), sequence = sequenceOfChunk(p.at, chunk);
    const u64 row = p.at.starts[sequence] + (chunk - firstChunk(p.at, sequence)) * CHUNK;
    const u64 end = p.at.end(sequence);
    if (row >= end) continue;
    const u32 count = rowsOfChunk(row, end);
    products.load(p, row, count, keyHead);
    barrier();
    products.multiply();
    if constexpr (DELTA) products.norms(count, rule.scale, rule.eps);
    barrier();
    for (u32 first = 0; first < sharing; first += TABLES) {
      const u32 c = opaque(threadIndex()) % CHUNK;
      const u32 index = first + threadIndex() / CHUNK, i = index < sharing ? index : sharing - 1;
      const u32 head = i / p.group * p.group * p.keyHeads + keyHead * p.group + i % p.group;
      const bool inside = c < count, wanted = index < sharing;
      float step = inside ? softplus(p.dt[(row + c) * p.dtRow + head] + p.dtBias[head]) : 0.0f;
      if constexpr (!DELTA)
        if (inside) step = step < rule.dtMin ? rule.dtMin : step > rule.dtMax ? rule.dtMax : step;
      const ChunkRow own(c, step, p.a[head]);
      float* to = tables + (chunk * p.heads + head) * Table::SIZE;
      if constexpr (DELTA) {
        const float norm = products.dots[CHUNK * CHUNK + c * (CHUNK + 1)];
        const float perKey = inside ? 1.0f / m::sqrt(norm + rule.eps) : 0.0f;
        const float share = inside ? sigmoid(rule.beta[(row + c) * rule.betaRow + head]) : 0.0f;
        fillTable(to, own, products, inner + threadIndex() / CHUNK * 2 * CHUNK * CHUNK, perKey, share, wanted);
      } else if (wanted) {
        fillTable(to, own, products, rule.d[head]);
      }
      if (wanted && c == 0) to[Table::DECAY] = own.whole();
    }
    barrier();
  }
}

#endif

}  // namespace recurrent
