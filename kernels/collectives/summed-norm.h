// The norm of x and the sum over the ranks of a group, of few rows, as decode steps have them. Each rank makes all rows, a block a
// row: it sends its part of the row to all others, in messages that carry the number of the call (wire.h), and adds up what comes on
// its way into the norm. So a sum takes no launch of its own, and no way through memory.
//
// Blocks have a number each, and a place for each rank's part of a row, twice: as in peers.h a call writes to the half that its
// number's last bit says, which only the same block has read, two calls ago.
#pragma once

#if !X_HOST
namespace peers {

/** Of a call, and fours of values of a row, at most. */
constexpr u32 ROWS = 32;         // launchers: PEER_ROWS
constexpr u32 ROW_FOURS = 2048;  // launchers: PEER_ROW_FOURS
static_assert(ROWS_CALL_AT + ROWS * sizeof(u32) <= INBOX_AT, "parts of a stage");

/** @tparam TILES fours of a thread */
template <class T, u32 TILES>
struct SummedNorm : decode::Norm<T> {
  /** AMD's kernels have no registers for it. */
  static constexpr bool WEIGHTS_FIRST = X_NVPTX;
  u64 inboxAt;  // in bytes of a stage
  u32 rank, ranks;
  u64 patience;
  u32* control;
  u64* stage;
  u32 row, call;
  Vec<float, 4> own[TILES], sums[TILES];

  X_DEVICE u32* number() const { return (u32*)stage + ROWS_CALL_AT / sizeof(u32) + row; }
  X_DEVICE u64* stageOf(u32 other) const { return (u64*)wire::lookWord(stage + ADDRESSES_AT / sizeof(u64) + other); }
  X_DEVICE u32 after(u32 one) const { return one + 1 < ranks ? one + 1 : 0; }

  /** In two planes of messages, each the half of every four. */
  X_DEVICE u64* place(u64* of, u32 sender, u32 four) const {
    return of + inboxAt / sizeof(u64) + ((((call & 1) * ranks + sender) * ROWS + row) * 2 * ROW_FOURS + four) * 2;
  }

  /** The row's part to all others; `next` is the stage of the rank after this one. */
  X_DEVICE void send(u64* next) {
    const u64 tag = (u64)call << 32;
#pragma unroll
    for (u32 t = 0; t < TILES; ++t) {
      const u32 four = t * blockThreads() + threadIndex();
      if (four * 4 < this->n) own[t] = loadVec<4>(this->delta + (u64)row * this->n + four * 4);
    }
    for (u32 to = after(rank); to != rank;) {
      u64* other = next;
      to = after(to);
      if (to != rank) next = stageOf(to);
#pragma unroll
      for (u32 t = 0; t < TILES; ++t) {
        const u32 four = t * blockThreads() + threadIndex();
        if (four * 4 >= this->n) continue;
        const Words words = bitCast<Words>(own[t]);
        u64* at = place(other, rank, four);
        wire::send(at, tag | words.v[0], tag | words.v[1]);
        wire::send(at + 2 * ROW_FOURS, tag | words.v[2], tag | words.v[3]);
      }
    }
  }

  /** The sum of all ranks' parts, in their order; of a rank that does not come, anything. Waits for all of a thread's at once. */
  X_DEVICE Vec<float, 4> deltaAt(u64, u32 tile) {
    if (tile == 0) {
      for (u32 from = 0; from < ranks; ++from) {
        if (from == rank) {
          add(from, own);
        } else {
          Vec<float, 4> part[TILES];
          receive(from, part);
          add(from, part);
        }
      }
    }
    return sums[tile];
  }

  X_DEVICE void add(u32 from, const Vec<float, 4> (&part)[TILES]) {
#pragma unroll
    for (u32 t = 0; t < TILES; ++t)
      for (u32 e = 0; e < 4; ++e) sums[t][e] = from == 0 ? part[t][e] : sums[t][e] + part[t][e];
  }

  X_DEVICE void receive(u32 from, Vec<float, 4> (&part)[TILES]) const {
    wire::Patience patient{control, patience, 0, 0};
    for (;;) {
      bool here = true;
      wire::Message low[TILES], high[TILES];
#pragma unroll
      for (u32 t = 0; t < TILES; ++t) {
        const u32 four = t * blockThreads() + threadIndex();
        if (four * 4 >= this->n) continue;
        const u64* at = place(stage, from, four);
        low[t] = wire::look(at), high[t] = wire::look(at + 2 * ROW_FOURS);
      }
#pragma unroll
      for (u32 t = 0; t < TILES; ++t) {
        if ((t * blockThreads() + threadIndex()) * 4 >= this->n) continue;
        const u64 all[4] = {low[t].words[0], low[t].words[1], high[t].words[0], high[t].words[1]};
        Words words;
        for (u32 i = 0; i < 4; ++i) {
          here = here && (u32)(all[i] >> 32) == call;
          words.v[i] = (u32)all[i];
        }
        part[t] = bitCast<Vec<float, 4>>(words);
      }
      if (here || !patient.lasts(from)) return;
    }
  }
};

/** A block a row. */
template <class T, u32 TILES>
X_DEVICE void summedRow(SummedNorm<T, TILES> p, u64* next) {
  p.call = behind(wire::lookWord(p.number()));
  p.send(next);
  if (p.deltaAlpha) decode::normHeld<decode::Delta::Normed, TILES>(p, p.row);
  else decode::normHeld<decode::Delta::Plain, TILES>(p, p.row);
  if (p.blocks) quant::padRow(p.blocksOf(p.row), p.n, p.padded);
  barrier();
  if (threadIndex() == 0) wire::sendWord(p.number(), p.call);
}

/** Rows of which a thread has two fours at most. */
template <class T>
X_DEVICE void summedNorm(const SummedNorm<T, 1>& p) {
  if (threadIndex() == 0) {
    if (p.alpha) early::prefetch(p.alpha, p.n * sizeof(float));
    if (p.beta) early::prefetch(p.beta, p.n * sizeof(float));
    if (p.deltaAlpha) early::prefetch(p.deltaAlpha, p.n * sizeof(float));
    early::prefetch(p.x + (u64)p.row * p.n, p.n * sizeof(float));
  }
  // Where others' stages are was written once.
  u64* next = p.stageOf(p.after(p.rank));
  early::await();
  early::letNextBegin();
  if (p.n <= 4 * blockThreads()) summedRow(p, next);
  else summedRow(SummedNorm<T, 2>{p, p.inboxAt, p.rank, p.ranks, p.patience, p.control, p.stage, p.row, 0, {}, {}}, next);
}

}  // namespace peers
#endif
