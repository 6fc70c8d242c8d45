// SAMPLING: the next token of each sequence from its row of logits. Ours: candle reads the logits and chooses on the host.
//   sample_f32  penalties, bias, mask, filters and the draw: sampling/choose.h; a block a row, of whole warps
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
