/** npy and npz files: those that numpy wrote, ours as numpy would write them, and what is none. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { deflateRawSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import '../../rocm-backend/src';
import { type CandleError, Device, type DType, memoryStats, Tensor } from '../src';
import { NpzFile, readNpy, readNpySync, writeNpy, writeNpz } from '../src/files';
import { npyHeader } from '../src/files/npy-header';

const fixture = (name: string) => fileURLToPath(new URL(`./fixtures/npy/${name}`, import.meta.url));
type Expected = { shape: number[]; values: (number | boolean)[] };
const expected: Record<string, Expected & Record<string, Expected>> = JSON.parse(
  readFileSync(fixture('expected.json'), 'utf8'),
);
const numbers = (values: ArrayLike<unknown>) => Array.from(values, Number);
const codeOf = (body: () => unknown): [string, string] => {
  try {
    body();
  } catch (error) {
    return [(error as CandleError).code, (error as Error).message];
  }
  return ['', 'nothing was thrown'];
};

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'core-npy-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe.each(['js', 'cpu'])('numpy’s files on %s', (name) => {
  const device = () => Device.parse(name);
  const dtypes: Record<string, DType> = {
    ...{ u1: 'u8', u4: 'u32', i2: 'i16', i4: 'i32', i8: 'i64', f2: 'f16', f4: 'f32', f8: 'f64' },
    ...{ fortran: 'f32', bigendian: 'f32', scalar: 'f32', empty: 'f32', bool: 'u8' },
  };
  const arrays = Object.keys(expected).filter((file) => file.endsWith('.npy'));

  test.each(arrays)('serialization_tests::npy %s', async (file) => {
    const { shape, values } = expected[file];
    for (const t of [await readNpy(fixture(file), device()), Tensor.readNpySync(fixture(file), device())]) {
      expect(t.shape).toEqual(shape);
      expect(t.isContiguous()).toBe(true);
      expect(numbers(t.toArraySync())).toEqual(numbers(values));
      expect([String(t.device), t.dtype]).toEqual([name, dtypes[file.slice(0, -4)] ?? '']);
      t.dispose();
    }
    const wide = await Tensor.readNpy(readFileSync(fixture(file)), device(), { dtype: 'f64' });
    expect(wide.dtype).toBe('f64');
    expect(numbers(wide.toArraySync())).toEqual(numbers(values));
  });

  test.each(['plain.npz', 'deflated.npz'])('serialization_tests::npz %s', async (file) => {
    const all = await Tensor.readNpz(fixture(file), device());
    expect([...all.keys()]).toEqual(Object.keys(expected[file]));
    for (const [key, t] of all) {
      expect(t.shape).toEqual(expected[file][key].shape);
      expect(numbers(t.toArraySync())).toEqual(expected[file][key].values);
    }
    const [b, a] = await Tensor.readNpzByName(fixture(file), ['b', 'a'], device());
    expect([b.shape, a.shape]).toEqual([[6], [2, 3, 4]]);
    using npz = NpzFile.open(readFileSync(fixture(file)));
    expect(npz.info('a')).toMatchObject({ type: 'f32', dtype: 'f32', shape: [2, 3, 4], byteLength: 96 });
    expect(numbers(npz.loadSync('b', device()).toArraySync())).toEqual([0, 1, 2, 3, 4, 5]);
    await expect(npz.load('c')).rejects.toMatchObject({ code: 'FILE_NO_SUCH_TENSOR' });
  });

  test('written arrays come back in every dtype, views included', async () => {
    const path = join(folder, `${name}.npz`);
    const base = Tensor.arange(0, 6, 'f32', device()).reshape([2, 3]).t();
    const names = ['u8', 'u32', 'i16', 'i32', 'i64', 'bf16', 'f16', 'f32', 'f64', 'f8e4m3'] as const;
    const tensors = new Map(names.map((dtype) => [`t.${dtype}`, base.toDtype(dtype)]));
    tensors.set('none', Tensor.zeros([0, 4], 'f32', device()));
    tensors.set('one', Tensor.from(7, { device: device() }));
    for (const options of [{}, { deflate: true }, { zip64: true }, { deflate: true, zip64: true }]) {
      await Tensor.writeNpz(tensors, path, options);
      const read = await Tensor.readNpz(path, device());
      expect([...read.keys()]).toEqual([...tensors.keys()]);
      for (const dtype of names) {
        const t = read.get(`t.${dtype}`) as Tensor;
        expect(t.dtype).toBe(dtype);
        expect([t.shape, numbers(t.toArraySync())]).toEqual([
          [3, 2],
          [0, 3, 1, 4, 2, 5],
        ]);
      }
      expect([read.get('none')?.shape, read.get('one')?.toScalarSync()]).toEqual([[0, 4], 7]);
    }
    expect(readdirSync(folder).filter((file) => file.endsWith('.tmp'))).toEqual([]);
  });
});

describe('writing', () => {
  test.each(['u1', 'u4', 'i2', 'i4', 'i8', 'f2', 'f4', 'f8', 'scalar', 'empty'])(
    '%s is numpy’s file to the byte',
    async (type) => {
      const path = join(folder, 'same.npy');
      await readNpySync(fixture(`${type}.npy`)).writeNpy(path);
      expect(readFileSync(path)).toEqual(readFileSync(fixture(`${type}.npy`)));
    },
  );

  test('bf16 and f8e4m3 carry the types that ml_dtypes gives them', () => {
    const text = (dtype: DType) => Buffer.from(npyHeader(dtype, [3])).toString('latin1');
    expect(text('bf16').slice(10)).toMatch(/^\{'descr': '<V2', 'fortran_order': False, 'shape': \(3,\), \} +\n$/);
    expect(text('f8e4m3')).toContain("'<V1'");
    expect(text('bf16')).toHaveLength(128);
  });

  test('more dimensions than numpy has are refused', async () => {
    const path = join(folder, 'long.npy');
    await writeNpy(path, Tensor.from(5).reshape(new Array(64).fill(1)));
    expect(readNpySync(path).shape).toEqual(new Array(64).fill(1));
    const deep = Tensor.from(5).reshape(new Array(65).fill(1));
    await expect(writeNpy(path, deep)).rejects.toMatchObject({ code: 'INVALID_SHAPE' });
  });

  test('tensors larger than a piece, stored and deflated', async () => {
    const path = join(folder, 'large.npz');
    const t = Tensor.arange(0, 2_500_000, 'i32');
    for (const deflate of [false, true]) {
      await writeNpz(path, { t }, { deflate });
      using npz = NpzFile.open(path);
      expect(npz.info('t').shape).toEqual([2_500_000]);
      expect((await npz.load('t')).eq(t).toDtype('u32').sumAll().toScalarSync()).toBe(2_500_000);
    }
    await t.writeNpy(path);
    expect(readNpySync(path).eq(t).toDtype('u32').sumAll().toScalarSync()).toBe(2_500_000);
    rmSync(path);
  });

  test('a failure leaves no file', async () => {
    const gone = Tensor.ones([2]);
    gone.dispose();
    const path = join(folder, 'gone.npz');
    for (const deflate of [false, true])
      await expect(writeNpz(path, { gone }, { deflate })).rejects.toMatchObject({ code: 'DISPOSED' });
    expect(readdirSync(folder).some((name) => name.startsWith('gone'))).toBe(false);
    await expect(writeNpy(join(folder, 'no', 'x'), Tensor.ones([1]))).rejects.toMatchObject({
      code: 'FILE_UNWRITABLE',
    });
  });
});

describe('what is no npy file', () => {
  const npy = (header: string, data = 0, version = 1, length?: number): Buffer => {
    const first = Buffer.alloc(version === 1 ? 10 : 12);
    first.write('\x93NUMPY', 'latin1');
    first[6] = version;
    if (version === 1) first.writeUInt16LE(length ?? header.length, 8);
    else first.writeUInt32LE(length ?? header.length, 8);
    return Buffer.concat([first, Buffer.from(header, 'latin1'), Buffer.alloc(data)]);
  };
  const dict = (descr: string, shape: string, order = 'False') =>
    `{'descr': ${descr}, 'fortran_order': ${order}, 'shape': ${shape}, }`;

  const cases: [string, Buffer, string, RegExp][] = [
    ['nothing', Buffer.alloc(0), 'FILE_TRUNCATED', /0 bytes are too short/],
    ['another magic', Buffer.alloc(64), 'FILE_INVALID', /does not begin as an npy file/],
    ['version 4', npy(dict("'<f4'", '()'), 4, 4), 'FILE_INVALID', /version 4/],
    ['a lying header length', npy('{}', 0, 1, 60000), 'FILE_TRUNCATED', /header of 60000 bytes/],
    ['a header of 4 GB', npy('{}', 0, 2, 0xffffffff), 'FILE_INVALID', /over 65536/],
    ['no literal', npy('__import__("os")'), 'FILE_INVALID', /no Python literal/],
    ['a call', npy(dict("str('<f4')", '()'), 4), 'FILE_INVALID', /no Python literal/],
    ['text behind', npy(`${dict("'<f4'", '()')} 1`, 4), 'FILE_INVALID', /no Python literal/],
    ['deep nesting', npy('('.repeat(60000)), 'FILE_INVALID', /no Python literal/],
    ['a list', npy('[1, 2]'), 'FILE_INVALID', /is no dict/],
    ['no order', npy("{'descr': '<f4', 'shape': ()}"), 'FILE_INVALID', /fortran_order/],
    ['a negative size', npy(dict("'<f4'", '(-1,)')), 'FILE_INVALID', /no tuple of sizes/],
    ['an overflowing size', npy(dict("'<f4'", '(9999999999, 9999999999)')), 'FILE_INVALID', /no tuple of sizes/],
    ['more elements than bytes', npy(dict("'<f4'", '(1099511627776,)'), 4), 'FILE_TRUNCATED', /needs 4398046511\d+/],
    ['bytes behind', npy(dict("'<f4'", '(1,)'), 8), 'FILE_INVALID', /4 bytes follow/],
    ['Python objects', npy(dict("'|O'", '(1,)'), 8), 'UNSUPPORTED', /never unpickled/],
    ['records', npy(dict("[('a', '<f4'), ('b', '<i4', (2,))]", '(1,)'), 12), 'UNSUPPORTED', /several fields/],
    ['complex', npy(dict("'<c8'", '(1,)'), 8), 'UNSUPPORTED', /<c8.*astype/],
    ['dates', npy(dict("'<M8[ns]'", '(1,)'), 8), 'UNSUPPORTED', /<M8/],
    ['no type', npy(dict("'?!'", '(1,)'), 8), 'FILE_INVALID', /none of numpy's/],
  ];
  test.each(cases)('%s', async (_, bytes, code, message) => {
    const before = memoryStats().liveTensors;
    const [found, text] = codeOf(() => readNpySync(bytes));
    expect(found).toBe(code);
    expect(text).toMatch(message);
    await expect(readNpy(bytes)).rejects.toMatchObject({ code });
    expect(memoryStats().liveTensors).toBeLessThanOrEqual(before);
  });

  test('versions 2 and 3, big-endian, other spellings', () => {
    const data = Buffer.alloc(8);
    data.writeInt16BE(-2, 0);
    data.writeInt16BE(300, 2);
    const read = (header: string, version: number, bytes = data.subarray(0, 4)) =>
      numbers(readNpySync(Buffer.concat([npy(header, 0, version), bytes])).toArraySync());
    expect(read(dict('">i2"', '(2L,)'), 2)).toEqual([-2, 300]);
    expect(read("{ 'shape':(2,),'\xe4':None,'fortran_order':True,'descr':'>i2' }\n", 2)).toEqual([-2, 300]);
    expect(read(dict("'=u2'", '[2]'), 1)).toEqual([0xfeff, 0x2c01]);
    expect(read(dict("'>i2'", '(2,)'), 3)).toEqual([-2, 300]);
    expect(read(dict("'|i1'", '(1, 4)'), 1)).toEqual([-1, -2, 1, 44]);
    expect(read(dict("'<u8'", '()'), 1, Buffer.from('0100000000000000', 'hex'))).toEqual([1]);
    const [code, message] = codeOf(() => read(dict("'<u8'", '()'), 1, Buffer.alloc(8, 255)));
    expect([code, message]).toEqual(['DTYPE_MISMATCH', expect.stringContaining('18446744073709551615')]);
  });
});

describe('archives that lie', () => {
  const broken = (change: (bytes: Buffer) => unknown, file = 'plain.npz'): [string, string] => {
    const bytes = readFileSync(fixture(file));
    return codeOf(() => {
      using npz = NpzFile.open((change(bytes) as Buffer | undefined) ?? bytes);
      for (const name of npz.names) npz.loadSync(name);
    });
  };
  const central = (bytes: Buffer) => bytes.indexOf('PK\x01\x02', 0, 'latin1');
  const end = (bytes: Buffer) => bytes.length - 22;

  const cases: [string, (bytes: Buffer) => unknown, string, RegExp][] = [
    ['cut at the end', (b) => b.subarray(0, -1), 'FILE_INVALID', /no zip directory/],
    ['cut in the middle', (b) => b.subarray(100), 'FILE_INVALID', /does not fit|damaged|goes past/],
    ['an empty file', () => Buffer.alloc(0), 'FILE_INVALID', /no zip directory/],
    ['too many entries', (b) => void b.writeUInt16LE(60000, end(b) + 10), 'FILE_INVALID', /60000 entries/],
    ['one entry too many', (b) => void b.writeUInt16LE(3, end(b) + 10), 'FILE_INVALID', /damaged|does not fit/],
    ['a directory past the end', (b) => void b.writeUInt32LE(0xfffffff0, end(b) + 16), 'FILE_INVALID', /does not fit/],
    ['a directory of 4 GB', (b) => void b.writeUInt32LE(0xfffffff0, end(b) + 12), 'FILE_INVALID', /does not fit/],
    ['zip64 without a locator', (b) => void b.writeUInt32LE(0xffffffff, end(b) + 16), 'FILE_INVALID', /fit|missing/],
    ['other sizes', (b) => void b.writeUInt32LE(1 << 30, central(b) + 24), 'FILE_INVALID', /claims 1073741824 bytes/],
    [
      'a size past the end',
      (b) => {
        b.writeUInt32LE(1 << 30, central(b) + 24);
        b.writeUInt32LE(1 << 30, central(b) + 20);
      },
      'FILE_INVALID',
      /goes past|overlaps/,
    ],
    [
      'overlapping entries',
      (b) => {
        const second = b.indexOf('PK\x01\x02', central(b) + 4, 'latin1');
        b.writeUInt32LE(b.readUInt32LE(central(b) + 42), second + 42);
      },
      'FILE_INVALID',
      /overlaps/,
    ],
    [
      'equal names',
      (b) => {
        const second = b.indexOf('PK\x01\x02', central(b) + 4, 'latin1');
        b.write('a', second + 46, 'latin1');
      },
      'FILE_INVALID',
      /two entries named/,
    ],
    ['another checksum', (b) => void b.writeUInt32LE(1, central(b) + 16), 'FILE_INVALID', /damaged/],
    ['other bytes', (b) => void b.writeUInt8(b[200] ^ 1, 200), 'FILE_INVALID', /damaged/],
    ['encryption', (b) => void b.writeUInt16LE(1, central(b) + 8), 'UNSUPPORTED', /encrypted/],
    ['another compression', (b) => void b.writeUInt16LE(12, central(b) + 10), 'UNSUPPORTED', /method 12/],
    ['two disks', (b) => void b.writeUInt16LE(1, end(b) + 4), 'UNSUPPORTED', /several files/],
    ['no local header', (b) => void b.writeUInt8(0, 0), 'FILE_INVALID', /damaged/],
  ];
  test.each(cases)('%s', (_, change, code, message) => {
    const [found, text] = broken(change);
    expect(text).toMatch(message);
    expect(found).toBe(code);
  });

  test('deflated: damage, and more or less than it says', () => {
    expect(broken((b) => void b.fill(0xff, 60, 120), 'deflated.npz')[1]).toMatch(/damaged/);
    expect(broken((b) => void b.writeUInt32LE(100, central(b) + 24), 'deflated.npz')[1]).toMatch(/damaged/);
    expect(broken((b) => void b.writeUInt32LE(5000, central(b) + 24), 'deflated.npz')[0]).toMatch(/FILE_/);
    expect(broken((b) => void b.writeUInt32LE(0xfffffffe, central(b) + 24), 'deflated.npz')[1]).toMatch(/claims/);
  });

  test('a small entry that inflates to much is refused when it does not say so', () => {
    const bomb = deflateRawSync(Buffer.alloc(1 << 24));
    const bytes = readFileSync(fixture('deflated.npz'));
    const at = bytes.readUInt16LE(26) + bytes.readUInt16LE(28) + 30;
    // The bomb stands in the place of the first entry, whose recorded size stays.
    const old = bytes.readUInt32LE(central(bytes) + 20);
    const whole = Buffer.concat([bytes.subarray(0, at), bomb, bytes.subarray(at + old)]);
    const shift = bomb.length - old;
    const first = central(whole);
    const second = whole.indexOf('PK\x01\x02', first + 4, 'latin1');
    whole.writeUInt32LE(bomb.length, first + 20);
    whole.writeUInt32LE(whole.readUInt32LE(second + 42) + shift, second + 42);
    whole.writeUInt32LE(whole.readUInt32LE(end(whole) + 16) + shift, end(whole) + 16);
    using npz = NpzFile.open(whole);
    const [code, message] = codeOf(() => npz.loadSync(npz.names[0]));
    expect([code, message]).toEqual(['FILE_INVALID', expect.stringContaining('damaged')]);
  });

  test('closing', async () => {
    const npz = NpzFile.open(fixture('plain.npz'));
    npz.close();
    npz.close();
    await expect(npz.load('a')).rejects.toMatchObject({ code: 'DISPOSED' });
    writeFileSync(join(folder, 'cut.npz'), readFileSync(fixture('plain.npz')));
    using cut = NpzFile.open(join(folder, 'cut.npz'));
    writeFileSync(join(folder, 'cut.npz'), '');
    await expect(cut.load('a')).rejects.toMatchObject({ code: 'FILE_TRUNCATED' });
  });
});
