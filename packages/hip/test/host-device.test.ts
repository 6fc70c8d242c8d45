// Memory, launches and errors on the host platform, which runs the same binding code as a GPU does.
import { failure } from '@x/testing/hip-failure';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { addon } from '../src/addon';
import { type HipDevice, HipError, type HipModule, openDevice } from '../src/index';
import { platformNumber } from '../src/platforms';
import { hostKernels } from './host-kernels';

let device: HipDevice;
let module: HipModule;

beforeAll(() => {
  device = openDevice('host');
  module = device.loadModule(hostKernels());
});

afterAll(() => device.dispose());

async function rejection(promise: Promise<unknown>): Promise<HipError> {
  const error = await promise.then(
    () => undefined,
    (reason) => reason,
  );
  expect(error).toBeInstanceOf(HipError);
  return error as HipError;
}

describe('device', () => {
  test('has properties that kernels rely on', () => {
    expect(device.properties.warpSize).toBe(1);
    expect(device.properties.arch).toMatch(/^(x86-64-v[234]?|x86-64|aarch64)/);
    expect(device.properties.multiprocessorCount).toBeGreaterThan(0);
    expect(device.properties.totalMemory).toBeGreaterThan(1 << 28);
    const { free, total } = device.memoryInfo();
    expect(free).toBeGreaterThan(0);
    expect(total).toBeGreaterThanOrEqual(free);
  });

  test('refuses an ordinal that is not there', () => {
    expect(failure(() => openDevice('host', 1)).code).toBe('NO_DEVICE');
    expect(failure(() => openDevice('host', -1)).code).toBe('INVALID_ARGUMENT');
    expect(failure(() => openDevice('metal' as 'host')).message).toContain("no platform 'metal'");
  });
});

describe('launch buffer', () => {
  test('cannot be taken away from the launches that read it', () => {
    const native = addon().open(platformNumber('host'), 0);
    const taken = () => structuredClone(native.launchBuffer, { transfer: [native.launchBuffer as never] });
    expect(taken).toThrow();
    expect(native.launchBuffer.byteLength).toBeGreaterThan(4096);
    // What it holds is read: word 0 names a function that does not exist.
    new Uint32Array(native.launchBuffer)[0] = 0xffffffff;
    expect(failure(() => native.launch()).code).toBe('DISPOSED');
    addon().close(native.id);
  });
});

