// SAMPLING: the next token of each sequence from its row of logits. Ours: candle reads the logits and chooses on the host.
//   sample_f32    penalties, bias, mask, filters and the draw: sampling/choose.h; a block a row, of whole warps
//   follow_u32    ids that stand for what rows of `chosen` hold, FROM_CHOSEN + row, become that; others stay. A step's tokens,
//                 some of which the step before chose and nobody has read yet. What is no token becomes the last one.
#include "x.h"
#include "shared/exact.h"
#include "shared/split.h"
#include "shared/tally.h"
#include "sort/key.h"
#include "reduce/range.h"
#include "sampling/weight.h"
#include "sampling/locate.h"
#include "sampling/choose.h"

KERNEL(sample_f32, (u64 rows, u32 vocab, u32 top, float* logits, const u32* params, u32* edits, const u32* masks,
                    u32* out)) {
  sampling::chooseAll({rows, vocab, top, logits, (const sampling::Params*)params, edits, masks, out});
}

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
