/** `candle inspect FILE`: what is in a GGUF or safetensors file, without loading a weight. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { FileFormatError, SafetensorsFile } from '@x/core';
import { GgufFile } from '@x/quantized';
import { Command } from 'commander';
import { formatBytes, guarded, printJson, table } from '../output';

interface TensorRow {
  name: string;
  type: string;
  shape: readonly number[];
  bytes: number;
}

interface Inspection {
  file: string;
  format: string;
  bytes: number;
  metadata: Record<string, unknown>;
  tensors: TensorRow[];
}

/** Longer metadata arrays (a vocabulary) are shown by their first items and length. */
const SHOWN_ITEMS = 4;

export function inspectCommand(): Command {
  return new Command('inspect')
    .description('show metadata and tensors of a GGUF or safetensors file')
    .argument('<file>')
    .option('--json', 'print one JSON object')
    .action((file: string, options: { json?: boolean }) =>
      guarded(options.json, () => {
        const inspection = isGguf(file) ? inspectGguf(file) : inspectSafetensors(file);
        if (options.json) printJson(summary(inspection));
        else process.stdout.write(`${describe(inspection)}\n`);
      }),
    );
}

function isGguf(path: string): boolean {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch (cause) {
    throw new FileFormatError('FILE_NOT_FOUND', `cannot open ${path}: ${(cause as Error).message}. Check the path`);
  }
  try {
    const magic = Buffer.alloc(4);
    readSync(fd, magic, 0, 4, 0);
    return magic.toString('latin1') === 'GGUF';
  } finally {
    closeSync(fd);
  }
}

function inspectGguf(file: string): Inspection {
  using gguf = GgufFile.open(file);
  return {
    file,
    format: `GGUF v${gguf.version}`,
    bytes: statSync(file).size,
    metadata: Object.fromEntries([...gguf.metadata].map(([key, { value }]) => [key, value])),
    tensors: [...gguf.tensors.values()].map(({ name, type, shape, byteLength }) => ({
      name,
      type,
      shape,
      bytes: byteLength ?? 0,
    })),
  };
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
  const { format, bytes, metadata, parameters, types, tensors } = summary(inspection);
  const show = (value: unknown) => JSON.stringify(value, (_, item) => (typeof item === 'bigint' ? Number(item) : item));
  const typeList = Object.entries(types).map(
    ([type, entry]) => `${entry.tensors} ${type} (${formatBytes(entry.bytes)})`,
  );
  return [
    `${inspection.file}: ${format}, ${formatBytes(bytes)}, ${tensors.length} tensors, ${(parameters / 1e6).toFixed(2)} M parameters`,
    `types: ${typeList.join(', ')}`,
    '',
    table(Object.entries(metadata).map(([key, value]) => [key, show(value)])),
    '',
    table(
      tensors.map((tensor) => [tensor.name, tensor.type, `[${tensor.shape.join(', ')}]`, formatBytes(tensor.bytes)]),
    ),
  ].join('\n');
}
