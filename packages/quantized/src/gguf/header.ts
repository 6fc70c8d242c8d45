/**
 * Parsing of a GGUF header, versions 1 to 3 (candle `gguf_file::Content::read`). The layout: magic, version, counts,
 * then key-value pairs, then tensor descriptions, then padding to the alignment, then data. Version 1 has 32-bit counts
 * and lengths; 2 and 3 have 64-bit ones, and 3 allows big-endian files, whose version
 * number shows them.
 *
 * Different from candle: duplicate keys and names, misaligned, overlapping and out-of-file tensors are refused here and
 * not at first use, and a type that we do not know is no reason to refuse the file.
 */
import { refuseStandIn, STAND_IN_BYTES } from '@x/core/files';
import { byteLengthOf, formatById } from '../blocks';
import type { ByteReader } from './byte-reader';
import { type GgufErrorCode, ggufError } from './error';
import type { GgufTensorInfo } from './tensor-file';
import { GGUF_TYPES, type GgufArray, type GgufType, type GgufValue, NUMERIC_ITEMS } from './value';

/** Bounds on what a header may ask for. */
export interface GgufLimits {
  /** Longest string in bytes; default 64 MiB. */
  stringBytes: number;
  /** Most items of one array; default 2^28. */
  arrayItems: number;
  /** Deepest nesting of arrays; default 64, as in candle. */
  arrayDepth: number;
  /** Memory that names, metadata and tensor descriptions may take together, estimated, in bytes; default 1 GiB. */
  headerMemory: number;
}

export const DEFAULT_LIMITS: GgufLimits = {
  stringBytes: 64 * 2 ** 20,
  arrayItems: 2 ** 28,
  arrayDepth: 64,
  headerMemory: 2 ** 30,
};

export interface GgufHeader {
  version: number;
  bigEndian: boolean;
  metadata: Map<string, GgufValue>;
  tensors: Map<string, GgufTensorInfo>;
  alignment: number;
  dataOffset: number;
}

const MAGIC = 0x46554747;
const STRING_COST = 40;
const ENTRY_COST = 200;

export function parseHeader(reader: ByteReader, limits: GgufLimits): GgufHeader {
  const { path } = reader;
  reader.what = 'the magic number';
  const magic = reader.uint32();
  if (magic !== MAGIC) {
    const first = new Uint8Array(Math.min(STAND_IN_BYTES, reader.size));
    reader.source.readSync(first, 0);
    refuseStandIn(path, first);
    const hex = magic.toString(16).padStart(8, '0');
    throw ggufError(
      'GGUF_BAD_MAGIC',
      path,
      `it starts with 0x${hex}, not with the bytes "GGUF" (0x46554747), so it is not a GGUF file. Convert the model with ` +
        "llama.cpp's convert_hf_to_gguf.py, or load it with the reader of its own format.",
    );
  }
  reader.what = 'the version';
  let version = reader.uint32();
  if (version > 0xffff && (version & 0xffff) === 0) {
    // The magic number is the same bytes in both; a small number with its bytes turned round is a large one.
    reader.littleEndian = false;
    version = ((version >>> 24) | ((version >>> 8) & 0xff00)) >>> 0;
  }
  if (version < 1 || version > 3) {
    throw ggufError(
      'GGUF_UNSUPPORTED_VERSION',
      path,
      `version ${version} is not supported (1, 2 and 3 are). Convert the file, or update this package.`,
    );
  }
  return new Parser(reader, version, limits).parse();
}

class Parser {
  constructor(
    readonly reader: ByteReader,
    readonly version: number,
    readonly limits: GgufLimits,
  ) {}

  parse(): GgufHeader {
    const { reader, version } = this;
    reader.what = 'the counts';
    const tensorCount = this.length();
    const pairCount = this.length();
    const wide = version > 1;
    this.checkCount('tensor', tensorCount, wide ? 24 : 20);
    this.checkCount('metadata', pairCount, wide ? 13 : 9);
    const metadata = new Map<string, GgufValue>();
    for (let i = 0; i < pairCount; i++) {
      reader.what = `metadata key ${i + 1} of ${pairCount}`;
      reader.charge(ENTRY_COST);
      const key = this.string();
      reader.what = `metadata '${key}'`;
      if (metadata.has(key)) {
        throw this.error('GGUF_DUPLICATE_KEY', `metadata key '${key}' appears twice. Remove one of them.`);
      }
      metadata.set(key, this.value(this.type(), 0));
    }
    const tensors = new Map<string, GgufTensorInfo>();
    const alignment = this.alignment(metadata.get('general.alignment'));
    for (let i = 0; i < tensorCount; i++) {
      reader.what = `the description of tensor ${i + 1} of ${tensorCount}`;
      reader.charge(2 * ENTRY_COST);
      const info = this.tensor(alignment);
      if (tensors.has(info.name)) {
        throw this.error('GGUF_DUPLICATE_TENSOR', `tensor '${info.name}' is described twice. Write the file again.`);
      }
      tensors.set(info.name, info);
    }
    const dataOffset = Math.ceil(reader.position / alignment) * alignment;
    this.checkData(tensors, dataOffset);
    return { version, bigEndian: !reader.littleEndian, metadata, tensors, alignment, dataOffset };
  }

