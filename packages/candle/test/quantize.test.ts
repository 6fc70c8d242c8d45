/** `candle quantize` and `candle inspect`: files in, files out, and what is left behind when something goes wrong. */
import { execFileSync, spawn } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { loadModel } from '@x/engine';
import {
  blockFormat,
  byteLengthOf,
  GgufFile,
  gguf,
  MIXES,
  type MixName,
  QTensor,
  type QuantType,
  writeGguf,
} from '@x/quantized';
import { readGolden } from '@x/testing/golden';
import { random } from '@x/testing/random';
import { build } from 'esbuild';
import { afterAll, describe, expect, test } from 'vitest';
import { QuantizePool, quantizeJob } from '../../quantized/src/quantize';
import { quantizeModel } from '../src/commands/quantize';
import { bundleCommand } from './command';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const TINY = join(root, 'models/tiny-tales/tiny-tales-q8_0.gguf');
const TOKENIZER = join(root, 'models/tiny-tales/tokenizer.json');
const folder = mkdtempSync(join(tmpdir(), 'candle-quantize-'));
const command = bundleCommand();
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

let count = 0;
const place = () => join(folder, `${count++}.gguf`);
const leftovers = () => readdirSync(folder).filter((name) => name.endsWith('.tmp'));

/** A model of one layer's weights in f32, and the values. */
async function smallModel(): Promise<{ path: string; values: Map<string, Float32Array> }> {
  const next = random(1);
  const values = new Map<string, Float32Array>();
  const shapes: [string, number[]][] = [
    ['token_embd.weight', [64, 256]],
    ['blk.0.attn_v.weight', [256, 256]],
    ['blk.0.ffn_down.weight', [256, 512]],
    ['blk.0.ffn_up_exps.weight', [3, 8, 256]],
    ['blk.0.attn_norm.weight', [256]],
    ['output.weight', [64, 256]],
  ];
  const path = place();
  const tensors = shapes.map(([name, shape]) => {
    const x = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => next() - 0.5);
    values.set(name, x);
    return { name, type: 'f32' as const, shape, data: new Uint8Array(x.buffer) };
  });
  await writeGguf(path, {
    metadata: { 'general.architecture': gguf.string('llama'), 'split.count': gguf.uint16(1) },
    tensors,
  });
  return { path, values };
}

function quantized(x: Float32Array, type: QuantType): Uint8Array {
  const format = blockFormat(type);
  const out = new Uint8Array(byteLengthOf(format, x.length));
  format.quantize!(x, 0, out, 0, x.length / format.blockSize);
  return out;
}

