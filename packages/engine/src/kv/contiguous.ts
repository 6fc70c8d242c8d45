/** The cache of a batch whose sequences each have memory of their own (sequence-cache.ts). */
import { keep, scope, Tensor } from '@x/core';
import { causalBias, sdpa } from '@x/nn';
import type { AttendOptions, KvView, LayerKv } from '@x/transformers';
import type { SequenceCache } from './sequence-cache';

/** The tokens of one sequence in a batch. */
export interface SequencePart {
  cache: SequenceCache;
  /** How many tokens of the batch are its own. */
  count: number;
}

export class ContiguousKv implements KvView {
  /** What hides later positions: made for the first layer that needs it, by sizes. */
  private readonly biases = new Map<string, Tensor | undefined>();

  /** @param parts in the order of the batch; room for their tokens is reserved */
  constructor(private readonly parts: readonly SequencePart[]) {
    for (const { cache, count } of parts) cache.reserve(cache.length + count);
  }

  layer(index: number): LayerKv {
    return {
      append: (k, v) => this.append(index, k, v),
      attend: (q, options) => this.attend(index, q, options),
    };
  }

  /** After a forward pass that went through: the new positions count. */
  commit(): void {
    for (const { cache, count } of this.parts) cache.commit(count);
  }

  /** Gives back what belongs to the forward pass; the caches stay. */
  dispose(): void {
    for (const bias of this.biases.values()) bias?.dispose();
    this.biases.clear();
  }

  private append(layer: number, k: Tensor, v: Tensor): void {
    this.each((cache, start, count) => {
      cache.write(layer, part(k, start, count), part(v, start, count));
    });
  }

  private attend(layer: number, q: Tensor, options: AttendOptions): Tensor {
    const mixed = this.each((cache, start, count) => this.attendSequence(cache, layer, part(q, start, count), options));
    return mixed.length === 1 ? mixed[0] : Tensor.cat(mixed, 0);
  }

  private each<T>(run: (cache: SequenceCache, start: number, count: number) => T): T[] {
    let start = 0;
    return this.parts.map(({ cache, count }) => {
      const result = run(cache, start, count);
      start += count;
      return result;
    });
  }

  /** q [heads, count, d] to [count, heads · dv] */
  private attendSequence(cache: SequenceCache, layer: number, q: Tensor, options: AttendOptions): Tensor {
    const { scale = 1, window, softcap = 1 } = options;
    const [heads, count] = q.shape;
    // Keys that none of these queries sees are left out.
    const first = window === undefined ? 0 : Math.max(0, cache.length + 1 - window);
    const length = cache.length + count - first;
    const { k, v } = cache.read(layer, first, length);
    // One query sees all that is left; several see less the earlier they are.
    const masked = count > 1 && { causal: true, window, causalBias: () => this.bias(count, length, window, q) };
    const mixed = sdpa(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), { scale, softcapping: softcap, ...masked });
    return mixed
      .squeeze(0)
      .transpose(0, 1)
      .reshape([count, heads * v.dim(2)]);
  }

  private bias(
    count: number,
    length: number,
    window: number | undefined,
    { device, dtype }: Tensor,
  ): Tensor | undefined {
    const key = `${count} ${length} ${window}`;
    if (!this.biases.has(key)) {
      const made = scope(() => causalBias(count, length, { window, device, dtype }));
      this.biases.set(key, made && keep(made));
    }
    return this.biases.get(key);
  }
}

/** The tokens of one sequence among those of a batch: [heads, tokens, d]. */
function part(all: Tensor, start: number, count: number): Tensor {
  return count === all.dim(1) ? all : all.narrow(1, start, count);
}
