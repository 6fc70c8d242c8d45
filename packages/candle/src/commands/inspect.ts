/** `candle inspect FILE`: what is in a model file and what it would take on each device, without loading a weight. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { Device, FileFormatError, SafetensorsFile } from '@x/core';
import { deviceBytes, GgmlFile, GgufFile, type GgufMetadata, type TensorFile } from '@x/quantized';
import { Command } from 'commander';
import '@x/rocm-backend';
import { formatBytes, guarded, printJson, table } from '../output';

interface TensorRow {
  name: string;
  type: string;
  shape: readonly number[];
  bytes: number;
}

/** Estimated bytes of a model on one device. */
interface DeviceEstimate {
  device: string;
  /** Weights in blocks, or as f32 where the device has no kernels for a type. */
  weightBytes: number;
  /** Keys and values of `contextLength` positions in f32; 0 where the metadata does not say. */
  cacheBytes: number;
  contextLength: number;
}

interface Inspection {
  file: string;
  format: string;
  bytes: number;
  metadata: Record<string, unknown>;
  tensors: TensorRow[];
  /** Of each device that opens. */
  memory: DeviceEstimate[];
}

/** Positions that a cache is estimated for, as many as are loaded by default. */
const CONTEXT = 4096;

/** Longer metadata arrays (a vocabulary) are shown by their first items and length. */
const SHOWN_ITEMS = 4;

export function inspectCommand(): Command {
  return new Command('inspect')
    .description(
      'show metadata, tensors and the memory that each device would need, of a GGUF, GGML or safetensors file',
    )
    .argument('<file>')
    .option('--json', 'print one JSON object')
    .action((file: string, options: { json?: boolean }) =>
      guarded(options.json, () => {
        const magic = magicOf(file);
        const inspection =
          magic === 'GGUF'
            ? inspectGguf(file)
            : GGML_MAGICS.includes(magic)
              ? inspectGgml(file)
              : inspectSafetensors(file);
        if (options.json) printJson(summary(inspection));
        else process.stdout.write(`${describe(inspection)}\n`);
      }),
    );
}

/** As the bytes lie in the file. */
const GGML_MAGICS = ['lmgg', 'fmgg', 'tjgg'];

function magicOf(path: string): string {
  // Opening a pipe would wait for a writer.
  if (statSync(path, { throwIfNoEntry: false })?.isFile() === false) {
    const message = `${path} is no regular file; give the path of a model file.`;
    throw new FileFormatError('FILE_UNREADABLE', message, { path });
  }
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch (cause) {
    const missing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    const message = `cannot open ${path}: ${(cause as Error).message}. Check the path and its permissions`;
    throw new FileFormatError(missing ? 'FILE_NOT_FOUND' : 'FILE_UNREADABLE', message, { path, cause });
  }
  try {
    const magic = Buffer.alloc(4);
    readSync(fd, magic, 0, 4, 0);
    return magic.toString('latin1');
  } finally {
    closeSync(fd);
  }
}

function inspectGguf(file: string): Inspection {
  using opened = GgufFile.open(file);
  const parts = opened.paths.length > 1 ? ` in ${opened.paths.length} parts` : '';
  return {
    file,
    format: `GGUF v${opened.version}${opened.bigEndian ? ' big-endian' : ''}${parts}`,
    bytes: opened.byteLength,
    metadata: Object.fromEntries([...opened.metadata].map(([key, { value }]) => [key, value])),
    tensors: tensorRows(opened),
    memory: estimates(opened, cacheOf(opened.metadata)),
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
    memory: estimates(opened, { positionBytes: 8 * blockCount * embeddingLength, contextLength: 2048 }),
  };
}

function tensorRows(file: TensorFile): TensorRow[] {
  return [...file.tensors.values()].map(({ name, type, shape, byteLength }) => {
    return { name, type, shape, bytes: byteLength ?? 0 };
  });
}

interface CacheSize {
  /** Key and value of one position in all layers, in f32. */
  positionBytes: number;
  contextLength: number;
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
    positionBytes: 4 * number('block_count') * keys,
    contextLength: Math.min(number('context_length'), CONTEXT),
  };
}

function estimates(file: TensorFile, { positionBytes, contextLength }: CacheSize): DeviceEstimate[] {
  return Device.list()
    .filter(({ available }) => available)
    .map(({ name }) => {
      const device = Device.parse(name);
      const weights = [...file.tensors.values()].map((tensor) => deviceBytes(tensor, device) ?? 0);
      return {
        device: name,
        weightBytes: weights.reduce((a, b) => a + b, 0),
        cacheBytes: positionBytes * contextLength,
        contextLength,
      };
    });
}

function inspectSafetensors(file: string): Inspection {
  using safetensors = SafetensorsFile.open(file);
  return {
    file,
    format: 'safetensors',
    bytes: statSync(file).size,
    metadata: { ...safetensors.metadata },
    tensors: safetensors.names.map((name) => {
      const { dtype, shape, byteLength } = safetensors.info(name);
      return { name, type: dtype, shape, bytes: byteLength };
    }),
    // Such weights are numbers of the file's dtype everywhere.
    memory: Device.list()
      .filter(({ available }) => available)
      .map(({ name }) => {
        const weightBytes = safetensors.names.reduce((sum, tensor) => sum + safetensors.info(tensor).byteLength, 0);
        return { device: name, weightBytes, cacheBytes: 0, contextLength: 0 };
      }),
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

function shorten(value: unknown): unknown {
  const items = Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value as ArrayLike<unknown>) : undefined;
  return items && items.length > SHOWN_ITEMS ? { length: items.length, first: items.slice(0, SHOWN_ITEMS) } : value;
}

function describe(inspection: Inspection): string {
  const { format, bytes, metadata, parameters, types, tensors, memory } = summary(inspection);
  const show = (value: unknown) => JSON.stringify(value, (_, item) => (typeof item === 'bigint' ? Number(item) : item));
  const typeList = Object.entries(types).map(
    ([type, entry]) => `${entry.tensors} ${type} (${formatBytes(entry.bytes)})`,
  );
  return [
    `${inspection.file}: ${format}, ${formatBytes(bytes)}, ${tensors.length} tensors, ${(parameters / 1e6).toFixed(2)} M parameters`,
    `types: ${typeList.join(', ')}`,
    ...memory.map(({ device, weightBytes, cacheBytes, contextLength }) => {
      const cache = cacheBytes > 0 ? ` + ${formatBytes(cacheBytes)} for ${contextLength} positions` : '';
      return `memory on ${device}: about ${formatBytes(weightBytes + cacheBytes)} (${formatBytes(weightBytes)} of weights${cache})`;
    }),
    '',
    table(Object.entries(metadata).map(([key, value]) => [key, show(value)])),
    '',
    table(
      tensors.map((tensor) => [tensor.name, tensor.type, `[${tensor.shape.join(', ')}]`, formatBytes(tensor.bytes)]),
    ),
  ].join('\n');
}
