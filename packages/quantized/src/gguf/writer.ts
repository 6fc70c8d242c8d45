/**
 * Writing GGUF (candle `gguf_file::write`, which writes version 2; this writes version 3, the current one, whose
 * little-endian layout is the same). Data is streamed: a tensor's bytes may come from an iterable, so a model larger
 * than memory can be quantised. The file appears under its name only when it is complete.
 */
import { kinds } from '@x/core';
import { type FileSink, replaceFile } from '@x/core/files';
import { blockFormat, byteLengthOf, isQuantType, type QuantType } from '../blocks';
import { ggufError } from './error';
import { GGUF_TYPES, type GgufArray, type GgufType, type GgufValue, NUMERIC_ITEMS } from './value';

export interface GgufTensorSource {
  name: string;
  type: QuantType;
  /** Outermost dimension first. */
  shape: readonly number[];
  /** The tensor's blocks: at once, in pieces, or made when their turn comes. */
  data: Uint8Array | Iterable<Uint8Array> | AsyncIterable<Uint8Array> | (() => GgufTensorSource['data']);
}

export interface GgufContent {
  /** Keys in the order in which they are written. `general.alignment` is honoured. */
  metadata: ReadonlyMap<string, GgufValue> | Readonly<Record<string, GgufValue>>;
  tensors: Iterable<GgufTensorSource>;
}

const ALIGNMENT = 32;

const isIterable = (value: unknown) =>
  typeof value === 'object' && value !== null && (Symbol.iterator in value || Symbol.asyncIterator in value);

const CONTENT = kinds.fields({
  metadata: kinds.kind(
    (value) => value instanceof Map || (kinds.OBJECT.test(value) && !isIterable(value)),
    "give values by key, as { 'general.name': gguf.string('tales') } or a Map",
  ),
  tensors: kinds.kind(
    (value) => isIterable(value) && Symbol.iterator in (value as object),
    'give an array of tensors, each with its name, type, shape and data',
  ),
});

/**
 * Writes a file, replacing one of the same name in a single step at the end; links are followed, permissions stay, and a
 * pipe or device is written to. Raises `FileFormatError` with `GGUF_INVALID_CONTENT` when the content cannot be written as
 * GGUF (and then leaves nothing behind), `CandleError` with `INVALID_ARGUMENT` when it is no content at all, and
 * `FILE_UNWRITABLE` when the file cannot be created or written. Returns the bytes written.
 */
export async function writeGguf(path: string, content: GgufContent): Promise<number> {
  kinds.check('writeGguf', 'path', path, kinds.STRING);
  kinds.check('writeGguf', 'content', content, CONTENT);
  const metadata = new Map(content.metadata instanceof Map ? content.metadata : Object.entries(content.metadata));
  const tensors = [...content.tensors];
  const alignment = alignmentOf(path, metadata);
  const { header, lengths } = encodeHeader(path, metadata, tensors, alignment);
  await replaceFile(path, async (sink) => {
    await sink.write(header);
    for (const [i, tensor] of tensors.entries()) await writeTensor(path, sink, tensor, lengths[i], alignment);
  });
  return lengths.reduce((sum, length) => sum + length + padding(length, alignment), header.byteLength);
}

async function writeTensor(path: string, sink: FileSink, tensor: GgufTensorSource, length: number, alignment: number) {
  let data = tensor.data;
  while (typeof data === 'function') data = data();
  const bad = (what: string) =>
    ggufError('GGUF_INVALID_CONTENT', path, `tensor '${tensor.name}' gave ${what}. Give its blocks as Uint8Arrays.`);
  if (!isIterable(data)) throw bad(`${kinds.show(data)} as its data`);
  let written = 0;
  for await (const bytes of data instanceof Uint8Array ? [data] : data) {
    if (!(bytes instanceof Uint8Array)) throw bad(`${kinds.show(bytes)} as a piece of its data`);
    written += bytes.byteLength;
    if (written > length) break;
    await sink.write(bytes);
  }
  if (written !== length) {
    throw ggufError(
      'GGUF_INVALID_CONTENT',
      path,
      `tensor '${tensor.name}' gave ${written > length ? 'more than ' : ''}${Math.min(written, length)} bytes where ` +
        `${tensor.type} [${tensor.shape.join(', ')}] takes ${length}. Pass blocks of that type and shape.`,
    );
  }
  await sink.write(new Uint8Array(padding(length, alignment)));
}

function padding(length: number, alignment: number): number {
  return (alignment - (length % alignment)) % alignment;
}

function alignmentOf(path: string, metadata: ReadonlyMap<string, GgufValue>): number {
  const entry = metadata.get('general.alignment');
  if (entry === undefined) return ALIGNMENT;
  if (
    entry?.type === 'uint32' &&
    Number.isInteger(entry.value) &&
    entry.value >= 8 &&
    Number.isInteger(Math.log2(entry.value))
  )
    return entry.value;
  throw invalid(path, 'general.alignment must be a uint32 power of two, at least 8');
}

function invalid(path: string, message: string) {
  return ggufError('GGUF_INVALID_CONTENT', path, `${message}. Nothing was written.`);
}

