/** Steps of a few tokens on a cache in blocks: what the device's kernels give is what single operations give, in fewer launches. */
import { fileURLToPath } from 'node:url';
import { type BackendDevice, type Device, memoryStats, scope, Tensor } from '@x/core';
import { type PagedCache, pagedActivations, pagedAppend, pagedAttention } from '@x/nn';
import { GgufFile } from '@x/quantized';
import { testDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import { type CausalModel, describeGguf, type KvView, type PagedLayer, Weights } from '../src';

const MODEL = fileURLToPath(new URL('../../../models/tiny-tales/tiny-tales-q8_0.gguf', import.meta.url));
const BLOCK = 16;
const LENGTH = 64;
const TOKENS = [1, 35, 210, 99, 4, 57, 800, 12, 13, 14, 300, 7];

/** A cache for one sequence; `offers` says whether layers show where it is. */
class Blocks {
  private readonly layers: PagedCache[];
  private readonly tables: Tensor;

  constructor(
    { kvLayouts, device }: CausalModel,
    private readonly offers: boolean,
  ) {
    this.layers = kvLayouts.map((layout) => ({
      keys: Tensor.zeros([LENGTH, layout!.kvHeads, layout!.keyDim], { device }),
      values: Tensor.zeros([LENGTH, layout!.kvHeads, layout!.valueDim], { device }),
      blockSize: BLOCK,
    }));
    const blocks = Uint32Array.from({ length: LENGTH / BLOCK }, (_, i) => LENGTH / BLOCK - 1 - i);
    this.tables = Tensor.from(blocks, { shape: [1, blocks.length], device });
  }

  /** Of tokens at positions from `start` on. */
  inputs(start: number, count: number) {
    const { device } = this.tables;
    const each = (value: (position: number) => number) =>
      Tensor.from(
        Uint32Array.from({ length: count }, (_, i) => value(start + i)),
        { device },
      );
    const slots = each((at) => LENGTH - BLOCK - Math.floor(at / BLOCK) * BLOCK + (at % BLOCK));
    const [lengths, rows] = [each((at) => at + 1), each(() => 0)];
    const kv: KvView = {
      layer: (i) => {
        const cache = this.layers[i];
        const paged: PagedLayer = { ...cache, slots };
        return {
          ...(this.offers && { paged }),
          ...(this.offers && count === 1 && { step: { ...paged, tables: this.tables, lengths } }),
          append: (k, v) => pagedAppend(cache, k, v, slots),
          attend: (q, { scale = 1 }) => {
            const mixed = pagedAttention(q.transpose(0, 1), cache, this.tables, lengths, { rows, scale });
            return mixed.reshape([count, mixed.dim(1) * mixed.dim(2)]);
          },
          ...(this.offers && {
            attendInBlocks: (q, { scale = 1 }) =>
              pagedActivations(q.transpose(0, 1), cache, this.tables, lengths, { rows, scale }),
          }),
        };
      },
    };
    return { positions: each((at) => at), kv };
  }
}

async function load(device: Device): Promise<CausalModel> {
  const file = GgufFile.open(MODEL);
  const { architecture, config } = describeGguf(file.metadata);
  const weights = new Weights(file, { device, layout: architecture });
  try {
    return await architecture.build(weights, config, LENGTH);
  } finally {
    weights.close();
  }
}

/** Logits of all tokens, given so many at a time, and the launches of the last step. */
function logitsOf(model: CausalModel, offers: boolean, atOnce: readonly number[]) {
  return scope(() => {
    const { device } = model;
    const blocks = new Blocks(model, offers);
    const rows: number[][] = [];
    let launches = 0;
    let start = 0;
    for (const count of atOnce) {
      const { positions, kv } = blocks.inputs(start, count);
      const tokens = Tensor.from(Uint32Array.from(TOKENS.slice(start, start + count)), { device });
      const before = device.backend.launchCount ?? 0;
      const pass = model.pass({ tokens, positions, outputs: 'all' }, kv);
      let step = pass.next();
      while (!step.done) step = pass.next();
      launches = (device.backend.launchCount ?? 0) - before;
      rows.push(...step.value!.toVecSync<number[][]>());
      start += count;
    }
    return { rows, launches };
  });
}

/** Runs `body` as on a device without the fused kernels. */
function withoutKernels<T>(backend: BackendDevice, body: () => T): T {
  const own = Object.getOwnPropertyDescriptor(backend, 'decode');
  Object.defineProperty(backend, 'decode', { value: undefined, configurable: true });
  try {
    return body();
  } finally {
    if (own) Object.defineProperty(backend, 'decode', own);
    else delete (backend as { decode?: unknown }).decode;
  }
}

/** NaN where one is. */
function worst(actual: readonly number[][], expected: readonly number[][]): number {
  return Math.max(...actual.map((row, i) => Math.max(...row.map((value, j) => Math.abs(value - expected[i][j])))));
}

describe.each(testDevices())('a step of few tokens on %s', (device) => {
  it('gives the logits of single operations, whatever the number of tokens', async () => {
    const before = memoryStats();
    const model = await load(device);
    const { rows: expected } = withoutKernels(device.backend, () => logitsOf(model, false, [TOKENS.length]));
    const spread = Math.max(...expected.flat().map(Math.abs));
    for (const atOnce of [[12], [9, 3], [1, 8, 2, 1], TOKENS.map(() => 1)]) {
      for (const offers of [false, true]) {
        const { rows } = logitsOf(model, offers, atOnce);
        // Blocks of 8 bits whose values are a last bit apart may be rounded to other numbers.
        expect(worst(rows, expected), `${atOnce}`).toBeLessThan(spread * (device.kind === 'js' ? 1e-5 : 5e-3));
      }
    }
    model.dispose();
    expect(memoryStats()).toEqual(before);
  });

  it('launches at most 8 kernels a layer where the device has them', async () => {
    const model = await load(device);
    const one = TOKENS.map(() => 1);
    const { launches } = logitsOf(model, true, one);
    const separate = withoutKernels(device.backend, () => logitsOf(model, false, one)).launches;
    const layers = model.kvLayouts.length;
    if (device.backend.decode) {
      expect(launches).toBeLessThanOrEqual(8 * layers + 6);
      expect(separate).toBeGreaterThan(launches + 8 * layers);
    } else expect(launches).toBe(0);
    model.dispose();
  });
});