describe('GGUF in, GGUF out', () => {
  test.each(Object.keys(MIXES) as MixName[])('%s', async (mix) => {
    const { path, values } = await smallModel();
    const out = place();
    const report = await quantizeModel(path, out, mix);
    using file = GgufFile.open(out);
    expect(file.metadata.uint('general.file_type')).toBe(MIXES[mix].fileType);
    expect(file.metadata.uint('general.quantization_version')).toBe(2);
    expect(file.metadata.has('split.count')).toBe(false);
    expect(report.outputBytes).toBe(file.byteLength);
    expect([report.tensors, report.weighted]).toEqual([6, 0]);
    for (const { name, shape, format } of file.tensors.values()) {
      expect(file.readTensorBytes(name)).toEqual(quantized(values.get(name)!, format!.type));
      if (shape.length === 1) expect(format!.type).toBe('f32');
    }
    const main = file.tensor('blk.0.ffn_up_exps.weight').type;
    expect(main).toBe(MIXES[mix].type);
  });

  test('importance, in pieces and for each expert by itself', async () => {
    const { path, values } = await smallModel();
    const imatrix = place();
    const weights = Float32Array.from({ length: 3 * 256 }, (_, i) => (i % 7) + 0.25);
    const sums = { type: 'f32' as const, shape: [3, 256], data: new Uint8Array(weights.buffer) };
    const counts = { type: 'f32' as const, shape: [3, 1], data: new Uint8Array(Float32Array.of(1, 1, 1).buffer) };
    await writeGguf(imatrix, {
      metadata: { 'general.type': gguf.string('imatrix'), 'imatrix.datasets': gguf.strings(['tales']) },
      tensors: [
        { name: 'blk.0.ffn_up_exps.weight.in_sum2', ...sums },
        { name: 'blk.0.ffn_up_exps.weight.counts', ...counts },
      ],
    });
    const out = place();
    const report = await quantizeModel(path, out, 'q4_k_s', { imatrix });
    expect(report.weighted).toBe(1);
    using file = GgufFile.open(out);
    expect(file.metadata.string('quantize.imatrix.dataset')).toBe('tales');
    using expected = await QTensor.quantize(
      Tensor.from(values.get('blk.0.ffn_up_exps.weight')!, { shape: [3, 8, 256], device: Device.js() }),
      'q4_K',
      { importance: weights },
    );
    expect(file.readTensorBytes('blk.0.ffn_up_exps.weight')).toEqual(await expected.toBytes());
    const plain = quantized(values.get('blk.0.ffn_up_exps.weight')!, 'q4_K');
    expect(Buffer.compare(file.readTensorBytes('blk.0.ffn_up_exps.weight'), plain)).not.toBe(0);
  });

  test('a model that was quantised, only when asked for, and it still tells tales', async () => {
    const out = place();
    await expect(quantizeModel(TINY, out, 'q4_k_m')).rejects.toThrow(
      /'token_embd\.weight' is q8_0 already.*--allow-requantize/,
    );
    expect(readdirSync(folder)).not.toContain(out);
    await quantizeModel(TINY, out, 'q4_k_m', { allowRequantize: true });
    using model = await loadModel(out, { device: Device.cpu(), maxContext: 64 });
    let text = '';
    for await (const piece of model.generate('Once upon a time', { maxTokens: 12, temperature: 0 })) text += piece.text;
    expect(text.length).toBeGreaterThan(20);
    // The same type is copied as it is.
    const copy = place();
    const { quantized: changed } = await quantizeModel(TINY, copy, 'q8_0');
    expect(changed).toBe(0);
    using a = GgufFile.open(TINY);
    using b = GgufFile.open(copy);
    for (const name of a.tensors.keys()) {
      expect(Buffer.compare(a.readTensorBytes(name), b.readTensorBytes(name))).toBe(0);
    }
  });
});

