/**
 * An open GGUF file (candle `gguf_file::Content`, which borrows a reader; here the file is held open by descriptor).
 *
 * A split model (`model-00001-of-00003.gguf`, llama.cpp's gguf-split) is one file here, found from any of its parts;
 * candle knows none. Its metadata is that of the first part, where the splitter puts it.
 */
import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { kinds } from '@x/core';
import type { ByteSource } from '@x/core/files';
import { ByteReader } from './byte-reader';
import { ggufError } from './error';
import { DEFAULT_LIMITS, type GgufHeader, type GgufLimits, parseHeader } from './header';
import { GgufMetadata } from './metadata';
import { openBytes, openFile } from './source';
import { TensorFile } from './tensor-file';

export interface GgufOpenOptions {
  /** Bounds on what the header may ask for; each has a default that real files stay far below. */
  limits?: Partial<GgufLimits>;
  /** Opens one part of a split model by itself, without looking for the others; default false. */
  alone?: boolean;
}

interface Part {
  source: ByteSource;
  header: GgufHeader;
}

/** A GGUF file, open for reading: its metadata, and its tensors by name (candle's `gguf_file::Content`). A split model is one file. */
export class GgufFile extends TensorFile {
  /** 1, 2 or 3. */
  readonly version: number;
  readonly metadata: GgufMetadata;
  readonly alignment: number;
  /** Where the data section starts in the file, of a split model in its first part. */
  readonly dataOffset: number;
  readonly bigEndian: boolean;

  private constructor(path: string, parts: readonly Part[]) {
    super(
      path,
      parts.map(({ source, header: { dataOffset, bigEndian, tensors } }) => ({
        source,
        dataOffset,
        bigEndian,
        tensors,
      })),
    );
    const [{ header }] = parts;
    this.version = header.version;
    this.metadata = new GgufMetadata(path, header.metadata);
    this.alignment = header.alignment;
    this.dataOffset = header.dataOffset;
    this.bigEndian = header.bigEndian;
  }

  /**
   * Opens a file, with all other parts if it is one of a split model, and checks all headers. Raises `FileFormatError`
   * with a code of {@link GgufErrorCode}; see there for what is checked.
   */
  static open(path: string, options: GgufOpenOptions = {}): GgufFile {
    return fromSources(openFile(path), options, (first) => {
      if (options.alone) return undefined;
      const count = splitCount(first);
      return count <= 1 ? undefined : partPaths(path, count);
    });
  }

  /**
   * Reads a file that is in memory, which must not change while it is open (candle's `from_gguf_buffer`). `name` stands
   * for the path in messages.
   */
  static fromBytes(bytes: Uint8Array, options: GgufOpenOptions & { name?: string } = {}): GgufFile {
    return fromSources(openBytes(bytes, options.name ?? 'GGUF bytes'), options, () => undefined);
  }

  /** @internal */
  static of(path: string, parts: readonly Part[]): GgufFile {
    return new GgufFile(path, parts);
  }
}

function fromSources(
  opened: ByteSource,
  options: GgufOpenOptions,
  others: (first: Part) => string[] | undefined,
): GgufFile {
  const limits = { ...DEFAULT_LIMITS };
  // One that is undefined would be none.
  for (const name of Object.keys(limits) as (keyof GgufLimits)[]) limits[name] = options.limits?.[name] ?? limits[name];
  const sources = [opened];
  const read = (source: ByteSource): Part => {
    return { source, header: parseHeader(new ByteReader(source, limits.headerMemory), limits) };
  };
  try {
    const part = read(opened);
    const paths = others(part);
    if (paths === undefined) return GgufFile.of(opened.path, [part]);
    requireParts(opened.path, paths);
    const parts = paths.map((path) => {
      if (basename(path) === basename(opened.path)) return part;
      const source = openFile(path);
      sources.push(source);
      return read(source);
    });
    checkParts(parts);
    return GgufFile.of(opened.path, parts);
  } catch (error) {
    for (const source of sources) source.close();
    throw error;
  }
}

