/** Devices by name, the provider registry, and errors with their codes and messages. */
import { describe, expect, test } from 'vitest';
import {
  type BackendProvider,
  CandleError,
  Device,
  JsDevice,
  registerBackend,
  registeredBackends,
  Tensor,
} from '../src';

const thrown = (run: () => unknown): CandleError => {
  try {
    run();
  } catch (error) {
    if (error instanceof CandleError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
};

describe('devices without a backend package', () => {
  test('one Device a location', () => {
    expect(Device.js()).toBe(Device.js());
    expect(Device.parse('cpu')).toBe(Device.cpu());
    expect(Device.js().equals(Device.cpu())).toBe(false);
    expect([String(Device.js()), String(Device.cpu())]).toEqual(['js', 'cpu']);
    expect(Device.cpu().description).toContain('TypeScript');
  });

  test('rocm and cuda name the package to import', () => {
    for (const ask of [() => Device.rocm(), () => Device.cuda(1), () => Device.parse('rocm:0')]) {
      const error = thrown(ask);
      expect(error).toMatchObject({ name: 'DeviceError', code: 'DEVICE_UNAVAILABLE' });
      expect(error.message).toContain("import '@x/rocm-backend'");
    }
  });

  test.each(['gpu', 'rocm:', 'rocm:-1', 'rocm:x', 'cpu:1', '', 'ROCM', 'cuda:99999'])('%j is no device', (name) => {
    const error = thrown(() => Device.parse(name));
    expect(error.code).toBe('DEVICE_UNKNOWN');
    expect(error.message).toMatch(/js, cpu, rocm:N, cuda:N/);
  });

  test('auto falls to cpu and tells why', async () => {
    expect(await Device.auto()).toBe(Device.cpu());
    expect(Device.skipped().map(({ kind }) => kind)).toEqual(['rocm', 'cuda']);
    expect(Device.skipped()[0].reason).toContain('@x/rocm-backend');
  });

  test('list has an entry for every kind', () => {
    const list = Device.list();
    expect(list.map(({ name, available }) => [name, available])).toEqual([
      ['js', true],
      ['cpu', true],
      ['rocm:0', false],
      ['cuda:0', false],
    ]);
    expect(list[2].reason).toContain('@x/rocm-backend');
  });

  test('memory, synchronize, emptyCache, seeds', async () => {
    const device = Device.js();
    const before = device.memory().liveBytes;
    const t = Tensor.zeros([256], 'f64', device);
    expect(device.memory().liveBytes - before).toBe(2048);
    t.dispose();
    expect(device.memory().liveBytes).toBe(before);
    await device.synchronize();
    device.synchronizeSync();
    device.emptyCache();
    expect(thrown(() => device.setSeed(-1)).message).toMatch(/whole number/);
    device.setSeed(9);
    expect(device.getCurrentSeed()).toBe(9);
  });
});

describe('registered backends', () => {
  let opens = 0;
  const fake: BackendProvider = {
    kind: 'cuda',
    list: () => ({
      devices: [
        { ordinal: 0, description: 'fake' },
        { ordinal: 1, description: 'fake too' },
      ],
    }),
    open: (ordinal) => {
      opens++;
      return new JsDevice({ kind: 'cuda', ordinal });
    },
  };

  test('are opened on first use, once', async () => {
    registerBackend(fake);
    expect(registeredBackends()).toContain('cuda');
    const device = Device.cuda(1);
    expect(opens).toBe(0);
    const t = Tensor.ones([2], 'f32', device);
    expect(String(t)).toBe('[1., 1.]\nTensor[[2], f32, cuda:1]');
    expect(t.describe()).toBe('Tensor[[2], f32, cuda:1]');
    expect(Device.parse('cuda:1').backend).toBe(device.backend);
    expect(opens).toBe(1);
    expect(await Device.auto()).toBe(Device.cuda(0));
    expect(thrown(() => Device.cuda(2))).toMatchObject({ code: 'DEVICE_UNAVAILABLE' });
    expect(thrown(() => Device.cuda(2)).message).toContain('cuda:0, cuda:1');
    const host = Tensor.ones([2]);
    const mismatch = thrown(() => t.add(host));
    expect(mismatch.code).toBe('DEVICE_MISMATCH');
    expect(mismatch.message).toMatch(/cuda:1.*cpu.*toDevice/);
    expect((await host.toDevice(device)).add(t).toVecSync()).toEqual([2, 2]);
    expect((await t.toDevice(Device.cpu())).add(host).toVecSync()).toEqual([2, 2]);
  });

  test('a disposed device refuses work, and opens anew', () => {
    const device = Device.cuda(0);
    const t = Tensor.ones([2], 'f32', device);
    device.dispose();
    device.dispose();
    expect(thrown(() => t.exp())).toMatchObject({ code: 'DISPOSED' });
    expect(thrown(() => device.backend).message).toContain("Device.parse('cuda:0')");
    t.dispose();
    const again = Device.cuda(0);
    expect(again).not.toBe(device);
    expect(Tensor.ones([1], 'f32', again).toScalarSync()).toBe(1);
  });

  test('a device that fails to open is skipped, and asking for it says why', async () => {
    const open = () => {
      throw new Error('driver version 12 is too old');
    };
    registerBackend({ kind: 'rocm', list: () => ({ devices: [{ ordinal: 0, description: 'old' }] }), open });
    expect((await Device.auto()).kind).toBe('cuda');
    expect(Device.skipped()[0].reason).toMatch(/rocm:0 does not open: driver version 12 is too old/);
    const error = thrown(() => Tensor.zeros([1], 'f32', Device.rocm()));
    expect(error.code).toBe('DEVICE_UNAVAILABLE');
    expect((error.cause as Error).message).toMatch(/too old/);
    Device.rocm().dispose();
  });

  test('a provider without devices gives its reason', async () => {
    registerBackend({
      kind: 'rocm',
      list: () => ({ devices: [], reason: 'libamdhip64 was not found' }),
      open: fake.open,
    });
    expect(thrown(() => Device.rocm()).message).toContain('libamdhip64 was not found');
    await Device.auto();
    expect(Device.skipped()).toEqual([{ kind: 'rocm', reason: expect.stringContaining('libamdhip64') }]);
    expect(Device.list().find(({ name }) => name === 'rocm:0')?.reason).toBe('libamdhip64 was not found');
    expect(thrown(() => registerBackend({ ...fake, kind: 'tpu' as never })).code).toBe('DEVICE_UNKNOWN');
  });
});

describe('errors name numbers and a remedy', () => {
  const z = (...shape: number[]) => Tensor.zeros(shape);
  const cases: [string, () => unknown, string, RegExp][] = [
    ['matmul', () => z(2, 3).matmul(z(4, 5)), 'SHAPE_MISMATCH', /matmul: shapes \[2, 3\] and \[4, 5\].*must be equal/],
    ['matmul batch', () => z(2, 2, 3).matmul(z(3, 3, 2)), 'SHAPE_MISMATCH', /\[2, 2, 3\] and \[3, 3, 2\]/],
    ['matmul of vectors', () => z(3).matmul(z(3)), 'SHAPE_MISMATCH', /\[3\] and \[3\]/],
    ['add', () => z(2, 3).add(z(2)), 'SHAPE_MISMATCH', /\[2, 3\] and \[2\].*3 against 2/],
    ['broadcast', () => z(2, 3).broadcastMul(z(4)), 'SHAPE_MISMATCH', /mul.*3 against 4/],
    ['dtype', () => z(2).add(z(2).toDtype('f16')), 'DTYPE_MISMATCH', /f32.*f16.*toDtype/],
    ['reshape', () => z(2, 3).reshape([4, 2]), 'SHAPE_MISMATCH', /6 elements.*8/],
    ['reshape hole', () => z(2, 3).reshape([-1, 4]), 'SHAPE_MISMATCH', /do not divide/],
    ['reshape holes', () => z(2, 3).reshape([-1, -1]), 'INVALID_SHAPE', /more than one -1/],
    ['dim', () => z(2, 3).sum(2), 'DIM_OUT_OF_RANGE', /dimension 2.*\[2, 3\].*-2\.\.1/],
    ['dim twice', () => z(2, 3).sum([0, -2]), 'INVALID_SHAPE', /twice/],
    ['index', () => z(2, 3).get(2), 'INDEX_OUT_OF_RANGE', /index 2.*-2\.\.1/],
    ['too many positions', () => z(2).i(0, 0), 'DIM_OUT_OF_RANGE', /at most 1/],
    ['shape', () => Tensor.zeros([2, -1]), 'INVALID_SHAPE', /size -1/],
    ['huge shape', () => Tensor.zeros([2 ** 30, 2 ** 30]), 'INVALID_SHAPE', /2\^53/],
    ['too large', () => Tensor.zeros([2 ** 40]), 'OUT_OF_MEMORY', /4398046511104 bytes/],
    ['too large a result', () => z(2 ** 20, 1).broadcastAdd(z(2 ** 20)), 'OUT_OF_MEMORY', /1099511627776 elements/],
    ['too many random numbers', () => Tensor.rand(0, 1, [2 ** 40]), 'OUT_OF_MEMORY', /bytes/],
    ['ragged', () => Tensor.from([[1, 2], [3]]), 'INVALID_SHAPE', /ragged/],
    ['count', () => Tensor.from([1, 2, 3], { shape: [2] }), 'SHAPE_MISMATCH', /needs 2 elements.*3/],
    ['range', () => Tensor.from([300], { dtype: 'u8' }), 'DTYPE_MISMATCH', /300 is not a value of u8/],
    ['fraction', () => Tensor.from([1.5], { dtype: 'i64' }), 'DTYPE_MISMATCH', /1.5/],
    ['no dtype', () => Tensor.from(new Int8Array(2)), 'DTYPE_MISMATCH', /Int8Array/],
    [
      'ids',
      () => z(3, 2).indexSelect(Tensor.from([0, 3], { dtype: 'u32' }), 0),
      'INDEX_OUT_OF_RANGE',
      /id 3 at position 1.*0\.\.2/,
    ],
    ['negative ids', () => z(3).gather(Tensor.from([-1n]), 0), 'INDEX_OUT_OF_RANGE', /id -1/],
    ['float ids', () => z(3).indexSelect(z(1), 0), 'DTYPE_MISMATCH', /f32.*u32/],
    ['empty max', () => z(0, 2).max(0), 'INVALID_SHAPE', /empty/],
    ['int mean', () => Tensor.ones([2], 'i32').mean(0), 'DTYPE_MISMATCH', /i32.*toDtype/],
    ['int exp', () => Tensor.ones([2], 'i32').exp(), 'UNSUPPORTED', /exp.*i32/],
    ['int scalar', () => Tensor.ones([2], 'i32').mul(0.5), 'DTYPE_MISMATCH', /0.5 is not a value of i32/],
    ['scalar out of range', () => Tensor.ones([2], 'u8').lt(300), 'DTYPE_MISMATCH', /300 is not a value of u8/],
    ['fill out of range', () => Tensor.full(-1, [2], 'u32'), 'DTYPE_MISMATCH', /-1 is not a value of u32/],
    ['rand', () => Tensor.rand(0, 1, [2], 'u8'), 'DTYPE_MISMATCH', /u8/],
    ['toScalar', () => z(2).toScalarSync(), 'SHAPE_MISMATCH', /2 elements, not one/],
    ['whereCond', () => z(2).whereCond(z(2), z(2)), 'DTYPE_MISMATCH', /condition is f32/],
    ['cat', () => Tensor.cat([z(2, 2), z(2, 3)], 0), 'SHAPE_MISMATCH', /\[2, 2\] and \[2, 3\]/],
    ['cat of nothing', () => Tensor.cat([], 0), 'INVALID_SHAPE', /at least one/],
    ['sliceSet', () => z(2, 2).sliceSet(z(2, 2), 0, 1), 'INDEX_OUT_OF_RANGE', /\[1, 3\)/],
    [
      'sliceSet of itself',
      () => {
        const t = z(4);
        t.sliceSet(t.narrow(0, 0, 2), 0, 1);
      },
      'INVALID_SHAPE',
      /share their memory/,
    ],
    ['sliceSet view', () => z(2, 3).t().sliceSet(z(1, 2), 0, 0), 'INVALID_SHAPE', /contiguous/],
    ['rmsNorm', () => z(2, 3).rmsNorm(z(4), 1e-5), 'SHAPE_MISMATCH', /must be \[3\]/],
    ['rope', () => z(1, 1, 2, 4).rope(z(3, 2), z(3, 2)), 'SHAPE_MISMATCH', /\[2, 2\]/],
    ['arange', () => Tensor.arangeStep(0, 1, 0), 'INVALID_ARGUMENT', /step/],
  ];

  test.each(cases)('%s', (_, run, code, message) => {
    const error = thrown(run);
    expect(error.code).toBe(code);
    expect(error.message).toMatch(message);
    expect(error.message).toMatch(/\.$/);
  });
});

// Last: from here on `cpu` is the fallback.
test('cpu without a device of its backend is plain TypeScript, says why, and warns once', async () => {
  const warnings: (Error & { code?: string })[] = [];
  const listen = (warning: Error) => warnings.push(warning);
  process.on('warning', listen);
  try {
    const reason = 'the addon is missing. Install it';
    const open = () => {
      throw new Error('never opened');
    };
    registerBackend({ kind: 'cpu', list: () => ({ devices: [], reason }), open });
    for (const kind of ['rocm', 'cuda'] as const)
      registerBackend({ kind, list: () => ({ devices: [], reason }), open });
    for (const kind of ['cpu', 'rocm', 'cuda'] as const) for (const n of [0, 1]) tryDispose(kind, n);
    const listed = Device.list().find(({ name }) => name === 'cpu');
    expect(listed).toMatchObject({ available: true, description: `plain TypeScript on the CPU, because ${reason}` });
    await new Promise((resolve) => setImmediate(resolve));
    expect(warnings).toEqual([]);

    expect(Tensor.ones([2]).add(1).toVecSync()).toEqual([2, 2]);
    expect(await Device.auto()).toBe(Device.cpu());
    expect(Device.cpu().description).toBe(`plain TypeScript on the CPU, because ${reason}`);
    expect(String(Device.cpu())).toBe('cpu');
    Device.cpu().dispose();
    expect(Tensor.ones([1], 'f32', Device.parse('cpu')).toVecSync()).toEqual([1]);
    expect(thrown(() => Device.cpu().compile('')).message).toContain(reason);
    expect(thrown(() => Device.rocm()).message).toBe(`rocm:0 is not available: ${reason}; use Device.cpu().`);
    await new Promise((resolve) => setImmediate(resolve));
    expect(warnings.map(({ name, code }) => [name, code])).toEqual([['CandleWarning', 'CPU_WITHOUT_KERNELS']]);
    expect(warnings[0].message).toContain(reason);
  } finally {
    process.off('warning', listen);
  }
});

/** Closes what earlier tests opened under a name, if it is open. */
function tryDispose(kind: 'cpu' | 'rocm' | 'cuda', ordinal: number): void {
  try {
    Device.at(kind, ordinal).dispose();
  } catch {
    // There is no such device any more.
  }
}
