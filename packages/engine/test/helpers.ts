/** What the behaviour tests share: devices, files, golden values, and a Hugging Face checkpoint made from the GGUF file. */
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, type MemoryStats, memoryStats } from '@x/core';
import { GgufFile, type GgufValue, QTensor, writeGguf } from '@x/quantized';
import { testDevices } from '@x/testing/devices';
import { generator } from '@x/testing/operands';
import type { LanguageModel } from '../src';

export const deviceNames = testDevices().map(String);
export const openDevice = (name: string) => Device.parse(name);

const models = fileURLToPath(new URL('../../../models/tiny-tales/', import.meta.url));
export const GGUF = join(models, 'tiny-tales-q8_0.gguf');
/** A small model of random f32 weights: what it chooses hangs on no rounding. */
export const TINY = fileURLToPath(new URL('../../../models/tiny/llama/model.safetensors', import.meta.url));
export const TOKENIZER = join(models, 'tokenizer.json');

/**
 * Of models whose layers carry states: what transformers' own results in bf16 are off by, over the three texts, and a quarter, as
 * parts of the logits' deviation.
 */
export const STATES_IN_BF16: Readonly<Record<string, number>> = {
  lfm2: 0.11,
  mamba2: 0.06,
  falcon_mamba: 0.05,
  qwen3_5_text: 0.4,
  qwen3_next: 0.17,
};

/**
 * Of models that the rounding of what goes into matrix units takes over 3e-2 of the logits' deviation at 80 tokens: what
 * transformers' own results in bf16, which rounds what comes out too, are off by there (tools/golden/bf16.py).
 */
export const PROMPTS_IN_BF16: Readonly<Record<string, number>> = {
  deepseek_v3: 0.0732,
  lfm2: 0.0699,
  nemotron: 0.0778,
  phi3_window: 0.037,
  qwen3_5_text: 0.0547,
  qwen3_next: 0.0738,
};

export interface Golden {
  prompts: { text: string; ids: number[]; logits: number[]; greedy_ids: number[]; greedy_text: string }[];
}

/** Logits and greedy continuations on the exactly dequantised weights, from PyTorch in f32. */
export const goldenQ8 = (): Golden => JSON.parse(readFileSync(join(models, 'golden-q8_0.json'), 'utf8'));

export function maxDifference(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (actual.length !== expected.length) throw new Error(`lengths ${actual.length} and ${expected.length} differ`);
  let max = 0;
  for (let i = 0; i < actual.length; i++) {
    const difference = Math.abs(actual[i] - expected[i]);
    if (!(difference <= max)) max = difference;
  }
  return max;
}

/** The memory in use without what a model keeps for what may come. */
export function settledMemory(model: LanguageModel): MemoryStats {
  model.reset();
  model.emptyCache();
  return memoryStats();
}

/** An empty directory and the function that removes it. */
export function temporaryDirectory(): { path: string; remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), 'transformers-test-'));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

export interface GgufChanges {
  metadata?: Record<string, GgufValue>;
  /** Names of tensors to leave out. */
  drop?: string[];
  /** Tensors to store as f32 numbers. */
  widen?: string[];
  /** f32 tensors to add. */
  add?: { name: string; shape: number[]; values: Float32Array }[];
}

/** The GGUF model with some things changed, written to `path`. */
export async function rewriteGguf(
  path: string,
  { metadata = {}, drop = [], widen = [], add = [] }: GgufChanges,
): Promise<string> {
  const file = GgufFile.open(GGUF);
  const raw = (values: Float32Array) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const kept = [...file.tensors.values()].filter((info) => !drop.includes(info.name));
  const tensors = kept.map(({ name, shape, format }) =>
    widen.includes(name)
      ? { name, shape, type: 'f32' as const, data: raw(denseValues(file, name)) }
      : { name, shape, type: format!.type, data: file.readTensorBytes(name) },
  );
  const added = add.map(({ name, shape, values }) => ({ name, shape, type: 'f32' as const, data: raw(values) }));
  await writeGguf(path, {
    metadata: new Map([...file.metadata, ...Object.entries(metadata)]),
    tensors: [...tensors, ...added],
  });
  file.close();
  return path;
}

function denseValues(file: GgufFile, name: string): Float32Array {
  using weight = QTensor.fromGguf(file, name, Device.js());
  using dense = weight.dequantize('f32');
  return dense.toArraySync<Float32Array>();
}

interface Entry {
  name: string;
  shape: number[];
  values: Float32Array;
}

/**
 * The GGUF model as a Hugging Face checkpoint in `directory`: its dequantised values, with the rows of query and key
 * weights put back from neighbouring pairs to halves.
 * @param shards number of safetensors files; more than one come with an index
 */
