/** Weights by path, and the tiny model's arithmetic on the plain device. */
import { readFileSync } from 'node:fs';
import { Device, FileFormatError, memoryStats, Tensor } from '@x/core';
import { expect, test } from 'vitest';
import { GgufFile, QMatMul, QuantizedVarBuilder } from '../src';
import { random, TINY_TALES } from './fixture';

const device = Device.js();

test('paths, shapes and mistakes', () => {
  using file = GgufFile.open(TINY_TALES);
  const vb = QuantizedVarBuilder.fromGguf(file, device);
  const block = vb.pp('blk').pp(3);
  expect(block.prefix).toBe('blk.3');
  expect(block.path('attn_q.weight')).toBe('blk.3.attn_q.weight');
  expect(block.containsKey('attn_q.weight')).toBe(true);
  expect(block.containsKey('attn_q')).toBe(false);
  using q = block.pp('attn_q').get([256, 256], 'weight');
  expect([q.type, q.shape]).toEqual(['q8_0', [256, 256]]);
  using norm = block.getNoShape('attn_norm.weight');
  expect([norm.type, norm.kind, norm.shape]).toEqual(['f32', 'dense', [256]]);
  expect(() => block.get([256, 255], 'attn_q.weight')).toThrow(
    /'blk\.3\.attn_q\.weight' is \[256, 256\].*\[256, 255\]/,
  );
  expect(() => block.get([256, 255], 'attn_q.weight')).toThrow(
    expect.objectContaining({ code: 'GGUF_SHAPE_MISMATCH' }),
  );
  expect(() => block.get([256, 256], 'attn_qq.weight')).toThrow(/'blk\.3\.attn_q\.weight'/);
  expect(() => vb.getNoShape('model.layers.0.attn_q.weight')).toThrow(/attn_q\.weight'/);
  expect(() => vb.getNoShape('zzz')).toThrow(FileFormatError);
});

test('a file in memory', () => {
  using file = GgufFile.open(TINY_TALES);
  const vb = QuantizedVarBuilder.fromGgufBuffer(readFileSync(TINY_TALES), device);
  using a = vb.pp('blk.2').getNoShape('attn_k.weight');
  using b = QuantizedVarBuilder.fromGguf(file, device).getNoShape('blk.2.attn_k.weight');
  expect(Buffer.compare(a.toBytesSync(), b.toBytesSync())).toBe(0);
  expect(vb.device).toBe(device);
});

test('a tensor asked for twice is in memory once', () => {
  using file = GgufFile.open(TINY_TALES);
  const before = memoryStats();
  const vb = QuantizedVarBuilder.fromGguf(file, device);
  const a = vb.getNoShape('token_embd.weight');
  const b = vb.get([4096, 256], 'token_embd.weight');
  expect(memoryStats().liveStorages).toBe(before.liveStorages + 1);
  a.dispose();
  expect(b.isDisposed).toBe(false);
  b.dispose();
  expect(memoryStats()).toEqual(before);
  using again = vb.getNoShape('token_embd.weight');
  expect(again.storageSizeInBytes).toBe((4096 * 256 * 34) / 32);
});

test('preload reads ahead; what nobody takes goes with dispose', async () => {
  using file = GgufFile.open(TINY_TALES);
  const before = memoryStats();
  const vb = QuantizedVarBuilder.fromGguf(file, device);
  const block = vb.pp('blk.0');
  const steps: string[] = [];
  await block.preload(undefined, { onProgress: (done, total) => steps.push(`${done}/${total}`) });
  expect(steps.at(-1)).toBe('9/9');
  expect(memoryStats().liveStorages).toBe(before.liveStorages + 9);
  const q = block.getNoShape('attn_q.weight');
  expect(memoryStats().liveStorages).toBe(before.liveStorages + 9);
  vb.dispose();
  expect(memoryStats().liveStorages).toBe(before.liveStorages + 1);
  q.dispose();
  expect(memoryStats()).toEqual(before);
  await expect(vb.preload(['nothing'])).rejects.toThrow(expect.objectContaining({ code: 'GGUF_MISSING_TENSOR' }));
});

test('makes every product of one decoding step', () => {
  using file = GgufFile.open(TINY_TALES);
  const vb = QuantizedVarBuilder.fromGguf(file, device);
  const maps = [...file.tensors.values()]
    .filter(({ shape }) => shape.length === 2)
    .map(({ name }) => {
      using weight = vb.getNoShape(name);
      return QMatMul.fromQTensor(weight);
    });
  expect(maps.length).toBe(8 * 7 + 1);
  const next = random(1);
  for (const map of maps) {
    using x = Tensor.from(Float32Array.from({ length: map.shape[1] }, next), { shape: [1, map.shape[1]], device });
    using y = map.forward(x);
    expect(y.shape).toEqual([1, map.shape[0]]);
  }
  for (const map of maps) map.dispose();
});
