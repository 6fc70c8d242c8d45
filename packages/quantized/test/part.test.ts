/** Parts of weights: what is read of a file, what is cut from memory, and ranges that are none. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device } from '@x/core';
import { SafetensorsFile } from '@x/core/files';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import '../../rocm-backend/src';
import { GgufFile, QTensor, type TensorPart } from '../src';

const models = fileURLToPath(new URL('../../../models/', import.meta.url));
const NAME = 'blk.0.ffn_down.weight';

let file: GgufFile;
beforeAll(() => {
  file = GgufFile.open(join(models, 'tiny-tales/tiny-tales-q8_0.gguf'));
});
afterAll(() => file.close());

const valuesOf = async (weight: QTensor) => {
  using numbers = weight.dequantize();
  return Array.from(await numbers.toArray<Float32Array>());
};

const PARTS: [string, TensorPart][] = [
  ['rows', { dim: 0, ranges: [{ start: 3, count: 5 }] }],
  [
    'rows of two ranges',
    {
      dim: 0,
      ranges: [
        { start: 8, count: 2 },
        { start: 0, count: 3 },
      ],
    },
  ],
  ['blocks of each row', { dim: 1, ranges: [{ start: 32, count: 64 }] }],
  ['nothing', { dim: 0, ranges: [{ start: 1, count: 0 }] }],
];

describe.each(['js', 'cpu'])('a part of a weight on %s', (name) => {
  const device = Device.parse(name);

  test.each(PARTS)('in blocks: %s', async (_, part) => {
    using whole = QTensor.fromGguf(file, NAME, device);
    const [rows, width] = whole.shape;
    const all = await valuesOf(whole);
    const indices = part.ranges.flatMap(({ start, count }) => Array.from({ length: count }, (_, i) => start + i));
    const expected =
      part.dim === 0
        ? indices.flatMap((row) => all.slice(row * width, (row + 1) * width))
        : Array.from({ length: rows }, (_, row) => indices.map((column) => all[row * width + column])).flat();
    using cut = whole.part(part);
    using read = await QTensor.load(file, NAME, device, { part });
    const shape = part.dim === 0 ? [indices.length, width] : [rows, indices.length];
    for (const one of [cut, read]) {
      expect(one.shape).toEqual(shape);
      expect(one.type).toBe('q8_0');
      expect(await valuesOf(one)).toEqual(expected);
    }
  });

  test('in numbers, of a safetensors file', async () => {
    using numbers = SafetensorsFile.open(join(models, 'tiny/llama/model.safetensors'));
    const key = 'model.layers.0.mlp.down_proj.weight';
    using whole = await QTensor.load(numbers, key, device);
    for (const [, part] of PARTS.slice(0, 3)) {
      using cut = whole.part(part);
      using read = await QTensor.load(numbers, key, device, { part });
      expect(read.shape).toEqual(cut.shape);
      expect(await valuesOf(read)).toEqual(await valuesOf(cut));
    }
  });
});

test('no other bytes of the file are read', async () => {
  const spy = vi.spyOn(file, 'readTensorSlice');
  const { byteLength, shape } = file.info(NAME);
  const part = { dim: 1, ranges: [{ start: 0, count: shape[1] / 2 }] };
  using _ = await QTensor.load(file, NAME, 'cpu', { part });
  const read = spy.mock.calls.reduce((sum, [, , into]) => sum + into.byteLength, 0);
  expect(read).toBe(byteLength / 2);
  spy.mockRestore();
});

test.each<[string, TensorPart]>([
  ['half a block', { dim: 1, ranges: [{ start: 16, count: 32 }] }],
  ['rows behind the end', { dim: 0, ranges: [{ start: 0, count: 1e6 }] }],
  ['a negative start', { dim: 0, ranges: [{ start: -1, count: 1 }] }],
  ['a fraction', { dim: 0, ranges: [{ start: 0, count: 0.5 }] }],
  ['NaN', { dim: 0, ranges: [{ start: Number.NaN, count: 1 }] }],
  ['no such dimension', { dim: 2, ranges: [{ start: 0, count: 1 }] }],
])('%s is refused', async (_, part) => {
  using whole = QTensor.fromGguf(file, NAME, 'cpu');
  expect(() => whole.part(part)).toThrow(/is not there; give whole blocks/);
  await expect(QTensor.load(file, NAME, 'cpu', { part })).rejects.toMatchObject({ code: 'SHAPE_MISMATCH' });
});
