/** Runs many texts in batches of similar length, and gives their results in the order of the texts. */
import type { Device, Tensor } from '@x/core';
import type { Segments } from '@x/nn';
import { Pacer } from '../schedule/pacer';
import { packTexts, type TextIds, type TextModel } from './text-model';

export interface BatchJob<Item> {
  segments: Segments;
  items: readonly Item[];
}

export interface RunOptions<Item> {
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
  batchTokens?: number;
  /** Makes rows [texts, n] of the hidden states [tokens, hiddenSize] of a batch. */
  finish: (hidden: Tensor, job: BatchJob<Item>) => Tensor;
}

/**
 * Tokens of a batch. On the host what a layer makes of them should stay in the last cache, and its weights are read once for all; a
 * GPU is full with some thousands.
 */
const BATCH_TOKENS: Partial<Record<Device['location']['kind'], number>> = { js: 256, cpu: 1024 };
const GPU_BATCH_TOKENS = 16_384;

export class Batches {
  constructor(private readonly model: TextModel) {}

  async run<Item extends TextIds>(items: readonly Item[], options: RunOptions<Item>): Promise<Float32Array[]> {
    const { signal, onProgress, finish, batchTokens = BATCH_TOKENS[this.model.device.location.kind] } = options;
    const results: Float32Array[] = new Array(items.length);
    const pacer = new Pacer(() => signal?.throwIfAborted());
    let done = 0;
    // The results of one batch are awaited while the next one runs.
    let pending: Promise<void> | undefined;
    try {
      for (const batch of batchesOf(items, batchTokens ?? GPU_BATCH_TOKENS)) {
        const rows = await this.batch(
          batch.map((i) => items[i]),
          pacer,
          finish,
        );
        await pending;
        pending = read(rows, batch, results).then(() => {
          done += batch.length;
          onProgress?.(done, items.length);
        });
        // A failure is thrown where it is awaited.
        pending.catch(() => {});
      }
      await pending;
      signal?.throwIfAborted();
      return results;
    } finally {
      await pending?.catch(() => {});
      await pacer.idle();
    }
  }

  private async batch<Item extends TextIds>(
    items: readonly Item[],
    pacer: Pacer,
    finish: RunOptions<Item>['finish'],
  ): Promise<Tensor> {
    const packed = packTexts(items, this.model.device);
    try {
      const hidden = (await pacer.run(this.model.pass(packed)))!;
      try {
        return finish(hidden, { segments: packed.segments, items });
      } finally {
        hidden.dispose();
      }
    } finally {
      packed.dispose();
    }
  }
}

/** Indices of items, longest first: texts of similar length take a kernel a similar time. */
function batchesOf(items: readonly TextIds[], most: number): number[][] {
  const order = items.map((_, i) => i).sort((a, b) => items[b].ids.length - items[a].ids.length);
  const batches: number[][] = [];
  let room = 0;
  for (const i of order) {
    const { length } = items[i].ids;
    if (batches.length === 0 || length > room) {
      batches.push([]);
      room = most;
    }
    batches[batches.length - 1].push(i);
    room -= length;
  }
  return batches;
}

/** Rows [texts, n] of a batch into their places. */
async function read(rows: Tensor, batch: readonly number[], results: Float32Array[]): Promise<void> {
  try {
    const width = rows.dim(1);
    const values = (await rows.toArray()) as Float32Array;
    batch.forEach((i, row) => {
      results[i] = values.slice(row * width, (row + 1) * width);
    });
  } finally {
    rows.dispose();
  }
}
