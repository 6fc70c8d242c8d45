// Sums over the ranks of a group whose devices write to each other's memory, in one kernel. Every rank has a stage: a word for
// each block, the number of its last call; the addresses of all ranks' stages; and an inbox with room for what each rank sends,
// twice. A block exchanges with the same block of all other ranks, in messages (wire.h) that carry the number of the call. It sends
// its packs to all and adds up what comes; or, by parts, each pack to the one rank that adds it up for all, which sends the sum
// back: two ways in a row, but of more than two ranks each sends less. Sums are taken in the order of the ranks, so all get the same
// bits. The number is counted here, not on the host, so that a captured launch can be replayed.
//
// A call writes to the half of the inbox that its number's last bit says. That half was read two calls ago, and a block that begins
// a call has heard in the one before, from all ranks or from one that had, that they had ended the one before that. So no rank waits
// for a message to have been read, and what a block may write to lies where only the same block of the rank reads.
#pragma once

namespace peers {

/** Of a group, at most. */
constexpr u32 RANKS = 8;  // launchers: PEER_RANKS
/** Of a launch, at most. */
constexpr u32 BLOCKS = 128;  // launchers: PEER_BLOCKS
/** Of 16 bytes of the source, that a block takes at a turn. */
constexpr u32 PACKS = 256;  // launchers: PEER_PACKS
// Bytes of a stage: the blocks' numbers, the addresses behind them, what norms say (norm.h), those of
// summed-norm.h, the inbox, and that of summed-norm.h.
constexpr u32 ADDRESSES_AT = 512;  // launchers: PEER_ADDRESSES_AT
constexpr u32 ROWS_CALL_AT = 1280;
constexpr u32 INBOX_AT = 2048;  // launchers: PEER_INBOX_AT
static_assert(BLOCKS * sizeof(u32) <= ADDRESSES_AT && ADDRESSES_AT + RANKS * sizeof(u64) <= INBOX_AT, "parts of a stage");

/** Where a sender's packs of a turn lie in a stage: in two planes of messages, each the half of every pack. */
struct Inbox {
  u32 ranks, turns, half, block;

  X_DEVICE u64* at(u64* stage, u32 sender, u32 turn) const {
    const u64 place = (((u64)half * ranks + sender) * BLOCKS + block) * turns + turn;
    return stage + INBOX_AT / sizeof(u64) + place * PACKS * 4;
  }
};

struct Words {
  u32 v[4];
};

/** The number of the call behind one; 0 is what a new stage holds. */
X_DEVICE u32 behind(u32 call) { return call == ~0u ? 2 : call + 1; }

/** 16 bytes of x, from element `first` on; zeros behind its end. */
template <class T>
X_DEVICE Words load(const T* x, u64 first, u64 count, bool wide) {
  if (wide && first + vecWidth<T> <= count) return bitCast<Words>(loadVec<4>((const u32*)(x + first)));
  Vec<T, vecWidth<T>> pack;
  for (u32 i = 0; i < vecWidth<T>; ++i) pack[i] = first + i < count ? x[first + i] : from_acc<T>(0.0f);
  return bitCast<Words>(pack);
}

template <class T>
X_DEVICE void store(T* x, u64 first, u64 count, bool wide, const Vec<T, vecWidth<T>>& pack) {
  if (wide && first + vecWidth<T> <= count) return storeVec(x + first, pack);
  for (u32 i = 0; i < vecWidth<T>; ++i)
    if (first + i < count) x[first + i] = pack[i];
}

template <class T, bool PARTS>
struct AllReduce {
  u64 count;
  u32 rank, ranks;
  u32 turns;  // that inboxes have room for
  u64 patience;
  const T* source;
  T* target;
  u32* control;
  u64* stage;

  static constexpr u32 WIDTH = vecWidth<T>;

  /** A block has a pack at least. */
  X_DEVICE void run() const {
    early::letNextBegin();
    early::await();
    const u64 packs = (count + WIDTH - 1) / WIDTH, begin = (u64)blockX() * PACKS, step = (u64)gridX() * PACKS;
    u32 call = 0, turn = 0;
    for (u64 first = begin; first < packs; ++turn, first += step) call = send(turn, first, packs);
    wire::Patience patient{control, patience, 0, 0};
    turn = 0;
    for (u64 first = begin; first < packs; ++turn, first += step)
      if (!sum(call, turn, first, packs, patient)) break;
    barrier();
    if (threadIndex() == 0) wire::sendWord(number(), call);
  }

