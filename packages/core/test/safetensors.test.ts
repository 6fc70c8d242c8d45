/** Reading a file that the reference library wrote, writing, and refusing what is no safetensors file. */
import { createWriteStream, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type CandleError, Device, memoryStats, Tensor } from '../src';
import { SafetensorsFile, ShardedSafetensors, saveSafetensors } from '../src/files';

const fixture = fileURLToPath(new URL('./fixtures/all.safetensors', import.meta.url));
const expected: Record<string, { shape: number[]; values: number[] }> = JSON.parse(
  readFileSync(new URL('./fixtures/expected.json', import.meta.url), 'utf8'),
);
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'core-safetensors-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe('the reference library’s file', () => {
  test('names, metadata, info', () => {
    using file = SafetensorsFile.open(fixture);
    expect(file.names.sort()).toEqual(Object.keys(expected).sort());
    expect(file.metadata).toEqual({ format: 'pt', note: 'täst' });
    expect(file.info('bf16')).toEqual({ name: 'bf16', dtype: 'BF16', shape: [2, 3], offset: 1252, byteLength: 12 });
    expect(file.has('f32') && !file.has('f33')).toBe(true);
  });

  test.each(Object.keys(expected))('%s', async (name) => {
    using file = SafetensorsFile.open(fixture);
    const t = await file.load(name);
    expect(t.shape).toEqual(expected[name].shape);
    expect(Array.from(t.toArraySync(), Number)).toEqual(expected[name].values);
    const sync = file.loadSync(name, Device.js(), { dtype: 'f64' });
    expect([sync.dtype, String(sync.device)]).toEqual(['f64', 'js']);
    expect(Array.from(sync.toArraySync<Float64Array>())).toEqual(expected[name].values);
  });

  test('types without a tensor dtype are widened', async () => {
    using file = SafetensorsFile.open(fixture);
    const all = await file.loadAll();
    const dtypes = ['u16', 'i8', 'bool', 'u64', 'f8e5m2'].map((name) => all.get(name)?.dtype);
    expect(dtypes).toEqual(['u32', 'i16', 'u8', 'i64', 'f16']);
  });

  test('closing', async () => {
    const file = SafetensorsFile.open(fixture);
    file.close();
    file.close();
    const before = memoryStats().liveTensors;
    await expect(file.load('f32')).rejects.toMatchObject({ code: 'DISPOSED' });
    expect(() => SafetensorsFile.open(fixture).info('weight')).toThrow(/no tensor "weight" among 17/);
    // Less is right too: the collector may take what other tests left.
    expect(memoryStats().liveTensors).toBeLessThanOrEqual(before);
  });
});

describe('writing', () => {
  test('every dtype comes back, views included', async () => {
    const path = join(folder, 'round.safetensors');
    const base = Tensor.arange(0, 6).reshape([2, 3]);
    const dtypes = ['u8', 'u32', 'i16', 'i32', 'i64', 'bf16', 'f16', 'f32', 'f64', 'f8e4m3'] as const;
    const tensors = Object.fromEntries(dtypes.map((dtype) => [`t.${dtype}`, base.t().toDtype(dtype)]));
    await saveSafetensors(
      path,
      { ...tensors, view: base.narrow(1, 1, 2), none: Tensor.zeros([0, 2]), one: Tensor.from(7) },
      { a: 'ä' },
    );
    using file = SafetensorsFile.open(path);
    expect(file.metadata).toEqual({ a: 'ä' });
    for (const dtype of dtypes) {
      const t = await file.load(`t.${dtype}`);
      expect(t.dtype).toBe(dtype);
      expect((t.toVecSync() as number[][]).map((row) => row.map(Number))).toEqual([
        [0, 3],
        [1, 4],
        [2, 5],
      ]);
    }
    expect((await file.load('view')).toVecSync()).toEqual([
      [1, 2],
      [4, 5],
    ]);
    expect((await file.load('none')).shape).toEqual([0, 2]);
    expect((await file.load('one')).toScalarSync()).toBe(7);
    expect(file.info('t.f64').offset % 8).toBe(0);
    expect(readdirSync(folder), 'no temporary file stays').toEqual(['round.safetensors']);
  });

  test('tensors larger than a piece', async () => {
    const path = join(folder, 'large.safetensors');
    const t = Tensor.arange(0, 2_500_000, 'i32');
    await saveSafetensors(
      path,
      new Map([
        ['t', t],
        ['h', t.toDtype('f16')],
      ]),
    );
    using file = SafetensorsFile.open(path);
    expect((await file.load('t')).eq(t).toDtype('u32').sumAll().toScalarSync()).toBe(2_500_000);
    expect(file.loadSync('t').eq(t).toDtype('u32').sumAll().toScalarSync()).toBe(2_500_000);
    rmSync(path);
  });

  test('a failure leaves the old file and no new one', async () => {
    const path = join(folder, 'keep.safetensors');
    writeFileSync(path, 'old');
    const gone = Tensor.ones([2]);
    gone.dispose();
    await expect(saveSafetensors(path, { gone })).rejects.toMatchObject({ code: 'DISPOSED' });
    expect(readFileSync(path, 'utf8')).toBe('old');
    expect(readdirSync(folder).some((name) => name.endsWith('.tmp'))).toBe(false);
    await expect(saveSafetensors(join(folder, 'no', 'x'), {})).rejects.toMatchObject({ code: 'FILE_UNWRITABLE' });
  });
});

