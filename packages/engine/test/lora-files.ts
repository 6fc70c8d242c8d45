/** Adapters of the tests: those that PEFT saved, the same as GGUF files, and broken ones. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, scope, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { type GgufValue, gguf, writeGguf } from '@x/quantized';
import { describeConfig, TensorNames } from '@x/transformers';

const folder = fileURLToPath(new URL('./fixtures/lora/', import.meta.url));
const tiny = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));

export type AdapterName = 'llama-all' | 'llama-some' | 'qwen2-all';

export interface AdapterGolden {
  /** Folder of models/tiny. */
  model: string;
  /** Of the model's own logits. */
  std: number;
  /** By how much the adapter changes them. */
  changed: number;
  prompts: { ids: number[]; last: number[]; greedy: number[] }[];
}

export const adapterGolden: Record<AdapterName, AdapterGolden> = JSON.parse(
  readFileSync(join(folder, 'golden.json'), 'utf8'),
);
export const adapterPath = (name: AdapterName) => join(folder, name);
export const modelFile = (name: string, file: 'model.safetensors' | 'model-f16.gguf') => join(tiny, name, file);

interface Matrix {
  shape: number[];
  values: Float32Array;
}

/** The matrices of an adapter, by their names in PEFT's file. */
function matricesOf(path: string): Map<string, Matrix> {
  const file = SafetensorsFile.open(join(path, 'adapter_model.safetensors'));
  const matrices = new Map<string, Matrix>();
  for (const name of file.names) {
    using tensor = file.loadSync(name, Device.js(), { dtype: 'f32' });
    matrices.set(name, { shape: [...tensor.shape], values: tensor.toArraySync<Float32Array>() });
  }
  file.close();
  return matrices;
}

/**
 * An adapter as llama.cpp's converter writes it: names and the order of rows of a GGUF model. The format has one alpha for all
 * layers, so what makes a layer's scale another one is multiplied into its B.
 */
export async function writeGgufAdapter(
  path: string,
  name: AdapterName,
  metadata: Record<string, GgufValue> = {},
): Promise<string> {
  const { model } = adapterGolden[name];
  const { architecture, config } = describeConfig(JSON.parse(readFileSync(join(tiny, model, 'config.json'), 'utf8')));
  const names = new TensorNames(architecture.names);
  const settings = JSON.parse(readFileSync(join(adapterPath(name), 'adapter_config.json'), 'utf8'));
  const alpha = settings.lora_alpha;
  const tensors = [...matricesOf(adapterPath(name))].map(([stored, { shape, values }]) => {
    const [, module, part] = /^base_model\.model\.(.+)\.lora_([AB])\.weight$/.exec(stored)!;
    const [target] = names.toGguf(`${module}.weight`);
    if (part === 'B') {
      const rank = shape[1];
      const factor = scaleOf(module, rank, settings) / (alpha / rank);
      const heads = { attn_q: config.numHeads, attn_k: config.numKvHeads }[target.split('.')[2]];
      const isReordered = heads !== undefined && architecture.pairs === 'reordered';
      values = (isReordered ? neighbours(values, shape[0] / heads, rank) : values).map((value) => value * factor);
    }
    const data = new Uint8Array(values.slice().buffer);
    return { name: `${target}.lora_${part.toLowerCase()}`, shape, type: 'f32' as const, data };
  });
  const own = {
    'general.architecture': gguf.string(architecture.gguf),
    'general.type': gguf.string('adapter'),
    'adapter.type': gguf.string('lora'),
    'adapter.lora.alpha': gguf.float32(alpha),
  };
  await writeGguf(path, { metadata: new Map(Object.entries({ ...own, ...metadata })), tensors });
  return path;
}

/** What the settings of the three adapters say, written out by hand. */
function scaleOf(
  module: string,
  rank: number,
  {
    lora_alpha: alpha,
    use_rslora: isRs,
    alpha_pattern: alphas,
  }: {
    lora_alpha: number;
    use_rslora: boolean;
    alpha_pattern: Record<string, number>;
  },
): number {
  const own = Object.keys(alphas).length > 0 && /\.1\.mlp\.(gate|up)_proj$/.test(module) ? 3 : alpha;
  return own / (isRs ? Math.sqrt(rank) : rank);
}

/** Rows i and i + size / 2 of each head become rows 2i and 2i + 1. */
function neighbours(values: Float32Array, size: number, width: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let row = 0; row < values.length / width; row++) {
    const head = Math.floor(row / size) * size;
    const within = row - head;
    const to = within < size / 2 ? 2 * within : 2 * (within - size / 2) + 1;
    out.set(values.subarray(row * width, (row + 1) * width), (head + to) * width);
  }
  return out;
}

export interface AdapterChanges {
  config?: Record<string, unknown>;
  drop?: string[];
  /** What names of layers begin with in the place of `model.`. */
  part?: string;
  /** In f32, zeros of a shape. */
  add?: Record<string, number[]>;
}

/** A PEFT adapter with some things changed, in a folder of its own. */
export async function changedAdapter(to: string, name: AdapterName, changes: AdapterChanges): Promise<string> {
  cpSync(adapterPath(name), to, { recursive: true });
  const path = join(to, 'adapter_config.json');
  const { drop = [], add = {}, part = 'model.' } = changes;
  const text = readFileSync(path, 'utf8').replaceAll('model.layers.', `${part}layers.`);
  writeFileSync(path, JSON.stringify({ ...JSON.parse(text), ...changes.config }));
  const named = (stored: string) => stored.replace(/^(base_model\.model\.)model\./, `$1${part}`);
  const tensors = new Map<string, Tensor>();
  const device = Device.js();
  for (const [stored, { shape, values }] of matricesOf(adapterPath(name)))
    if (!drop.includes(stored))
      tensors.set(
        named(stored),
        scope(() => Tensor.from(values, { device }).reshape(shape)),
      );
  for (const [stored, shape] of Object.entries(add)) tensors.set(stored, Tensor.zeros(shape, 'f32', device));
  await saveSafetensors(join(to, 'adapter_model.safetensors'), tensors);
  for (const tensor of tensors.values()) tensor.dispose();
  return to;
}