  // Looked up in the order in which they stand, so that all are under way together.
  X_DEVICE u32* number() const { return (u32*)stage + blockX(); }
  X_DEVICE u64* stageOf(u32 other) const { return (u64*)wire::lookWord(stage + ADDRESSES_AT / sizeof(u64) + other); }
  X_DEVICE Inbox inbox(u32 call) const { return {ranks, turns, call & 1, blockX()}; }

  X_DEVICE bool wide() const { return aligned16(source) && aligned16(target); }
  X_DEVICE static u64 packsOfTurn(u64 first, u64 packs) { return packs - first < PACKS ? packs - first : PACKS; }

  X_DEVICE u32 after(u32 one) const { return one + 1 < ranks ? one + 1 : 0; }
  /** The rank that adds up a pack, by parts. */
  X_DEVICE u32 ownerOf(u64 t) const { return (u32)t * ranks / PACKS; }

  X_DEVICE void put(u64* other, u32 call, u32 turn, u64 t, const Words& words) const {
    const u64 tag = (u64)call << 32;
    u64* place = inbox(call).at(other, rank, turn) + 2 * t;
    wire::send(place, tag | words.v[0], tag | words.v[1]);
    wire::send(place + 2 * PACKS, tag | words.v[2], tag | words.v[3]);
  }

  /** To all others: `next` is the stage of the rank after this one. */
  X_DEVICE void putToAll(u64* next, u32 call, u32 turn, u64 t, const Words& words) const {
    for (u32 to = after(rank); to != rank;) {
      u64* other = next;
      to = after(to);
      if (to != rank) next = stageOf(to);
      put(other, call, turn, t, words);
    }
  }

  /** The number of this call. */
  X_DEVICE u32 send(u32 turn, u64 first, u64 packs) const {
    u32 call = 0;
    X_FOR_BLOCK(t, packsOfTurn(first, packs)) {
      const Words words = load(source, (first + t) * WIDTH, count, wide());
      const u32 last = wire::lookWord(number());
      u64* next = stageOf(PARTS ? ownerOf(t) : after(rank));
      call = behind(last);
      if (!PARTS) putToAll(next, call, turn, t, words);
      else if (ownerOf(t) != rank) put(next, call, turn, t, words);
    }
    return call;
  }

  /** False when the group has failed. */
  X_DEVICE bool sum(u32 call, u32 turn, u64 first, u64 packs, wire::Patience& patient) const {
    X_FOR_BLOCK(t, packsOfTurn(first, packs)) {
      const u64 element = (first + t) * WIDTH;
      Words result;
      if (!PARTS || ownerOf(t) == rank) {
        if (!sumOf(call, turn, t, element, patient, result)) return false;
        if (PARTS) putToAll(stageOf(after(rank)), call, turn, t, result);
      } else if (!receive(inbox(call).at(stage, ownerOf(t), turn) + 2 * t, call, ownerOf(t), patient, result)) {
        return false;
      }
      store(target, element, count, wide(), bitCast<Vec<T, WIDTH>>(result));
    }
    return true;
  }

  X_DEVICE bool sumOf(u32 call, u32 turn, u64 t, u64 element, wire::Patience& patient, Words& result) const {
    const Words mine = load(source, element, count, wide());
    float sums[WIDTH];
    for (u32 from = 0; from < ranks; ++from) {
      Words words = mine;
      if (from != rank && !receive(inbox(call).at(stage, from, turn) + 2 * t, call, from, patient, words)) return false;
      const Vec<T, WIDTH> pack = bitCast<Vec<T, WIDTH>>(words);
      for (u32 i = 0; i < WIDTH; ++i) {
        const float value = to_acc(pack[i]);
        sums[i] = from == 0 ? value : sums[i] + value;
      }
    }
    Vec<T, WIDTH> pack;
    for (u32 i = 0; i < WIDTH; ++i) pack[i] = from_acc<T>(sums[i]);
    result = bitCast<Words>(pack);
    return true;
  }

  X_DEVICE static bool receive(const u64* place, u32 call, u32 from, wire::Patience& patient, Words& words) {
    for (;;) {
      const wire::Message low = wire::look(place), high = wire::look(place + 2 * PACKS);
      const u64 all[4] = {low.words[0], low.words[1], high.words[0], high.words[1]};
      bool here = true;
      for (u32 i = 0; i < 4; ++i) {
        here = here && (u32)(all[i] >> 32) == call;
        words.v[i] = (u32)all[i];
      }
      if (here) return true;
      if (!patient.lasts(from)) return false;
    }
  }
};

}  // namespace peers