describe('what is no safetensors file', () => {
  const file = (header: string | object, data = 0, length?: bigint): string => {
    const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
    const first = Buffer.alloc(8);
    first.writeBigUInt64LE(length ?? BigInt(json.length));
    const path = join(folder, 'bad.safetensors');
    writeFileSync(path, Buffer.concat([first, json, Buffer.alloc(data)]));
    return path;
  };
  const f32 = (shape: unknown, begin: unknown, end: unknown) => ({ dtype: 'F32', shape, data_offsets: [begin, end] });
  const cases: [string, () => string, string, RegExp][] = [
    ['missing', () => join(folder, 'nothing'), 'FILE_NOT_FOUND', /does not exist/],
    ['a folder', () => folder, 'FILE_UNREADABLE', /no regular file/],
    ['header longer than the file', () => file('{}', 0, 1000n), 'FILE_TRUNCATED', /1000 bytes.*10 bytes/],
    ['header of 2^63', () => file('{}', 0, 2n ** 63n), 'FILE_INVALID', /over the limit/],
    ['no JSON object', () => file('[]'), 'FILE_INVALID', /"{"/],
    ['broken JSON', () => file('{"a":'), 'FILE_INVALID', /JSON/],
    ['no UTF-8', () => file('{"\ufffd'.replace('\ufffd', '\xff\xfe')), 'FILE_INVALID', /JSON/],
    ['deep nesting', () => file(`{"a":${'['.repeat(100000)}`), 'FILE_INVALID', /deeper/],
    ['no entry', () => file({ a: null }), 'FILE_INVALID', /unknown dtype/],
    ['unknown dtype', () => file({ a: { ...f32([1], 0, 4), dtype: 'F33' } }, 4), 'FILE_INVALID', /"F33"/],
    [
      'dtype from the prototype',
      () => file({ a: { ...f32([1], 0, 4), dtype: 'constructor' } }, 4),
      'FILE_INVALID',
      /unknown dtype/,
    ],
    ['negative size', () => file({ a: f32([-1], 0, 4) }, 4), 'FILE_INVALID', /no list of sizes/],
    ['shape of text', () => file({ a: f32('1', 0, 4) }, 4), 'FILE_INVALID', /no list of sizes/],
    ['overflowing shape', () => file({ a: f32([2 ** 40, 2 ** 40], 0, 4) }, 4), 'FILE_INVALID', /no list of sizes/],
    ['wrong byte count', () => file({ a: f32([2], 0, 4) }, 4), 'FILE_INVALID', /needs 8 bytes.*span 4/],
    ['offsets reversed', () => file({ a: f32([1], 4, 0) }, 4), 'FILE_INVALID', /no range/],
    ['offsets of text', () => file({ a: f32([1], '0', '4') }, 4), 'FILE_INVALID', /no range/],
    ['past the end', () => file({ a: f32([2], 0, 8) }, 4), 'FILE_TRUNCATED', /ends at byte/],
    ['overlap', () => file({ a: f32([2], 0, 8), b: f32([2], 4, 12) }, 12), 'FILE_INVALID', /"b" overlaps/],
    ['gap', () => file({ a: f32([1], 4, 8) }, 8), 'FILE_INVALID', /gap of 4/],
    ['trailing bytes', () => file({ a: f32([1], 0, 4) }, 5), 'FILE_INVALID', /1 bytes after/],
    ['metadata of numbers', () => file({ __metadata__: { a: 1 } }), 'FILE_INVALID', /__metadata__/],
  ];

  test.each(cases)('%s', (_, make, code, message) => {
    const path = make();
    let error: CandleError | undefined;
    try {
      SafetensorsFile.open(path);
    } catch (caught) {
      error = caught as CandleError;
    }
    expect(error?.code).toBe(code);
    expect(error?.message).toMatch(message);
    expect(error).toMatchObject({ name: 'FileFormatError', path });
  });

  test('an empty and an over-short file', () => {
    const path = join(folder, 'short');
    writeFileSync(path, '1234');
    expect(() => SafetensorsFile.open(path)).toThrow(/too short/);
  });

  test('a name like __proto__ is an ordinary tensor', async () => {
    const path = file(`{"__proto__":${JSON.stringify(f32([1], 0, 4))}}`, 4);
    using opened = SafetensorsFile.open(path);
    expect(opened.names).toEqual(['__proto__']);
    expect((await opened.load('__proto__')).toVecSync()).toEqual([0]);
  });

  test('dtypes that cannot be loaded can be listed', async () => {
    using opened = SafetensorsFile.open(file({ a: { dtype: 'F4', shape: [4], data_offsets: [0, 2] } }, 2));
    expect(opened.info('a').byteLength).toBe(2);
    await expect(opened.load('a')).rejects.toMatchObject({ code: 'UNSUPPORTED' });
  });

  test('a U64 value over the largest i64 is an error and leaves no tensor', async () => {
    const path = file({ a: { dtype: 'U64', shape: [1], data_offsets: [0, 8] } }, 8);
    const bytes = readFileSync(path);
    bytes.fill(0xff, bytes.length - 8);
    writeFileSync(path, bytes);
    const before = memoryStats().liveTensors;
    using opened = SafetensorsFile.open(path);
    await expect(opened.load('a')).rejects.toThrow(/18446744073709551615/);
    // Less is right too: the collector may take what other tests left.
    expect(memoryStats().liveTensors).toBeLessThanOrEqual(before);
  });

  test('a file cut after opening', async () => {
    const path = file({ a: f32([2], 0, 8) }, 8);
    using opened = SafetensorsFile.open(path);
    writeFileSync(path, readFileSync(path).subarray(0, -4));
    await expect(opened.load('a')).rejects.toMatchObject({ code: 'FILE_TRUNCATED' });
    expect(() => opened.loadSync('a')).toThrow(/ends at byte/);
  });
});

