/** Checkpoints that cost more than they are, and what is in checkpoints beside tensors. */
import { readFileSync } from 'node:fs';
import { crc32, deflateRawSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { CandleError, scope } from '../src';
import { PthFile } from '../src/files';
import { thrown } from './hostile';
import { checkpoint, legacy, type Pickled, pickle, storage, tensor, zip } from './pickle-writer';

const raw = (...parts: (string | Buffer)[]) =>
  Buffer.concat([Buffer.from('\x80\x02', 'latin1'), ...parts.map((part) => Buffer.from(part as string, 'latin1'))]);
const open = (bytes: Uint8Array) => PthFile.open(zip({ 'a/data.pkl': bytes, 'a/data/0': Buffer.alloc(16) }));
const dict = (entries: Record<string, Pickled>): Pickled => ({ dict: Object.entries(entries) });
const float = (key: string, count: number) => storage('torch.FloatStorage', key, count);
const numbers = (t: { toArraySync(): ArrayLike<number | bigint> }) => Array.from(t.toArraySync(), Number);

/** An archive of one deflated entry, or of a stored one beside it. */
function deflated(name: string, contents: Buffer): Buffer {
  const packed = deflateRawSync(contents, { level: 9 });
  const archive = zip({ [name]: packed });
  const central = archive.indexOf('PK\x01\x02');
  archive.writeUInt16LE(8, central + 10);
  archive.writeUInt32LE(crc32(contents), central + 16);
  archive.writeUInt32LE(contents.length, central + 24);
  return archive;
}

/** Runs `body` and asserts that it took little time, and little memory that cannot be collected at once. */
function cheap<T>(body: () => T, ms = 3000, megabytes = 300): T {
  const before = process.memoryUsage().rss;
  const start = performance.now();
  const result = body();
  expect(performance.now() - start).toBeLessThan(ms);
  expect((process.memoryUsage().rss - before) / 2 ** 20).toBeLessThan(megabytes);
  return result;
}

/** Object 39 of the memo: 40 lists, each with two of the one before. */
const nested = Array.from({ length: 40 }, (_, i) => {
  const items = i === 0 ? '' : `(h${String.fromCharCode(i - 1)}h${String.fromCharCode(i - 1)}e`;
  return `]${items}q${String.fromCharCode(i)}0`;
}).join('');

describe('a budget in proportion to the file', () => {
  test('nested lists where text is due', () => {
    for (const call of ['torch\ndevice', '_codecs\nencode', 'torch\nSize', 'builtins\ncomplex']) {
      const bytes = raw(nested, `c${call}\nh\x27\x85R.`);
      const error = cheap(() => thrown(() => open(bytes)), 1000, 50);
      expect(error).toMatchObject({ code: 'FILE_INVALID' });
    }
    // By themselves they are a value like any other, and not one that is spelled out.
    using file = cheap(() => open(raw('}X\x01\0\0\0x', nested.slice(0, -1), 's.')));
    expect(file.entries()).toEqual([{ name: 'x', kind: 'list' }]);
    expect(thrown(() => file.value('x')).code).toBe('FILE_NO_SUCH_KEY');
    expect(file.entries('x.0.1.0')).toHaveLength(2);
  });

  test.each([
    ['None', Buffer.alloc(120_000_000, 'N')],
    ['marks', Buffer.alloc(120_000_000, '(')],
    ['numbers in a list', Buffer.concat([Buffer.from(']('), Buffer.alloc(100_000_000, 'K')])],
    ['memo entries', Buffer.concat([Buffer.from('N'), Buffer.alloc(100_000_000, 'q\x01r\x02\0\0\0')])],
    ['growing memo', Buffer.concat([Buffer.from('N'), Buffer.alloc(100_000_000, 0x94)])],
    ['lists', Buffer.alloc(50_000_000, ']')],
    ['dicts', Buffer.alloc(50_000_000, '}')],
    ['zeros of text', Buffer.concat([Buffer.from('X\0\0\0\x06'), Buffer.alloc(100_000_000)])],
  ])('deflated %s', (_, body) => {
    const archive = deflated('a/data.pkl', Buffer.concat([Buffer.from('\x80\x02', 'latin1'), body, Buffer.from('.')]));
    const error = cheap(() => thrown(() => PthFile.open(archive)));
    expect(error).toMatchObject({ code: expect.stringMatching(/FILE_(INVALID|TRUNCATED)/) });
  });

  test('copies of dicts and sets', () => {
    const items = Buffer.concat(Array.from({ length: 1000 }, (_, i) => Buffer.from([0x4d, i & 255, i >> 8, 0x4e])));
    const pairs = raw('}q\0(', items, 'u0');
    for (const name of ['collections\nOrderedDict', 'collections\nCounter']) {
      const copies = `c${name}\nq\x010${'h\x01h\0\x85R'.repeat(5000)}.`;
      expect(cheap(() => thrown(() => open(Buffer.concat([pairs, Buffer.from(copies, 'latin1')])))).message).toMatch(
        /more memory than/,
      );
    }
    const set = raw('](', items, 'eq\x000cbuiltins\nset\nq\x010', 'h\x01h\0\x85R'.repeat(5000), '.');
    expect(cheap(() => thrown(() => open(set))).message).toMatch(/more memory than/);
    // Longer and longer lists: each is appended to the next.
    const grown = raw(']q\0(', 'N'.repeat(50000), 'e', '(h\0h\0h\0h\0e'.repeat(3), '.');
    expect(cheap(() => open(grown)).names).toEqual([]);
  });

  test('whole numbers of the longest kind', () => {
    const long = Buffer.concat([Buffer.from([0x8b, 0, 4, 0, 0]), Buffer.alloc(1024, 0x7f), Buffer.from('0')]);
    const many = raw(...Array.from({ length: 5000 }, () => long), 'N.');
    expect(cheap(() => open(many)).names).toEqual([]);
  });

  test('old files have one budget for all their pickles', () => {
    const bytes = legacy({ raw: Buffer.alloc(3_000_000, '}') }, []);
    expect(cheap(() => thrown(() => PthFile.open(bytes)))).toMatchObject({ code: 'FILE_INVALID' });
  });

  test('checkpoints of twenty thousand tensors are read, also when they were deflated', () => {
    const entries = Array.from({ length: 20_000 }, (_, i): [string, Pickled] => [
      `model.layers.${i}.self_attn.q_proj.weight`,
      tensor(float('0', 4), [2, 2]),
    ]);
    const bytes = pickle({ dict: entries });
    expect(open(bytes).names).toHaveLength(20_000);
    const archive = deflated('a/data.pkl', pickle({ dict: entries.map(([name]) => [name, 1.5]) }));
    expect(PthFile.open(archive).value('model.layers.19999.self_attn.q_proj.weight')).toBe(1.5);
  });
});

describe('what is beside tensors', () => {
  const step = tensor(float('0', 1), [], []);
  const optimizer: Pickled = {
    dict: [
      [
        'state',
        {
          dict: [
            [0, dict({ step, exp_avg: tensor(float('1', 2), [2]) })],
            [1, dict({ step: 7, exp_avg: tensor(float('1', 2), [2]) })],
          ],
        },
      ],
      [
        'param_groups',
        {
          raw: Buffer.concat([
            Buffer.from(']'),
            pickle(dict({ lr: 0.5, betas: [0.9, 0.999] })).subarray(2, -1),
            Buffer.from('a'),
          ]),
        },
      ],
    ],
  };
  const sparse: Pickled = {
    call: 'torch._utils._rebuild_sparse_tensor',
    args: [
      { call: 'torch.serialization._get_layout', args: ['torch.sparse_coo'] },
      [tensor(float('1', 2), [1, 2]), step, [4]],
    ],
  };
  const root = dict({
    epoch: 3,
    none: null,
    big: 2n ** 70n,
    note: 'text',
    dtype: { global: 'torch.float16' },
    'a.b': dict({ 'c.d': 5 }),
    opt: optimizer,
    sparse,
    args: {
      raw: Buffer.concat([
        pickle({ call: 'argparse.Namespace', args: [] }).subarray(2, -1),
        pickle(dict({ x: 1 })).subarray(2, -1),
        Buffer.from('b'),
      ]),
    },
    rng: { call: 'numpy.core.multiarray._reconstruct', args: [{ global: 'numpy.ndarray' }, [0], 'b'] },
    mine: { call: '__main__.TrainConfig', args: [0.5] },
    quantized: {
      call: 'torch._utils._rebuild_qtensor',
      args: [
        storage('torch.QInt8Storage', '2', 2),
        0,
        [2],
        [1],
        [{ global: 'torch.per_tensor_affine' }, 1, 0],
        false,
        null,
      ],
    },
    w: tensor(float('1', 2), [2]),
  });
  const bytes = checkpoint(root, { 0: Float32Array.of(9), 1: Float32Array.of(1, 2), 2: new Uint8Array(2) });

  test('plain values by their names', () => {
    using file = PthFile.open(bytes);
    const values = ['epoch', 'none', 'big', 'note', 'dtype', 'a.b.c.d', 'opt.state.1.step', 'opt.param_groups.0.betas'];
    expect(values.map((name) => file.value(name))).toEqual([
      3,
      null,
      2n ** 70n,
      'text',
      'torch.float16',
      5,
      7,
      [0.9, 0.999],
    ]);
    expect(file.entries('opt.state')).toEqual([
      { name: '0', kind: 'dict' },
      { name: '1', kind: 'dict' },
    ]);
    expect(file.entries().map(({ name, kind }) => `${name} ${kind}`)).toEqual([
      ...[
        'epoch value',
        'none value',
        'big value',
        'note value',
        'dtype value',
        'a.b dict',
        'opt dict',
        'sparse object',
      ],
      ...['args object', 'rng object', 'mine object', 'quantized object', 'w tensor'],
    ]);
    for (const name of [
      'nothing',
      'opt.state.2',
      'opt',
      'w',
      'sparse',
      'epoch.x',
      '__proto__',
      'opt.param_groups.length',
    ])
      expect(thrown(() => file.value(name)).code, name).toBe('FILE_NO_SUCH_KEY');
  });

  test('whole numbers are keys', () => {
    for (const key of ['opt.state.0', ['opt', 'state', 0], ['opt', 'state.0']]) {
      using file = PthFile.open(bytes, { key });
      expect([file.names, numbers(file.loadSync('exp_avg')), numbers(file.loadSync('step'))]).toEqual([
        ['step', 'exp_avg'],
        [1, 2],
        [9],
      ]);
    }
    using top = PthFile.open(bytes);
    expect([top.has('opt.state.0.exp_avg'), top.has('opt.state.2.exp_avg'), top.has('opt')]).toEqual([
      true,
      false,
      false,
    ]);
    expect(numbers(top.loadSync('opt.state.1.exp_avg'))).toEqual([1, 2]);
    using list = PthFile.open(
      checkpoint(
        {
          dict: [
            [3, tensor(float('1', 2), [2])],
            [-1, null],
          ],
        },
        { 1: Float32Array.of(1, 2) },
      ),
    );
    expect([list.names, list.value('-1')]).toEqual([['3'], null]);
  });

  test('objects that are not read leave the rest readable', async () => {
    using file = PthFile.open(bytes);
    expect(file.names).toEqual(['w']);
    expect([...(await file.loadAll()).keys()]).toEqual(['w']);
    expect(thrown(() => file.loadSync('sparse'))).toMatchObject({
      code: 'UNSUPPORTED',
      message: expect.stringContaining('_rebuild_sparse_tensor'),
    });
    expect(thrown(() => file.loadSync('quantized')).code).toBe('UNSUPPORTED');
    expect(thrown(() => file.value('args')).message).toMatch(/argparse\.Namespace/);
  });

  test('two storages of one key with different sizes are refused', () => {
    const two = (a: Pickled, b: Pickled) => dict({ a: tensor(a, [1]), b: tensor(b, [1]) });
    const data = { 0: new Uint8Array(64) };
    for (const other of [float('0', 5), storage('torch.DoubleStorage', '0', 4), storage('torch.IntStorage', '0', 4)]) {
      expect(thrown(() => PthFile.open(checkpoint(two(float('0', 4), other), data))).message).toMatch(
        /in one place and/,
      );
      expect(
        thrown(() => PthFile.open(legacy(two(float('0', 4), other), [['0', 4, new Uint8Array(16)]]))).message,
      ).toMatch(/in one place and/);
    }
    expect(PthFile.open(checkpoint(two(float('0', 4), float('0', 4)), data)).names).toEqual(['a', 'b']);
  });

  test('a shape that changes after its tensor was checked', () => {
    // The shape is a list of one, object 5; after the tensor was made it gets a size that does not fit.
    const shape: Pickled = { raw: Buffer.from('](K\x01eq\x05', 'latin1') };
    const hooks: Pickled = { call: 'collections.OrderedDict', args: [] };
    const made: Pickled = {
      call: 'torch._utils._rebuild_tensor_v2',
      args: [float('0', 4), 0, shape, [1], false, hooks],
    };
    const grown: Pickled = { raw: Buffer.concat([Buffer.from('h\x05(J\xff\xff\xff\x7fe', 'latin1')]) };
    using file = PthFile.open(
      checkpoint(
        {
          dict: [
            ['x', made],
            ['y', grown],
          ],
        },
        { 0: Float32Array.of(1, 2, 3, 4) },
      ),
    );
    expect(file.info('x').shape).toEqual([1]);
  });

  test('cut at every byte, and with any byte changed', () => {
    const files: [Uint8Array, object][] = [
      [bytes, {}],
      [readFileSync(new URL('./fixtures/pth/legacy.pt', import.meta.url)), {}],
    ];
    const read = (part: Uint8Array, options: object) => {
      try {
        using file = PthFile.open(part, options);
        const visit = (name: string, depth: number) => {
          for (const entry of file.entries(name)) {
            const full = name === '' ? entry.name : `${name}.${entry.name}`;
            if (entry.kind === 'value') file.value(full);
            else if (entry.kind === 'tensor') file.info(full);
            else if (depth > 0) visit(full, depth - 1);
          }
        };
        visit('', 3);
        scope(() => {
          for (const name of file.names) if (file.info(name).byteLength < 1e6) file.loadSync(name);
        });
      } catch (error) {
        if (!(error instanceof CandleError)) throw error;
      }
    };
    const start = performance.now();
    for (const [good, options] of files) {
      for (let end = 0; end < good.length; end++) read(good.subarray(0, end), options);
      for (let at = 0; at < good.length; at++) {
        const changed = Uint8Array.from(good);
        changed[at] ^= 1 << (at % 8);
        read(changed, options);
        changed[at] = at % 3 === 0 ? 0xff : 0;
        read(changed, options);
      }
    }
    expect(performance.now() - start).toBeLessThan(60_000);
  });
});