describe('safetensors in, GGUF out', () => {
  /** The tiny model as a checkpoint: Hugging Face names, halves of heads apart. */
  async function checkpoint(name = 'tiny-tales'): Promise<string> {
    const directory = join(folder, name);
    mkdirSync(directory);
    using file = GgufFile.open(TINY);
    const names: Record<string, string> = {
      attn_norm: 'input_layernorm',
      attn_q: 'self_attn.q_proj',
      attn_k: 'self_attn.k_proj',
      attn_v: 'self_attn.v_proj',
      attn_output: 'self_attn.o_proj',
      ffn_norm: 'post_attention_layernorm',
      ffn_gate: 'mlp.gate_proj',
      ffn_up: 'mlp.up_proj',
      ffn_down: 'mlp.down_proj',
    };
    const tensors: Record<string, Tensor> = {};
    for (const { name, shape } of file.tensors.values()) {
      using weight = QTensor.fromGguf(file, name, Device.js());
      using values = weight.dequantize();
      const [, layer, part] = /^blk\.(\d+)\.(.+)\.weight$/.exec(name) ?? [];
      const renamed =
        layer === undefined
          ? { 'token_embd.weight': 'model.embed_tokens.weight', 'output_norm.weight': 'model.norm.weight' }[name]!
          : `model.layers.${layer}.${names[part]}.weight`;
      const heads = part === 'attn_q' ? 8 : part === 'attn_k' ? 4 : 0;
      const [rows, k] = shape;
      // Rows 2i and 2i + 1 of a head are rows i and i + half of the checkpoint's.
      tensors[renamed] =
        heads === 0
          ? values.reshape(shape)
          : values
              .reshape([heads, rows / heads / 2, 2, k])
              .transpose(1, 2)
              .contiguous()
              .reshape(shape);
    }
    await saveSafetensors(join(directory, 'model.safetensors'), tensors);
    const config = {
      model_type: 'llama',
      vocab_size: 4096,
      hidden_size: 256,
      intermediate_size: 768,
      num_hidden_layers: 8,
      num_attention_heads: 8,
      num_key_value_heads: 4,
      max_position_embeddings: 512,
      rms_norm_eps: 1e-5,
      rope_theta: 10000,
      hidden_act: 'silu',
      bos_token_id: 0,
      eos_token_id: 1,
    };
    writeFileSync(join(directory, 'config.json'), JSON.stringify(config));
    writeFileSync(join(directory, 'tokenizer.json'), readFileSync(TOKENIZER));
    return directory;
  }

  test('a directory becomes the file that the checkpoint came from', async () => {
    const out = place();
    await quantizeModel(await checkpoint(), out, 'q8_0');
    using made = GgufFile.open(out);
    using original = GgufFile.open(TINY);
    expect([...made.tensors.keys()].sort()).toEqual([...original.tensors.keys()].sort());
    for (const { name, type } of original.tensors.values()) {
      expect(made.tensor(name).type).toBe(type);
      expect(Buffer.compare(made.readTensorBytes(name), original.readTensorBytes(name)), name).toBe(0);
    }
    for (const [key, value] of original.metadata) {
      if (key === 'general.size_label') continue;
      expect(made.metadata.get(key), key).toEqual(value);
    }
    // A model's weights by themselves, beside its configuration, are that model.
    const again = place();
    await quantizeModel(join(folder, 'tiny-tales/model.safetensors'), again, 'q8_0');
    expect(readFileSync(again).equals(readFileSync(out))).toBe(true);
  });

  test('what other files of a directory say of its texts goes along', async () => {
    const copy = await checkpoint('texts');
    const template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:";
    writeFileSync(join(copy, 'tokenizer_config.json'), JSON.stringify({ chat_template: template }));
    writeFileSync(join(copy, 'generation_config.json'), JSON.stringify({ eos_token_id: [1, 13] }));
    const config = JSON.parse(readFileSync(join(copy, 'config.json'), 'utf8'));
    writeFileSync(
      join(copy, 'config.json'),
      JSON.stringify({ ...config, bos_token_id: undefined, eos_token_id: undefined }),
    );
    const out = place();
    expect((await quantizeModel(copy, out, 'f32')).warnings).toEqual([]);
    const [a, b] = [await loadModel(copy, { device: 'js' }), await loadModel(out, { device: 'js' })];
    const messages = [{ role: 'user' as const, content: 'Once upon a time' }];
    expect(b.generateChat(messages).promptIds).toEqual(a.generateChat(messages).promptIds);
    const [x, y] = [a, b].map((model) => model.generate('Once upon a time', { maxTokens: 20 }));
    expect(await y.text()).toBe(await x.text());
    expect(y.stats).toMatchObject({ finishReason: x.stats.finishReason, promptTokens: x.stats.promptTokens });
    for (const model of [a, b]) model.dispose();
    rmSync(join(copy, 'tokenizer.json'));
    const { warnings } = await quantizeModel(copy, place(), 'f32');
    expect(warnings).toEqual([expect.stringMatching(/no tokenizer\.json.*cannot be loaded/)]);
  });

  /** Small models of architectures that can be written, most in a form of their own in checkpoints. */
  const WRITTEN = ['mixtral', 'qwen3_moe', 'gemma2', 'olmo2', 'olmoe', 'granite', 'granitemoe', 'glm4', 'gpt2'];
  test.each([...WRITTEN, 'cohere2', 'nemotron', 'starcoder2', 'phi3_window', 'smollm3', 'mistral'])(
    '%s: the file gives what its checkpoint gives',
    async (name) => {
      const source = join(root, 'models/tiny', name);
      const { prompts } = readGolden<{ prompts: { ids: number[]; last: number[] }[] }>(source);
      const path = place();
      await quantizeModel(source, path, 'f32');
      const model = await loadModel(path, { device: 'js' });
      const { ids, last } = prompts[2];
      using logits = model.forward(ids, 0);
      const values = (await logits.toArray()) as Float32Array;
      for (const [i, value] of values.entries()) expect(Math.abs(value - last[i])).toBeLessThan(1e-3);
      model.dispose();
    },
  );

  /** A model of `models/tiny` with other settings and more tensors. */
  const variantOf = async (name: string, changes: object, add: Record<string, Tensor> = {}) => {
    const [source, path] = [join(root, 'models/tiny', name), mkdtempSync(join(folder, 'variant-'))];
    copyFileSync(join(source, 'tokenizer.json'), join(path, 'tokenizer.json'));
    const config = JSON.parse(readFileSync(join(source, 'config.json'), 'utf8'));
    writeFileSync(join(path, 'config.json'), JSON.stringify({ ...config, ...changes }));
    using file = SafetensorsFile.open(join(source, 'model.safetensors'));
    const tensors = await file.loadAll('js');
    await saveSafetensors(join(path, 'model.safetensors'), new Map([...tensors, ...Object.entries(add)]));
    for (const tensor of [...tensors.values(), ...Object.values(add)]) tensor.dispose();
    return path;
  };

  test('biases of queries and keys are ordered as their weights', async () => {
    const biases: Record<string, Tensor> = {};
    for (const layer of [0, 1, 2])
      for (const [part, size] of Object.entries({ q: 128, k: 64, v: 64, o: 64 })) {
        const values = Float32Array.from({ length: size }, (_, i) => Math.sin(7 * i + layer));
        biases[`model.layers.${layer}.self_attn.${part}_proj.bias`] = Tensor.from(values);
      }
    const source = await variantOf('llama', { attention_bias: true }, biases);
    const path = place();
    await quantizeModel(source, path, 'f32');
    const [first, second] = await Promise.all(
      [source, path].map((from) => loadModel(from, { device: 'js', dtype: 'f32' })),
    );
    const [wanted, found] = await Promise.all(
      [first, second].map(async (model) => {
        using logits = model.forward([5, 60, 108, 9], 0);
        return (await logits.toArray()) as Float32Array;
      }),
    );
    for (const [i, value] of found.entries()) expect(Math.abs(value - wanted[i])).toBeLessThan(1e-4);
    for (const model of [first, second]) model.dispose();
  });

  test.each([
    ['gemma2', { query_pre_attn_scalar: 17 }],
    ['gemma3_text', { layer_types: ['full_attention', 'sliding_attention'], num_hidden_layers: 2 }],
    ['cohere2', { layer_types: ['full_attention', 'sliding_attention'], num_hidden_layers: 2 }],
    ['olmoe', { norm_topk_prob: true }],
    ['qwen3_moe', { norm_topk_prob: false }],
    ['qwen3', { use_sliding_window: true, sliding_window: 4, max_window_layers: 1, layer_types: null }],
  ])('%s with %o is refused, which GGUF files cannot say', async (name, changes) => {
    const source = await variantOf(name, changes);
    await expect(quantizeModel(source, place(), 'f32')).rejects.toThrow(
      expect.objectContaining({ code: 'UNSUPPORTED_MODEL', message: expect.stringContaining('do not hold') }),
    );
  });

  test('one file of tensors keeps their names', async () => {
    const path = join(folder, 'tensors.safetensors');
    const x = Float32Array.from({ length: 4 * 64 }, (_, i) => Math.sin(i));
    using matrix = Tensor.from(x, { shape: [4, 64] });
    using half = matrix.toDtype('bf16');
    using bias = Tensor.from(Float32Array.of(1, 2, 3));
    await saveSafetensors(path, { 'layer.weight': half, 'layer.bias': bias });
    const out = place();
    await quantizeModel(path, out, 'q5_0');
    using file = GgufFile.open(out);
    using numbers = half.toDtype('f32');
    expect(file.metadata.string('general.name')).toBe('tensors');
    expect(file.tensor('layer.weight')).toMatchObject({ type: 'q5_0', shape: [4, 64] });
    const expected = quantized((await numbers.toArray()) as Float32Array, 'q5_0');
    expect(file.readTensorBytes('layer.weight')).toEqual(expected);
    expect(file.tensor('layer.bias').type).toBe('f32');
  });
});

