/**
 * MODEL arguments of commands. Weights to be quantised, from a GGUF file, a safetensors file or a Hugging Face directory: one list of tensors whose
 * values are read some rows at a time, so that no more than a part of one weight is in memory as f32.
 */
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { Device, scope, Tensor } from '@x/core';
import { readJsonFile, ShardedSafetensors } from '@x/core/files';
import { findModel } from '@x/engine';
import { isHubName } from '@x/hub';
import { type BlockFormat, byteLengthOf, GgufFile, type GgufValue, gguf } from '@x/quantized';
import {
  checkpointRow,
  describeConfig,
  describeGguf,
  type GgufExport,
  type GgufTensorName,
  ggufExportOfDirectory,
  type ModelDescription,
  WeightFile,
} from '@x/transformers';
import { type DownloadOptions, download } from './download';
import { UsageError } from './output';

export interface SourceTensor {
  readonly name: string;
  /** Outermost dimension first. */
  readonly shape: readonly number[];
  /** Type or dtype in the source. */
  readonly type: string;
  /** Bytes in the source. */
  readonly byteLength: number;
  /** The blocks' format, where the source has them as GGUF does, so that they can be copied. */
  readonly format?: BlockFormat;
  /** Its values are not those of the source's blocks. Default false. */
  readonly merged?: boolean;
  /** The source's blocks in pieces; only with `format`. */
  blocks?(): Iterable<Uint8Array>;
  /** Values of rows [first, first + count) in f32; a row is the last dimension. */
  rows(first: number, count: number): Promise<Float32Array>;
  /** Gives memory back that `rows` held on to. */
  done(): void;
}

export interface OpenModel {
  readonly kind: 'gguf' | 'safetensors';
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly SourceTensor[];
  /** Files that are read; none may be the output. */
  readonly paths: readonly string[];
  /** What of the source a GGUF file does not say. Default: nothing. */
  readonly warnings?: readonly string[];
  /** What model it is, where the source says it. @throws TransformersError UNSUPPORTED_MODEL, BAD_CONFIG */
  describe?(): ModelDescription;
  close(): void;
}

/** The path of a MODEL argument: a path as it is, a model of the hub where it is in the cache, downloaded when it is not. */
export async function localModel(model: string, options: DownloadOptions): Promise<string> {
  if (model === '') throw new UsageError('the name of the model is empty. Give a file, a directory or hf:org/repo.');
  if (!isHubName(model)) return model;
  return (await download(model, { ...options, update: false })).path;
}

/** Opens whatever `path` names. @throws FileFormatError, TransformersError as the readers of the formats */
export function openModel(path: string): OpenModel {
  if (existsSync(path) && statSync(path).isDirectory()) {
    const files = findModel(path);
    return files.kind === 'gguf' ? openGguf(files.path) : openCheckpoint(path, files.weights);
  }
  if (!path.endsWith('.safetensors') && !path.endsWith('.safetensors.index.json')) return openGguf(path);
  const directory = dirname(path);
  // A file of weights by itself keeps its names; one that lies in a model's directory is that model.
  return existsSync(join(directory, 'config.json')) ? openCheckpoint(directory, path) : openTensors(path);
}

/** Length of the last dimension, and how many such rows a shape has. */
export function rowsOf(shape: readonly number[]): { rows: number; k: number } {
  const k = shape.at(-1) ?? 1;
  const count = shape.reduce((product, dim) => product * dim, 1);
  return { rows: k === 0 ? 0 : count / k, k };
}

