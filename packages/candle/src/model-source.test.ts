import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { weightFiles } from './model-source';

test('weights of a directory are model.safetensors, else those of the index, else all', () => {
  const folder = mkdtempSync(join(tmpdir(), 'model-source-'));
  try {
    expect(() => weightFiles(folder)).toThrow('there are no *.safetensors files');
    const added = (name: string) => {
      writeFileSync(join(folder, name), '');
      return weightFiles(folder);
    };
    const shards = ['a.safetensors', 'b.safetensors'].map((name) => join(folder, name));
    added('b.safetensors');
    expect(added('a.safetensors')).toEqual(shards);
    for (const name of ['model.safetensors.index.json', 'model.safetensors'])
      expect(added(name)).toBe(join(folder, name));
  } finally {
    rmSync(folder, { recursive: true });
  }
});