test.each([
  ['version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 134\n', /Git LFS pointer .*`git lfs pull`/],
  ['<!DOCTYPE html>\n<html lang="en">', /web page .*download it again/],
  ['\n  <html><head><title>404</title></head>', /web page .*download it again/],
])('a file that is something else in its place: %j', (text, message) => {
  const path = join(folder, 'stand-in.safetensors');
  writeFileSync(path, text);
  for (const file of [path, Buffer.from(text)]) {
    expect(() => SafetensorsFile.open(file)).toThrow(expect.objectContaining({ code: 'FILE_INVALID' }));
    expect(() => SafetensorsFile.open(file)).toThrow(message);
  }
});

describe('arguments', () => {
  const refused = (message: RegExp) =>
    expect.objectContaining({ code: 'INVALID_ARGUMENT', message: expect.stringMatching(message) });

  test.each(['foo', 0, null, {}, Symbol('s')])('a signal that is none: %s', async (signal) => {
    using file = SafetensorsFile.open(fixture);
    const before = memoryStats().liveTensors;
    await expect(file.load('f32', 'js', { signal: signal as never })).rejects.toThrow(
      refused(/options\.signal is .*AbortSignal/),
    );
    expect(memoryStats().liveTensors).toBeLessThanOrEqual(before);
  });

  test.each([[5], ['foo'], [[]], [{ a: 5 }], [{ a: null }]])('metadata that is none: %j', async (metadata) => {
    const path = join(folder, 'metadata.safetensors');
    await expect(saveSafetensors(path, {}, metadata as never)).rejects.toThrow(
      refused(/metadata is .*strings by name/),
    );
    expect(readdirSync(folder)).not.toContain('metadata.safetensors');
  });

  test.each([[undefined], [null], [0], [{}], [true], [[5]], [[null]]])('files that are none: %j', (files) => {
    expect(() => ShardedSafetensors.open(files as never)).toThrow(refused(/files? is .*give a path/));
  });
});

describe('serialization_tests::safetensors', () => {
  test('one tensor saved by its method, loaded from the file and from bytes', async () => {
    const path = join(folder, 'one.safetensors');
    const t = Tensor.arange(0, 24);
    await t.saveSafetensors('t', path);
    for (const file of [path, readFileSync(path)]) {
      using opened = SafetensorsFile.open(file);
      const loaded = await opened.load('t');
      expect(loaded.sub(t).abs().sumAll().toScalarSync()).toBe(0);
      expect([loaded.dtype, loaded.shape, opened.names]).toEqual(['f32', [24], ['t']]);
    }
  });

  test('writeBytes to a stream, a file and anything with write', async () => {
    const t = Tensor.arange(0, 6).reshape([2, 3]).t().toDtype('f16');
    const bytes = Buffer.from(await t.toBytes());
    const path = join(folder, 'raw');
    const stream = createWriteStream(path, { highWaterMark: 4 });
    await t.writeBytes(stream);
    await new Promise<void>((resolve) => stream.end(resolve));
    expect(readFileSync(path)).toEqual(bytes);
    const file = await open(path, 'w');
    await t.writeBytes(file);
    await file.close();
    expect(readFileSync(path)).toEqual(bytes);
    const parts: Uint8Array[] = [];
    await t.writeBytes({ write: (part) => void parts.push(part) });
    expect(Buffer.concat(parts)).toEqual(bytes);
    // A sink that takes 5 bytes at a time, as a FileHandle may.
    parts.length = 0;
    const slow = (part: Uint8Array) => ({ bytesWritten: Math.min(5, parts.push(part.subarray(0, 5)) && part.length) });
    await t.writeBytes({ write: slow });
    expect(Buffer.concat(parts)).toEqual(bytes);
  });
});

