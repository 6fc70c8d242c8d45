/** Split models: one file for the reader, whichever part is named. */
import { mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Device, FileFormatError } from '@x/core';
import { afterAll, expect, test } from 'vitest';
import { GgufFile, type GgufValue, gguf, QTensor, writeGguf } from '../src';
import { ALL_TYPES } from './fixture';

const folder = mkdtempSync(join(tmpdir(), 'gguf-split-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const whole = GgufFile.open(ALL_TYPES);
afterAll(() => whole.close());

const partName = (stem: string, i: number, count: number) =>
  join(folder, `${stem}-${String(i + 1).padStart(5, '0')}-of-${String(count).padStart(5, '0')}.gguf`);

/** Splits the fixture into `count` parts as gguf-split does: metadata in the first, `split.*` in all. */
async function split(stem: string, count: number, change: (i: number) => Record<string, GgufValue> = () => ({})) {
  const all = [...whole.tensors.values()];
  const each = Math.ceil(all.length / count);
  for (let i = 0; i < count; i++) {
    const tensors = all.slice(i * each, (i + 1) * each).map(({ name, shape, format }) => {
      return { name, type: format!.type, shape, data: whole.readTensorBytes(name) };
    });
    const metadata: Record<string, GgufValue> = {
      ...(i === 0 ? Object.fromEntries(whole.metadata) : {}),
      'split.no': gguf.uint16(i),
      'split.count': gguf.uint16(count),
      'split.tensors.count': gguf.int32(all.length),
      ...change(i),
    };
    await writeGguf(partName(stem, i, count), { metadata, tensors });
  }
  return Array.from({ length: count }, (_, i) => partName(stem, i, count));
}

function codeOf(path: string): string {
  try {
    GgufFile.open(path).close();
    return 'opened';
  } catch (error) {
    if (!(error instanceof FileFormatError)) throw error;
    return error.code;
  }
}

test('found from any part, and every tensor read', async () => {
  const paths = await split('model', 3);
  for (const path of paths) {
    using file = GgufFile.open(path);
    expect(file.paths).toEqual(paths);
    expect(file.path).toBe(path);
    expect([...file.tensors.keys()]).toEqual([...whole.tensors.keys()]);
    expect(file.metadata.string('general.architecture')).toBe('llama');
    expect(file.byteLength).toBe(paths.reduce((sum, part) => sum + readFileSync(part).length, 0));
    for (const name of whole.tensors.keys()) expect(file.readTensorBytes(name)).toEqual(whole.readTensorBytes(name));
    using weight = await QTensor.load(file, 'BF16', Device.js());
    expect(weight.shape).toEqual([4, 512]);
  }
  using alone = GgufFile.open(paths[2], { alone: true });
  expect(alone.paths).toEqual([paths[2]]);
  expect(alone.tensors.size).toBeLessThan(whole.tensors.size);
});

test('parts that are missing, renamed, doubled or of another model', async () => {
  const gone = await split('gone', 3);
  rmSync(gone[1]);
  for (const path of [gone[0], gone[2]]) expect(codeOf(path)).toBe('FILE_NOT_FOUND');
  expect(() => GgufFile.open(gone[2])).toThrow(/one of 3 parts .* there is no gone-00002-of-00003\.gguf\./);
  rmSync(gone[0]);
  expect(() => GgufFile.open(gone[2])).toThrow(/there is no gone-00001-of-00003\.gguf, gone-00002-of-00003\.gguf\./);
  const renamed = await split('renamed', 2);
  renameSync(renamed[1], join(folder, 'other.gguf'));
  expect(codeOf(join(folder, 'other.gguf'))).toBe('GGUF_INVALID_CONTENT');
  const twice = await split('twice', 2, () => ({ 'split.no': gguf.uint16(0) }));
  expect(codeOf(twice[0])).toBe('GGUF_INVALID_CONTENT');
  const counted = await split('counted', 2, () => ({ 'split.tensors.count': gguf.int32(3) }));
  expect(codeOf(counted[1])).toBe('GGUF_BAD_COUNT');
  const text = await split('text', 2, () => ({ 'split.count': gguf.string('two') }));
  expect(codeOf(text[0])).toBe('GGUF_WRONG_TYPE');
  expect(() => GgufFile.open(text[0])).toThrow(/'split\.count' should be a whole number but is "two" \(string\)/);
  GgufFile.open(text[0], { alone: true }).close();
  const huge = await split('huge', 2, () => ({ 'split.count': gguf.uint64(2n ** 60n) }));
  expect(codeOf(huge[0])).toBe('GGUF_INVALID_CONTENT');
  const negative = await split('negative', 2, () => ({ 'split.count': gguf.int32(-2) }));
  expect(codeOf(negative[0])).toBe('opened');
});
