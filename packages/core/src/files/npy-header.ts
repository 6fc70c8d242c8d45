/**
 * The header of an npy file, read and written: a magic string, a version, and a Python dict literal with the element type,
 * the order and the shape. Only literals are read, by the small parser below; nothing is ever evaluated, and arrays of
 * Python objects, which numpy would unpickle, are refused.
 *
 * bf16 and f8e4m3 are written as the Python package ml_dtypes writes them, `V2` and `V1`, and those are read as such; in
 * Python, `np.load(path).view(ml_dtypes.bfloat16)` gives the values back.
 */
import type { DType } from '../dtype';
import { FileFormatError, ShapeError, UnsupportedError } from '../errors';
import { elemCount, formatShape, type Shape } from '../shape';
import { show } from '../show';
import { fromLatin1, toLatin1 } from './bytes';
import { type ByteSource, readBlockSync } from './source';
import { FILE_TYPES, type FileType } from './types';

export interface NpyHeader {
  type: FileType;
  bigEndian: boolean;
  /** The first dimension varies fastest. */
  fortranOrder: boolean;
  shape: number[];
  /** Where the elements begin. */
  dataOffset: number;
}

const MAGIC = '\x93NUMPY';
/** Longest header that is read; that of an array with 32 dimensions, numpy's limit, is some 700 bytes. */
const MAX_HEADER_BYTES = 64 * 1024;

const TYPES: Readonly<Record<string, FileType>> = {
  b1: 'bool',
  i1: 'i8',
  u1: 'u8',
  i2: 'i16',
  u2: 'u16',
  i4: 'i32',
  u4: 'u32',
  i8: 'i64',
  u8: 'u64',
  f2: 'f16',
  f4: 'f32',
  f8: 'f64',
  V2: 'bf16',
  V1: 'f8e4m3',
};

const DESCRIPTIONS: Readonly<Record<DType, string>> = {
  u8: '|u1',
  u32: '<u4',
  i16: '<i2',
  i32: '<i4',
  i64: '<i8',
  f16: '<f2',
  f32: '<f4',
  f64: '<f8',
  bf16: '<V2',
  f8e4m3: '<V1',
};

/**
 * Reads and checks the header at the start of a source; versions 1, 2 and 3.
 * @param size bytes of the whole array file, which header and elements must fill exactly
 * @throws FileFormatError `FILE_TRUNCATED`, `FILE_INVALID`; UnsupportedError for element types without a tensor dtype
 */
export function readNpyHeader(source: ByteSource, size: number = source.size): NpyHeader {
  const { path } = source;
  const first = readBlockSync(source, 0, Math.min(12, source.size));
  if (first.length < 12) throw truncated(path, size, 'a header');
  if (fromLatin1(first.subarray(0, 6)) !== MAGIC) throw invalid(path, 0, 'it does not begin as an npy file does');
  const version = first[6];
  if (version < 1 || version > 3)
    throw invalid(path, 6, `version ${version} of the npy format is unknown (1 to 3 are)`);
  const view = new DataView(first.buffer, first.byteOffset);
  const length = version === 1 ? view.getUint16(8, true) : view.getUint32(8, true);
  const start = version === 1 ? 10 : 12;
  if (length > MAX_HEADER_BYTES) throw invalid(path, 8, `its header of ${length} bytes is over ${MAX_HEADER_BYTES}`);
  if (start + length > source.size) throw truncated(path, source.size, `a header of ${length} bytes`);
  const bytes = readBlockSync(source, start, length);
  const text = version === 3 ? new TextDecoder().decode(bytes) : fromLatin1(bytes);
  const header = { ...describe(path, parseLiteral(path, start, text)), dataOffset: start + length };
  const needed = header.dataOffset + elemCount(header.shape) * FILE_TYPES[header.type].bytes;
  const what = `${formatShape(header.shape)} of ${header.type}`;
  if (needed > size) throw truncated(path, size, `${what}, which needs ${needed}`);
  if (needed < size) {
    throw invalid(
      path,
      needed,
      `${size - needed} bytes follow the array, ${what} (several arrays go into an npz file)`,
    );
  }
  return header;
}

/**
 * The header that numpy writes for an array in row-major order: version 1.
 * @throws ShapeError `INVALID_SHAPE` for more than 64 dimensions, numpy's limit
 */
