/**
 * Forward passes for sequences: puts the tokens of several sequences into one batch, gives the model a view of their caches,
 * and commits what was written when all layers are through. Eager; a captured form would replay the same batch.
 */
import { scope, Tensor } from '@x/core';
import { type Batch, type CausalModel, type ForwardPass, TransformersError } from '@x/transformers';
import { ContiguousKv } from './kv/contiguous';
import { SequenceCache } from './kv/sequence-cache';

/** Tokens that follow what a sequence's cache holds. */
export interface Step {
  cache: SequenceCache;
  ids: ArrayLike<number>;
}

export class Runner {
  /** @param maxContext positions that a sequence may have */
  constructor(
    readonly model: CausalModel,
    readonly maxContext: number,
  ) {}

  /** An empty cache for one sequence: the caller's to dispose. */
  cache(): SequenceCache {
    return new SequenceCache(this.model.kvLayouts, this.model.device, this.maxContext);
  }

  /** {@link pass} to its end, with logits. */
  step(steps: readonly Step[]): Tensor {
    const pass = this.pass(steps, true);
    for (;;) {
      const step = pass.next();
      if (step.done) return step.value!;
    }
  }

  /**
   * Reads tokens and predicts, for each sequence, the one after its last: logits [steps, vocabSize], f32, the caller's to
   * dispose. The sequences change when the pass has come to its end; one that fails or is left changes nothing. A sequence
   * is in one pass at a time. The checks are made at the first `next()`.
   * @throws TransformersError EMPTY_INPUT, BAD_TOKEN, CONTEXT_EXCEEDED
   */
  *pass(steps: readonly Step[], logits: boolean): ForwardPass {
    for (const { cache, ids } of steps) this.check(ids, cache.length);
    const view = new ContiguousKv(steps.map(({ cache, ids }) => ({ cache, count: ids.length })));
    const batch = this.batch(steps, logits);
    try {
      const result = yield* this.model.pass(batch, view);
      view.commit();
      return result;
    } finally {
      view.dispose();
      const { tokens, positions, outputs } = batch;
      for (const tensor of [tokens, positions, outputs]) if (typeof tensor === 'object') tensor.dispose();
    }
  }

  private batch(steps: readonly Step[], logits: boolean): Batch {
    const { device } = this.model;
    const total = steps.reduce((sum, { ids }) => sum + ids.length, 0);
    const tokens = new Uint32Array(total);
    const positions = new Uint32Array(total);
    const outputs = new Uint32Array(steps.length);
    let at = 0;
    steps.forEach(({ cache, ids }, row) => {
      tokens.set(ids, at);
      for (let i = 0; i < ids.length; i++) positions[at + i] = cache.length + i;
      at += ids.length;
      outputs[row] = at - 1;
    });
    return scope(() => ({
      tokens: Tensor.from(tokens, { device }),
      positions: Tensor.from(positions, { device }),
      outputs: !logits ? 'none' : total === steps.length ? 'all' : Tensor.from(outputs, { device }),
    }));
  }

  /** @throws what {@link step} throws for tokens at a position */
  check(ids: ArrayLike<number>, position: number): void {
    if (ids.length === 0) {
      throw new TransformersError(
        'EMPTY_INPUT',
        'forward: there are no tokens; give at least one, such as the BOS token.',
      );
    }
    const { vocabSize, contextLength } = this.model.config;
    for (let i = 0; i < ids.length; i++) {
      if (Number.isInteger(ids[i]) && ids[i] >= 0 && ids[i] < vocabSize) continue;
      throw new TransformersError(
        'BAD_TOKEN',
        `forward: token ${ids[i]} at index ${i} is not in the vocabulary of ${vocabSize}; use ids of this model's tokenizer.`,
      );
    }
    if (position + ids.length > this.maxContext) {
      throw new TransformersError(
        'CONTEXT_EXCEEDED',
        `forward: ${ids.length} tokens at position ${position} need ${position + ids.length} positions, the cache has ${this.maxContext}; ` +
          `give fewer tokens, or load the model with a larger maxContext (it was made for ${contextLength}).`,
      );
    }
  }
}
