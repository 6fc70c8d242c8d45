// What lies between two products of a layer of which each rank of a group has a part: x and the sum of all parts, and the norm of
// that. Each rank makes its share of the rows. It reads the others' parts of them, here if the others' products have written them here
// and else where they lie, and writes the norm to all ranks' memory; of x + delta it leaves its own rows alone, which are the only
// ones that it reads next time. So less passes between the devices than for a sum of all rows on each, and nothing runs beside the
// products.
//
// The kernel begins with a message to each other rank, which says where this one's part and norm lie, and that all in front of it
// has run; it ends when the others have written their rows here and have read its part, so that no memory is held for longer.
// Messages lie in the stage (peers.h), twice: one rank may be a call ahead when another reads the last one's.
#pragma once

#if !X_HOST
namespace peers {

// Of a stage, in bytes: the number of the last call and how many blocks have ended, the last call that each rank has ended, and what
// each says.
constexpr u32 CALL_AT = 576, ENDED_AT = 592, SAID_AT = 640;
constexpr u32 SAID_WORDS = 2 * sizeof(wire::Message) / sizeof(u64);
static_assert(ADDRESSES_AT + RANKS * sizeof(u64) <= CALL_AT && ENDED_AT + RANKS * sizeof(u32) <= SAID_AT &&
                  SAID_AT + 2 * RANKS * SAID_WORDS * sizeof(u64) <= ROWS_CALL_AT,
              "parts of a stage");

/** The rows of a rank, of which the others have a part too; AT_ONCE of these are on their way together. */
template <class T, u32 AT_ONCE>
struct SharedNorm : decode::Norm<T> {
  /** AMD's kernels have no registers for it, nor for four parts at once. */
  static constexpr bool WEIGHTS_FIRST = X_NVPTX;
  u32 rank, ranks;
  /** Each rank's part of these rows, and its y. */
  const u64 *deltas, *ys;

  /** In the order of the ranks, whoever makes the row. */
  X_DEVICE Vec<float, 4> deltaAt(u64 at, u32) const {
    Vec<float, 4> sum;
    for (u32 first = 0; first < ranks; first += AT_ONCE) {
      wire::Message parts[AT_ONCE];
#pragma unroll
      for (u32 i = 0; i < AT_ONCE; ++i)
        if (first + i < ranks) parts[i] = wire::look((const u64*)((const float*)deltas[first + i] + at));
#pragma unroll
      for (u32 i = 0; i < AT_ONCE; ++i) {
        if (first + i >= ranks) continue;
        const Vec<float, 4> part = bitCast<Vec<float, 4>>(parts[i]);
        for (u32 e = 0; e < 4; ++e) sum[e] = first + i == 0 ? part[e] : sum[e] + part[e];
      }
    }
    return sum;
  }

  X_DEVICE void put(u64 at, const Vec<T, 4>& quad) const {
    storeVec(this->y + at, quad);
    // Beginning with the next one, so that not all write to the same rank.
    for (u32 i = 1, to = rank; i < ranks; ++i) {
      to = to + 1 < ranks ? to + 1 : 0;
      T* y = (T*)ys[to] + at;
      if constexpr (sizeof(T) == 4) {
        const wire::Message words = bitCast<wire::Message>(quad);
        wire::send((u64*)y, words.words[0], words.words[1]);
      } else {
        wire::sendWord((u64*)y, bitCast<u64>(quad));
      }
    }
  }
};

/** What the ranks say to each other. */
struct Group {
  u32 rank, ranks;
  u64 patience;
  u32* control;
  u64* stage;

  X_DEVICE u32* number() const { return (u32*)stage + CALL_AT / sizeof(u32); }
  X_DEVICE u32* ended(u64* of, u32 by) const { return (u32*)of + ENDED_AT / sizeof(u32) + by; }
  X_DEVICE u64* said(u64* of, u32 call, u32 by) const {
    return of + SAID_AT / sizeof(u64) + ((call & 1) * RANKS + by) * SAID_WORDS;
  }
  X_DEVICE u64* stageOf(u32 other) const { return (u64*)wire::lookWord(stage + ADDRESSES_AT / sizeof(u64) + other); }

  X_DEVICE u32 nextCall() const { return behind(wire::lookWord(number())); }