describe('memory', () => {
  test('copies there, across and back', async () => {
    const bytes = Uint8Array.from({ length: 1000 }, (_, i) => i % 251);
    const a = device.alloc(1000);
    const b = device.alloc(1000);
    device.memcpyHtoD(a, bytes);
    bytes.fill(7); // the view is ours again at once
    device.memcpyDtoD(b, a, 1000);
    device.memset(a, 0xab, 500);
    const back = new Uint8Array(1000);
    await device.memcpyDtoH(back, b);
    expect(Array.from(back)).toEqual(Array.from({ length: 1000 }, (_, i) => i % 251));
    const head = new Uint8Array(1000);
    device.memcpyDtoHSync(head, a);
    expect(head[0]).toBe(0xab);
    expect(head[499]).toBe(0xab);
    expect(head[500]).toBe(500 % 251);
    device.free(a);
    device.free(b);
  });

  test('accepts any kind of view, with its offset', async () => {
    const address = device.alloc(64);
    const doubles = new Float64Array([1, 2, 3, 4, 5, 6, 7, 8]);
    device.memcpyHtoD(address, doubles.subarray(2, 6));
    const data = new DataView(new ArrayBuffer(48), 8, 32);
    device.memcpyDtoHSync(data, address);
    expect(data.getFloat64(0, true)).toBe(3);
    expect(data.getFloat64(24, true)).toBe(6);
    const whole = new ArrayBuffer(32);
    await device.memcpyDtoH(whole, address);
    expect(new Float64Array(whole)[1]).toBe(4);
    const wide = new BigInt64Array(4);
    device.memcpyDtoHSync(wide, address);
    expect(new Float64Array(wide.buffer)[2]).toBe(5);
    device.free(address);
  });

  test('reads a large buffer back in pieces', () => {
    const count = (20 << 20) / 4 + 3; // more than two staging pieces, and not a multiple of one
    const source = Uint32Array.from({ length: count }, (_, i) => Math.imul(i, 2654435761) >>> 0);
    const address = device.alloc(source.byteLength);
    device.memcpyHtoD(address, source);
    const back = new Uint32Array(count);
    device.memcpyDtoHSync(back, address);
    expect(Buffer.compare(Buffer.from(back.buffer), Buffer.from(source.buffer))).toBe(0);
    device.free(address);
  });

  test('an empty copy is nothing', async () => {
    const before = device.counters();
    device.memcpyHtoD(0, new Uint8Array(0));
    await device.memcpyDtoH(new Uint8Array(0), 0);
    device.memcpyDtoD(0, 0, 0);
    expect(device.counters()).toEqual(before);
  });

  test('refuses ranges outside an allocation and addresses it does not know', async () => {
    const address = device.alloc(100);
    expect(failure(() => device.memcpyHtoD(address, new Uint8Array(101))).code).toBe('INVALID_ARGUMENT');
    expect(failure(() => device.memcpyHtoD(address + 50, new Uint8Array(51))).message).toContain('51 bytes');
    expect(failure(() => device.memset(address - 1, 0, 1)).code).toBe('INVALID_ARGUMENT');
    expect(failure(() => device.memset(address, 256, 1)).message).toContain('256');
    expect(failure(() => device.memcpyDtoHSync(new Uint8Array(4), 12345)).code).toBe('INVALID_ARGUMENT');
    expect((await rejection(device.memcpyDtoH(new Uint8Array(101), address))).code).toBe('INVALID_ARGUMENT');
    expect(failure(() => device.free(address + 1)).code).toBe('INVALID_ARGUMENT');
    device.free(address);
    expect(failure(() => device.free(address)).message).toContain('freed already');
    expect(failure(() => device.memset(address, 0, 1)).code).toBe('INVALID_ARGUMENT');
  });

  test('refuses sizes and views that make no sense', () => {
    for (const bytes of [0, -1, 1.5, Number.NaN, 2 ** 60]) {
      expect(failure(() => device.alloc(bytes)).code).toBe('INVALID_ARGUMENT');
    }
    const wrong = [1, 2, 3] as unknown as Uint8Array;
    expect(failure(() => device.memcpyHtoD(0, wrong)).message).toContain('typed array');
  });

  test('out of memory carries the sizes', () => {
    const requested = 2 ** 50;
    const error = failure(() => device.alloc(requested));
    expect(error.code).toBe('OUT_OF_MEMORY');
    expect(error.requestedBytes).toBe(requested);
    expect(error.freeBytes).toBeGreaterThan(0);
    expect(error.totalBytes).toBeGreaterThan(error.freeBytes ?? 0);
    expect(error.message).toContain(String(requested));
  });
});