/** Parts of the model that this file is one of; 1 for a whole model. */
function splitCount({ source, header: { metadata } }: Part): number {
  const entry = metadata.get('split.count');
  if (entry === undefined) return 1;
  if (typeof entry.value === 'number' || typeof entry.value === 'bigint') return Number(entry.value);
  throw ggufError(
    'GGUF_WRONG_TYPE',
    source.path,
    `metadata 'split.count' should be a whole number but is ${kinds.show(entry.value)} (${entry.type}). Split the model ` +
      'again, or open this part alone.',
  );
}

/** More than any model has, so that a damaged count opens no thousands of files. */
const MOST_PARTS = 1024;

/** Paths of all parts, in order. */
function partPaths(path: string, count: number): string[] {
  const match = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/.exec(basename(path));
  if (match === null || Number(match[3]) !== count || count > MOST_PARTS) {
    throw ggufError(
      'GGUF_INVALID_CONTENT',
      path,
      `its metadata says that it is one of ${count} parts, but its name is not that of one (like ` +
        "'model-00001-of-00003.gguf'), so the others cannot be found. Give the parts their names back, or open it alone.",
    );
  }
  return Array.from({ length: count }, (_, i) => {
    const number = String(i + 1).padStart(5, '0');
    return join(dirname(path), `${match[1]}-${number}-of-${match[3]}.gguf`);
  });
}

/** Names of at most so many missing parts are in a message. */
const SHOWN_PARTS = 10;

function requireParts(path: string, paths: readonly string[]): void {
  const missing = paths.filter((part) => !existsSync(part)).map((part) => basename(part));
  if (missing.length === 0) return;
  const more = missing.length > SHOWN_PARTS ? ` and ${missing.length - SHOWN_PARTS} more` : '';
  throw ggufError(
    'FILE_NOT_FOUND',
    path,
    `it is one of ${paths.length} parts of a model, and beside it there is no ` +
      `${missing.slice(0, SHOWN_PARTS).join(', ')}${more}. Put all parts into one directory.`,
  );
}

/** Every part in its place, and as many tensors as were split. */
function checkParts(parts: readonly Part[]): void {
  for (const [i, part] of parts.entries()) {
    const number = part.header.metadata.get('split.no')?.value;
    if (Number(number ?? -1) === i && splitCount(part) === parts.length) continue;
    throw ggufError(
      'GGUF_INVALID_CONTENT',
      part.source.path,
      `it should be part ${i + 1} of ${parts.length}, but its metadata says split.no ${String(number)} of ` +
        `${splitCount(part)}. The parts do not belong together: download them again.`,
    );
  }
  const announced = parts[0].header.metadata.get('split.tensors.count')?.value;
  const count = parts.reduce((sum, { header }) => sum + header.tensors.size, 0);
  if (announced !== undefined && Number(announced) !== count) {
    throw ggufError(
      'GGUF_BAD_COUNT',
      parts[0].source.path,
      `the parts hold ${count} tensors together where ${String(announced)} were split. Download them again.`,
    );
  }
}

/** Infinity for none. */
const LIMIT = kinds.optional(kinds.kind((value) => typeof value === 'number' && value >= 0, 'give a number from 0'));
const OPTIONS = kinds.optional(
  kinds.fields({
    limits: kinds.optional(
      kinds.fields({ stringBytes: LIMIT, arrayItems: LIMIT, arrayDepth: LIMIT, headerMemory: LIMIT }),
    ),
    alone: kinds.optional(kinds.BOOLEAN),
  }),
);
// Path, bytes and name: source.ts.
kinds.checkCalls(
  GgufFile,
  {
    open: { path: kinds.ANYTHING, options: OPTIONS },
    fromBytes: { bytes: kinds.ANYTHING, options: OPTIONS },
  },
  'GgufFile.',
);
