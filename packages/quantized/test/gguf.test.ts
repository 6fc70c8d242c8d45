/** Reading files that real tools wrote, and writing files that read back the same. */
import { existsSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { CandleError, DisposedError } from '@x/core';
import { describe, expect, test } from 'vitest';
import { type GgufArray, GgufFile, type GgufValue, gguf, writeGguf } from '../src/gguf';
import { ALL_TYPES, EXPECTED, TINY_TALES } from './fixture';
import { Raw, store, temporaryPath } from './raw-gguf';

describe('a file of every type, written by the gguf package', () => {
  const file = GgufFile.open(ALL_TYPES);

  test('metadata', () => {
    expect(file.version).toBe(3);
    const { metadata } = file;
    expect(metadata.string('general.architecture')).toBe('llama');
    expect(metadata.string('note')).toBe('fixture');
    expect(metadata.get('ints')).toEqual(gguf.array('int32', Int32Array.of(1, 2, 3)));
    expect(metadata.numbers('ints')).toEqual([1, 2, 3]);
    expect(metadata.strings('strings')).toEqual(['a', '', 'ü']);
    expect(metadata.float('f64')).toBe(0.1);
    expect(metadata.bool('yes')).toBe(true);
    expect(metadata.get('i64')).toEqual(gguf.int64(-5n));
    expect(metadata.int('i64')).toBe(-5);
  });

  test('tensors', () => {
    expect([...file.tensors.keys()]).toEqual([...EXPECTED.map(([name]) => name), 'f32', 'f16']);
    for (const [name, { shape }] of EXPECTED) {
      expect(file.tensor(name).shape).toEqual(shape);
      expect(file.tensor(name).type.toLowerCase()).toBe(name.toLowerCase());
    }
    expect(file.tensor('Q4_0')).toMatchObject({ ggmlType: 2, elemCount: 2048, offset: 0, byteLength: 1152 });
  });

  test('data whole, in slices and in chunks of whole blocks', () => {
    const whole = file.readTensorBytes('Q4_K');
    expect(whole.length).toBe(1152);
    const into = new Uint8Array(2000);
    expect(file.readTensorBytes('Q4_K', into).buffer).toBe(into.buffer);
    expect(into.subarray(0, 1152)).toEqual(whole);
    const slice = new Uint8Array(100);
    file.readTensorSlice('Q4_K', 1000, slice);
    expect(slice).toEqual(whole.subarray(1000, 1100));
    const joined = new Uint8Array(1152);
    const sizes: number[] = [];
    for (const { offset, bytes } of file.tensorChunks('Q4_K', 500)) {
      joined.set(bytes, offset);
      sizes.push(bytes.length);
    }
    expect(joined).toEqual(whole);
    expect(sizes).toEqual([432, 432, 288]);
    const outside = expect.objectContaining({ name: 'ShapeError', code: 'INDEX_OUT_OF_RANGE' });
    expect(() => file.readTensorSlice('Q4_K', 1100, slice)).toThrow(outside);
    expect(() => file.readTensorBytes('Q4_K', slice)).toThrow(outside);
  });

  test('errors say what was meant', () => {
    expect(() => file.tensor('Q4_k')).toThrow(/no tensor 'Q4_k'.*'Q4_K'/);
    expect(() => file.metadata.string('general.architectures')).toThrow(/'general.architecture'/);
    expect(() => file.metadata.uint('i64')).toThrow(expect.objectContaining({ code: 'GGUF_WRONG_TYPE' }));
    expect(() => file.metadata.string('ints')).toThrow(/array of int32/);
    expect(() => file.metadata.int('f64')).toThrow(/float64 0\.1/);
    expect(() => file.metadata.bool('note')).toThrow(/string "fixture"/);
    expect(() => file.metadata.numbers('strings')).toThrow(/array of string/);
    expect(file.metadata.uint('absent', 7)).toBe(7);
    expect(file.metadata.string('absent', 'x')).toBe('x');
    for (const missing of [() => file.tensor('x'), () => file.metadata.require('x')])
      expect(missing).toThrow(CandleError);
  });
});

describe('the tiny model', () => {
  test('metadata and tensors', () => {
    using file = GgufFile.open(TINY_TALES);
    const { metadata } = file;
    expect(metadata.string('general.architecture')).toBe('llama');
    expect(metadata.uint('llama.block_count')).toBe(8);
    expect(metadata.uint('llama.embedding_length')).toBe(256);
    expect(metadata.uint('llama.attention.head_count')).toBe(8);
    expect(metadata.uint('llama.attention.head_count_kv')).toBe(4);
    expect(metadata.uint('llama.feed_forward_length')).toBe(768);
    expect(metadata.uint('llama.context_length')).toBe(512);
    expect(metadata.strings('tokenizer.ggml.tokens').length).toBe(4096);
    expect(file.tensor('token_embd.weight')).toMatchObject({ type: 'q8_0', shape: [4096, 256] });
    expect(file.tensor('blk.0.ffn_down.weight')).toMatchObject({ type: 'q8_0', shape: [256, 768] });
    expect(file.tensor('blk.7.attn_k.weight')).toMatchObject({ type: 'q8_0', shape: [128, 256] });
    expect(file.tensor('output_norm.weight')).toMatchObject({ type: 'f32', shape: [256] });
    let values = 0;
    for (const { elemCount } of file.tensors.values()) values += elemCount;
    expect(values).toBeGreaterThan(7.2e6);
    expect(values).toBeLessThan(7.5e6);
  });
});

describe('older versions', () => {
  test.each([1, 2])('version %i', (version) => {
    const raw = new Raw(version > 1).header(1, 2, version).string('s').u32(8);
    // Version 1 writers put a NUL at the end of strings.
    raw.string('text\0').string('n').u32(9).u32(4).size(2).u32(7).u32(9);
    raw.tensor('t', [2, 3], 0, 0).pad().data(24);
    using file = GgufFile.open(store(raw.done()));
    expect(file.version).toBe(version);
    expect(file.metadata.string('s')).toBe('text');
    expect(file.metadata.numbers('n')).toEqual([7, 9]);
    expect(file.tensor('t').shape).toEqual([3, 2]);
    expect(file.readTensorBytes('t')).toEqual(new Uint8Array(24).fill(1));
  });

  test('a byte order mark in a token stays; wrong UTF-8 is replaced', () => {
    const raw = new Raw()
      .header(0, 2)
      .string('bom')
      .u32(8)
      .string('\uFEFFx')
      .string('bad')
      .u32(8)
      .u64(2)
      .bytes(0xc3, 0x28);
    using file = GgufFile.open(store(raw.done()));
    expect(file.metadata.string('bom')).toBe('\uFEFFx');
    expect(file.metadata.string('bad')).toBe('\uFFFD(');
  });
});

describe('write', () => {
  const metadata: Record<string, GgufValue> = {
    'general.architecture': gguf.string('tést'),
    u8: gguf.uint8(255),
    i8: gguf.int8(-128),
    u16: gguf.uint16(65535),
    i16: gguf.int16(-1),
    u32: gguf.uint32(2 ** 32 - 1),
    i32: gguf.int32(-(2 ** 31)),
    f32: gguf.float32(0.5),
    f64: gguf.float64(Math.PI),
    u64: gguf.uint64(2n ** 64n - 1n),
    i64: gguf.int64(-(2n ** 63n)),
    bool: gguf.bool(false),
    long: gguf.string('x'.repeat(200_000)),
    strings: gguf.strings(['', 'b', '\uFEFF']),
    bools: gguf.array('bool', [true, false]),
    bytes: gguf.array('uint8', new Uint8Array(70_000).fill(3)),
    bigs: gguf.array('uint64', BigUint64Array.of(1n, 2n ** 63n)),
    nested: gguf.array('array', [gguf.strings(['a']) as GgufArray, gguf.array('float32', Float32Array.of(1, 2))]),
    empty: gguf.array('int32', new Int32Array(0)),
  };

  test('everything reads back', async () => {
    const path = temporaryPath();
    const q8 = new Uint8Array(3 * 34).map((_, i) => i);
    const pieces = [q8.slice(0, 50), q8.slice(50)];
    async function* later() {
      yield* pieces;
    }
    await writeGguf(path, {
      metadata,
      tensors: [
        { name: 'a', type: 'q8_0', shape: [3, 32], data: q8 },
        { name: 'b', type: 'q8_0', shape: [3, 1, 32], data: pieces },
        { name: 'c', type: 'q8_0', shape: [96], data: () => later() },
        { name: 'd', type: 'f32', shape: [], data: new Uint8Array(4) },
      ],
    });
    using file = GgufFile.open(path);
    expect(Object.fromEntries(file.metadata)).toEqual(metadata);
    expect([...file.tensors.values()].map(({ shape }) => shape)).toEqual([[3, 32], [3, 1, 32], [96], []]);
    for (const name of ['a', 'b', 'c']) expect(file.readTensorBytes(name)).toEqual(q8);
    expect(readdirSync(dirname(path)).filter((name) => name.endsWith('.tmp'))).toEqual([]);
  });

  test('a copy of the fixture is the fixture, byte for byte', async () => {
    using file = GgufFile.open(ALL_TYPES);
    const path = temporaryPath();
    const tensors = [...file.tensors.values()].map(({ name, shape, format }) => {
      return { name, type: format!.type, shape, data: file.readTensorBytes(name) };
    });
    await writeGguf(path, { metadata: file.metadata, tensors });
    expect(readFileSync(path).equals(readFileSync(ALL_TYPES))).toBe(true);
  });

  test('alignment', async () => {
    const path = temporaryPath();
    const tensors = ['a', 'b'].map((name) => ({ name, type: 'f32' as const, shape: [1], data: new Uint8Array(4) }));
    await writeGguf(path, { metadata: { 'general.alignment': gguf.uint32(4096) }, tensors });
    using file = GgufFile.open(path);
    expect([file.alignment, file.dataOffset, file.tensor('b').offset]).toEqual([4096, 4096, 4096]);
    expect(statSync(path).size).toBe(3 * 4096);
  });

  const f32 = { name: 't', type: 'f32' as const, shape: [2], data: new Uint8Array(8) };
  test.each([
    ['too little data', {}, [{ ...f32, data: new Uint8Array(7) }]],
    ['too much data', {}, [{ ...f32, data: new Uint8Array(9) }]],
    ['half a block', {}, [{ ...f32, type: 'q8_0' as const }]],
    ['a name twice', {}, [f32, f32]],
    ['five dimensions', {}, [{ ...f32, shape: [2, 1, 1, 1, 1] }]],
    ['a type nobody knows', {}, [{ ...f32, type: 'q9_9' as never }]],
    ['a number that does not fit', { k: gguf.uint8(256) }, []],
    ['a fraction', { k: gguf.int32(0.5) }, []],
    ['a string for a number', { k: gguf.int32('5' as never) }, []],
    ['a bad alignment', { 'general.alignment': gguf.uint32(12) }, []],
  ])('%s is refused and leaves the old file', async (_, meta, tensors) => {
    const path = temporaryPath();
    writeFileSync(path, 'before');
    await expect(writeGguf(path, { metadata: meta as Record<string, GgufValue>, tensors })).rejects.toThrow(
      expect.objectContaining({ code: 'GGUF_INVALID_CONTENT' }),
    );
    expect(readFileSync(path, 'utf8')).toBe('before');
    expect(readdirSync(dirname(path)).filter((name) => name.endsWith('.tmp'))).toEqual([]);
  });

  const value = (entry: unknown) => ({ metadata: { k: entry }, tensors: [] });
  const tensor = (fields: unknown) => ({ metadata: {}, tensors: [fields] });
  const array = (elementType: unknown, items: unknown) => value({ type: 'array', elementType, value: items });
  test.each<[string, unknown, RegExp, string?]>([
    ['content', undefined, /content is undefined/, 'INVALID_ARGUMENT'],
    ...[undefined, null, 0, true, 'foo', [], new Set()].map((metadata): [string, unknown, RegExp, string] => {
      return [`metadata ${metadata}`, { metadata, tensors: [] }, /content\.metadata is .*; give/, 'INVALID_ARGUMENT'];
    }),
    ...[undefined, null, 0, '', {}].map((tensors): [string, unknown, RegExp, string] => {
      return [`tensors ${tensors}`, { metadata: {}, tensors }, /content\.tensors is .*; give/, 'INVALID_ARGUMENT'];
    }),
    ['a key', { metadata: new Map([[5, gguf.uint8(1)]]), tensors: [] }, /key 5 is no string/],
    ['a value', value(null), /'k' is null and needs its type/],
    [
      'a type of a value',
      value({ type: Symbol('s'), value: 1 }),
      /'k' is { type: Symbol\(s\), value: 1 } and needs its type/,
    ],
    ['items', array('uint32', 5), /needs its type/],
    ['a type of items', array('foo', [1]), /needs its type/],
    ['an item of arrays', array('array', [null]), /item that is none/],
    ['a tensor', tensor(null), /tensors\[0\] is null and needs a name/],
    ['a name', tensor({ ...f32, name: 0 }), /needs a name/],
    ['a shape', tensor({ ...f32, shape: 2 }), /needs a name, a type and a shape/],
    ['a dimension', tensor({ ...f32, shape: [Symbol('s')] }), /each a whole number/],
    ['data', tensor({ ...f32, data: 5 }), /tensor 't' gave 5 as its data/],
    ['data in pieces', tensor({ ...f32, data: [5] }), /tensor 't' gave 5 as a piece of its data/],
    ['data made later', tensor({ ...f32, data: () => null }), /tensor 't' gave null as its data/],
  ])('%s that is none is refused', async (_, content, message, code = 'GGUF_INVALID_CONTENT') => {
    const path = temporaryPath();
    const error = await writeGguf(path, content as never).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(CandleError);
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
    expect(existsSync(path)).toBe(false);
  });

  test('a source that fails, and a folder that is not there', async () => {
    const path = temporaryPath();
    const tensors = [
      {
        ...f32,
        *data() {
          yield new Uint8Array(4);
          throw new Error('source failed');
        },
      },
    ];
    await expect(writeGguf(path, { metadata: {}, tensors })).rejects.toThrow('source failed');
    expect(existsSync(path)).toBe(false);
    await expect(writeGguf(`${path}/x/y`, { metadata: {}, tensors: [] })).rejects.toThrow(CandleError);
  });
});

describe('lifetime', () => {
  test('after close, descriptions stay and data does not', () => {
    const file = GgufFile.open(ALL_TYPES);
    file.close();
    file.close();
    expect(file.tensor('Q8_0').byteLength).toBe(2176);
    expect(() => file.readTensorBytes('Q8_0')).toThrow(DisposedError);
    expect(() => [...file.tensorChunks('Q8_0')]).toThrow(DisposedError);
  });

  test('a file that shrinks while open', () => {
    const path = store(new Uint8Array(readFileSync(ALL_TYPES)));
    using file = GgufFile.open(path);
    truncateSync(path, 2000);
    expect(() => file.readTensorBytes('f16')).toThrow(expect.objectContaining({ code: 'GGUF_TRUNCATED' }));
  });
});