describe('launch', () => {
  test('runs a kernel over the grid', () => {
    const fill = module.getFunction('fill', ['ptr', 'u32', 'f32']);
    const out = device.alloc(400);
    fill.launch(100, 1, 0, [out, 100, 2.5]);
    const back = new Float32Array(100);
    device.memcpyDtoHSync(back, out);
    expect(Array.from(new Set(back))).toEqual([2.5]);
    device.free(out);
  });

  test('passes a three-dimensional grid and shared memory', () => {
    const geometry = module.getFunction('geometry', ['ptr']);
    const out = device.alloc(24);
    device.memset(out, 0, 24);
    geometry.launch([5, 4, 3], [64, 2, 1], 256, [out]);
    const back = new Uint32Array(6);
    device.memcpyDtoHSync(back, out);
    expect(Array.from(back)).toEqual([60, 5, 4, 3, 256, 1]);
    device.free(out);
  });

  test('packs every type at its natural alignment', () => {
    const types = [
      'ptr',
      'u8',
      'i64',
      'i16',
      'f16',
      'bf16',
      'f8e4m3',
      'bool',
      'u32',
      'i32',
      'u64',
      'f64',
      'f32',
    ] as const;
    const pack = module.getFunction('pack', types);
    const out = device.alloc(72);
    const big = 2n ** 63n + 5n;
    pack.launch(1, 1, 0, [out, 200, -3, -2, 1.5, -2, 448, 1, 4294967295, -7, big, Math.PI, -0.1]);
    const view = new DataView(new ArrayBuffer(72));
    device.memcpyDtoHSync(view, out);
    expect(Number(view.getBigUint64(0, true))).toBe(out);
    expect(view.getUint8(8)).toBe(200);
    expect(view.getBigInt64(16, true)).toBe(-3n);
    expect(view.getInt16(24, true)).toBe(-2);
    expect(view.getUint16(26, true)).toBe(0x3e00);
    expect(view.getUint16(28, true)).toBe(0xc000);
    expect(view.getUint8(30)).toBe(0x7e);
    expect(view.getUint8(31)).toBe(1);
    expect(view.getUint32(32, true)).toBe(4294967295);
    expect(view.getInt32(36, true)).toBe(-7);
    expect(view.getBigUint64(40, true)).toBe(big);
    expect(view.getFloat64(48, true)).toBe(Math.PI);
    expect(view.getFloat32(56, true)).toBe(Math.fround(-0.1));
    device.free(out);
  });

  test('names kernel and parameter when an argument is wrong', () => {
    const fill = module.getFunction('fill', ['ptr', 'u32', 'f32']);
    const wrong: [unknown[], string][] = [
      [[1, 2], 'takes 3 arguments (ptr, u32, f32), got 2'],
      [[0, '7', 1], 'parameter 1 (u32) cannot take 7 (string)'],
      [[0, -1, 1], 'parameter 1 (u32) cannot take -1'],
      [[0, 1.5, 1], 'parameter 1 (u32) cannot take 1.5'],
      [[-8, 1, 1], 'parameter 0 (ptr) cannot take -8'],
      [[2 ** 60, 1, 1], 'parameter 0 (ptr)'],
      [[0, 1, 1n], 'parameter 2 (f32) cannot take 1n'],
      [[0, undefined, 1], 'parameter 1 (u32) cannot take undefined'],
    ];
    for (const [args, text] of wrong) {
      const error = failure(() => fill.launch(1, 1, 0, args as number[]));
      expect(error.code).toBe('INVALID_ARGUMENT');
      expect(error.message).toContain("kernel 'fill'");
      expect(error.message).toContain(text);
    }
  });

  test('refuses an empty or absurd grid', () => {
    const nothing = module.getFunction('nothing', []);
    for (const grid of [0, -1, 1.5, 2 ** 32, Number.NaN]) {
      expect(failure(() => nothing.launch(grid, 1, 0, [])).message).toContain('grid');
    }
    expect(failure(() => nothing.launch([1, 0, 1], 1, 0, [])).message).toContain('[1, 0, 1]');
    expect(failure(() => nothing.launch(1, 0, 0, [])).message).toContain('block');
    expect(failure(() => nothing.launch(1, 1, -4, [])).message).toContain('shared');
  });

  test('reports a launch the device cannot do with the kernel and its geometry', () => {
    const nothing = module.getFunction('nothing', []);
    const error = failure(() => nothing.launch(3, 1, 2 ** 31, []));
    expect(error.code).toBe('DRIVER_ERROR');
    expect(error.message).toContain("kernel 'nothing' with grid [3, 1, 1]");
    expect(error.message).toContain('2147483648 shared bytes');
  });

  test('counts calls at the table', () => {
    const before = device.counters();
    const fill = module.getFunction('fill', ['ptr', 'u32', 'f32']);
    const out = device.alloc(64);
    for (let i = 0; i < 5; i++) fill.launch(16, 1, 0, [out, 16, i]);
    device.memcpyDtoHSync(new Float32Array(16), out);
    device.free(out);
    const after = device.counters();
    expect(after.getFunction - before.getFunction).toBe(1);
    expect(after.launch - before.launch).toBe(5);
    expect(after.malloc - before.malloc).toBe(1);
    expect(after.free - before.free).toBe(1);
    expect(after.dtoh - before.dtoh).toBe(1);
    expect(after.htod - before.htod).toBe(0);
  });
});

