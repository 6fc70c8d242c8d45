/**
 * `candle inspect MODEL`: what is in a model's file or directory, whether it loads, and what it would take on each device,
 * without loading a weight.
 */
import { closeSync, existsSync, openSync, readSync, type Stats, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Device, FileFormatError, sizeInBytes } from '@x/core';
import { readJsonFile, SafetensorsFile, ShardedSafetensors, type TensorReader } from '@x/core/files';
import { defaultCacheDtype, findModel, positionsIn } from '@x/engine';
import { GgmlFile, GgufFile, type GgufMetadata, holdsBlocks, holdsNarrow, type TensorFile } from '@x/quantized';
import { type ModelDescription, mixtureOf, textPart, type WeightBytes, weightBytes, withScales } from '@x/transformers';
import { Command } from 'commander';
import '@x/rocm-backend';
import { interruptible } from '../interrupt';
import { checkCheckpoint, checkGguf, type LoadCheck, nothingButWeights } from '../load-check';
import { localModel } from '../model-source';
import { formatBytes, guarded, printJson, shown, table } from '../output';

interface TensorRow {
  name: string;
  type: string;
  shape: readonly number[];
  bytes: number;
}

/** Estimated bytes of a model on one device. */
interface DeviceEstimate {
  device: string;
  /** Weights in blocks or in 16 bits as the file has them, or as f32 where the device has no kernels for a type. */
  weightBytes: number;
  /** Keys and values of `contextLength` positions, as many as are loaded by default; 0 where the metadata does not say. */
  cacheBytes: number;
  contextLength: number;
  /** The same at lengths up to what the model was made for. */
  contexts: { positions: number; cacheBytes: number }[];
  /** Bytes that are free there now; null where the device does not say. */
  freeBytes: number | null;
  /** The longest context that fits these beside the weights, at most what the model was made for; null where that is not known. */
  fittingContext: number | null;
  /** Of a mixture: what its experts take of the weights, and what stays on the device where they are in host memory. */
  experts?: { bytes: number; count: number; chosen: number; leastBytes: number };
}

interface Inspection {
  file: string;
  format: string;
  bytes: number;
  metadata: Record<string, unknown>;
  tensors: TensorRow[];
  /** Whether `loadModel` or `loadEmbeddingModel` would load it, and what stands against it. */
  loads: LoadCheck['loads'];
  problems: string[];
  /** Of a model of texts and images, of which the text part alone loads. */
  textPartOf?: LoadCheck['textPartOf'];
  /** Of each device that opens. */
  memory: DeviceEstimate[];
}

/** Positions that a cache is estimated for, as many as are loaded by default. */
const CONTEXT = 4096;

/** Others that it is told for, as far as the model goes. */
const CONTEXTS = [4096, 8192, 32_768, 131_072];

/** Longer metadata arrays (a vocabulary) are shown by their first items and length. */
const SHOWN_ITEMS = 4;
const SHOWN_PROBLEMS = 20;

export function inspectCommand(): Command {
  return new Command('inspect')
    .description(
      'show metadata, tensors and the memory that each device would need, of a GGUF, GGML or safetensors model',
    )
    .argument(
      '<model>',
      'a file, a directory with config.json and *.safetensors or with a .gguf file, or hf:org/repo:Q4_K_M',
    )
    .option('--json', 'print one JSON object')
    .action((file: string, options: { json?: boolean }) =>
      guarded(options.json, () =>
        interruptible(async (signal) => {
          const inspection = await inspect(await localModel(file, { json: options.json, signal }));
          if (options.json) printJson(summary(inspection));
          else process.stdout.write(`${describe(inspection)}\n`);
        }),
      ),
    );
}

/** As the bytes lie in the file. */
const GGML_MAGICS = ['lmgg', 'fmgg', 'tjgg'];

async function inspect(path: string): Promise<Inspection> {
  if (statOf(path).isDirectory()) return inspectDirectory(path);
  if (path.endsWith('.safetensors.index.json')) return inspectSafetensors(path, path, dirname(path));
  const magic = magicOf(path);
  if (magic === 'GGUF') return inspectGguf(path);
  if (GGML_MAGICS.includes(magic)) return inspectGgml(path);
  // A file that lies in a model's directory is that model's.
  const directory = dirname(path);
  return inspectSafetensors(path, path, existsSync(join(directory, 'config.json')) ? directory : undefined);
}

