/** Weights by path, from a GGUF file. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Device, memoryStats } from '@x/core';
import { GgufFile } from '@x/quantized';
import { expect, test } from 'vitest';
import { QuantizedVarBuilder } from './quantized-var-builder';

const path = fileURLToPath(new URL('../../../../models/tiny-tales/tiny-tales-q8_0.gguf', import.meta.url));
const device = Device.js();

test('paths, shapes and mistakes', async () => {
  const before = memoryStats();
  using vb = QuantizedVarBuilder.fromGguf(GgufFile.open(path), device);
  const block = vb.pp('blk').pp(3);
  expect(block.containsTensor('attn_q.weight')).toBe(true);
  expect(block.containsTensor('attn_q')).toBe(false);
  const q = await block.pp('attn_q').get([256, 256], 'weight');
  expect([q.type, q.kind, q.shape]).toEqual(['q8_0', 'blocks', [256, 256]]);
  const norm = block.getUncheckedSync('attn_norm.weight');
  expect([norm.type, norm.kind, norm.shape]).toEqual(['f32', 'dense', [256]]);
  for (const weight of [q, norm]) weight.dispose();
  await expect(block.get([256, 255], 'attn_q.weight')).rejects.toThrow(
    expect.objectContaining({ code: 'SHAPE_MISMATCH', message: expect.stringMatching(/"blk\.3\.attn_q\.weight"/) }),
  );
  await expect(block.get([256, 256], 'attn_qq.weight')).rejects.toThrow(
    expect.objectContaining({
      code: 'FILE_NO_SUCH_TENSOR',
      message: expect.stringContaining('"blk.3.attn_qq.weight"'),
    }),
  );
  expect(memoryStats()).toEqual(before);
});

test('a file in memory', () => {
  using file = GgufFile.open(path);
  using vb = QuantizedVarBuilder.fromGgufBuffer(readFileSync(path), device);
  using a = vb.pp('blk.2').getSync([128, 256], 'attn_k.weight');
  expect(Buffer.compare(a.toBytesSync(), file.readTensorBytes('blk.2.attn_k.weight'))).toBe(0);
});
