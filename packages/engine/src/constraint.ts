/** What may come next: how grammars and schemas steer a text without the engine knowing them. */
import { TransformersError } from '@x/transformers';
import type { Sampler } from './sampling/sampler';

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
  /**
   * Another constraint at the same place, which goes its own way: speculative decoding asks it what would be possible behind tokens
   * that it expects. Only that needs it.
   */
  fork?(): Constraint;
}

/** Makes the logits of all other tokens -Infinity, in place. */
export function applyMask(logits: Float32Array, mask: Uint32Array): void {
  for (let id = 0; id < logits.length; id++) if (!allows(mask, id)) logits[id] = Number.NEGATIVE_INFINITY;
}

/** Whether a mask allows a token. */
export function allows(mask: Uint32Array, id: number): boolean {
  return (((mask[id >>> 5] ?? 0) >>> (id & 31)) & 1) === 1;
}

/** Whether a mask allows any of `vocab` tokens. */
export function allowsAny(mask: Uint32Array, vocab: number): boolean {
  const whole = vocab >>> 5;
  for (let i = 0; i < Math.min(whole, mask.length); i++) if (mask[i] !== 0) return true;
  return whole < mask.length && mask[whole] << (32 - (vocab & 31)) !== 0 && (vocab & 31) > 0;
}

/** What of a sampler makes tokens impossible. */
type Limits = Pick<Sampler, 'mask' | 'edits'>;

/** Whether mask and biases together leave any of `vocab` tokens. */
export function isAnyPossible({ mask, edits }: Limits, vocab: number): boolean {
  const excluded = edits.filter(({ add }) => add === Number.NEGATIVE_INFINITY);
  if (excluded.length === 0) return mask === undefined || allowsAny(mask, vocab);
  const left = mask?.slice() ?? new Uint32Array(Math.ceil(vocab / 32)).fill(2 ** 32 - 1);
  for (const { id } of excluded) left[id >>> 5] &= ~(1 << (id & 31));
  return allowsAny(left, vocab);
}

/** @throws TransformersError INVALID_OPTION where mask and biases leave none of `vocab` tokens */
export function checkPossible(limits: Limits, vocab: number): void {
  if (isAnyPossible(limits, vocab)) return;
  const { mask } = limits;
  if (mask && !allowsAny(mask, vocab))
    throw new TransformersError(
      'INVALID_OPTION',
      `The constraint allows none of the ${vocab} tokens; let it allow an end-of-text token where the text may end.`,
    );
  const all = mask ? 'every token that the form of the text allows here' : `all ${vocab} tokens`;
  throw new TransformersError(
    'INVALID_OPTION',
    `logitBias excludes ${all}, so none can be chosen; give -Infinity to fewer tokens.`,
    { option: 'logitBias' },
  );
}