describe('what goes wrong leaves nothing', () => {
  test('mistakes', async () => {
    const { path } = await smallModel();
    const out = place();
    await expect(quantizeModel(path, path, 'q8_0')).rejects.toThrow(
      expect.objectContaining({ code: 'INVALID_ARGUMENT' }),
    );
    const link = place();
    symlinkSync(path, link);
    await expect(quantizeModel(path, link, 'q8_0')).rejects.toThrow(
      expect.objectContaining({ code: 'INVALID_ARGUMENT' }),
    );
    const importance = place();
    writeFileSync(importance, '');
    await expect(quantizeModel(path, importance, 'q8_0', { imatrix: importance })).rejects.toThrow(/is an input/);
    await expect(quantizeModel(join(folder, 'none.gguf'), out, 'q8_0')).rejects.toThrow(
      expect.objectContaining({ code: 'FILE_NOT_FOUND' }),
    );
    await expect(quantizeModel(path, join(folder, 'no/such/folder.gguf'), 'q8_0')).rejects.toThrow(
      expect.objectContaining({ code: 'FILE_UNWRITABLE' }),
    );
    await expect(quantizeModel(path, out, 'q8_0', { imatrix: path })).rejects.toThrow(
      expect.objectContaining({ code: 'GGUF_INVALID_CONTENT' }),
    );
    const wrong = place();
    const one = (name: string) => ({ name, type: 'f32' as const, shape: [1, 3], data: new Uint8Array(12).fill(64) });
    await writeGguf(wrong, {
      metadata: { 'general.type': gguf.string('imatrix') },
      tensors: [
        one('blk.0.attn_v.weight.in_sum2'),
        { ...one('blk.0.attn_v.weight.counts'), shape: [1], data: new Uint8Array(4) },
      ],
    });
    await expect(quantizeModel(path, out, 'q4_0', { imatrix: wrong })).rejects.toThrow(
      /3 values for 'blk\.0\.attn_v\.weight'/,
    );
    expect(readdirSync(folder)).not.toContain(out);
    expect(leftovers()).toEqual([]);
  });

  test('an abort between two pieces', async () => {
    const { path } = await smallModel();
    const out = place();
    writeFileSync(out, 'before');
    const stop = new AbortController();
    const onProgress = () => stop.abort(new Error('enough'));
    await expect(quantizeModel(path, out, 'q4_k_m', { signal: stop.signal, onProgress })).rejects.toThrow('enough');
    expect(readFileSync(out, 'utf8')).toBe('before');
    expect(leftovers()).toEqual([]);
  });

  test.each([
    ['Ctrl-C', ['SIGINT'], 130],
    ['a closed terminal, of which a command is told twice', ['SIGHUP', 'SIGHUP'], 129],
  ] as const)('%s', { timeout: 60_000 }, async (_, signals, status) => {
    const out = join(folder, 'interrupted.gguf');
    const args = [command, 'quantize', TINY, out, '--type', 'q2_k'];
    const child = spawn(process.execPath, [...args, '--allow-requantize', '--threads', '1', '--json'], { cwd: root });
    let output = '';
    child.stdout.on('data', (data) => {
      output += String(data);
    });
    const ended = new Promise<number | null>((resolve) => child.on('exit', (code) => resolve(code)));
    // Once there is a part of the file, the work is under way.
    while (leftovers().length === 0 && child.exitCode === null) await new Promise((resolve) => setTimeout(resolve, 20));
    for (const signal of signals) child.kill(signal);
    expect(await ended).toBe(status);
    expect(JSON.parse(output).error.code).toBe('INTERRUPTED');
    expect(leftovers()).toEqual([]);
    expect(readdirSync(folder)).not.toContain('interrupted.gguf');
  });
});

