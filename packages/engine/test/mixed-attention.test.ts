/** Attention of a pass that holds decoding tokens and parts of prompts, in the cache's narrow dtype: what js makes of it in steps. */
import { Device, scope, Tensor } from '@x/core';
import { headsAppend, promptHeads, TILE_NUMBERS, type VarlenPart, varlenTiles } from '@x/nn';
import { testDevices } from '@x/testing/devices';
import { generator } from '@x/testing/operands';
import type { AttendOptions } from '@x/transformers';
import { describe, expect, it } from 'vitest';
import { KvMemory } from '../src/kv/memory';
import { PagedKv, type Segment } from '../src/kv/paged';
import { BLOCK_SIZE } from '../src/kv/rows';

const [HEADS, KV_HEADS, D, TABLE] = [4, 2, 64, 64];
/** Positions in front of each part, its tokens, and the blocks of its sequence. */
const PARTS = [
  { before: 0, count: 20, blocks: [3, 4] },
  { before: 9, count: 17, blocks: [6, 5] },
];
/** Positions of decoding tokens, one a sequence, whose block has its index. */
const DECODING = [5, 0, 11];

function noise(shape: number[], seed: number): Tensor {
  const next = generator(seed);
  const values = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => 2 * next() - 1);
  return Tensor.from(values).reshape(shape);
}

function attended(
  on: Device,
  dtype: 'f16' | 'bf16',
  decoding: readonly number[],
  limits: Pick<AttendOptions, 'window' | 'softcap'>,
): { one?: Tensor; steps: Tensor } {
  const slotOf = (blocks: readonly number[], position: number) =>
    blocks[Math.floor(position / BLOCK_SIZE)] * BLOCK_SIZE + (position % BLOCK_SIZE);
  const places = [
    ...decoding.map((position, i) => ({ position, slot: slotOf([i], position) })),
    ...PARTS.flatMap(({ before, count, blocks }) =>
      Array.from({ length: count }, (_, i) => ({ position: before + i, slot: slotOf(blocks, before + i) })),
    ),
  ];
  const ids = (values: number[]) => Tensor.from(Uint32Array.from(values), { device: on });
  const [positions, slots] = [places.map(({ position }) => position), places.map(({ slot }) => slot)].map(ids);
  const segments: Segment[] = [];
  if (decoding.length > 0)
    segments.push({
      kind: 'tokens',
      start: 0,
      count: decoding.length,
      tables: ids([...decoding.keys()]).reshape([decoding.length, 1]),
      lengths: ids(decoding.map((position) => position + 1)),
    });
  let start = decoding.length;
  let table = 0;
  const parts: VarlenPart[] = [];
  for (const { before, count, blocks } of PARTS) {
    segments.push({ kind: 'sequence', start, count, before, blocks: ids(blocks) });
    parts.push({ start: start - decoding.length, count, before, table });
    start += count;
    table += blocks.length;
  }
  const memory = new KvMemory([{ kvHeads: KV_HEADS, keyDim: D, valueDim: D }], on, dtype);
  try {
    memory.resize(8);
    const cache = memory.layer(0);
    cache.keys.copyFrom(
      noise(cache.keys.shape as number[], 7)
        .toDtype(dtype)
        .toDeviceSync(on),
    );
    cache.values.copyFrom(
      noise(cache.values.shape as number[], 8)
        .toDtype(dtype)
        .toDeviceSync(on),
    );
    const rows = noise([start, (HEADS + 2 * KV_HEADS) * D], 9).toDeviceSync(on);
    const part = (from: number, count: number) => rows.narrow(1, from * D, count * D);
    const heads = { q: part(0, HEADS), k: part(HEADS, KV_HEADS), v: part(HEADS + KV_HEADS, KV_HEADS) };
    const angles = noise([TABLE, D / 2], 10).mul(Math.PI);
    const [cos, sin] = [angles.cos(), angles.sin()].map((table) => table.toDeviceSync(on));
    const rotation = { cos, sin, positions, kind: 'half' } as const;
    const options = { scale: D ** -0.5 };
    const numbers = varlenTiles(parts, memory.varlenRows ?? 128);
    const tiles = {
      start: decoding.length,
      tiles: ids([...numbers]).reshape([numbers.length / TILE_NUMBERS, TILE_NUMBERS]),
      tables: ids(PARTS.flatMap(({ blocks }) => blocks)),
    };
    const view = new PagedKv(memory, slots, segments, undefined, memory.varlenRows === undefined ? undefined : tiles);
    const layer = view.layer(0);
    const q = headsAppend(heads, rotation, options, cache, slots);
    const steps = layer.attend(q.transpose(0, 1), { scale: 1, ...limits });
    const prompts = layer.prompts?.(limits);
    const one = prompts?.attend(promptHeads(heads, rotation, options, prompts, slots, prompts.wide));
    view.dispose();
    return { steps, ...(one && { one }) };
  } finally {
    memory.release();
  }
}

describe.each(testDevices())('a pass of decoding tokens and prompts on %s', (device) => {
  const limits = [{}, { window: 8 }, { softcap: 0.5 }];
  it.each((['f16', 'bf16'] as const).flatMap((dtype) => limits.map((own) => ({ dtype, ...own }))))(
    'attends in %j, at once where it can',
    ({ dtype, ...own }) => {
      for (const decoding of [DECODING, []]) {
        scope(() => {
          const { steps: expected } = attended(Device.js(), dtype, decoding, own);
          const { one, steps } = attended(device, dtype, decoding, own);
          const { attention, decode } = device.backend;
          const size = { b: 1, heads: HEADS, kvHeads: KV_HEADS, seq: 17, kv: 26, d: D, scale: 1, causal: true };
          const can = device.kind !== 'cpu' && decode !== undefined && attention?.supports(dtype, size) === true;
          expect(one !== undefined).toBe(can);
          if (one) expect(one.dtype).toBe(dtype);
          for (const made of [steps, ...(one ? [one] : [])]) {
            expect(made.shape).toEqual([expected.dim(0), HEADS * D]);
            const difference = made.toDeviceSync('js').toDtype('f32').sub(expected).abs().flattenAll().max(0);
            expect(difference.toScalarSync()).toBeLessThan(dtype === 'f16' ? 4e-3 : 3e-2);
          }
        });
      }
    },
  );
});