/** A model's directory, or an adapter's, whose tensors are shown. */
async function inspectDirectory(directory: string): Promise<Inspection> {
  const adapter = join(directory, 'adapter_model.safetensors');
  if (existsSync(adapter) && !existsSync(join(directory, 'config.json')))
    return inspectSafetensors(directory, adapter, directory);
  const files = findModel(directory);
  return files.kind === 'gguf' ? inspectGguf(files.path) : inspectSafetensors(directory, files.weights, directory);
}

/** Of a file or a directory; opening a pipe would wait for a writer. */
function statOf(path: string): Stats {
  try {
    const stats = statSync(path);
    if (stats.isFile() || stats.isDirectory()) return stats;
  } catch (cause) {
    const missing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    const what = missing ? 'there is no such file or directory' : (cause as Error).message;
    throw new FileFormatError(
      missing ? 'FILE_NOT_FOUND' : 'FILE_UNREADABLE',
      `${path}: ${what}. Give a model's file or directory.`,
      { path, cause },
    );
  }
  throw new FileFormatError('FILE_UNREADABLE', `${path} is no file or directory. Give a model's file or directory.`, {
    path,
  });
}

/** The first four bytes; fewer of a shorter file. */
function magicOf(path: string): string {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch (cause) {
    throw new FileFormatError('FILE_UNREADABLE', `${path}: ${(cause as Error).message}. Check its permissions.`, {
      path,
      cause,
    });
  }
  try {
    const magic = Buffer.alloc(4);
    return magic.toString('latin1', 0, readSync(fd, magic, 0, 4, 0));
  } finally {
    closeSync(fd);
  }
}

/** config.json of a model's directory, as far as it is one. */
function modelConfig(directory: string): Record<string, unknown> {
  const path = join(directory, 'config.json');
  if (!existsSync(path)) return {};
  const config = readJsonFile(path);
  return typeof config === 'object' && config !== null ? (config as Record<string, unknown>) : {};
}

async function inspectGguf(file: string): Promise<Inspection> {
  using opened = GgufFile.open(file);
  const checked = await checkGguf(opened);
  const parts = opened.paths.length > 1 ? ` in ${opened.paths.length} parts` : '';
  return {
    file,
    format: `GGUF v${opened.version}${opened.bigEndian ? ' big-endian' : ''}${parts}`,
    bytes: opened.byteLength,
    metadata: Object.fromEntries([...opened.metadata].map(([key, { value }]) => [key, value])),
    tensors: tensorRows(opened),
    loads: checked.loads,
    problems: checked.problems,
    memory: estimates(opened, cacheBy(checked, cacheOf(opened.metadata)), checked.description),
  };
}

function inspectGgml(file: string): Inspection {
  using opened = GgmlFile.open(file);
  const { blockCount, embeddingLength } = opened.parameters;
  return {
    file,
    format: opened.version === 0 ? opened.magic : `${opened.magic} v${opened.version}`,
    bytes: opened.byteLength,
    metadata: { ...opened.parameters },
    tensors: tensorRows(opened),
    ...nothingButWeights(file),
    memory: estimates(opened, { positionElements: 2 * blockCount * embeddingLength, contextLength: 2048 }),
  };
}

function tensorRows(file: TensorFile): TensorRow[] {
  return [...file.tensors.values()].map(({ name, type, shape, byteLength }) => {
    return { name, type, shape, bytes: byteLength ?? 0 };
  });
}

interface CacheSize {
  /** Elements of the key and value of one position in all layers. */
  positionElements: number;
  /** Positions that the model was made for. */
  contextLength: number;
  /** {@link LoadCheck.narrowHeads} */
  narrowHeads?: boolean | undefined;
}

/** Whether the cache of a file is in 16 bits on GPUs. */
function isNarrow(file: TensorReader, { narrowHeads = false }: CacheSize): boolean {
  return holdsBlocks(file) || (narrowHeads && holdsNarrow(file));
}

/** What the configuration of a known architecture says, else what the metadata do. */
function cacheBy({ positionElements, contextLength, narrowHeads, loads }: LoadCheck, otherwise: CacheSize): CacheSize {
  if (loads === 'loadEmbeddingModel') return { positionElements: 0, contextLength: contextLength! };
  return {
    positionElements: positionElements ?? otherwise.positionElements,
    contextLength: contextLength ?? otherwise.contextLength,
    narrowHeads,
  };
}