test('threads make the same blocks', async () => {
  const outfile = join(folder, 'quantize-worker.mjs');
  await build({
    entryPoints: [join(root, 'packages/quantized/src/quantize-worker.ts')],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    alias: {
      '@x/core/files': join(root, 'packages/core/src/files/index.ts'),
      '@x/core': join(root, 'packages/core/src/index.ts'),
    },
  });
  const pool = new QuantizePool(new URL(`file://${outfile}`));
  pool.grow(2);
  const x = Float32Array.from({ length: 64 * 512 }, (_, i) => Math.sin(i * i));
  const importance = Float32Array.from({ length: 512 }, (_, i) => 1 + (i % 5));
  const jobs = (['q4_K', 'q8_0', 'iq4_xs', 'q2_K'] as const).map((type) => {
    return { type, x, k: 512, importance, firstRow: 0, rows: 64 };
  });
  const made = await Promise.all(jobs.map((job) => pool.run(job)));
  for (const [i, job] of jobs.entries()) expect(Buffer.compare(made[i], quantizeJob(job))).toBe(0);
  expect(x.length).toBe(64 * 512);
  await pool.close();
  await expect(pool.run(jobs[0])).rejects.toThrow(expect.objectContaining({ code: 'DISPOSED' }));
});

describe('inspect', () => {
  const inspect = (file: string) => {
    const out = execFileSync(process.execPath, [command, 'inspect', file, '--json'], {
      cwd: root,
      encoding: 'utf8',
    });
    return JSON.parse(out);
  };

  test('nothing of a file reaches a terminal that it would obey', async () => {
    const path = place();
    await writeGguf(path, {
      metadata: {
        'general.architecture': gguf.string('\x1b[31mll\x1b]0;pwn\x07ama'),
        'k\x1b[2J\n': gguf.string('v\x1b[2J'),
      },
      tensors: [{ name: 't\x1b[2J', type: 'f32', shape: [1], data: new Uint8Array(4) }],
    });
    const out = execFileSync(process.execPath, [command, 'inspect', path], { cwd: root, encoding: 'utf8' });
    // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what is looked for
    expect(out.replaceAll('\n', '')).not.toMatch(/[\x00-\x1f\x7f-\x9f]/);
    expect(out).toContain('\\x1b[31mll');
    expect(out).toContain('k\\x1b[2J\\x0a');
  });

  test('tensors, types, sizes, metadata and memory', { timeout: 60_000 }, () => {
    const found = inspect(TINY);
    expect([found.format, found.tensors.length]).toEqual(['GGUF v3', 74]);
    expect(found.metadata['general.architecture']).toBe('llama');
    expect(found.types.q8_0.tensors).toBe(57);
    const js = found.memory.find(({ device }: { device: string }) => device === 'js');
    const bytes = found.tensors.reduce((sum: number, tensor: { bytes: number }) => sum + tensor.bytes, 0);
    // 8 layers, 4 key and value heads of 32 values each, 512 positions, f32.
    const cacheBytes = 8 * 2 * 4 * 32 * 4 * 512;
    const contexts = [{ positions: 512, cacheBytes }];
    const sizes = { weightBytes: bytes, cacheBytes, contextLength: 512, contexts };
    // Nobody says how much of the host's memory is JavaScript's.
    expect(js).toEqual({ device: 'js', ...sizes, freeBytes: null, fittingContext: null });
  });
});
