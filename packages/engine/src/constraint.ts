/** What may come next: how grammars and schemas steer a text without the engine knowing them. */
import { TransformersError } from '@x/transformers';

export interface Constraint {
  /**
   * Which tokens may come next: bit i % 32 of element i / 32 stands for token i; tokens behind the end may not. Undefined
   * where all may. The array is read before the next call.
   */
  mask(): Uint32Array | undefined;
  /** The token that was chosen. Not called for the one that ends the text. */
  accept(id: number): void;
  /** Whether the text is complete and nothing may follow: the generation ends, without a token for it. Default: never. */
  readonly isFinished?: boolean;
}

/** Makes the logits of all other tokens -Infinity, in place. */
export function applyMask(logits: Float32Array, mask: Uint32Array): void {
  for (let id = 0; id < logits.length; id++)
    if (!(((mask[id >>> 5] ?? 0) >>> (id & 31)) & 1)) logits[id] = Number.NEGATIVE_INFINITY;
}

/** @throws TransformersError INVALID_OPTION for a mask that allows none of `vocab` tokens */
export function checkMask(mask: Uint32Array, vocab: number): void {
  const whole = vocab >>> 5;
  for (let i = 0; i < Math.min(whole, mask.length); i++) if (mask[i] !== 0) return;
  if (whole < mask.length && mask[whole] << (32 - (vocab & 31)) !== 0 && (vocab & 31) > 0) return;
  throw new TransformersError(
    'INVALID_OPTION',
    `The constraint allows none of the ${vocab} tokens; let it allow an end-of-text token where the text may end.`,
  );
}
