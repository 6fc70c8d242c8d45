/**
 * Steps of a text and its drafts whose products round as without drafts: what is chosen would otherwise be another token where two
 * are close, since few rows are rounded to 8 bits and more to f16 on some devices.
 */
import type { CausalModel, ForwardPass } from '@x/transformers';

/** @param rows see `QuantizedOps.roundsAs`; undefined: the pass as it is */
export function* roundedAs(rows: number | undefined, { device }: CausalModel, pass: ForwardPass): ForwardPass {
  const { quantized } = device.backend;
  if (rows === undefined || !quantized) return yield* pass;
  let isOver = false;
  try {
    for (;;) {
      quantized.roundsAs = rows;
      let step: ReturnType<ForwardPass['next']>;
      try {
        step = pass.next();
      } finally {
        // Others enqueue in between.
        quantized.roundsAs = undefined;
      }
      isOver = step.done === true;
      if (step.done) return step.value;
      yield step.value;
    }
  } finally {
    if (!isOver) pass.return(undefined);
  }
}