function encodeHeader(
  path: string,
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: readonly GgufTensorSource[],
  alignment: number,
): { header: Uint8Array; lengths: number[] } {
  const out = new ByteWriter();
  out.raw(Uint8Array.of(0x47, 0x47, 0x55, 0x46));
  out.uint32(3);
  out.uint64(tensors.length);
  out.uint64(metadata.size);
  for (const [key, value] of metadata) {
    if (typeof key !== 'string') throw invalid(path, `metadata key ${kinds.show(key)} is no string`);
    if (!isValue(value)) {
      throw invalid(path, `metadata '${key}' is ${kinds.show(value)} and needs its type, as gguf.uint32(5)`);
    }
    out.string(key);
    out.uint32(GGUF_TYPES.indexOf(value.type));
    writeValue(out, value, path, key);
  }
  const lengths: number[] = [];
  const names = new Set<string>();
  let offset = 0;
  for (const [i, tensor] of tensors.entries()) {
    if (!isTensor(tensor))
      throw invalid(path, `tensors[${i}] is ${kinds.show(tensor)} and needs a name, a type and a shape`);
    const { name, type, shape } = tensor;
    const where = `tensor '${name}' (${type} ${kinds.show(shape)})`;
    if (names.has(name)) throw invalid(path, `${where} is there twice`);
    names.add(name);
    if (!isQuantType(type)) throw invalid(path, `${where} has a type that cannot be written`);
    if (shape.length > 4 || !shape.every((dim) => Number.isSafeInteger(dim) && dim >= 0)) {
      throw invalid(path, `${where} needs at most 4 dimensions, each a whole number`);
    }
    const format = blockFormat(type);
    const row = shape.at(-1) ?? 1;
    const count = shape.reduce((product, dim) => product * dim, 1);
    if (row % format.blockSize !== 0 || !Number.isSafeInteger(count)) {
      throw invalid(path, `${where} needs rows of a multiple of ${format.blockSize} values, its block size`);
    }
    out.string(name);
    out.uint32(shape.length);
    for (const dim of [...shape].reverse()) out.uint64(dim);
    out.uint32(format.ggmlType);
    out.uint64(offset);
    const length = byteLengthOf(format, count);
    lengths.push(length);
    offset += length + padding(length, alignment);
  }
  out.raw(new Uint8Array(padding(out.length, alignment)));
  return { header: out.finish(), lengths };
}

function isTensor(value: unknown): boolean {
  const { name, type, shape } = Object(value);
  return typeof name === 'string' && typeof type === 'string' && Array.isArray(shape);
}

function isValue(value: unknown): value is GgufValue {
  const { type, value: items, elementType } = Object(value);
  if (type !== 'array') return GGUF_TYPES.includes(type);
  return GGUF_TYPES.includes(elementType) && (Array.isArray(items) || (ArrayBuffer.isView(items) && isIterable(items)));
}

function writeValue(out: ByteWriter, value: GgufValue, path: string, key: string): void {
  if (value.type === 'array') writeArray(out, value, path, key);
  else writeScalar(out, value.type, value.value, path, key);
}

function writeArray(out: ByteWriter, array: GgufArray, path: string, key: string): void {
  out.uint32(GGUF_TYPES.indexOf(array.elementType));
  out.uint64(array.value.length);
  for (const item of array.value) {
    if (array.elementType !== 'array') writeScalar(out, array.elementType, item, path, key);
    else if (isValue(item) && item.type === 'array') writeArray(out, item, path, key);
    else throw invalid(path, `metadata '${key}' is an array of arrays with an item that is none`);
  }
}

function writeScalar(
  out: ByteWriter,
  type: Exclude<GgufType, 'array'> | GgufType,
  value: unknown,
  path: string,
  key: string,
) {
  const bad = () => invalid(path, `metadata '${key}' holds ${String(value)}, which is not a ${type}`);
  if (type === 'string') {
    if (typeof value !== 'string') throw bad();
    out.string(value);
    return;
  }
  if (type === 'bool') {
    if (typeof value !== 'boolean') throw bad();
    out.raw(Uint8Array.of(value ? 1 : 0));
    return;
  }
  const numeric = NUMERIC_ITEMS[type];
  if (numeric === undefined) throw bad();
  const item = numeric.make(new ArrayBuffer(numeric.bytes));
  const big = type === 'uint64' || type === 'int64';
  if (typeof value !== (big ? 'bigint' : 'number')) throw bad();
  item[0] = value as never;
  // What does not survive the store does not fit the type; floats may round, and NaN is itself.
  if (!type.startsWith('float') && item[0] !== value) throw bad();
  out.raw(new Uint8Array(item.buffer));
}

/** Grows by doubling; numbers are little-endian. */
class ByteWriter {
  #bytes = new Uint8Array(4096);
  length = 0;

  raw(bytes: Uint8Array): void {
    if (this.length + bytes.byteLength > this.#bytes.byteLength) {
      const grown = new Uint8Array(Math.max(this.#bytes.byteLength * 2, this.length + bytes.byteLength));
      grown.set(this.#bytes.subarray(0, this.length));
      this.#bytes = grown;
    }
    this.#bytes.set(bytes, this.length);
    this.length += bytes.byteLength;
  }

  uint32(value: number): void {
    const bytes = new Uint8Array(4);
    new DataView(bytes.buffer).setUint32(0, value, true);
    this.raw(bytes);
  }

  uint64(value: number): void {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigUint64(0, BigInt(value), true);
    this.raw(bytes);
  }

  string(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.uint64(bytes.byteLength);
    this.raw(bytes);
  }

  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.length);
  }
}