describe('shards', () => {
  const write = async () => {
    await saveSafetensors(join(folder, 'a.safetensors'), { one: Tensor.from([1, 2]), two: Tensor.from([[3]]) });
    await saveSafetensors(join(folder, 'b.safetensors'), { three: Tensor.from([4, 5, 6], { dtype: 'i64' }) });
  };
  const index = (map: unknown): string => {
    const path = join(folder, 'model.safetensors.index.json');
    writeFileSync(path, typeof map === 'string' ? map : JSON.stringify({ metadata: {}, weight_map: map }));
    return path;
  };
  const places = { three: 'b.safetensors', one: 'a.safetensors', two: 'a.safetensors' };

  test('by an index, and by a list of files', async () => {
    await write();
    const given = [index(places), ['a', 'b'].map((name) => join(folder, `${name}.safetensors`))];
    for (const files of given) {
      using shards = ShardedSafetensors.open(files);
      expect(shards.names.sort()).toEqual(['one', 'three', 'two']);
      expect([shards.has('two'), shards.has('four'), shards.info('three').dtype]).toEqual([true, false, 'I64']);
      expect((await shards.load('one')).toVecSync()).toEqual([1, 2]);
      expect(shards.loadSync('two', Device.js(), { dtype: 'f64' }).dtype).toBe('f64');
      expect((await shards.loadAll()).get('three')?.toVecSync()).toEqual([4n, 5n, 6n]);
      await expect(shards.load('four')).rejects.toMatchObject({ code: 'FILE_NO_SUCH_TENSOR' });
      shards.close();
      await expect(shards.load('one')).rejects.toMatchObject({ code: 'DISPOSED' });
    }
    using single = ShardedSafetensors.open(join(folder, 'b.safetensors'));
    expect([single.names, single.paths]).toEqual([['three'], [join(folder, 'b.safetensors')]]);
  });

  test('a tensor in two files is that of the file that the index gives it to', async () => {
    await write();
    await saveSafetensors(join(folder, 'd.safetensors'), { one: Tensor.from([7, 8]), four: Tensor.from([9]) });
    for (const [file, values] of [
      ['a', [1, 2]],
      ['d', [7, 8]],
    ] as const) {
      using shards = ShardedSafetensors.open(index({ ...places, one: `${file}.safetensors`, four: 'd.safetensors' }));
      expect(shards.names.sort()).toEqual(['four', 'one', 'three', 'two']);
      expect((await shards.load('one')).toVecSync()).toEqual(values);
    }
    expect(() => ShardedSafetensors.open(index({ two: 'a.safetensors', four: 'd.safetensors' }))).toThrow(/give each/);
  });

  test.each<[string, () => string | string[], string, RegExp]>([
    ['a missing shard', () => index({ ...places, four: 'c.safetensors' }), 'FILE_NOT_FOUND', /c\.safetensors/],
    ['a missing index', () => join(folder, 'no.index.json'), 'FILE_NOT_FOUND', /does not exist/],
    ['no JSON', () => index('{'), 'FILE_INVALID', /cannot be read/],
    ['no map', () => index('{"weight_map": []}'), 'FILE_INVALID', /no weight_map/],
    [
      'a tensor in another shard',
      () => index({ ...places, one: 'b.safetensors' }),
      'FILE_INVALID',
      /"one" into .*b\.safe/,
    ],
    ['a path out of the folder', () => index({ one: '../a.safetensors' }), 'FILE_INVALID', /no file name/],
    ['an absolute path', () => index({ one: '/etc/passwd' }), 'FILE_INVALID', /no file name/],
    ['a number', () => index({ one: 1 }), 'FILE_INVALID', /no file name/],
    [
      'a name twice',
      () => ['a', 'a'].map((name) => join(folder, `${name}.safetensors`)),
      'FILE_INVALID',
      /"\w+" is in .*a\.safetensors too/,
    ],
  ])('%s', async (_, files, code, message) => {
    await write();
    let error: CandleError | undefined;
    try {
      ShardedSafetensors.open(files());
    } catch (caught) {
      error = caught as CandleError;
    }
    expect(error?.message).toMatch(message);
    expect(error).toMatchObject({ name: 'FileFormatError', code });
  });
});
