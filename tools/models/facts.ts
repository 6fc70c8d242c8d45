/**
 * What is supported of each architecture, found out rather than listed: the small models of `models/` are built and watched. Which
 * matrices are made, which of them adapters can change and ranks divide, whether layers carry a state, whether it makes vectors and
 * is written as GGUF.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Communicator, Device } from '@x/core';
import { readJsonFile } from '@x/core/files';
import { loadEmbeddingModel } from '@x/engine';
import type { TensorPart } from '@x/quantized';
import {
  ARCHITECTURES,
  type Architecture,
  ChatTemplate,
  describeConfig,
  ENCODERS,
  type EncoderArchitecture,
  ggufExport,
  LoraSites,
  openSafetensors,
  TransformersError,
  WeightFile,
  Weights,
} from '@x/transformers';
import { ENCODER_MODELS, PUBLISHED, type Published } from './published';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

export interface ModelFacts {
  /** `model_type` of config.json and `general.architecture` of GGUF files. */
  name: string;
  gguf: string | undefined;
  published: string;
  /** Whether there is a GGUF file of llama.cpp's among those that the tests compare. */
  checked: 'both' | 'safetensors';
  export: boolean;
  /** Matrices that every rank has whole; undefined where nothing but embedding and head is divided. */
  whole: readonly string[] | undefined;
  pipeline: boolean;
  /** Matrices that adapters cannot change. */
  unadapted: readonly string[];
  /** Prompts in files, and drafts. */
  states: boolean;
  vectors: boolean;
  /** Families of tool calls, by the templates that are known here. */
  families: readonly string[];
}

export interface EncoderFacts {
  name: string;
  gguf: string | undefined;
  published: string;
  /** Classes of config.json that have a head for scores. */
  head: string | undefined;
}

const folderOf = ({ architectures: [name] }: Architecture) =>
  [join(ROOT, 'models/tiny', PUBLISHED[name]?.like ?? name), join(ROOT, 'models/encoders/gemma_embedding')].find(
    (folder) => existsSync(folder),
  )!;

/** Of all architectures that are registered, in their order. */
export async function modelFacts(): Promise<ModelFacts[]> {
  const rows: ModelFacts[] = [];
  for (const architecture of ARCHITECTURES) rows.push(await factsOf(architecture, folderOf(architecture)));
  return rows;
}

export function encoderFacts(): EncoderFacts[] {
  return ENCODERS.map((encoder: EncoderArchitecture) => {
    const name = encoder.architectures.at(0)!;
    const known = ENCODER_MODELS[name];
    if (!known) throw new Error(`tools/models/published.ts has no encoder ${name}`);
    const head = encoder.architectures.find((one) => one.endsWith('ForSequenceClassification'));
    return { name, gguf: encoder.gguf, published: known, head };
  });
}

async function factsOf(architecture: Architecture, folder: string): Promise<ModelFacts> {
  const [name] = architecture.architectures;
  const published: Published | undefined = PUBLISHED[name];
  if (!published) throw new Error(`tools/models/published.ts has no ${name}`);
  const alone = await watched(folder, undefined);
  const shared = await watched(folder, 'tensors');
  // Rows in another order are parts of a matrix as well, but as many as it has.
  const isLess = (matrix: string) => shared.asked.get(matrix)! < (alone.asked.get(matrix) ?? Number.POSITIVE_INFINITY);
  const divided = new Set([...shared.asked.keys()].filter(isLess));
  const inside = [...divided].filter((matrix) => !TABLES.includes(matrix));
  const matrices = [...alone.matrices];
  return {
    name,
    gguf: architecture.gguf,
    published: published.models,
    checked:
      !published.like && ['model-f16.gguf', 'model-f32.gguf'].some((file) => existsSync(join(folder, file)))
        ? 'both'
        : 'safetensors',
    export: isExported(folder),
    whole: inside.length === 0 ? undefined : matrices.filter((matrix) => !divided.has(matrix)).sort(),
    pipeline: await isStaged(folder),
    unadapted: [...matrices, ...alone.taken]
      .filter((matrix) => !alone.adapted.has(matrix) && !TABLES.includes(matrix))
      .sort(),
    states: alone.states,
    vectors: await makesVectors(folder),
    families: familiesOf(published),
  };
}

