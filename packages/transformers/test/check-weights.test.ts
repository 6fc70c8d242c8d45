/** The check without reading finds what reading would: nothing in models that load, and each tensor that is left out or altered. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { memoryStats } from '@x/core';
import { readJsonFile, type TensorReader } from '@x/core/files';
import { GgufFile, type GgufValue, gguf, writeGguf } from '@x/quantized';
import { afterAll, describe, expect, test } from 'vitest';
import { checkWeights, describeConfig, describeEncoderConfig, describeGguf, openSafetensors } from '../src';

const root = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'check-weights-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const names = readdirSync(root).filter((name) => existsSync(join(root, name, 'config.json')));

async function problemsOf(file: TensorReader, description: ReturnType<typeof describeConfig>): Promise<string[]> {
  const before = memoryStats();
  const { problems, model } = await checkWeights(file, description, { writes: true });
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

describe('a checkpoint', () => {
  const description = describeConfig(readJsonFile(join(root, 'llama/config.json')));

  test.each(['module.', 'base_model.model.', '_orig_mod.'])('whose names begin with %s', async (prefix) => {
    await expect(checkRenamed((name) => prefix + name)).rejects.toMatchObject({
      code: 'FILE_INVALID',
      message: expect.stringContaining(`all weights begin with "${prefix}"`),
    });
  });

  test('that is quantized by another library', async () => {
    const renamed = checkRenamed((name) => name.replace('q_proj.weight', 'q_proj.qweight'));
    await expect(renamed).rejects.toMatchObject({
      code: 'UNSUPPORTED_MODEL',
      message: expect.stringMatching(/GPTQ or AWQ \(model\.layers\.\d+\.self_attn\.q_proj\.qweight\)/),
    });
  });

  async function checkRenamed(rename: (name: string) => string) {
    const bytes = readFileSync(join(root, 'llama/model.safetensors'));
    const length = Number(bytes.readBigUInt64LE());
    const { __metadata__: _, ...header } = JSON.parse(bytes.toString('utf8', 8, 8 + length));
    const renamed = Object.entries(header).map(([name, info]) => [rename(name), info]);
    const text = Buffer.from(JSON.stringify(Object.fromEntries(renamed)));
    const size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(text.length));
    const path = join(folder, 'renamed.safetensors');
    writeFileSync(path, Buffer.concat([size, text, bytes.subarray(8 + length)]));
    const file = openSafetensors([path]);
    try {
      return await checkWeights(file, description);
    } finally {
      file.close();
    }
  }
});

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

  test('with integers, and with tensors that the model does not read', async () => {
    const path = join(folder, 'more.gguf');
    const write = async (names: readonly string[], changes: Record<string, GgufValue> = {}, integers?: string) => {
      using file = GgufFile.open(source);
      const stored = [...file.tensors.values()].map(({ name, shape, format }) => ({
        name,
        shape,
        type: name === integers ? ('i32' as const) : format!.type,
        data: file.readTensorBytes(name),
      }));
      const more = names.map((name) => ({ name, shape: [1], type: 'f32' as const, data: new Uint8Array(4) }));
      await writeGguf(path, {
        metadata: new Map([...file.metadata, ...Object.entries(changes)]),
        tensors: [...stored, ...more],
      });
      using changed = GgufFile.open(path);
      return problemsOf(changed, describeGguf(changed.metadata));
    };
    expect(await write([], {}, 'blk.1.attn_norm.weight')).toEqual([
      'blk.1.attn_norm.weight holds i32, but weights are floating-point numbers.',
    ]);
    for (const name of [
      'blk.0.ffn_up_shexp.weight',
      'blk.2.attn_sinks.weight',
      'token_embd_norm.weight',
      'output.scale',
    ])
      expect(await write([name])).toEqual([expect.stringContaining(`${name} has no place in this model`)]);
    expect(await write([], { 'llama.block_count': gguf.uint32(2) })).toEqual([
      expect.stringMatching(/^blk\.2\.\w+\.weight and 8 more tensors have no place in this model: .*of more layers/),
    ]);
    // Its tokens count, where there are embeddings of so many.
    const fewer = { 'llama.vocab_size': gguf.uint32(100) };
    expect(await write([], fewer)).toEqual([]);
    const other = ['token_embd', 'output'].map((name) =>
      expect.stringMatching(`${name}.weight .*\\[100, 64\\] is needed`),
    );
    expect(await write([], { ...fewer, 'tokenizer.ggml.tokens': gguf.strings(['a']) })).toEqual(other);
    const allowed = ['blk.0.attn_rot_embd', 'blk.1.rope_freqs.weight', 'v.blk.0.ln1.weight', 'mm.0.weight'];
    expect(await write([...allowed, 'blk.3.nextn.eh_proj.weight', 'blk.3.attn_norm.weight'])).toEqual([]);
  });
});
