/**
 * The header of a safetensors file, read and checked against the file before anything believes it. The rules are those of
 * the format's reference reader: 8 bytes of length, JSON, then the tensors' bytes without gaps or overlaps up to the end.
 * Bytes, items and tensors of a header are limited, so a hostile one costs no more than a few times its bytes.
 */
import { FileFormatError } from '../errors';
import { elemCount, formatShape } from '../shape';
import { show } from '../show';
import { parseJson } from './json';
import { refuseStandIn } from './stand-ins';

/** Longest header that is read, as in the reference. */
const MAX_HEADER_BYTES = 100_000_000;
/** A valid header nests objects and arrays this deep; a tensor of rank 2 has 9 items. The largest models have 100,000 tensors. */
const LIMITS = { bytes: MAX_HEADER_BYTES, items: 4_000_000, depth: 3 };
/** The largest file known has some 30,000 tensors. */
const MAX_TENSORS = 250_000;
/** More dimensions than any tensor has. */
const MAX_RANK = 64;

/** Bits of one element. The last five have no counterpart among tensor dtypes and cannot be loaded. */
const BITS = {
  BOOL: 8,
  U8: 8,
  I8: 8,
  F8_E4M3: 8,
  F8_E5M2: 8,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  I64: 64,
  U64: 64,
  F64: 64,
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  F8_E8M0: 8,
  C64: 64,
} as const;

/** Element types as the format spells them. */
export type SafetensorsDType = keyof typeof BITS;

/** A tensor as the header of its file describes it. */
export interface SafetensorsInfo {
  name: string;
  dtype: SafetensorsDType;
  shape: readonly number[];
  /** Absolute position of the first byte in the file. */
  offset: number;
  byteLength: number;
}

export interface SafetensorsHeader {
  metadata: Record<string, string>;
  tensors: Map<string, SafetensorsInfo>;
}

/** The header's length in bytes, checked against the file's size. `first` is the file's first `STAND_IN_BYTES`. */
export function headerLength(path: string, first: Uint8Array, fileSize: number): number {
  if (first.byteLength < 8) {
    const message = `${path}: ${fileSize} bytes are too short for a safetensors file; get the file again.`;
    throw new FileFormatError('FILE_TRUNCATED', message, { path, offset: 0 });
  }
  const length = new DataView(first.buffer, first.byteOffset, 8).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER_BYTES)) {
    refuseStandIn(path, first);
    throw invalid(
      path,
      0,
      `the header length ${length} is over the limit of ${MAX_HEADER_BYTES} bytes; this is no safetensors file`,
    );
  }
  if (Number(length) > fileSize - 8) {
    throw new FileFormatError(
      'FILE_TRUNCATED',
      `${path}: the header of ${length} bytes goes past the end of the file (${fileSize} bytes); get the file again.`,
      { path, offset: 0 },
    );
  }
  return Number(length);
}

/** Parses and checks a whole header. */
export function parseHeader(path: string, bytes: Uint8Array, fileSize: number): SafetensorsHeader {
  if (bytes[0] !== 0x7b) throw invalid(path, 8, 'the header does not begin with "{"; this is no safetensors file');
  const root = parseJson(path, bytes, LIMITS, 8);
  const header: SafetensorsHeader = { metadata: {}, tensors: new Map() };
  const dataStart = 8 + bytes.byteLength;
  for (const [name, entry] of Object.entries(root as Record<string, unknown>)) {
    if (name === '__metadata__') header.metadata = checkMetadata(path, entry);
    else header.tensors.set(name, checkTensor(path, name, entry, dataStart, fileSize));
    if (header.tensors.size > MAX_TENSORS)
      throw invalid(path, 8, `the header has more than ${MAX_TENSORS} tensors; put them into several files`);
  }
  checkCoverage(path, [...header.tensors.values()], dataStart, fileSize);
  return header;
}

function checkMetadata(path: string, entry: unknown): Record<string, string> {
  const isMap = typeof entry === 'object' && entry !== null && !Array.isArray(entry);
  if (!isMap || Object.values(entry).some((value) => typeof value !== 'string')) {
    throw invalid(path, 8, '__metadata__ is not an object of strings; write the file again with string values');
  }
  return entry as Record<string, string>;
}

function checkTensor(path: string, name: string, entry: unknown, dataStart: number, fileSize: number): SafetensorsInfo {
  const { dtype, shape, data_offsets: range } = (entry ?? {}) as Record<string, unknown>;
  const bad = (what: string) => invalid(path, 8, `tensor ${show(name)} ${what}; get the file again`);
  if (typeof dtype !== 'string' || !Object.hasOwn(BITS, dtype)) throw bad(`has the unknown dtype ${show(dtype)}`);
  const isSize = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
  if (
    !Array.isArray(shape) ||
    shape.length > MAX_RANK ||
    !shape.every(isSize) ||
    !Number.isSafeInteger(elemCount(shape))
  ) {
    throw bad(`has the shape ${show(shape)}, which is no list of sizes`);
  }
  if (!Array.isArray(range) || range.length !== 2 || !range.every(isSize) || range[0] > range[1]) {
    throw bad(`has the data_offsets ${show(range)}, which are no range`);
  }
  const [begin, end] = range as [number, number];
  const known = dtype as SafetensorsDType;
  const bits = elemCount(shape) * BITS[known];
  if (bits !== (end - begin) * 8) {
    throw bad(`of ${known} ${formatShape(shape)} needs ${bits / 8} bytes and its data_offsets span ${end - begin}`);
  }
  if (dataStart + end > fileSize) {
    throw new FileFormatError(
      'FILE_TRUNCATED',
      `${path}: tensor "${name}" ends at byte ${dataStart + end} and the file has ${fileSize}; get the file again.`,
      { path, offset: dataStart + begin },
    );
  }
  return { name, dtype: known, shape, offset: dataStart + begin, byteLength: end - begin };
}

/** The tensors must follow each other without gaps or overlaps and end with the file. */
function checkCoverage(path: string, tensors: SafetensorsInfo[], dataStart: number, fileSize: number): void {
  let position = dataStart;
  for (const { name, offset, byteLength } of tensors.sort(
    (a, b) => a.offset - b.offset || a.byteLength - b.byteLength,
  )) {
    if (offset !== position) {
      const what = offset < position ? 'overlaps the one before it' : `leaves a gap of ${offset - position} bytes`;
      throw invalid(path, offset, `tensor "${name}" ${what}; get the file again`);
    }
    position += byteLength;
  }
  if (position !== fileSize) {
    throw invalid(
      path,
      position,
      `${fileSize - position} bytes after the last tensor belong to none; get the file again`,
    );
  }
}

function invalid(path: string, offset: number, what: string): FileFormatError {
  return new FileFormatError('FILE_INVALID', `${path}: ${what}.`, { path, offset });
}