describe('modules', () => {
  test('a missing function is named', () => {
    const error = failure(() => module.getFunction('no_such_kernel', []));
    expect(error.code).toBe('FUNCTION_NOT_FOUND');
    expect(error.message).toContain('no_such_kernel');
  });

  test('rubbish is refused without a crash', () => {
    const code = hostKernels();
    for (const bytes of [
      new Uint8Array(0),
      new Uint8Array([1, 2, 3]),
      code.subarray(0, 100),
      code.subarray(0, code.length >> 1),
    ]) {
      const error = failure(() => device.loadModule(bytes));
      expect(['DRIVER_ERROR', 'INVALID_ARGUMENT']).toContain(error.code);
    }
    expect(failure(() => device.loadModule('text' as unknown as Uint8Array)).code).toBe('INVALID_ARGUMENT');
  });

  test('too many arguments are refused when the function is taken', () => {
    const types = new Array(513).fill('u64');
    expect(failure(() => module.getFunction('nothing', types)).message).toContain('4104 bytes');
    expect(failure(() => module.getFunction('nothing', ['f24' as 'f32'])).message).toContain("'f24'");
  });
});

describe('disposal', () => {
  test('every object refuses use after dispose, and dispose is idempotent', async () => {
    const own = openDevice('host');
    const stream = own.createStream();
    const event = own.createEvent();
    const loaded = own.loadModule(hostKernels());
    const nothing = loaded.getFunction('nothing', []);
    loaded.dispose();
    loaded.dispose();
    expect(failure(() => nothing.launch(1, 1, 0, [])).message).toContain("kernel 'nothing'");
    expect(failure(() => loaded.getFunction('nothing', [])).code).toBe('DISPOSED');
    event.dispose();
    event.dispose();
    expect(failure(() => event.query()).code).toBe('DISPOSED');
    stream.dispose();
    stream.dispose();
    expect((await rejection(stream.synchronize())).code).toBe('DISPOSED');
    expect(failure(() => own.memset(1, 0, 1, stream)).code).toBe('DISPOSED');
    expect(failure(() => own.defaultStream.dispose()).code).toBe('INVALID_ARGUMENT');
    own.dispose();
    own.dispose();
    expect(own.isDisposed).toBe(true);
    expect(failure(() => own.alloc(16)).code).toBe('DISPOSED');
    expect((await rejection(own.synchronize())).code).toBe('DISPOSED');
    expect(own.counters().moduleLoad).toBe(1);
  });

  test('using disposes', () => {
    const { leaked } = (() => {
      using own = openDevice('host');
      using stream = own.createStream();
      expect(stream.isDisposed).toBe(false);
      return { leaked: own };
    })();
    expect(leaked.isDisposed).toBe(true);
  });

  test('an object of another device is refused', () => {
    using other = openDevice('host');
    using stream = other.createStream();
    expect(failure(() => device.memset(1, 0, 1, stream)).message).toContain('belongs to host device 0');
  });

  test('closing with reads under way lets them finish', async () => {
    const own = openDevice('host');
    const loaded = own.loadModule(hostKernels());
    const out = own.alloc(16);
    loaded.getFunction('slow_fill', ['ptr', 'u32', 'f32', 'u32']).launch(1, 1, 0, [out, 4, 3, 50]);
    const view = new Float32Array(4);
    const read = own.memcpyDtoH(view, out);
    own.dispose();
    await read;
    expect(Array.from(view)).toEqual([3, 3, 3, 3]);
  });
});