  error(code: GgufErrorCode, message: string) {
    return ggufError(code, this.reader.path, message);
  }

  /** A count or length: 32 bits in version 1, else 64. */
  length(): number {
    return this.version === 1 ? this.reader.uint32() : this.reader.size64();
  }

  checkCount(what: string, count: number, bytesEach: number): void {
    const { remaining, size } = this.reader;
    if (count * bytesEach > remaining) {
      throw this.error(
        'GGUF_BAD_COUNT',
        `it announces ${shown(count)} ${what} entries, which take at least ${bytesEach} bytes each, but only ` +
          `${remaining} of its ${size} bytes follow. The file is cut short or damaged: download it again.`,
      );
    }
  }

  string(): string {
    const length = this.length();
    if (length > this.limits.stringBytes) {
      const { what, position } = this.reader;
      // A length that the file could not hold is damage; one that it could is a matter of limits.
      if (length > this.reader.remaining) this.reader.require(length);
      throw this.error(
        'GGUF_LIMIT',
        `${what} holds a string of ${length} bytes at byte ${position}, more than limits.stringBytes ` +
          `(${this.limits.stringBytes}). Raise the limit if the file is to be trusted.`,
      );
    }
    this.reader.charge(STRING_COST + 2 * length);
    return this.reader.text(length);
  }

  type(): GgufType {
    const id = this.reader.uint32();
    const type = GGUF_TYPES[id];
    if (type === undefined) {
      throw this.error(
        'GGUF_BAD_VALUE_TYPE',
        `${this.reader.what} has value type ${id}; types are 0 to ${GGUF_TYPES.length - 1}. The file is damaged, or ` +
          'newer than this package.',
      );
    }
    return type;
  }

  value(type: GgufType, depth: number): GgufValue {
    const { reader } = this;
    if (type === 'string') return { type, value: this.string() };
    if (type === 'bool') return { type, value: this.bool(reader.uint8()) };
    if (type === 'array') return this.array(depth + 1);
    if (type === 'uint64') return { type, value: reader.uint64() };
    if (type === 'int64') return { type, value: reader.int64() };
    return { type, value: reader[type]() };
  }

  bool(byte: number): boolean {
    if (byte > 1) {
      throw this.error(
        'GGUF_BAD_BOOL',
        `${this.reader.what} is a bool stored as ${byte}, neither 0 nor 1. The file is damaged: download it again.`,
      );
    }
    return byte === 1;
  }

  array(depth: number): GgufArray {
    const { reader, limits } = this;
    if (depth > limits.arrayDepth) {
      throw this.error(
        'GGUF_LIMIT',
        `${reader.what} nests arrays deeper than limits.arrayDepth (${limits.arrayDepth}). No model needs that: do not ` +
          'trust the file.',
      );
    }
    const elementType = this.type();
    const count = this.length();
    const numeric = NUMERIC_ITEMS[elementType];
    const smallest = numeric?.bytes ?? this.smallestItem(elementType);
    if (count * smallest > reader.remaining) {
      throw this.error(
        'GGUF_BAD_COUNT',
        `${reader.what} is an array of ${shown(count)} items of at least ${smallest} bytes, but only ` +
          `${reader.remaining} bytes follow at byte ${reader.position}. The file is cut short or damaged: download it again.`,
      );
    }
    if (count > limits.arrayItems) {
      throw this.error(
        'GGUF_LIMIT',
        `${reader.what} is an array of ${count} items, more than limits.arrayItems (${limits.arrayItems}). Raise the ` +
          'limit if the file is to be trusted.',
      );
    }
    reader.charge(ENTRY_COST + count * (numeric?.bytes ?? 8));
    if (numeric !== undefined) {
      return { type: 'array', elementType, value: numeric.make(reader.numbers(count, numeric.bytes)) };
    }
    if (elementType === 'string') {
      const value: string[] = [];
      for (let i = 0; i < count; i++) value.push(this.string());
      return { type: 'array', elementType, value };
    }
    if (elementType === 'bool') {
      const bytes = new Uint8Array(reader.bytes(count));
      return { type: 'array', elementType, value: Array.from(bytes, (byte) => this.bool(byte)) };
    }
    const value: GgufArray[] = [];
    for (let i = 0; i < count; i++) value.push(this.array(depth + 1));
    return { type: 'array', elementType, value };
  }

