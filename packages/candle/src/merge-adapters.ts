/**
 * Weights with LoRA adapters merged into them, W + scale · B · A: a {@link OpenModel} whose rows are made when they are read, so
 * that no more than a part of one weight is in memory, as without adapters.
 */
import { existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CandleError, Device, scope, Tensor } from '@x/core';
import { checkLora, type LoraDelta, type LoraFile, openLora, TransformersError } from '@x/transformers';
import { InvalidArgumentError } from 'commander';
import { type OpenModel, rowsOf, type SourceTensor } from './model-source';

/** An adapter, and how much of it. */
export interface AdapterSource {
  path: string;
  scale: number;
}

/** `PATH` or `PATH=scale`, for an option. */
export function adapterSource(text: string): AdapterSource {
  const [, path, scale] = /^(.+)=([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)$/i.exec(text) ?? [];
  // A file may be called so.
  const source = path === undefined || existsSync(text) ? { path: text, scale: 1 } : { path, scale: Number(scale) };
  if (!Number.isFinite(source.scale)) throw new InvalidArgumentError(`The scale ${scale} is too large.`);
  if (source.path === '') throw new InvalidArgumentError('Give PATH or PATH=SCALE, such as adapter or adapter=0.5.');
  return source;
}

/** For an option that may be given several times. */
export function adapterSources(text: string, all: readonly AdapterSource[] = []): AdapterSource[] {
  return [...all, adapterSource(text)];
}

/** What is added to one weight. */
interface Addition {
  delta: LoraDelta;
  scale: number;
  /** Of the adapter. */
  path: string;
}

/**
 * Takes the source over, which closes with what is returned.
 * @throws TransformersError BAD_ADAPTER, UNSUPPORTED_ADAPTER; FileFormatError; CandleError INVALID_ARGUMENT for weights without a
 *   description of their model
 */
export function mergeAdapters(source: OpenModel, adapters: readonly AdapterSource[]): OpenModel {
  if (adapters.length === 0) return source;
  const files: LoraFile[] = [];
  const close = () => {
    for (const file of files) file.close();
    source.close();
  };
  try {
    const description = source.describe?.();
    if (!description) {
      const message = `${source.paths[0]}: the names of its weights are not known, so no adapter can be merged. Give the model's directory with its config.json.`;
      throw new CandleError('INVALID_ARGUMENT', message);
    }
    const { architecture } = description;
    const pairs = architecture.pairs === 'reordered' ? 'interleaved' : (architecture.pairs ?? 'half');
    const tensors = new Map(source.tensors.map((tensor) => [tensor.name, tensor]));
    const additions = new Map<string, Addition[]>();
    for (const { path, scale } of adapters) {
      const file = openLora(path, { ...description, pairs });
      files.push(file);
      checkLora(file, (target) => tensors.get(`${target}.weight`)?.shape);
      for (const delta of file.deltas) {
        const name = `${delta.target}.weight`;
        additions.set(name, [...(additions.get(name) ?? []), { delta, scale, path }]);
      }
    }
    const merged = source.tensors.map((tensor) => {
      const own = additions.get(tensor.name);
      return own ? withAdditions(tensor, own) : tensor;
    });
    const paths = [...source.paths, ...adapters.flatMap(({ path }) => filesOf(path))];
    return { ...source, tensors: merged, paths, close };
  } catch (error) {
    close();
    throw error;
  }
}

/** The files of an adapter, none of which may be written to. */
function filesOf(path: string): string[] {
  const isFolder = statSync(path).isDirectory();
  if (!isFolder && !path.endsWith('.safetensors')) return [path];
  const folder = isFolder ? path : dirname(path);
  return ['adapter_model.safetensors', 'adapter_config.json'].map((name) => join(folder, name));
}

/** The weight without its blocks, which are no longer what it is. */
function withAdditions(tensor: SourceTensor, additions: readonly Addition[]): SourceTensor {
  const { k } = rowsOf(tensor.shape);
  const device = Device.cpu();
  let loaded: Promise<{ a: Tensor; b: Float32Array; rank: number; factor: number; path: string }[]> | undefined;
  const load = async ({ delta, scale, path }: Addition) => {
    const { a, b } = await delta.load();
    const { rank } = delta;
    return {
      a: scope(() => Tensor.from(a, { device }).reshape([rank, k])),
      b,
      rank,
      factor: scale * delta.scale,
      path,
    };
  };
  return {
    ...tensor,
    blocks: undefined,
    merged: true,
    async rows(first, count) {
      loaded ??= Promise.all(additions.map(load));
      const values = await tensor.rows(first, count);
      for (const { a, b, rank, factor, path } of await loaded) {
        using sum = scope(() => {
          const rows = Tensor.from(b.slice(first * rank, (first + count) * rank), { device }).reshape([count, rank]);
          return rows.matmul(a).mul(factor);
        });
        const added = await sum.toArray<Float32Array>();
        if (!added.every(Number.isFinite)) {
          const message = `${path}: what the adapter adds to ${tensor.name} is no finite number. Get the adapter again, or give a smaller scale.`;
          throw new TransformersError('BAD_ADAPTER', message);
        }
        for (let i = 0; i < values.length; i++) values[i] += added[i];
      }
      return values;
    },
    done() {
      tensor.done();
      void loaded?.then((all) => {
        for (const { a } of all) a.dispose();
      });
      loaded = undefined;
    },
  };
}
