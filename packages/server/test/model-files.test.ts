import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bytesOf, nameOf } from '../src/model-files';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'server-files-'));
  const sizes = {
    'a-00001-of-00002.gguf': 3,
    'a-00002-of-00002.gguf': 5,
    'a-00001-of-00003.gguf': 7,
    'b.gguf': 11,
    'model-00001-of-00002.safetensors': 13,
    'model-00002-of-00002.safetensors': 19,
    'consolidated.safetensors': 17,
  };
  for (const [name, bytes] of Object.entries(sizes)) writeFileSync(join(folder, name), Buffer.alloc(bytes));
  const shards = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
  const weight_map = { a: shards[0], b: shards[1], c: shards[0] };
  writeFileSync(join(folder, 'model.safetensors.index.json'), JSON.stringify({ weight_map }));
});
afterAll(() => rmSync(folder, { recursive: true }));

test.each([
  ['b.gguf', 11],
  ['a-00001-of-00002.gguf', 8],
  ['a-00002-of-00002.gguf', 8],
  ['model-00001-of-00002.safetensors', 13],
  ['model.safetensors.index.json', 13 + 19],
  ['', 13 + 19],
])('all files of the model count: %j', (name, bytes) => {
  expect(bytesOf(join(folder, name))).toBe(bytes);
});

test.each([
  ['models/a-Q4_K_M.gguf', 'a-Q4_K_M'],
  ['hf:org/repo:Q4_K_M', 'org/repo:Q4_K_M'],
  ['https://huggingface.co/org/repo', 'org/repo'],
])('the name of %s is %s', (path, name) => {
  expect(nameOf(path)).toBe(name);
});

test('one that is not there is an error', () => {
  expect(() => bytesOf(join(folder, 'c.gguf'))).toThrow(/c\.gguf: there is no such file/);
});
