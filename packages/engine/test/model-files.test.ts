import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findModel } from '@x/engine';
import { afterEach, beforeEach, expect, test } from 'vitest';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'model-files-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const adding = (...names: string[]) => {
  for (const name of names) writeFileSync(join(folder, name), '');
  return findModel(folder);
};
const at = (name: string) => join(folder, name);

test('a directory is model.safetensors, else what its index names, else all files of weights', () => {
  expect(() => adding()).toThrow('there are no *.safetensors files. Download');
  expect(adding('b.safetensors', 'a.safetensors', 'model.gguf')).toMatchObject({
    kind: 'checkpoint',
    weights: ['a.safetensors', 'b.safetensors'].map(at),
  });
  for (const name of ['model.safetensors.index.json', 'model.safetensors'])
    expect(adding(name)).toMatchObject({ weights: [at(name)] });
});

test('a directory of one model in GGUF, of several parts and with its image reader, is that model', () => {
  const parts = ['tiny-00001-of-00002.gguf', 'tiny-00002-of-00002.gguf'];
  expect(adding('config.json', 'mmproj-tiny.gguf', parts[1], parts[0])).toEqual({ kind: 'gguf', path: at(parts[0]) });
  expect(() => adding('other.gguf')).toThrow(
    `there are 2 models in GGUF. Give one of them: ${at('other.gguf')}, ${at(parts[0])}.`,
  );
});
