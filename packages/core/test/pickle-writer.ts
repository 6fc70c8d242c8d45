/**
 * Writes checkpoints for the tests of the reader: pickles of protocol 2 instruction by instruction, and stored zip archives
 * as `torch.save` makes them. What PyTorch itself wrote is under fixtures/pth.
 */
import { crc32 } from 'node:zlib';

/** A global, what calling it gives, a persistent id, or a value that is written by its type. */
export type Pickled =
  | { global: string }
  | { call: string; args: readonly Pickled[] }
  | { persistent: readonly Pickled[] }
  | { dict: readonly (readonly [Pickled, Pickled])[] }
  | { raw: Uint8Array }
  | readonly Pickled[]
  | string
  | number
  | bigint
  | boolean
  | null;

/** The pickle of a value. Arrays are tuples. */
export function pickle(value: Pickled): Buffer {
  return Buffer.concat([Buffer.from([0x80, 2]), encode(value), Buffer.from('.')]);
}

function encode(value: Pickled): Buffer {
  if (value === null) return Buffer.from('N');
  if (value === true) return Buffer.from([0x88]);
  if (value === false) return Buffer.from([0x89]);
  if (typeof value === 'bigint') {
    const bytes = Buffer.alloc(12);
    bytes.set([0x8a, 10]);
    bytes.writeBigUInt64LE(BigInt.asUintN(64, value), 2);
    bytes.writeUInt16LE(Number(BigInt.asUintN(16, value >> 64n)), 10);
    return bytes;
  }
  if (typeof value === 'number') {
    if (!Number.isInteger(value)) {
      const bytes = Buffer.from('G\0\0\0\0\0\0\0\0');
      bytes.writeDoubleBE(value, 1);
      return bytes;
    }
    if (Math.abs(value) >= 2 ** 31) return encode(BigInt(value));
    const bytes = Buffer.from('J\0\0\0\0');
    bytes.writeInt32LE(value, 1);
    return bytes;
  }
  if (typeof value === 'string') {
    const text = Buffer.from(value);
    const head = Buffer.from('X\0\0\0\0');
    head.writeUInt32LE(text.length, 1);
    return Buffer.concat([head, text]);
  }
  if (isList(value)) return Buffer.concat([Buffer.from('('), ...value.map(encode), Buffer.from('t')]);
  if ('raw' in value) return Buffer.from(value.raw);
  if ('global' in value) {
    const dot = value.global.lastIndexOf('.');
    return Buffer.from(`c${value.global.slice(0, dot)}\n${value.global.slice(dot + 1)}\n`);
  }
  if ('call' in value) return Buffer.concat([encode({ global: value.call }), encode(value.args), Buffer.from('R')]);
  if ('persistent' in value) return Buffer.concat([encode(value.persistent), Buffer.from('Q')]);
  return Buffer.concat([Buffer.from('}('), ...value.dict.flat().map(encode), Buffer.from('u')]);
}

function isList(value: Pickled): value is readonly Pickled[] {
  return Array.isArray(value);
}

/** A storage's persistent id; `count` in elements. */
export function storage(type: string, key: string, count: number, view?: Pickled): Pickled {
  const id: Pickled[] = ['storage', { global: type }, key, 'cpu', count];
  return { persistent: view === undefined ? id : [...id, view] };
}

/** What `_rebuild_tensor_v2` is called with; row-major when no strides are given. */
export function tensor(of: Pickled, shape: number[], strides?: number[], offset = 0): Pickled {
  const dense = shape.map((_, i) => shape.slice(i + 1).reduce((a, b) => a * b, 1));
  const hooks: Pickled = { call: 'collections.OrderedDict', args: [] };
  return { call: 'torch._utils._rebuild_tensor_v2', args: [of, offset, shape, strides ?? dense, false, hooks] };
}

/** A stored zip archive. */
export function zip(entries: Readonly<Record<string, Uint8Array | string>>): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, contents] of Object.entries(entries)) {
    const bytes = Buffer.from(contents as string);
    const label = Buffer.from(name);
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt32LE(crc32(bytes), 10);
    common.writeUInt32LE(bytes.length, 14);
    common.writeUInt32LE(bytes.length, 18);
    common.writeUInt16LE(label.length, 22);
    const central = Buffer.alloc(14);
    central.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\0'), common, central, label]));
    parts.push(Buffer.from('PK\x03\x04'), common, label, bytes);
    offset += 30 + label.length + bytes.length;
  }
  const central = Buffer.concat(directory);
  const end = Buffer.from('PK\x05\x06'.padEnd(22, '\0'), 'latin1');
  end.writeUInt16LE(directory.length, 8);
  end.writeUInt16LE(directory.length, 10);
  end.writeUInt32LE(central.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...parts, central, end]);
}

/** A checkpoint in today's form: the root object and the bytes of its storages by key. */
export function checkpoint(
  root: Pickled,
  storages: Readonly<Record<string, ArrayBufferView>>,
  byteorder = 'little',
): Buffer {
  const data = Object.entries(storages).map(([key, { buffer, byteOffset, byteLength }]) => [
    `archive/data/${key}`,
    new Uint8Array(buffer, byteOffset, byteLength),
  ]);
  return zip({
    'archive/data.pkl': pickle(root),
    'archive/byteorder': byteorder,
    ...Object.fromEntries(data),
    'archive/version': '3\n',
  });
}

/** A checkpoint in the form before PyTorch 1.6. */
export function legacy(root: Pickled, storages: readonly (readonly [string, number, ArrayBufferView])[]): Buffer {
  const system: Pickled = { dict: [['little_endian', true]] };
  const keys = Buffer.concat([
    Buffer.from([0x80, 2]),
    Buffer.from(']('),
    ...storages.map(([key]) => encode(key)),
    Buffer.from('e.'),
  ]);
  const data = storages.flatMap(([, count, { buffer, byteOffset, byteLength }]) => {
    const head = Buffer.alloc(8);
    head.writeBigInt64LE(BigInt(count));
    return [head, Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength)];
  });
  return Buffer.concat([pickle(0x1950a86a20f9469cfc6cn), pickle(1001), pickle(system), pickle(root), keys, ...data]);
}
