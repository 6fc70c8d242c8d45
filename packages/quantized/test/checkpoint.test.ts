import { BLOCK_TYPES, Device, isBlockType, memoryStats, Tensor } from '@x/core';
import type { TensorReader } from '@x/core/files';
import { moeGemmGguf, sortByExpert, VarBuilder } from '@x/nn';
import { expect, it } from 'vitest';
import { deviceBytes, GgufFile, QTensor } from '../src';
import { kernelDevice, PADDING } from './devices';
import { ALL_TYPES } from './fixture';

const js = Device.js();

it('a GGUF file is a checkpoint like any other', async () => {
  using file = GgufFile.open(ALL_TYPES);
  const reader: TensorReader = file;
  const before = memoryStats();
  for (const name of reader.names) {
    const { shape, byteLength } = reader.info(name);
    expect([reader.has(name), byteLength > 0]).toEqual([true, true]);
    using numbers = await reader.load(name, js);
    using half = reader.loadSync(name, js, { dtype: 'f16' });
    using wide = reader.loadSync(name, js, { dtype: 'f64' });
    expect([numbers.shape, half.dtype, wide.dtype]).toEqual([shape, 'f16', 'f64']);
  }
  await expect(reader.load('nothing', js)).rejects.toThrow(expect.objectContaining({ code: 'GGUF_MISSING_TENSOR' }));
  expect(() => reader.info('nothing')).toThrow(expect.objectContaining({ code: 'GGUF_MISSING_TENSOR' }));
  const stop = AbortSignal.abort(new Error('enough'));
  await expect(reader.load(reader.names[0], js, { signal: stop })).rejects.toThrow('enough');
  const vb = VarBuilder.fromGguf(file, { device: js });
  await expect(vb.get([1, 2], file.names[0])).rejects.toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
  await expect(vb.get([1, 2], 'nothing')).rejects.toThrow(expect.objectContaining({ code: 'FILE_NO_SUCH_TENSOR' }));
  vb.dispose();
  // The file is its opener's: it still reads.
  reader.loadSync(file.names[0], js).dispose();
  expect(memoryStats()).toEqual(before);
});

it('the device says what lies behind the blocks of a weight', () => {
  const gpu = kernelDevice(['q8_0']);
  const { blockSize, blockBytes } = BLOCK_TYPES.q8_0;
  const bytes = new Uint8Array((512 / blockSize) * blockBytes).fill(1);
  using weight = QTensor.fromBytes('q8_0', [2, 4, 64], bytes, gpu);
  using part = weight.expert(1);
  const padding = (PADDING / blockSize) * blockBytes;
  expect(weight.storageSizeInBytes).toBe(bytes.length + padding);
  expect(part.storageSizeInBytes).toBe(bytes.length / 2 + padding);
  expect(part.toBytesSync()).toEqual(bytes.subarray(bytes.length / 2));
  const stored = { format: weight.format, elemCount: 512, byteLength: bytes.length };
  expect([deviceBytes(stored, gpu), deviceBytes(stored, js)]).toEqual([bytes.length + padding, bytes.length]);
  expect(['q8_0', 'q4_k', 'f16', 'toString', '__proto__', ''].map(isBlockType)).toEqual([
    true,
    ...Array(5).fill(false),
  ]);
});

it('products with experts whose ids are on the host', () => {
  using weight = QTensor.quantizeSync(Tensor.ones([3, 2, 32], 'f32', js), 'q8_0');
  using x = Tensor.ones([2, 1, 32], 'f32', js);
  expect(weight.indexedMoe(x, [0, 2, 1, 1]).shape).toEqual([2, 2, 2]);
  expect(weight.indexedMoe(x, []).shape).toEqual([2, 0, 2]);
  for (const ids of [
    [0, 1, 2],
    [3, 0],
    [-1, 0],
    [0.5, 1],
    [Number.NaN, 0],
  ]) {
    const code = ids.length === 3 ? 'SHAPE_MISMATCH' : 'INDEX_OUT_OF_RANGE';
    expect(() => weight.indexedMoe(x, ids)).toThrow(expect.objectContaining({ code }));
  }
  expect(() => weight.indexedMoe(x.squeeze(1), [0, 1])).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
  expect(() => weight.indexedMoe(x, 5 as never)).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }));
  expect(() => moeGemmGguf(x.squeeze(1), {} as never, undefined, sortByExpert([0, 1]), 1)).toThrow(/shape of weights/);
});

it('products with experts of numbers leave the ids on the device', () => {
  const before = memoryStats();
  const value = (i: number) => Math.sin(i * 1.7);
  const from = (shape: number[]) =>
    Tensor.from(
      Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => value(i)),
      { shape, device: js },
    );
  using numbers = from([3, 2, 4]);
  using weight = QTensor.fromTensor(numbers);
  // More pairs than experts are gathered in parts; more still are sorted on the host.
  for (const [tokens, choices] of [
    [1, 1],
    [4, 2],
    [4, 1],
    [20, 1],
    [70, 1],
  ]) {
    using x = from([tokens, choices, 4]);
    const list = Uint32Array.from({ length: tokens * 2 }, (_, i) => (i * 7) % 3);
    using ids = Tensor.from(list, { shape: [tokens, 2], device: js });
    using unread = weight.indexedMoeForwardSync(x, ids, { readIds: false });
    const expected = Array.from(list).flatMap((expert, pair) => {
      const row = choices === 1 ? Math.floor(pair / 2) : pair;
      return [0, 1].map((n) =>
        [0, 1, 2, 3].reduce((sum, k) => sum + value((expert * 2 + n) * 4 + k) * value(row * 4 + k), 0),
      );
    });
    expect(unread.shape).toEqual([tokens, 2, 2]);
    for (const [i, got] of (unread.toArraySync() as Float32Array).entries()) expect(got).toBeCloseTo(expected[i], 5);
  }
  numbers.dispose();
  weight.dispose();
  expect(memoryStats()).toEqual(before);
});
