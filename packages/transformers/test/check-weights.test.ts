/** The check without reading finds what reading would: nothing in models that load, and each tensor that is left out or altered. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStats } from '@x/core';
import { readJsonFile, type TensorReader } from '@x/core/files';
import { GgufFile, writeGguf } from '@x/quantized';
import { afterAll, describe, expect, test } from 'vitest';
import { checkWeights, describeConfig, describeEncoderConfig, describeGguf, openSafetensors } from '../src';

const root = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'check-weights-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const names = readdirSync(root).filter((name) => existsSync(join(root, name, 'config.json')));

async function problemsOf(file: TensorReader, description: ReturnType<typeof describeConfig>): Promise<string[]> {
  const before = memoryStats();
  const { problems, model } = await checkWeights(file, description);
  model.dispose();
  expect(memoryStats()).toEqual(before);
  return problems;
}

test.each(names)('%s', async (name) => {
  const description = describeConfig(readJsonFile(join(root, name, 'config.json')));
  const weights = openSafetensors([join(root, name, 'model.safetensors')]);
  expect(await problemsOf(weights, description)).toEqual([]);
  weights.close();
  for (const gguf of readdirSync(join(root, name)).filter((each) => each.endsWith('.gguf'))) {
    using file = GgufFile.open(join(root, name, gguf));
    expect(await problemsOf(file, describeGguf(file.metadata))).toEqual([]);
  }
});

const encoders = fileURLToPath(new URL('../../../models/encoders/', import.meta.url));
test.each(readdirSync(encoders).filter((name) => existsSync(join(encoders, name, 'config.json'))))(
  '%s',
  async (name) => {
    const config = readJsonFile(join(encoders, name, 'config.json'));
    const description = describeEncoderConfig(config);
    const weights = openSafetensors([join(encoders, name, 'model.safetensors')]);
    const before = memoryStats();
    const { problems, model } = description
      ? await checkWeights(weights, description)
      : await checkWeights(weights, describeConfig(config));
    model.dispose();
    expect([problems, memoryStats()]).toEqual([[], before]);
    weights.close();
  },
);

describe('a GGUF file', () => {
  const source = join(root, 'llama/model-f16.gguf');

  test('without a tensor, with one of another shape, with one of an unknown type', async () => {
    const path = join(folder, 'changed.gguf');
    const write = async (change: { drop?: string; cut?: string }) => {
      using file = GgufFile.open(source);
      const tensors = [...file.tensors.values()]
        .filter((info) => info.name !== change.drop)
        .map(({ name, shape, format }) => {
          const data = file.readTensorBytes(name);
          if (name !== change.cut) return { name, shape, type: format!.type, data };
          return {
            name,
            shape: [shape[0] / 2, ...shape.slice(1)],
            type: format!.type,
            data: data.subarray(0, data.length / 2),
          };
        });
      await writeGguf(path, { metadata: new Map(file.metadata), tensors });
      using changed = GgufFile.open(path);
      return problemsOf(changed, describeGguf(changed.metadata));
    };
    using whole = GgufFile.open(source);
    const all = [...whole.tensors.keys()].filter((name) => !/^(output|rope_freqs)\.weight$/.test(name));
    expect(all.length).toBeGreaterThan(10);
    for (const drop of all) {
      // Without its gate, `ffn_up` is taken for both in one.
      const said = drop.includes('ffn_gate') ? 'ffn_up.weight has the shape' : `There is no ${drop} [`;
      expect([drop, await write({ drop })]).toEqual([drop, [expect.stringContaining(said)]]);
    }
    expect(await write({ cut: 'blk.1.ffn_up.weight' })).toEqual([
      expect.stringMatching(/^blk\.1\.ffn_up\.weight has the shape \[.*\], and \[.*\] is needed\.$/),
    ]);
    const bytes = readFileSync(source);
    const at = bytes.indexOf('blk.1.ffn_up.weight') + 'blk.1.ffn_up.weight'.length + 4 + 16;
    bytes.writeUInt32LE(99, at);
    using future = GgufFile.fromBytes(bytes);
    expect(await problemsOf(future, describeGguf(future.metadata))).toEqual([
      expect.stringContaining('blk.1.ffn_up.weight has the type unknown(99)'),
    ]);
  });
});