export async function writeCheckpoint(directory: string, shards = 1, source = GGUF): Promise<void> {
  const file = GgufFile.open(source);
  const { metadata } = file;
  const heads = metadata.uint('llama.attention.head_count');
  const kvHeads = metadata.uint('llama.attention.head_count_kv');
  const headDim = metadata.uint('llama.attention.key_length');
  const entries: Entry[] = [];
  for (const [name, info] of file.tensors) {
    let values = denseValues(file, name);
    if (name.includes('attn_q.')) values = halves(values, heads, headDim);
    if (name.includes('attn_k.')) values = halves(values, kvHeads, headDim);
    entries.push({ name: checkpointName(name), shape: [...info.shape], values });
  }
  file.close();
  const config = {
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    hidden_act: 'silu',
    vocab_size: metadata.uint('llama.vocab_size'),
    hidden_size: metadata.uint('llama.embedding_length'),
    intermediate_size: metadata.uint('llama.feed_forward_length'),
    num_hidden_layers: metadata.uint('llama.block_count'),
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: headDim,
    max_position_embeddings: metadata.uint('llama.context_length'),
    rms_norm_eps: 1e-5,
    rope_theta: metadata.float('llama.rope.freq_base'),
    tie_word_embeddings: true,
    eos_token_id: 1,
  };
  writeFileSync(join(directory, 'config.json'), JSON.stringify(config));
  await copyFile(TOKENIZER, join(directory, 'tokenizer.json'));
  if (shards === 1) {
    writeSafetensors(join(directory, 'model.safetensors'), entries);
    return;
  }
  const weight_map: Record<string, string> = {};
  for (let shard = 0; shard < shards; shard++) {
    const part = entries.filter((_, i) => i % shards === shard);
    const name = `model-${shard + 1}-of-${shards}.safetensors`;
    writeSafetensors(join(directory, name), part);
    for (const entry of part) weight_map[entry.name] = name;
  }
  writeFileSync(join(directory, 'model.safetensors.index.json'), JSON.stringify({ metadata: {}, weight_map }));
}

/** A model of two layers with heads of 64 values and random weights. @param changes of its config */
export function writeRandomCheckpoint(directory: string, changes: Readonly<Record<string, unknown>>): void {
  const [hidden, heads, kvHeads, headDim, feed, vocab, layers] = [128, 4, 2, 64, 192, 4096, 2];
  const next = generator(7);
  const entries: Entry[] = [];
  const add = (name: string, shape: number[], around: number, spread: number) => {
    const values = Float32Array.from(
      { length: shape.reduce((a, b) => a * b) },
      () => around + spread * (2 * next() - 1),
    );
    entries.push({ name, shape, values });
  };
  const matrix = (name: string, rows: number, columns: number) =>
    add(`${name}.weight`, [rows, columns], 0, Math.sqrt(3 / columns));
  const norm = (name: string, width: number) => add(`${name}.weight`, [width], 1, 0.2);
  matrix('model.embed_tokens', vocab, hidden);
  for (let i = 0; i < layers; i++) {
    const at = `model.layers.${i}`;
    for (const name of ['input_layernorm', 'post_attention_layernorm']) norm(`${at}.${name}`, hidden);
    if (changes.model_type === 'qwen3')
      for (const name of ['q_norm', 'k_norm']) norm(`${at}.self_attn.${name}`, headDim);
    matrix(`${at}.self_attn.q_proj`, heads * headDim, hidden);
    for (const name of ['k_proj', 'v_proj']) matrix(`${at}.self_attn.${name}`, kvHeads * headDim, hidden);
    matrix(`${at}.self_attn.o_proj`, hidden, heads * headDim);
    for (const name of ['gate_proj', 'up_proj']) matrix(`${at}.mlp.${name}`, feed, hidden);
    matrix(`${at}.mlp.down_proj`, hidden, feed);
  }
  norm('model.norm', hidden);
  const config = {
    hidden_act: 'silu',
    vocab_size: vocab,
    hidden_size: hidden,
    intermediate_size: feed,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: headDim,
    max_position_embeddings: 1024,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    tie_word_embeddings: true,
    ...changes,
  };
  writeFileSync(join(directory, 'config.json'), JSON.stringify(config));
  copyFileSync(TOKENIZER, join(directory, 'tokenizer.json'));
  writeSafetensors(join(directory, 'model.safetensors'), entries);
}

/** Rows 2i and 2i + 1 of each head to rows i and i + headDim / 2. */
function halves(values: Float32Array, heads: number, headDim: number): Float32Array {
  const out = new Float32Array(values.length);
  const width = values.length / (heads * headDim);
  for (let head = 0; head < heads; head++) {
    for (let row = 0; row < headDim; row++) {
      const from = (head * headDim + row) * width;
      const to = (head * headDim + Math.floor(row / 2) + (row % 2) * (headDim / 2)) * width;
      out.set(values.subarray(from, from + width), to);
    }
  }
  return out;
}

const LAYER: Record<string, string> = {
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

function checkpointName(name: string): string {
  const [, layer, part, kind] = /^blk\.(\d+)\.(\w+)\.(weight|bias)$/.exec(name) ?? [];
  if (layer) return `model.layers.${layer}.${LAYER[part]}.${kind}`;
  return (
    {
      'token_embd.weight': 'model.embed_tokens.weight',
      'output_norm.weight': 'model.norm.weight',
      'output.weight': 'lm_head.weight',
    }[name] ?? name
  );
}

/** The safetensors format: header length, JSON header, data. */
function writeSafetensors(path: string, entries: readonly Entry[]): void {
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  let offset = 0;
  for (const { name, shape, values } of entries) {
    header[name] = { dtype: 'F32', shape, data_offsets: [offset, offset + values.byteLength] };
    offset += values.byteLength;
  }
  let json = JSON.stringify(header);
  json += ' '.repeat((8 - (json.length % 8)) % 8);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  const data = entries.map(({ values }) => Buffer.from(values.buffer, values.byteOffset, values.byteLength));
  writeFileSync(path, Buffer.concat([length, Buffer.from(json), ...data]));
}
