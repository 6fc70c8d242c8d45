/** Checkpoints: those that PyTorch wrote, forms that it writes for other tensors, and pickles that want more than tensors. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import '../../rocm-backend/src';
import { type CandleError, Device, memoryStats, type Tensor } from '../src';
import { PthFile } from '../src/files';
import { checkpoint, legacy, type Pickled, pickle, storage, tensor, zip } from './pickle-writer';

const fixture = (name: string) => fileURLToPath(new URL(`./fixtures/pth/${name}`, import.meta.url));
const expected: Record<string, { shape: number[]; dtype: string; values: number[] }> = JSON.parse(
  readFileSync(fixture('expected.json'), 'utf8'),
)['state_dict.pt'];
const numbers = (t: Tensor) => Array.from(t.toArraySync(), Number);
const thrown = (body: () => unknown): CandleError => {
  try {
    body();
  } catch (error) {
    return error as CandleError;
  }
  throw new Error('nothing was thrown');
};
const dict = (entries: Record<string, Pickled>): Pickled => ({ dict: Object.entries(entries) });
const float = (key: string, count: number) => storage('torch.FloatStorage', key, count);
const counting = (count: number) => Float32Array.from({ length: count }, (_, i) => i);

describe.each(['js', 'cpu'])('PyTorch’s files on %s', (name) => {
  const device = () => Device.parse(name);
  const files: [string, string, object][] = [
    ['pth_tests::test_pth: the zip form', 'state_dict.pt', {}],
    ['pth_tests::test_pth_with_key: a dict inside', 'nested.pt', { key: 'model' }],
    ['pth_tests::test_pth: the form before 1.6', 'legacy.pt', {}],
  ];
  test.each(files)('%s', async (_, file, options) => {
    using pth = PthFile.open(fixture(file), options);
    expect(pth.names).toEqual(Object.keys(expected));
    const all = await pth.loadAll(device());
    const dtypes: Record<string, string> = { h: 'f16', b: 'bf16', i: 'i64', u8: 'u8', d: 'f64' };
    for (const [key, t] of all) {
      expect(t.shape, key).toEqual(expected[key].shape);
      expect(numbers(t), key).toEqual(expected[key].values);
      expect([t.dtype, t.isContiguous(), String(t.device)]).toEqual([dtypes[key] ?? 'f32', true, name]);
      const sync = pth.loadSync(key, device(), { dtype: 'f64' });
      expect([sync.dtype, numbers(sync)]).toEqual(['f64', expected[key].values]);
    }
    expect(pth.info('t')).toMatchObject({ type: 'f32', shape: [6, 4], strides: [1, 6], byteLength: 96 });
  });

  test('pth_tests::test_pth_fortran_contiguous: any strides come row-major', async () => {
    // A 2x3x4 tensor of 1 to 24 with the first dimension fastest, as torch.from_numpy(np.asfortranarray(...)) saves it.
    const elements = new BigInt64Array(24);
    for (let i = 0; i < 24; i++) elements[(i / 12) | 0 | (2 * (((i / 4) | 0) % 3) + 6 * (i % 4))] = BigInt(i + 1);
    const long = storage('torch.LongStorage', '0', 24);
    const root = dict({
      tensor_fortran: tensor(long, [2, 3, 4], [1, 2, 6]),
      strided: tensor(long, [3, 2], [4, 3], 5),
      expanded: tensor(long, [1000, 2], [0, 1], 22),
      huge: tensor(long, [2 ** 40], [0], 23),
    });
    using pth = PthFile.open(checkpoint(root, { 0: elements }));
    const t = await pth.load('tensor_fortran', device());
    expect([t.dims3(), t.isContiguous(), t.dtype]).toEqual([[2, 3, 4], true, 'i64']);
    expect(numbers(t)).toEqual(Array.from({ length: 24 }, (_, i) => i + 1));
    const at = (i: number) => Number(elements[i]);
    expect(numbers(pth.loadSync('strided', device()))).toEqual([5, 8, 9, 12, 13, 16].map(at));
    const expanded = pth.loadSync('expanded', device());
    expect([expanded.shape, expanded.stride, numbers(expanded.narrow(0, 998, 2))]).toEqual([
      [1000, 2],
      [0, 1],
      [22, 23, 22, 23].map(at),
    ]);
    // As large as it says, and as small as it is in the file.
    const huge = await pth.load('huge', device());
    expect([huge.shape, huge.i(12345).toScalarSync<bigint>()]).toEqual([[2 ** 40], elements[23]]);
  });
});

describe('other forms', () => {
  test('evil.pt is refused, and nothing is run', () => {
    const error = thrown(() => PthFile.open(fixture('evil.pt')));
    expect(error).toMatchObject({ name: 'FileFormatError', code: 'PICKLE_REFUSED' });
    expect(error.message).toMatch(/asks for __builtin__\.print.*nothing was run/);
    expect(thrown(() => PthFile.open(readFileSync(fixture('evil.pt')))).code).toBe('PICKLE_REFUSED');
  });

  test('every type of storage, and of tensors over bytes', () => {
    const bytes = Uint8Array.of(0xfe, 0xff, 1, 0, 0x3c, 0x80, 0, 0xc0);
    const untyped = (dtype: string): Pickled => ({
      call: 'torch._utils._rebuild_tensor_v3',
      args: [storage('torch.storage.UntypedStorage', '0', 8), 0, [2], [1], false, null, { global: `torch.${dtype}` }],
    });
    const typed = (type: string, count: number) => tensor(storage(`torch.${type}`, '0', count), [2]);
    const cases: [string, Pickled, string, number[]][] = [
      ['i8', typed('CharStorage', 8), 'i16', [-2, -1]],
      ['bool', typed('BoolStorage', 8), 'u8', [1, 1]],
      ['u8', typed('ByteStorage', 8), 'u8', [254, 255]],
      ['i16', typed('ShortStorage', 4), 'i16', [-2, 1]],
      ['i32', typed('IntStorage', 2), 'i32', [0x1fffe, 0xc000803c - 2 ** 32]],
      ['u16', untyped('uint16'), 'u32', [65534, 1]],
      ['u32', untyped('uint32'), 'u32', [0x1fffe, 0xc000803c]],
      ['f8e4m3', untyped('float8_e4m3fn'), 'f8e4m3', [-448, Number.NaN]],
      ['f8e5m2', untyped('float8_e5m2'), 'f16', [Number.NaN, Number.NaN]],
    ];
    for (const [type, value, dtype, values] of cases) {
      using pth = PthFile.open(checkpoint(dict({ x: value }), { 0: bytes }));
      expect(pth.info('x')).toMatchObject({ type, dtype });
      const t = pth.loadSync('x');
      expect([t.dtype, numbers(t)], type).toEqual([dtype, values]);
    }
    using complex = PthFile.open(
      checkpoint(dict({ x: tensor(storage('torch.ComplexFloatStorage', '0', 1), [1]) }), { 0: bytes }),
    );
    expect(complex.info('x')).toMatchObject({ type: 'torch.ComplexFloatStorage', dtype: undefined });
    expect(thrown(() => complex.loadSync('x'))).toMatchObject({ code: 'UNSUPPORTED' });
  });

  test('parameters, subclasses, attributes, values beside tensors; a tensor alone, a list', () => {
    const t = tensor(float('0', 4), [2, 2]);
    const none: Pickled = { call: 'collections.OrderedDict', args: [] };
    const parameter: Pickled = { call: 'torch._utils._rebuild_parameter', args: [t, true, none] };
    const subclass: Pickled = {
      call: 'torch._tensor._rebuild_from_type_v2',
      args: [
        { global: 'torch._utils._rebuild_tensor_v2' },
        { global: 'torch.nn.parameter.Parameter' },
        [float('0', 4), 0, [4], [1], false, none],
        null,
      ],
    };
    // The state dict of a module is an OrderedDict with an attribute _metadata, which is no entry.
    const metadata: Pickled = { dict: [['_metadata', none]] };
    const module: Pickled = {
      raw: Buffer.concat([
        pickle({
          call: 'collections.OrderedDict',
          args: [
            [
              ['w', parameter],
              ['sub', subclass],
            ],
          ],
        }).subarray(2, -1),
        pickle(metadata).subarray(2, -1),
        Buffer.from('b'),
      ]),
    };
    const root = dict({
      epoch: 3,
      loss: 2n ** 70n,
      name: 'ä',
      sizes: { call: 'torch.Size', args: [[1, 2]] },
      model: module,
      5: t,
    });
    using top = PthFile.open(checkpoint(root, { 0: counting(4) }));
    expect(top.names).toEqual(['5']);
    expect(thrown(() => top.info('w')).message).toMatch(/open the file with the key model/);
    using model = PthFile.open(checkpoint(root, { 0: counting(4) }), { key: ['model'] });
    expect([model.names, numbers(model.loadSync('sub'))]).toEqual([
      ['w', 'sub'],
      [0, 1, 2, 3],
    ]);
    expect(thrown(() => PthFile.open(checkpoint(root, { 0: counting(4) }), { key: 'weights' }))).toMatchObject({
      code: 'FILE_NO_SUCH_KEY',
      message: expect.stringContaining('epoch, loss'),
    });
    expect(PthFile.open(checkpoint(t, { 0: counting(4) })).names).toEqual(['tensor']);
    expect(PthFile.open(checkpoint([t, 1, t], { 0: counting(4) })).names).toEqual(['0', '2']);
    expect(PthFile.open(checkpoint(7, {})).names).toEqual([]);
  });

  test('big-endian files, parts of storages in old files, shared storages', () => {
    const swapped = Buffer.alloc(8);
    swapped.writeFloatBE(1.5, 0);
    swapped.writeFloatBE(-2, 4);
    using big = PthFile.open(checkpoint(dict({ x: tensor(float('0', 2), [2]) }), { 0: swapped }, 'big'));
    expect(numbers(big.loadSync('x'))).toEqual([1.5, -2]);
    const part = tensor(storage('torch.FloatStorage', '77', 6, ['78', 2, 4]), [2, 2]);
    const whole = tensor(storage('torch.FloatStorage', '77', 6, null), [2], [3], 1);
    using old = PthFile.open(legacy(dict({ part, whole }), [['77', 6, counting(6)]]));
    expect([numbers(old.loadSync('part')), numbers(old.loadSync('whole'))]).toEqual([
      [2, 3, 4, 5],
      [1, 4],
    ]);
  });

  test('instructions of newer protocols', () => {
    const text = (value: string) => Buffer.concat([Buffer.from([0x8c, value.length]), Buffer.from(value)]);
    const code = (...bytes: number[]) => Buffer.from(bytes);
    const tensorBelow = pickle(tensor(float('0', 2), [2])).subarray(2, -1);
    const bytes = Buffer.concat([
      // PROTO 4, FRAME, a dict, MEMOIZE as object 0
      ...[code(0x80, 4, 0x95, 0, 0, 0, 0, 0, 0, 0, 0), Buffer.from('}'), code(0x94)],
      // 'x': OrderedDict through STACK_GLOBAL and NEWOBJ
      ...[
        text('x'),
        text('collections'),
        text('OrderedDict'),
        code(0x93),
        Buffer.from(')'),
        code(0x81),
        Buffer.from('s'),
      ],
      // 'y': a list of 1, 512, 2.5, bytes, a set, a frozen set
      ...[text('y'), Buffer.from(']('), code(0x4b, 1, 0x4d, 0, 2), Buffer.from('G\x40\x04\0\0\0\0\0\0', 'latin1')],
      ...[code(0x43, 1, 9, 0x8f, 0x28, 0x4b, 7, 0x90, 0x28, 0x4b, 8, 0x91), Buffer.from('es')],
      // 'z': a tensor
      ...[text('z'), tensorBelow, Buffer.from('s.')],
    ]);
    using pth = PthFile.open(zip({ 'a/data.pkl': bytes, 'a/data/0': Buffer.from(counting(2).buffer) }));
    expect([pth.names, numbers(pth.loadSync('z'))]).toEqual([['z'], [0, 1]]);
  });
});

describe('pickles that want more than tensors', () => {
  const open = (root: Pickled | Buffer) =>
    PthFile.open(zip({ 'a/data.pkl': Buffer.isBuffer(root) ? root : pickle(root), 'a/data/0': Buffer.alloc(16) }));
  const raw = (text: string) => Buffer.from(text, 'latin1');
  const refused: [string, Pickled | Buffer][] = [
    ['os.system', { call: 'os.system', args: ['touch /tmp/was-here'] }],
    ['posix.system', { call: 'posix.system', args: ['true'] }],
    ['eval', { call: 'builtins.eval', args: ['1 + 1'] }],
    ['exec of Python 2', { call: '__builtin__.exec', args: ['1'] }],
    ['getattr', { call: 'builtins.getattr', args: [{ global: 'torch.Tensor' }, '__class__'] }],
    ['a name that is only mentioned', { global: 'subprocess.Popen' }],
    ['a pickle in a pickle', { call: 'torch.storage._load_from_bytes', args: ['x'] }],
    ['the constructor of our objects', { call: 'constructor.constructor', args: ['return process'] }],
    ['a prototype', { global: 'torch.__proto__' }],
    ['an inherited name', { global: 'torch.toString' }],
    ['STACK_GLOBAL', raw('\x80\x04\x8c\x02os\x8c\x06system\x93.')],
    ['INST', raw('\x80\x02(ios\nsystem\n.')],
    ['OBJ', raw('\x80\x02(cos\nsystem\no.')],
    ['extension codes', raw('\x80\x02\x82\x01.')],
    ['NEWOBJ_EX', raw('\x80\x04)}\x92.')],
    ['persistent ids as text', raw('\x80\x02P0\n.')],
    ['buffers outside of the pickle', raw('\x80\x05\x97.')],
  ];
  test.each(refused)('%s', (_, root) => {
    const error = thrown(() => open(root));
    expect(error).toMatchObject({ name: 'FileFormatError', code: 'PICKLE_REFUSED' });
    expect(error.message).toContain('nothing was run');
  });

  const t = (shape: number[], strides?: number[], offset?: number) =>
    dict({ x: tensor(float('0', 4), shape, strides, offset) });
  const damaged: [string, Pickled | Buffer, string, RegExp][] = [
    ['nothing', Buffer.alloc(0), 'FILE_TRUNCATED', /goes on past the end/],
    ['no end', raw('\x80\x02}'), 'FILE_TRUNCATED', /goes on past the end/],
    ['text of 4 GB', raw('\x80\x02X\xff\xff\xff\xff'), 'FILE_TRUNCATED', /past the end/],
    ['text of 2^60 bytes', raw('\x80\x04\x8d\0\0\0\0\0\0\0\x10'), 'FILE_INVALID', /a length is/],
    ['a number of 2 GB', raw('\x80\x02\x8b\xff\xff\xff\x7f'), 'FILE_INVALID', /2147483647 bytes/],
    ['an endless name', raw(`\x80\x02c${'a'.repeat(5000)}`), 'FILE_INVALID', /longer than 1000/],
    ['an empty stack', raw('\x80\x02.'), 'FILE_INVALID', /stack is empty/],
    ['a tuple of nothing', raw('\x80\x02\x85.'), 'FILE_INVALID', /stack is empty/],
    ['a missing mark', raw('\x80\x02t.'), 'FILE_INVALID', /mark is missing/],
    ['an unknown memo', raw('\x80\x02h\x07.'), 'FILE_INVALID', /object 7/],
    ['protocol 9', raw('\x80\x09N.'), 'FILE_INVALID', /protocol 9/],
    ['items of a number', raw('\x80\x02K\x01K\x02K\x03s.'), 'FILE_INVALID', /no dict/],
    ['a call of a number', raw('\x80\x02K\x01)R.'), 'FILE_INVALID', /no function/],
    ['a call of a class', { call: 'torch.Tensor', args: [] }, 'FILE_INVALID', /no function/],
    ['bad UTF-8', raw('\x80\x02U\x01\xff.'), 'FILE_INVALID', /damaged/],
    [
      'five million dicts',
      Buffer.concat([raw('\x80\x02'), Buffer.alloc(5_000_000, '}')]),
      'FILE_INVALID',
      /more memory than/,
    ],
    ['no storage', { call: 'torch._utils._rebuild_tensor_v2', args: [] }, 'FILE_INVALID', /no storage/],
    ['an unknown persistent id', { persistent: ['module', 1] }, 'FILE_INVALID', /unknown way/],
    ['a missing storage', dict({ x: tensor(float('1', 4), [4]) }), 'FILE_INVALID', /"1" has no bytes/],
    [
      'a storage that is too small',
      dict({ x: tensor(float('0', 5), [4]) }),
      'FILE_INVALID',
      /has 16 bytes and needs 20/,
    ],
    ['a storage outside of the folder', dict({ x: tensor(float('../data.pkl', 1), [1]) }), 'FILE_INVALID', /key/],
    ['a tensor past its storage', t([5]), 'FILE_INVALID', /ends at element 5 of a storage of 4/],
    ['an offset past its storage', t([1], [1], 4), 'FILE_INVALID', /ends at element 5/],
    ['strides past its storage', t([2, 2], [3, 1]), 'FILE_INVALID', /ends at element 5/],
    ['a negative stride', t([2], [-1]), 'FILE_INVALID', /no proper offset/],
    ['a negative size', t([-2]), 'FILE_INVALID', /no proper offset/],
    ['overflowing sizes', t([2 ** 40, 2 ** 40], [0, 0]), 'FILE_INVALID', /of a storage of 4/],
    ['fewer strides than sizes', t([1, 1], [1]), 'FILE_INVALID', /no proper offset/],
  ];
  test.each(damaged)('%s', (_, root, code, message) => {
    const before = memoryStats().liveTensors;
    const error = thrown(() => open(root));
    expect(error.message).toMatch(message);
    expect(error).toMatchObject({ name: 'FileFormatError', code });
    expect(memoryStats().liveTensors).toBeLessThanOrEqual(before);
  });

  test('cyclic and shared objects are no trouble', () => {
    // d = {}; d['self'] = d, and a list that holds itself
    expect(open(raw('\x80\x02}q\0X\x04\0\0\0selfh\0s.')).names).toEqual([]);
    expect(open(raw('\x80\x02]q\0h\0a.')).names).toEqual([]);
  });

  test('what is no checkpoint, and old files that lie', () => {
    expect(thrown(() => PthFile.open(Buffer.from('not a checkpoint')))).toMatchObject({ code: 'FILE_INVALID' });
    expect(thrown(() => PthFile.open(Buffer.alloc(0)))).toMatchObject({ code: 'FILE_INVALID' });
    expect(thrown(() => PthFile.open(zip({ 'a/x': '1' }))).message).toMatch(/0 entries named data\.pkl/);
    expect(thrown(() => PthFile.open(zip({ 'a/data.pkl': pickle(1), 'a/byteorder': 'middle' }))).message).toMatch(
      /"middle"/,
    );
    const old = readFileSync(fixture('legacy.pt'));
    expect(thrown(() => PthFile.open(old.subarray(0, 900)))).toMatchObject({ code: 'FILE_TRUNCATED' });
    expect(thrown(() => PthFile.open(old.subarray(0, 1700)))).toMatchObject({ code: 'FILE_INVALID' });
    const counts = Buffer.from(old);
    counts.writeBigInt64LE(2n ** 40n, 1319);
    expect(thrown(() => PthFile.open(counts)).message).toMatch(/has 1099511627776 in the file/);
    const x = dict({ x: tensor(float('1', 4), [4]) });
    expect(thrown(() => PthFile.open(legacy(x, []))).message).toMatch(/storage "1" is missing/);
    expect(thrown(() => PthFile.open(legacy(x, [['2', 4, counting(4)]]))).message).toMatch(/belongs to no tensor/);
    expect(thrown(() => PthFile.open(legacy({ call: 'os.system', args: [] }, [])))).toMatchObject({
      code: 'PICKLE_REFUSED',
    });
  });

  test('closing', async () => {
    const pth = PthFile.open(fixture('state_dict.pt'));
    const kept = await pth.load('w');
    pth.close();
    pth.close();
    await expect(pth.load('w')).rejects.toMatchObject({ code: 'DISPOSED' });
    expect(numbers(kept)).toEqual(expected.w.values);
    expect(thrown(() => PthFile.open(fixture('nothing.pt')))).toMatchObject({ code: 'FILE_NOT_FOUND' });
  });
});
