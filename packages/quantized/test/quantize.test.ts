/** Values that blocks cannot hold are refused wherever weights are quantised: in this thread and in others. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, memoryStats, Tensor } from '@x/core';
import { build } from 'esbuild';
import { afterAll, describe, expect, test } from 'vitest';
import { blockFormat, QTensor, QUANT_TYPES, quantizeBlocks } from '../src';
import { QuantizePool } from '../src/quantize';

const WRITTEN = QUANT_TYPES.filter((type) => blockFormat(type).quantize !== undefined);
const BLOCKS = WRITTEN.filter((type) => blockFormat(type).blockSize > 1);
const BAD = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];

/** Three rows of 256, the last one with `value` at 17. */
function withValue(value: number): Float32Array {
  const x = new Float32Array(3 * 256).fill(0.5);
  x[2 * 256 + 17] = value;
  return x;
}

const refusal = (message: string) =>
  expect.objectContaining({ code: 'NOT_FINITE', message: expect.stringContaining(message) });

describe.each(BLOCKS)('%s', (type) => {
  test.each(BAD)('%d is refused, by its place', async (value) => {
    const x = withValue(value);
    const importance = new Float32Array(256).fill(1);
    const message = `Quantising to ${type}: value 17 of row 2 is ${value}.`;
    await expect(quantizeBlocks(type, x, 256)).rejects.toThrow(refusal(message));
    await expect(quantizeBlocks(type, x, 256, { importance })).rejects.toThrow(refusal(message));
    using tensor = Tensor.from(x, { shape: [3, 256], device: Device.js() });
    const before = memoryStats().liveStorages;
    await expect(QTensor.quantize(tensor, type)).rejects.toThrow(refusal(message));
    expect(() => QTensor.quantizeSync(tensor, type)).toThrow(refusal(message));
    expect(memoryStats().liveStorages).toBeLessThanOrEqual(before);
  });

  test('large values are not', async () => {
    const x = new Float32Array(3 * 256).fill(3e38);
    expect((await quantizeBlocks(type, x, 256)).length).toBeGreaterThan(0);
  });
});

test('numbers that are no blocks keep them', async () => {
  for (const value of BAD)
    expect(new Float32Array((await quantizeBlocks('f32', withValue(value), 256)).buffer)[529]).toBe(value);
});

test('the error names the weight and counts its rows', async () => {
  const weight = { name: 'blk.0.attn_q.weight', firstRow: 1000 };
  await expect(quantizeBlocks('q4_0', withValue(Number.NaN), 256, { weight })).rejects.toThrow(
    refusal("value 17 of row 1002 of 'blk.0.attn_q.weight' is NaN. The weight is damaged: get it again"),
  );
});

test('a thread answers with the error and goes on', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'quantize-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const source = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
  const outfile = join(folder, 'quantize-worker.mjs');
  await build({
    entryPoints: [source('quantized/src/quantize-worker.ts')],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    alias: { '@x/core/files': source('core/src/files/index.ts'), '@x/core': source('core/src/index.ts') },
  });
  const pool = new QuantizePool(new URL(`file://${outfile}`));
  pool.grow(1);
  const run = (x: Float32Array) => pool.run({ type: 'q4_0', x, k: 256, firstRow: 0, rows: 3 });
  const [bad, good] = await Promise.allSettled([run(withValue(Number.NaN)), run(withValue(1))]);
  expect(bad).toEqual({ status: 'rejected', reason: refusal('value 17 of row 2 is NaN') });
  expect(good).toMatchObject({ status: 'fulfilled', value: await quantizeBlocks('q4_0', withValue(1), 256) });
  await pool.close();
});
