import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bf16ToF32, encodeF8e4m3, FileFormatError, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { afterAll, expect, it } from 'vitest';
import { withScales } from './scaled-fp8';

const folder = mkdtempSync(join(tmpdir(), 'scaled-fp8-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const noise = (count: number, seed: number) =>
  Float32Array.from({ length: count }, (_, i) => Math.sin(i * 12.9898 + seed));
const fp8 = (shape: number[], seed: number) =>
  Tensor.fromBytes(encodeF8e4m3(noise(shape[0] * shape[1], seed).map((x) => x * 448)), shape, 'f8e4m3', 'js');
const f32 = (shape: number[], seed: number) =>
  Tensor.from(
    noise(
      shape.reduce((a, b) => a * b, 1),
      seed,
    ).map((x) => x + 2),
    { device: 'js' },
  ).reshape(shape);

let made = 0;
async function openWith(tensors: Record<string, Tensor>) {
  const path = join(folder, `${++made}.safetensors`);
  await saveSafetensors(path, tensors);
  return SafetensorsFile.open(path);
}

it.each([
  ['blocks of 128 x 128', [300, 200], [3, 2], 128, 128, '_scale_inv'],
  ['blocks of 16, of which none is whole', [10, 12], [1, 1], 10, 12, '_scale_inv'],
  ['blocks of 32', [65, 96], [3, 3], 32, 32, '_scale_inv'],
  ['one scale for all', [7, 33], [], 7, 33, '_scale_inv'],
  ['a scale a row', [9, 40], [9, 1], 1, 40, '_scale'],
] as const)('%s', async (_, [rows, columns], scales, down, across, suffix) => {
  const [weight, scale] = [fp8([rows, columns], 1), f32([...scales], 2)];
  const plain = f32([4], 3);
  const stored = await openWith({ 'a.weight': weight, [`a.weight${suffix}`]: scale, 'b.weight': plain });
  const file = withScales(stored);
  expect(file.names.sort()).toEqual(['a.weight', 'b.weight']);
  expect(file.info('a.weight')).toMatchObject({
    shape: [rows, columns],
    dtype: 'BF16',
    byteLength: 2 * rows * columns,
  });
  const loaded = await file.load('a.weight', 'js');
  expect(loaded.dtype).toBe('bf16');
  const values = (await loaded.toArray()) as Float32Array;
  const bits = (await weight.toArray()) as Float32Array;
  const by = (await scale.toArray()) as Float32Array;
  const each = Math.ceil(columns / across);
  for (let i = 0; i < rows * columns; i++) {
    const at = Math.floor(Math.floor(i / columns) / down) * each + Math.floor((i % columns) / across);
    const exact = bits[i] * by[at];
    expect(Math.abs(values[i] - exact)).toBeLessThanOrEqual(Math.abs(exact) * 2 ** -8);
  }
  expect(file.loadSync('a.weight', 'js', { dtype: 'f32' }).toArraySync()).toEqual(values);
  // Parts, as ranks read them.
  const part = new Uint16Array(columns + 3);
  file.readPartSync!('a.weight', 2 * (columns - 1), new Uint8Array(part.buffer));
  expect(Float32Array.from(part, bf16ToF32)).toEqual(values.slice(columns - 1, 2 * columns + 2));
  expect((await file.load('b.weight', 'js')).toArraySync()).toEqual(plain.toArraySync());
  file.close();
});

it('leaves other files as they are', async () => {
  const weight = fp8([4, 4], 1);
  const file = await openWith({ 'a.weight': weight, 'b.weight_scale_inv': f32([1], 2) });
  expect(withScales(file)).toBe(file);
  expect((await file.load('a.weight', 'js')).toArraySync()).toEqual(weight.toArraySync());
  file.close();
});

it('refuses scales that do not fit, and fp8 without any beside others', async () => {
  const scaled = { 'a.weight': fp8([300, 200], 1), 'a.weight_scale_inv': f32([4, 2], 2), 'b.weight': fp8([4, 4], 3) };
  const file = withScales(await openWith(scaled));
  const refused = (words: RegExp) =>
    expect.objectContaining({ code: 'FILE_INVALID', message: expect.stringMatching(words) });
  await expect(file.load('a.weight', 'js')).rejects.toThrow(refused(/\[300,200\].*\[4,2\]/));
  await expect(file.load('b.weight', 'js')).rejects.toThrow(refused(/"b\.weight" is fp8 without scales/));
  expect(() => file.loadSync('c.weight', 'js')).toThrow(FileFormatError);
  const stopped = AbortSignal.abort(new Error('enough'));
  const good = withScales(await openWith({ 'a.weight': fp8([4, 4], 1), 'a.weight_scale_inv': f32([], 2) }));
  await expect(good.load('a.weight', 'js', { signal: stopped })).rejects.toThrow('enough');
  for (const open of [file, good]) open.close();
});
