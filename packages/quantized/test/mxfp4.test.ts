/** Checkpoints in MXFP4 against the numbers that transformers makes of them (tools/golden/mxfp4.py). */
import { readFileSync } from 'node:fs';
import { memoryStats } from '@x/core';
import { SafetensorsFile } from '@x/core/files';
import { describe, expect, it } from 'vitest';
import { mxfp4Shape, QTensor } from '../src';

interface Fixture {
  blocks: number[];
  scales: number[];
  shape: [experts: number, rows: number, k: number];
  values: number[];
}
const fixture = JSON.parse(readFileSync(new URL('fixtures/mxfp4.json', import.meta.url), 'utf8')) as Fixture;
const [experts, rows, k] = fixture.shape;

/** A safetensors file in memory. */
function fileOf(tensors: Record<string, { shape: number[]; dtype?: string; bytes: Uint8Array }>): SafetensorsFile {
  let at = 0;
  const header = Object.fromEntries(
    Object.entries(tensors).map(([name, { shape, dtype = 'U8', bytes }]) => {
      const entry = { dtype, shape, data_offsets: [at, at + bytes.length] };
      at += bytes.length;
      return [name, entry];
    }),
  );
  const json = new TextEncoder().encode(JSON.stringify(header));
  const out = new Uint8Array(8 + json.length + at);
  new DataView(out.buffer).setBigUint64(0, BigInt(json.length), true);
  out.set(json, 8);
  let to = 8 + json.length;
  for (const { bytes } of Object.values(tensors)) {
    out.set(bytes, to);
    to += bytes.length;
  }
  return SafetensorsFile.open(out);
}

const blocks = { shape: [experts, rows, k / 32, 16], bytes: Uint8Array.from(fixture.blocks) };
const scales = { shape: [experts, rows, k / 32], bytes: Uint8Array.from(fixture.scales) };
const file = fileOf({ w_blocks: blocks, w_scales: scales });

describe('weights in MXFP4', () => {
  const device = 'js';

  it('are the numbers that transformers makes of them', async () => {
    const before = memoryStats();
    for (const weight of [await QTensor.loadMxfp4(file, 'w', device), QTensor.loadMxfp4Sync(file, 'w', device)]) {
      expect(weight.shape).toEqual(fixture.shape);
      expect([weight.type, weight.kind]).toEqual(['mxfp4', 'blocks']);
      using values = weight.dequantize('f32');
      expect(Array.from(await values.toArray<Float32Array>())).toEqual(fixture.values);
      weight.dispose();
    }
    expect(memoryStats()).toEqual(before);
  });

  it('give every second row, or half of the rows of each expert', async () => {
    for (const interleaved of [true, false]) {
      for (const index of [0, 1]) {
        using weight = await QTensor.loadMxfp4(file, 'w', device, { part: { index, of: 2, interleaved } });
        using values = weight.dequantize('f32');
        const from = (row: number) => (interleaved ? 2 * row + index : (index * rows) / 2 + row);
        const expected = Array.from({ length: experts }, (_, e) =>
          Array.from({ length: rows / 2 }, (_, row) => {
            const at = (e * rows + from(row)) * k;
            return fixture.values.slice(at, at + k);
          }),
        ).flat(2);
        expect(weight.shape).toEqual([experts, rows / 2, k]);
        expect(Array.from(await values.toArray<Float32Array>())).toEqual(expected);
      }
    }
  });
});

it('says which two tensors do not belong together', async () => {
  const half = { shape: [experts, rows, 1], bytes: scales.bytes.slice(0, experts * rows) };
  const wide = { shape: [experts, rows, k / 32], dtype: 'F16', bytes: new Uint8Array(2 * scales.bytes.length) };
  const flat = { shape: [blocks.bytes.length / 16, 16], bytes: blocks.bytes };
  for (const [b, s] of [
    [blocks, half],
    [blocks, wide],
    [flat, { ...scales, shape: [scales.bytes.length] }],
  ]) {
    const odd = fileOf({ w_blocks: b, w_scales: s });
    const wrong = { code: 'FILE_INVALID', message: expect.stringContaining('"w_blocks"') };
    expect(() => mxfp4Shape(odd, 'w')).toThrow(expect.objectContaining(wrong));
    await expect(QTensor.loadMxfp4(odd, 'w', 'js')).rejects.toMatchObject(wrong);
  }
  const part = { index: 0, of: 4, interleaved: true };
  await expect(QTensor.loadMxfp4(file, 'w', 'js', { part })).rejects.toMatchObject({ code: 'SHAPE_MISMATCH' });
  await expect(QTensor.loadMxfp4(file, 'x', 'js')).rejects.toMatchObject({ code: 'FILE_NO_SUCH_TENSOR' });
  const stopped = AbortSignal.abort();
  const before = memoryStats();
  await expect(QTensor.loadMxfp4(file, 'w', 'js', { signal: stopped })).rejects.toThrow();
  expect(memoryStats()).toEqual(before);
});

it('gives parts of a tensor as the file holds them', () => {
  const into = new Uint8Array(5);
  file.readPartSync('w_blocks', 7, into);
  expect(Array.from(into)).toEqual(fixture.blocks.slice(7, 12));
  for (const offset of [-1, 0.5, Number.NaN, blocks.bytes.length - 4])
    expect(() => file.readPartSync('w_blocks', offset, into)).toThrow(
      expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }),
    );
});
