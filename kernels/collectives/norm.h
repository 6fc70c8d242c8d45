// What lies between two products of a layer of which two ranks have a part each: x and the sum of both parts, and the norm of that.
// Each rank makes half of the rows. It reads the other's part of them, here if the other's product has written it here and else where
// that lies, and writes the norm to both ranks' memory; of
// x + delta it leaves its own rows alone, which are the only ones that it reads next time. So less passes between the devices than
// for a sum of all rows on both, and nothing runs beside the products.
//
// The kernel begins with a message to the other rank, which says where this one's part and norm lie, and that all in front of it
// has run; it ends when the other has written its rows here and has read its part, so that no memory is held for longer. Messages
// lie in the stage (peers.h), twice: one rank may be a call ahead when the other reads the last one's.
#pragma once

#if !X_HOST
namespace peers {

// Of a stage, in bytes: the number of the last call and how many blocks have ended, what the other rank says, and the last of its
// calls that has ended.
constexpr u32 PAIR_AT = 640, SAID_AT = 656, ENDED_AT = 720;
static_assert(ADDRESSES_AT + RANKS * sizeof(u64) <= PAIR_AT && SAID_AT + 2 * 2 * sizeof(wire::Message) <= ENDED_AT &&
                  ENDED_AT + sizeof(u32) <= INBOX_AT,
              "parts of a stage");

/** The rows of a rank, of which the other one has a part too. */
template <class T>
struct PairedNorm : decode::Norm<T> {
  const float* theirDelta;
  T* theirY;

  X_DEVICE Vec<float, 4> deltaAt(u64 at) const {
    const wire::Message other = wire::look((const u64*)(theirDelta + at));
    const Vec<float, 4> mine = loadVec<4>(this->delta + at), theirs = bitCast<Vec<float, 4>>(other);
    Vec<float, 4> sum;
    for (u32 e = 0; e < 4; ++e) sum[e] = mine[e] + theirs[e];
    return sum;
  }

  X_DEVICE void put(u64 at, const Vec<T, 4>& quad) const {
    storeVec(this->y + at, quad);
    if constexpr (sizeof(T) == 4) {
      const wire::Message words = bitCast<wire::Message>(quad);
      wire::send((u64*)(theirY + at), words.words[0], words.words[1]);
    } else {
      wire::sendWord((u64*)(theirY + at), bitCast<u64>(quad));
    }
  }
};

/** What is the same in all threads, which AMD's then keep once. */
X_DEVICE u64 uniform(u64 v) {
#if X_AMDGCN
  const u32 low = __builtin_amdgcn_readfirstlane((u32)v), high = __builtin_amdgcn_readfirstlane((u32)(v >> 32));
  return low | (u64)high << 32;
#else
  return v;
#endif
}

/** What two ranks say to each other. */
struct Pair {
  u32 other;  // the other rank
  u64 patience;
  u32* control;
  u64* stage;

  X_DEVICE u32* number() const { return (u32*)stage + PAIR_AT / sizeof(u32); }
  X_DEVICE u32* ended(u64* of) const { return (u32*)of + ENDED_AT / sizeof(u32); }
  X_DEVICE u64* said(u64* of, u32 call) const { return of + SAID_AT / sizeof(u64) + (call & 1) * 4; }
  X_DEVICE u64* theirStage() const { return (u64*)wire::lookWord(stage + ADDRESSES_AT / sizeof(u64) + other); }

  X_DEVICE u32 nextCall() const {
    const u32 last = wire::lookWord(number());
    // 0 is what a new stage holds.
    return last == ~0u ? 2 : last + 1;
  }

  /** Two addresses, half a word each; one thread of a launch. */
  X_DEVICE void say(u32 call, const void* delta, const void* y) const {
    wire::publish();
    const u64 tag = (u64)call << 32, first = (u64)delta, second = (u64)y;
    u64* place = said(theirStage(), call);
    wire::send(place, tag | (u32)first, tag | (first >> 32));
    wire::send(place + 2, tag | (u32)second, tag | (second >> 32));
  }

  /** What the other says; false when it does not come. */
  X_DEVICE bool hear(u32 call, u64 (&addresses)[2]) const {
    wire::Patience patient{control, patience, 0, 0};
    for (;;) {
      bool here = true;
      for (u32 i = 0; i < 2; ++i) {
        const wire::Message half = wire::look(said(stage, call) + 2 * i);
        here = here && (u32)(half.words[0] >> 32) == call && (u32)(half.words[1] >> 32) == call;
        addresses[i] = (half.words[0] & 0xffffffff) | half.words[1] << 32;
      }
      if (here) break;
      if (!patient.lasts(other)) return false;
    }
    wire::observe();
    return true;
  }

  /** By the last block: until the other has ended too. */
  X_DEVICE void end(u32 call) const {
    wire::publish();
    wire::sendWord(ended(theirStage()), call);
    wire::Patience patient{control, patience, 0, 0};
    while (wire::lookWord(ended(stage)) != call)
      if (!patient.lasts(other)) return;
    wire::observe();
    wire::sendWord(number(), call);
  }
};

template <decode::Delta KIND, class T>
X_DEVICE void normRows(PairedNorm<T> p, u64 first) {
#pragma unroll 1
  for (u64 row = split::block(); row < p.rows; row += gridX()) {
    // Else the compiler works out all offsets ahead, for which there are no registers.
    p.n = opaque(p.n);
    decode::normHeld<KIND, decode::FEW_TILES>(p, first + row);
  }
}

/**
 * p.rows rows from `first` on, of which a thread has two quads at most. As many blocks as there is room for: each of them asks what the
 * other rank has said, and waits for its writes to arrive, which takes as long as several rows.
 */
template <class T>
X_DEVICE void normOfPair(const decode::Norm<T>& p, u64 first, const float* deltaHere, const Pair& pair) {
  X_SHARED(u64, heard, 3);
  const u32 call = pair.nextCall();
  if (threadIndex() == 0) {
    if (split::block() == 0) pair.say(call, p.delta, p.y);
    u64 addresses[2] = {};
    heard[2] = pair.hear(call, addresses);
    heard[0] = addresses[0];
    heard[1] = addresses[1];
  }
  barrier();
  if (heard[2] == 0) return;
  // Its rows are those from `first` on.
  const float* theirDelta = deltaHere ? deltaHere - first * p.n : (const float*)uniform(heard[0]);
  T* theirY = (T*)uniform(heard[1]);
  if (!X_NVPTX) wire::observe();
  const PairedNorm<T> paired{p, theirDelta, theirY};
  if (p.deltaAlpha) normRows<decode::Delta::Normed>(paired, first);
  else normRows<decode::Delta::Plain>(paired, first);
  if (lastToArrive(pair.number() + 1, gridX()) && threadIndex() == 0) pair.end(call);
}

}  // namespace peers
#endif