const TABLES: readonly string[] = ['token_embd', 'position_embd', 'output'];

interface Watched {
  /** Names in GGUF files, without the layer: attn_q. */
  matrices: Set<string>;
  adapted: Set<string>;
  /** Rows or columns of matrices that parts were asked of. */
  asked: Map<string, number>;
  /** Matrices that layers divide by themselves. */
  taken: Set<string>;
  states: boolean;
}

type Method = (this: unknown, ...args: unknown[]) => unknown;

/** Calls `seen` before each call of a method, until the returned function is called. */
function spied(holder: object, method: string, seen: (args: unknown[]) => void): () => void {
  const methods = holder as Record<string, Method>;
  const before = methods[method];
  methods[method] = function (...args) {
    seen(args);
    return before.apply(this, args);
  };
  return () => {
    methods[method] = before;
  };
}

/** Builds a model, as the first of two ranks where `split` says so, and gives what it asked its weights for. */
async function watched(folder: string, split: 'tensors' | 'layers' | undefined): Promise<Watched> {
  const found: Watched = {
    matrices: new Set(),
    adapted: new Set(),
    asked: new Map(),
    taken: new Set(),
    states: false,
  };
  const short = (name: string) => name.replace(/^blk\.\d+\./, '').replace(/\.weight$/, '');
  const asked = ([names]: unknown[]) => {
    for (const one of Array.isArray(names) ? names : [names])
      found.matrices.add(short(typeof one === 'string' ? one : (one as { name: string }).name));
  };
  const restore = [
    ...['linear', 'group', 'fused', 'experts', 'heads', 'embedding'].map((method) =>
      spied(Weights.prototype, method, asked),
    ),
    // Attention of latent vectors takes its matrix apart by itself.
    spied(Weights.prototype, 'numbers', ([name]) => {
      if (short(name as string) === 'attn_kv_b') found.taken.add('attn_kv_b');
    }),
    spied(LoraSites.prototype, 'layer', ([, parts]) => {
      for (const { name } of parts as { name: string }[]) found.adapted.add(short(name));
    }),
    spied(WeightFile.prototype, 'split', ([name, part]) => {
      const { ranges } = part as TensorPart;
      found.asked.set(
        short(name as string),
        ranges.reduce((sum, { count }) => sum + count, 0),
      );
    }),
  ];
  const device = Device.js();
  const { architecture, config } = describeConfig(readJsonFile(join(folder, 'config.json')));
  const communicator = { rank: 0, size: 2, device } as unknown as Communicator;
  const shard = split && { rank: 0, size: 2, communicator, split };
  const file = openSafetensors([join(folder, 'model.safetensors')]);
  try {
    const weights = new Weights(file, { device, layout: architecture, shard });
    const model = await architecture.build(weights, config, 16);
    found.states = (model.stateLayouts ?? []).some((layout) => layout !== undefined);
    model.dispose();
  } finally {
    file.close();
    for (const undo of restore) undo();
  }
  return found;
}

async function isStaged(folder: string): Promise<boolean> {
  try {
    await watched(folder, 'layers');
    return true;
  } catch (error) {
    if (error instanceof TransformersError && error.code === 'UNSUPPORTED_MODEL') return false;
    throw error;
  }
}

function isExported(folder: string): boolean {
  try {
    ggufExport(readJsonFile(join(folder, 'config.json')));
    return true;
  } catch (error) {
    if (error instanceof TransformersError && error.code === 'UNSUPPORTED_MODEL') return false;
    throw error;
  }
}

async function makesVectors(folder: string): Promise<boolean> {
  using model = await loadEmbeddingModel(folder, { device: 'js' });
  try {
    const [{ vector }] = await model.embed(['a']);
    return vector.every(Number.isFinite);
  } catch (error) {
    // What refuses on purpose says so with a code.
    if (typeof (error as { code?: unknown }).code === 'string') return false;
    throw error;
  }
}

function familiesOf({ templates = [], family }: Published): string[] {
  const known = templates.map((name) => {
    const path = join(ROOT, 'packages/transformers/test/chat/templates', `${name}.jinja`);
    return ChatTemplate.fromText(readFileSync(path, 'utf8')).replyFormat(true).family as string;
  });
  return [...new Set([...known, ...(family ? [family] : [])])];
}