function openGguf(path: string): OpenModel {
  const file = GgufFile.open(path);
  const tensors = [...file.tensors.values()].map(({ name, shape, type, byteLength, format }): SourceTensor => {
    const { k } = rowsOf(shape);
    return {
      name,
      shape,
      type,
      byteLength: byteLength ?? 0,
      format,
      *blocks() {
        // Raises the error that names type and tensor where the type is unknown.
        file.format(name);
        for (const { bytes } of file.tensorChunks(name)) yield bytes;
      },
      async rows(first, count) {
        const known = file.format(name);
        const bytes = new Uint8Array(byteLengthOf(known, count * k));
        file.readTensorSlice(name, byteLengthOf(known, first * k), bytes);
        const values = new Float32Array(count * k);
        known.dequantize(bytes, 0, values, 0, values.length / known.blockSize);
        return values;
      },
      done() {},
    };
  });
  const describe = () => describeGguf(file.metadata);
  return { kind: 'gguf', metadata: file.metadata, tensors, paths: file.paths, describe, close: () => file.close() };
}

/** A Hugging Face directory of a language model: names, row order, metadata and tokenizer become GGUF's. */
function openCheckpoint(directory: string, weights: string | string[]): OpenModel {
  const { metadata, names, tensors, ropeFactors, warnings } = ggufExportOfDirectory(directory);
  const source = fromSafetensors(weights, new Map(Object.entries(metadata)), tensors, { names, ropeFactors });
  const describe = () => describeConfig(readJsonFile(join(directory, 'config.json')));
  return { ...source, warnings, describe };
}

function openTensors(path: string): OpenModel {
  const metadata = new Map<string, GgufValue>([
    ['general.type', gguf.string('model')],
    ['general.name', gguf.string(basename(path).replace(/\.safetensors(\.index\.json)?$/, ''))],
  ]);
  return fromSafetensors(path, metadata, (names) => names.map((name) => ({ name })));
}

function fromSafetensors(
  weights: string | string[],
  metadata: Map<string, GgufValue>,
  list: (names: readonly string[]) => GgufTensorName[],
  { names, ropeFactors }: Partial<Pick<GgufExport, 'names' | 'ropeFactors'>> = {},
): OpenModel {
  const files = ShardedSafetensors.open(weights);
  try {
    const file = new WeightFile(files, { names });
    const tensors = list(file.names()).map((tensor) => checkpointTensor(file, tensor));
    if (ropeFactors !== undefined) tensors.push(inMemory('rope_freqs.weight', ropeFactors));
    return { kind: 'safetensors', metadata, tensors, paths: files.paths, close: () => files.close() };
  } catch (error) {
    files.close();
    throw error;
  }
}

function checkpointTensor(file: WeightFile, { name, heads, add = 0 }: GgufTensorName): SourceTensor {
  const shape = file.shapeOf(name)!;
  const { rows, k } = rowsOf(shape);
  const { dtype = '' } = file.file.info(file.storedName(name)) as { dtype?: string };
  // In the dtype of the file, on the host; rows are converted when they are read.
  let loaded: Tensor | undefined;
  return {
    name,
    shape,
    type: dtype.toLowerCase(),
    byteLength: file.bytesOf(name),
    async rows(first, count) {
      if (!loaded) {
        using weight = await file.load(name, Device.js());
        loaded = weight.data.detach();
      }
      const whole = loaded;
      using part = scope(() => {
        if (heads === undefined) return whole.reshape([rows, k]).narrow(0, first, count).toDtype('f32').add(add);
        // A bias has as many rows as its weight, of one number each, and is asked for as one.
        const isBias = shape.length === 1;
        const [from, asked, all] = isBias ? [0, k, k] : [first, count, rows];
        const ids = Uint32Array.from({ length: asked }, (_, i) => checkpointRow(from + i, all / heads));
        const flat = whole.reshape([all, isBias ? 1 : k]);
        return flat.indexSelect(Tensor.from(ids, { device: Device.js() }), 0).toDtype('f32');
      });
      return Float32Array.from((await part.toArray()) as Float32Array);
    },
    done() {
      loaded?.dispose();
      loaded = undefined;
    },
  };
}

function inMemory(name: string, values: Float32Array): SourceTensor {
  return {
    name,
    shape: [values.length],
    type: 'f32',
    byteLength: values.byteLength,
    rows: async () => values,
    done() {},
  };
}