export function npyHeader(dtype: DType, shape: Shape): Uint8Array {
  if (shape.length > 64) {
    const message = `writeNpy: numpy has at most 64 dimensions and the tensor has ${shape.length}; reshape it.`;
    throw new ShapeError('INVALID_SHAPE', message);
  }
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(', ')})`;
  let text = `{'descr': '${DESCRIPTIONS[dtype]}', 'fortran_order': False, 'shape': ${tuple}, }`;
  // numpy leaves room for the first size to grow to any number of 64 bits.
  if (shape.length > 0) text += ' '.repeat(21 - String(shape[0]).length);
  const start = 10;
  const total = Math.ceil((start + text.length + 1) / 64) * 64;
  const bytes = toLatin1(`${MAGIC}\x01\0\0\0${text.padEnd(total - start - 1)}\n`);
  new DataView(bytes.buffer).setUint16(8, total - start, true);
  return bytes;
}

function describe(path: string, literal: unknown): Omit<NpyHeader, 'dataOffset'> {
  const bad = (what: string) => invalid(path, 10, `its header ${what}`);
  if (!(literal instanceof Map)) throw bad('is no dict');
  const [descr, fortranOrder, shape] = ['descr', 'fortran_order', 'shape'].map((key) => literal.get(key));
  if (typeof fortranOrder !== 'boolean') throw bad('has no fortran_order of True or False');
  const isSize = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
  if (!Array.isArray(shape) || !shape.every(isSize) || !Number.isSafeInteger(elemCount(shape)))
    throw bad('has a shape that is no tuple of sizes');
  if (Array.isArray(descr)) throw unsupported(path, 'records with several fields');
  const match = typeof descr === 'string' ? /^([<>|=]?)([a-zA-Z]\d+|O)/.exec(descr) : null;
  if (!match) throw bad(`has the element type ${show(descr)}, which is none of numpy's`);
  const type = Object.hasOwn(TYPES, match[2]) && match[0] === descr ? TYPES[match[2]] : undefined;
  if (!type) throw unsupported(path, match[2] === 'O' ? 'Python objects, which are never unpickled' : `${descr}`);
  return { type, bigEndian: match[1] === '>', fortranOrder, shape };
}

/** A Python literal of dicts, tuples, lists, strings, whole numbers, True, False and None. */
function parseLiteral(path: string, offset: number, text: string): unknown {
  const token = /\s*(?:([{}()[\],:])|'([^'\\]*)'|"([^"\\]*)"|(-?\d+)L?|(True|False|None)\b|$)/y;
  let next: RegExpExecArray;
  const advance = () => {
    const at = token.lastIndex;
    const match = token.exec(text);
    if (!match) throw invalid(path, offset + at, `its header is no Python literal at ${show(text.slice(at, at + 20))}`);
    next = match;
  };
  const take = (mark: string): boolean => {
    if (next[1] !== mark) return false;
    advance();
    return true;
  };
  const fail = () => invalid(path, offset + next.index, `its header is no Python literal near ${show(next[0])}`);
  const items = (close: string, depth: number, item: (depth: number) => void): void => {
    if (depth > 8) throw fail();
    while (!take(close)) {
      item(depth + 1);
      if (take(close)) return;
      if (!take(',')) throw fail();
    }
  };
  const value = (depth: number): unknown => {
    const list: unknown[] = [];
    const dict = new Map<unknown, unknown>();
    if (take('{')) {
      items('}', depth, (inner) => {
        const key = value(inner);
        if (!take(':')) throw fail();
        dict.set(key, value(inner));
      });
      return dict;
    }
    for (const [open, close] of ['()', '[]']) {
      if (!take(open)) continue;
      items(close, depth, (inner) => list.push(value(inner)));
      return list;
    }
    const [, mark, single, double, digits, word] = next;
    if (mark !== undefined || next[0].trim() === '') throw fail();
    advance();
    if (digits !== undefined) return Number(digits);
    if (word !== undefined) return word === 'None' ? null : word === 'True';
    return single ?? double;
  };
  advance();
  const parsed = value(0);
  if (next![0].trim() !== '') throw fail();
  return parsed;
}

function unsupported(path: string, what: string): UnsupportedError {
  return new UnsupportedError(
    'UNSUPPORTED',
    `${path}: the array holds ${what}, for which there is no tensor dtype; convert it in Python with astype, e.g. to float32.`,
  );
}

function truncated(path: string, size: number, what: string): FileFormatError {
  const message = `${path}: ${size} bytes are too short for ${what}; get it again.`;
  return new FileFormatError('FILE_TRUNCATED', message, { path, offset: size });
}

function invalid(path: string, offset: number, what: string): FileFormatError {
  return new FileFormatError('FILE_INVALID', `${path}: ${what}; get it again.`, { path, offset });
}