  smallestItem(type: GgufType): number {
    const lengthBytes = this.version === 1 ? 4 : 8;
    return type === 'bool' ? 1 : type === 'string' ? lengthBytes : 4 + lengthBytes;
  }

  alignment(entry: GgufValue | undefined): number {
    if (entry === undefined) return 32;
    const value = entry.type === 'uint32' || entry.type === 'uint64' ? Number(entry.value) : Number.NaN;
    if (!(value >= 1 && value <= 2 ** 31 && Number.isInteger(Math.log2(value)))) {
      const is = entry.type === 'array' ? 'an array' : String(entry.value).slice(0, 40);
      throw this.error(
        'GGUF_BAD_ALIGNMENT',
        `general.alignment is ${is} (${entry.type}); it must be a uint32 power of two. Write the file again.`,
      );
    }
    return value;
  }

  tensor(alignment: number): GgufTensorInfo {
    const { reader } = this;
    const name = this.string();
    reader.what = `the description of tensor '${name}'`;
    const rank = reader.uint32();
    if (rank > 4) {
      throw this.error(
        'GGUF_BAD_SHAPE',
        `tensor '${name}' has ${rank} dimensions; GGUF allows 4. The file is damaged.`,
      );
    }
    const dims: number[] = [];
    for (let i = 0; i < rank; i++) dims.push(this.length());
    const ggmlType = reader.uint32();
    const offset = reader.size64();
    const elemCount = dims.reduce((product, dim) => product * dim, 1);
    // Zero-sized dimensions must not hide others that overflow.
    if (!(dims.reduce((product, dim) => product * Math.max(dim, 1), 1) <= Number.MAX_SAFE_INTEGER)) {
      throw this.error(
        'GGUF_BAD_SHAPE',
        `tensor '${name}' has dimensions [${dims.map(shown).join(', ')}], whose product overflows. The file is damaged: ` +
          'download it again.',
      );
    }
    const format = formatById(ggmlType);
    if (format !== undefined && (dims[0] ?? 1) % format.blockSize !== 0) {
      throw this.error(
        'GGUF_BAD_SHAPE',
        `tensor '${name}' has rows of ${dims[0] ?? 1} values, not a multiple of ${format.blockSize}, the block size of ` +
          `${format.type}. The file is damaged or was written wrongly.`,
      );
    }
    if (offset % alignment !== 0) {
      throw this.error(
        'GGUF_MISALIGNED_TENSOR',
        `tensor '${name}' starts at byte ${shown(offset)} of the data, not a multiple of the alignment ${alignment}. ` +
          'The file is damaged or was written wrongly.',
      );
    }
    return {
      name,
      type: format?.type ?? `unknown(${ggmlType})`,
      ggmlType,
      shape: dims.reverse(),
      elemCount,
      offset,
      byteLength: format && byteLengthOf(format, elemCount),
      format,
    };
  }

  /** Every tensor inside the file, none on top of another. */
  checkData(tensors: Map<string, GgufTensorInfo>, dataOffset: number): void {
    const { size } = this.reader;
    const byOffset = [...tensors.values()].sort((a, b) => a.offset - b.offset);
    let end = 0;
    let before = '';
    for (const { name, offset, byteLength = 0 } of byOffset) {
      if (dataOffset + offset + byteLength > size) {
        throw this.error(
          'GGUF_TENSOR_OUT_OF_BOUNDS',
          `tensor '${name}' takes bytes ${shown(dataOffset + offset)} to ${shown(dataOffset + offset + byteLength)}, past ` +
            `the file's end at ${size}. The file is cut short or damaged: download it again.`,
        );
      }
      if (byteLength === 0) continue;
      if (offset < end) {
        throw this.error(
          'GGUF_TENSOR_OVERLAP',
          `tensor '${name}' starts at byte ${offset} of the data, inside tensor '${before}', which ends at ${end}. The ` +
            'file is damaged or was written wrongly.',
        );
      }
      end = offset + byteLength;
      before = name;
    }
  }
}

/** A number for a message; what was too large for one is said so. */
function shown(value: number): string {
  return Number.isFinite(value) ? String(value) : 'more than 2^53';
}
