/** Big-endian files: the fixture of every type, turned round field by field, reads as the fixture does. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { GGUF_TYPES, GgufFile } from '../src/gguf';
import { ALL_TYPES } from './fixture';

/** Bytes of one value of each type that has a fixed size. */
const SIZES: Record<number, number> = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };

/** Where the little-endian numbers of a header are: walks it as the format's description says. */
function headerFields(bytes: Uint8Array): { fields: [at: number, size: number][]; end: number } {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const fields: [number, number][] = [];
  let at = 4;
  const number = (size: number): number => {
    const value = size === 8 ? Number(view.getBigUint64(at, true)) : size === 4 ? view.getUint32(at, true) : 0;
    fields.push([at, size]);
    at += size;
    return value;
  };
  const text = () => {
    const length = number(8);
    at += length;
  };
  const value = (type: number) => {
    if (type === 8) text();
    else if (type === 9) {
      const item = number(4);
      const count = number(8);
      for (let i = 0; i < count; i++) value(item);
    } else number(SIZES[type]);
  };
  number(4);
  const tensors = number(8);
  const pairs = number(8);
  for (let i = 0; i < pairs; i++) {
    text();
    value(number(4));
  }
  for (let i = 0; i < tensors; i++) {
    text();
    const rank = number(4);
    for (let d = 0; d < rank; d++) number(8);
    number(4);
    number(8);
  }
  return { fields, end: at };
}

/** Where numbers lie in a block: [offset, size] each, from ggml's structures. */
const BLOCK_NUMBERS: Record<string, [number, number][]> = {
  Q4_0: [[0, 2]],
  Q4_1: [
    [0, 2],
    [2, 2],
  ],
  Q8_0: [[0, 2]],
  Q4_K: [
    [0, 2],
    [2, 2],
  ],
  Q6_K: [[208, 2]],
  f32: [[0, 4]],
  f16: [[0, 2]],
  BF16: [[0, 2]],
  MXFP4: [],
  IQ4_XS: [
    [0, 2],
    [2, 2],
  ],
};

function turned(): { bytes: Uint8Array; little: GgufFile } {
  const little = GgufFile.open(ALL_TYPES);
  const bytes = new Uint8Array(readFileSync(ALL_TYPES));
  for (const [at, size] of headerFields(bytes).fields) bytes.subarray(at, at + size).reverse();
  for (const [name, numbers] of Object.entries(BLOCK_NUMBERS)) {
    const { offset, byteLength, format } = little.tensor(name);
    const start = little.dataOffset + offset;
    for (let block = start; block < start + byteLength!; block += format!.blockBytes) {
      for (const [at, size] of numbers) bytes.subarray(block + at, block + at + size).reverse();
    }
  }
  return { bytes, little };
}

test('metadata, descriptions and blocks', () => {
  const { bytes, little } = turned();
  using big = GgufFile.fromBytes(bytes);
  expect([big.bigEndian, little.bigEndian, big.version]).toEqual([true, false, 3]);
  expect(Object.fromEntries(big.metadata)).toEqual(Object.fromEntries(little.metadata));
  expect([...big.tensors.values()]).toEqual([...little.tensors.values()]);
  for (const name of Object.keys(BLOCK_NUMBERS)) {
    const expected = little.readTensorBytes(name);
    expect(big.readTensorBytes(name)).toEqual(expected);
    // A slice that starts and ends inside blocks, and pieces of some blocks.
    const slice = new Uint8Array(301);
    big.readTensorSlice(name, 7, slice);
    expect(slice).toEqual(expected.subarray(7, 308));
    const joined = new Uint8Array(expected.length);
    for (const piece of big.tensorChunks(name, 500)) joined.set(piece.bytes, piece.offset);
    expect(joined).toEqual(expected);
  }
  little.close();
});

test.each([1, 2, 3])('an empty big-endian file of version %i opens', (version) => {
  const wide = version > 1 ? 8 : 4;
  const bytes = new Uint8Array(8 + 2 * wide);
  bytes.set([0x47, 0x47, 0x55, 0x46, 0, 0, 0, version]);
  using file = GgufFile.fromBytes(bytes);
  expect([file.version, file.bigEndian]).toEqual([version, true]);
});

test('every value type has a size here', () => {
  expect(Object.keys(SIZES).length + 2).toBe(GGUF_TYPES.length);
});
