// The way of states through the chunks of a sequence: on NVIDIA's matrix units (chunk-tiles.h), else by sums over lanes (chunks.h).
#pragma once

#if !X_HOST
namespace recurrent {

/** A block's columns of a state. */
template <u32 KEYS, bool DELTA, bool TILED>
struct StateOf {
  typedef ChunkState<KEYS, DELTA> Type;
};
#if X_MMA_NVIDIA
template <u32 KEYS, bool DELTA>
struct StateOf<KEYS, DELTA, true> {
  typedef ChunkTiles<KEYS, DELTA> Type;
};
#endif

/** A block a sequence, head and part of its columns. */
template <u32 KEYS, class Rule>
X_DEVICE void decayedChunks(const Decayed& p, const Rule&, const float* tables) {
  constexpr bool DELTA = sameType<Rule, Delta>;
  typedef Chunk<KEYS, DELTA> Staged;
  typedef ChunkShape<KEYS, DELTA> Shape;
  X_SHARED(Staged, chunks, 2);
  X_SHARED(float, held, Shape::GROUPS * Shape::HELD + 1);
  early::await();
  early::letNextBegin();
  const bool wide = aligned16(p.k) && aligned16(p.q) && p.kRow % 4 == 0 && p.qRow % 4 == 0;
  const u32 parts = (p.valueDim + Shape::WIDTH - 1) / Shape::WIDTH;
  const u64 size = (u64)p.heads * p.valueDim * KEYS, outRow = (u64)p.heads * p.valueDim;
  typename StateOf<KEYS, DELTA, Shape::TILED>::Type state(held);
  ChunkLoad<KEYS, DELTA> load;
  u32 turn = 0;
  X_FOR_SPLIT(item, (u64)p.at.sequences * p.heads * parts) {
    const u32 sequence = (u32)(item / parts / p.heads), head = (u32)(item / parts % p.heads);
    const u32 column = (u32)(item % parts) * Shape::WIDTH, own = column + state.first();
    const u32 left = own < p.valueDim ? p.valueDim - own : 0, keyHead = head / p.group % p.keyHeads;
    const u64 place = (u64)head * p.valueDim + own;
    const float* first = p.at.first(p.states, sequence, size);
    float* last = p.at.last(p.states, sequence, size);
    const u64 end = p.at.end(sequence);
    u64 row = p.at.starts[sequence], chunk = firstChunk(p.at, sequence);
    state.load(first ? first + place * KEYS : nullptr, left);
    if (row < end) load.begin(p, tables, wide, row, rowsOfChunk(row, end), chunk, head, keyHead, column);
    for (; row < end; row += CHUNK, turn ^= 1) {
      // What others may still read is the chunk before, in the other place.
      load.end(chunks[turn]);
      barrier();
      const u64 next = row + CHUNK;
      if (next < end) load.begin(p, tables, wide, next, rowsOfChunk(next, end), ++chunk, head, keyHead, column);
      state.advance(chunks[turn], rowsOfChunk(row, end), p.out + row * outRow + place, outRow, left);
    }
    if (last) state.store(last + place * KEYS, left);
  }
}

}  // namespace recurrent
#endif