/** From the keys that models of all architectures share; nothing for files without them. */
function cacheOf(metadata: GgufMetadata): CacheSize {
  const number = (suffix: string, fallback = 0) => {
    const value = metadata.get(`${String(metadata.get('general.architecture')?.value)}.${suffix}`)?.value;
    return typeof value === 'number' ? value : fallback;
  };
  const heads = number('attention.head_count');
  const size = heads === 0 ? 0 : number('attention.key_length', number('embedding_length') / heads);
  const keys = number('attention.head_count_kv', heads) * (size + number('attention.value_length', size));
  return {
    positionElements: number('block_count') * keys,
    contextLength: number('context_length'),
  };
}

function estimates(file: TensorReader, cache: CacheSize, description?: ModelDescription): DeviceEstimate[] {
  return devices().map(({ name }) => estimate(name, file, cache, description));
}

function estimate(
  device: string,
  file: TensorReader,
  cache: CacheSize,
  description: ModelDescription | undefined,
): DeviceEstimate {
  const { positionElements, contextLength } = cache;
  const layers = description?.config.numLayers;
  const weights = weightBytes(file, { device, layout: description?.architecture, layers });
  const on = Device.parse(device);
  const size = sizeInBytes(defaultCacheDtype(on.kind, isNarrow(file, cache)));
  const cacheBytes = (positions: number) => positionElements * size * positions;
  const byDefault = Math.min(contextLength, CONTEXT);
  const lengths = [...CONTEXTS.filter((positions) => positions < contextLength), contextLength];
  const contexts =
    positionElements === 0 ? [] : lengths.map((positions) => ({ positions, cacheBytes: cacheBytes(positions) }));
  const experts = description && expertsOf(weights, description);
  const sizes = { weightBytes: weights.all, cacheBytes: cacheBytes(byDefault), contextLength: byDefault, contexts };
  const freeBytes = on.availableBytes() ?? null;
  const left = freeBytes === null ? null : freeBytes - weights.all;
  const fits = left === null || contexts.length === 0 ? null : positionsIn(Math.max(0, left), positionElements * size);
  const fittingContext = fits === null ? null : Math.min(contextLength, fits);
  return { device, ...sizes, ...(experts && { experts }), freeBytes, fittingContext };
}

function expertsOf({ all, experts: bytes }: WeightBytes, { config }: ModelDescription): DeviceEstimate['experts'] {
  const mixture = mixtureOf(config);
  if (!mixture || bytes === 0) return undefined;
  const { experts: count, chosen } = mixture;
  return { bytes, count, chosen, leastBytes: all - bytes + Math.ceil((bytes / count) * chosen) };
}

function devices() {
  return Device.list().filter(({ available }) => available);
}

/** @param directory of the model that the files belong to */
async function inspectSafetensors(file: string, weights: string | string[], directory?: string): Promise<Inspection> {
  const config = directory === undefined ? {} : modelConfig(directory);
  const opened = ShardedSafetensors.open(weights);
  try {
    const tensors = opened.names.map((name) => {
      const { dtype, shape, byteLength } = opened.info(name);
      return { name, type: dtype, shape, bytes: byteLength };
    });
    const { paths } = opened;
    const checked = await checkCheckpoint(opened, directory);
    const cache = cacheBy(checked, cacheOfConfig(config));
    // As a model has them: of a whole of texts and images the text part; fp8 with scales becomes bf16.
    const part = checked.textPartOf ? textPart(opened) : opened;
    const form = withScales(part) === part ? '' : ', fp8 with scales, which is loaded as bf16';
    return {
      file,
      format: `${paths.length > 1 ? `safetensors in ${paths.length} parts` : 'safetensors'}${form}`,
      bytes: paths.reduce((sum, path) => sum + statSync(path).size, 0),
      metadata: paths.length > 1 ? config : { ...metadataOf(paths[0]), ...config },
      tensors,
      loads: checked.loads,
      problems: checked.problems,
      ...(checked.textPartOf && { textPartOf: checked.textPartOf }),
      memory: estimates(part, cache, checked.description),
    };
  } finally {
    opened.close();
  }
}

function metadataOf(path: string): Readonly<Record<string, string>> {
  using file = SafetensorsFile.open(path);
  return { ...file.metadata };
}