  /** Two addresses to another rank, half a word each; one thread of a launch. */
  X_DEVICE void say(u32 other, u32 call, const void* delta, const void* y) const {
    wire::publish();
    const u64 tag = (u64)call << 32, first = (u64)delta, second = (u64)y;
    u64* place = said(stageOf(other), call, rank);
    wire::send(place, tag | (u32)first, tag | (first >> 32));
    wire::send(place + 2, tag | (u32)second, tag | (second >> 32));
  }

  /** What another rank says; zeros when it does not come. */
  X_DEVICE void hear(u32 other, u32 call, u64& delta, u64& y) const {
    wire::Patience patient{control, patience, 0, 0};
    for (;;) {
      const wire::Message first = wire::look(said(stage, call, other)), second = wire::look(said(stage, call, other) + 2);
      const auto isOf = [&](const wire::Message& half) {
        return (u32)(half.words[0] >> 32) == call && (u32)(half.words[1] >> 32) == call;
      };
      if (isOf(first) && isOf(second)) {
        delta = (first.words[0] & 0xffffffff) | first.words[1] << 32;
        y = (second.words[0] & 0xffffffff) | second.words[1] << 32;
        break;
      }
      if (patient.lasts(other)) continue;
      delta = y = 0;
      return;
    }
    wire::observe();
  }

  /** By the last block: until all others have ended too. */
  X_DEVICE void end(u32 call) const {
    const u32 other = threadIndex();
    if (other < ranks && other != rank) {
      wire::publish();
      wire::sendWord(ended(stageOf(other), rank), call);
      wire::Patience patient{control, patience, 0, 0};
      while (wire::lookWord(ended(stage, other)) != call)
        if (!patient.lasts(other)) break;
      wire::observe();
    }
    barrier();
    if (other == 0) wire::sendWord(number(), call);
  }
};

template <decode::Delta KIND, class P>
X_DEVICE void normRows(P p, u64 first) {
#pragma unroll 1
  for (u64 row = split::block(); row < p.rows; row += gridX()) {
    // Else the compiler works out all offsets ahead, for which there are no registers.
    p.n = opaque(p.n);
    decode::normHeld<KIND, decode::FEW_TILES>(p, first + row);
  }
}

template <u32 AT_ONCE, class T>
X_DEVICE void normShared(const decode::Norm<T>& p, u64 first, const Group& group, const u64* deltas, const u64* ys) {
  const SharedNorm<T, AT_ONCE> shared{p, group.rank, group.ranks, deltas, ys};
  if (p.deltaAlpha) normRows<decode::Delta::Normed>(shared, first);
  else normRows<decode::Delta::Plain>(shared, first);
}

/**
 * p.rows rows from `first` on, of which a thread has two quads at most. As many blocks as there is room for: each of them asks what the
 * other ranks have said, and waits for its writes to arrive, which takes as long as several rows.
 * @param deltaHere the others' parts of these rows, in their order, where their products have written them
 */
template <class T>
X_DEVICE void normOfRanks(const decode::Norm<T>& p, u64 first, const float* deltaHere, const Group& group) {
  X_SHARED(u64, deltas, RANKS);
  X_SHARED(u64, ys, RANKS);
  const u32 call = group.nextCall(), other = threadIndex();
  if (other == group.rank) deltas[other] = (u64)p.delta, ys[other] = (u64)p.y;
  else if (other < group.ranks) {
    if (split::block() == 0) group.say(other, call, p.delta, p.y);
    u64 delta, y;
    group.hear(other, call, delta, y);
    // Rows there are counted from this rank's first one.
    const u64 place = other < group.rank ? other : other - 1;
    if (deltaHere && y != 0) delta = (u64)(deltaHere + (place * p.rows - first) * p.n);
    deltas[other] = delta, ys[other] = y;
  }
  barrier();
  for (u32 i = 0; i < group.ranks; ++i)
    if (ys[i] == 0) return;
  if (!X_NVPTX) wire::observe();
  if (!X_NVPTX || group.ranks == 2) normShared<2>(p, first, group, deltas, ys);
  else normShared<4>(p, first, group, deltas, ys);
  if (lastToArrive(group.number() + 1, gridX())) group.end(call);
}

}  // namespace peers
#endif
