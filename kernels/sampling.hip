// SAMPLING: the next token of each sequence from its row of logits. Ours: candle reads the logits and chooses on the host.
//   sample_f32    penalties, bias, mask, filters and the draw: sampling/choose.h; a block a row, of whole warps
//   sample_{scan,count,list,draw}_f32    the same in four launches, several blocks a row: sampling/parts.h
//   follow_u32    ids that stand for what rows of `chosen` hold, FROM_CHOSEN + row, become that; others stay. A step's tokens,
//                 some of which the step before chose and nobody has read yet. What is no token becomes the last one.
#include "x.h"
#include "shared/exact.h"
#include "shared/split.h"
#include "shared/arrive.h"
#include "shared/tally.h"
#include "sort/key.h"
#include "reduce/range-host.h"
#include "reduce/range.h"
#include "sampling/weight.h"
#include "sampling/locate.h"
#include "sampling/choose.h"
#include "sampling/parts.h"

KERNEL(sample_f32, (u64 rows, u32 vocab, u32 top, float* logits, const u32* params, u32* edits, const u32* masks,
                    u32* out)) {
  sampling::chooseAll({rows, vocab, top, logits, (const sampling::Params*)params, edits, masks, out});
}

#define PARTS(name)                                                                                                     \
  KERNEL_EARLY(sample_##name##_f32)                                                                                     \
  KERNEL_BOUNDS(sample_##name##_f32, 256,                                                                               \
                (u64 rows, u32 vocab, u32 top, u32 parts, float* logits, const u32* params, u32* edits, const u32* masks, \
                 u32* out, u8* work, u32* counters)) {                                                                  \
    using namespace sampling;                                                                                           \
    early::await();                                                                                                     \
    early::letNextBegin();                                                                                              \
    const Problem problem = {rows, vocab, top, logits, (const Params*)params, edits, masks, out};                       \
    run::name({problem, parts, work, counters});                                                                        \
  }
namespace run {

X_DEVICE void scan(const sampling::Shares& all) {
  sampling::forParts(all, [](const sampling::Part& part) { sampling::scanPart(part); });
}
X_DEVICE void count(const sampling::Shares& all) {
  X_SHARED(u64, bins, sampling::BINS);
  sampling::forParts(all, [&](const sampling::Part& part) { sampling::countPart(part, bins); });
}
X_DEVICE void list(const sampling::Shares& all) {
  X_SHARED(u64, bins, sampling::BINS);
  X_SHARED(u32, ids, sampling::LISTED);
  X_SHARED(float, values, sampling::LISTED);
  sampling::forParts(all, [&](const sampling::Part& part) { sampling::listPart(part, bins, ids, values); });
}
X_DEVICE void draw(const sampling::Shares& all) {
  X_SHARED(u64, bins, sampling::BINS);
  sampling::forParts(all, [&](const sampling::Part& part) { sampling::drawPart(part, bins); });
}

}  // namespace run
PARTS(scan)
PARTS(count)
PARTS(list)
PARTS(draw)

KERNEL_EARLY(follow_u32)
KERNEL(follow_u32, (u64 rows, u32 vocab, const u32* ids, const u32* chosen, u32* out)) {
  early::await();
  constexpr u32 FROM_CHOSEN = 0x80000000u;
  X_FOR_EACH(i, rows) {
    const u32 id = ids[i];
    if (id < FROM_CHOSEN) {
      out[i] = id;
      continue;
    }
    const u32 own = chosen[id - FROM_CHOSEN];
    out[i] = own < vocab ? own : vocab - 1;
  }
}