/** From the keys of config.json that transformers' models share; nothing where they are missing. */
function cacheOfConfig(config: Record<string, unknown>): CacheSize {
  const number = (key: string, fallback = 0) => (typeof config[key] === 'number' ? config[key] : fallback);
  const heads = number('num_attention_heads');
  const size = number('head_dim', heads === 0 ? 0 : number('hidden_size') / heads);
  return {
    positionElements: 2 * number('num_hidden_layers') * number('num_key_value_heads', heads) * size,
    contextLength: number('max_position_embeddings'),
  };
}

function summary(inspection: Inspection) {
  const byType = new Map<string, { tensors: number; bytes: number }>();
  for (const { type, bytes } of inspection.tensors) {
    const entry = byType.get(type) ?? { tensors: 0, bytes: 0 };
    byType.set(type, { tensors: entry.tensors + 1, bytes: entry.bytes + bytes });
  }
  const parameters = inspection.tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const metadata = Object.fromEntries(Object.entries(inspection.metadata).map(([key, value]) => [key, shorten(value)]));
  return { ...inspection, metadata, parameters, types: Object.fromEntries(byType) };
}

function sayTextPart({ model, tensors, bytes }: NonNullable<LoadCheck['textPartOf']>): string {
  return `the text part of a ${shown(model)} model: texts only, the other parts' ${tensors} tensors (${formatBytes(bytes)}) are not read`;
}

function shorten(value: unknown): unknown {
  const items = Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value as ArrayLike<unknown>) : undefined;
  return items && items.length > SHOWN_ITEMS ? { length: items.length, first: items.slice(0, SHOWN_ITEMS) } : value;
}

function describe(inspection: Inspection): string {
  const { format, bytes, metadata, parameters, types, tensors, memory, loads, problems, textPartOf } =
    summary(inspection);
  const show = (value: unknown) => JSON.stringify(value, (_, item) => (typeof item === 'bigint' ? Number(item) : item));
  const typeList = Object.entries(types).map(
    ([type, entry]) => `${entry.tensors} ${type} (${formatBytes(entry.bytes)})`,
  );
  return [
    `${inspection.file}: ${format}, ${formatBytes(bytes)}, ${tensors.length} tensors, ${(parameters / 1e6).toFixed(2)} M parameters`,
    `types: ${shown(typeList.join(', '))}`,
    loads === false ? 'does not load:' : `loads with ${shown(String(loads))}`,
    ...(textPartOf ? [`  ${sayTextPart(textPartOf)}`] : []),
    ...problems.slice(0, SHOWN_PROBLEMS).map((problem) => `  ${shown(problem)}`),
    ...(problems.length > SHOWN_PROBLEMS ? [`  and ${problems.length - SHOWN_PROBLEMS} more`] : []),
    ...memory.map(
      ({ device, weightBytes, cacheBytes, contextLength, contexts, experts, freeBytes, fittingContext }) => {
        const cache = cacheBytes > 0 ? ` + ${formatBytes(cacheBytes)} for ${contextLength} positions` : '';
        const more = contexts
          .filter(({ positions }) => positions > contextLength)
          .map((at) => `${formatBytes(weightBytes + at.cacheBytes)} for ${at.positions}`);
        const others = more.length > 0 ? `; ${more.join(', ')}` : '';
        const free = freeBytes === null ? '' : ` the ${formatBytes(freeBytes)} that are free`;
        const fits =
          fittingContext === null
            ? ''
            : `; ${fittingContext === 0 ? 'no context fits' : `a context of ${fittingContext} fits`}${free}`;
        return `memory on ${device}: about ${formatBytes(weightBytes + cacheBytes)} (${formatBytes(weightBytes)} of weights${cache})${others}${experts ? withExperts(experts) : ''}${fits}`;
      },
    ),
    '',
    table(Object.entries(metadata).map(([key, value]) => [shown(key), show(value)])),
    '',
    table(
      tensors.map((tensor) => [
        shown(tensor.name),
        shown(tensor.type),
        `[${tensor.shape.join(', ')}]`,
        formatBytes(tensor.bytes),
      ]),
    ),
  ].join('\n');
}

function withExperts({ bytes, count, chosen, leastBytes }: NonNullable<DeviceEstimate['experts']>): string {
  const least = `${formatBytes(leastBytes)} of weights there with ${chosen} of ${count}`;
  return `; with experts in host memory (${formatBytes(bytes)}) at least ${least} of each layer`;
}
