// Streams, events, waiting, capture and replay on the host platform.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type HipDevice, HipError, type HipFunction, openDevice } from '../src/index';
import { hostKernels } from './host-kernels';

let device: HipDevice;
let fill: HipFunction;
let scale: HipFunction;
let slowFill: HipFunction;

beforeAll(() => {
  device = openDevice('host');
  const module = device.loadModule(hostKernels());
  fill = module.getFunction('fill', ['ptr', 'u32', 'f32']);
  scale = module.getFunction('scale', ['ptr', 'ptr', 'u32', 'f32']);
  slowFill = module.getFunction('slow_fill', ['ptr', 'u32', 'f32', 'u32']);
});

afterAll(() => device.dispose());

function code(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof HipError) return error.code;
    throw error;
  }
  return 'none';
}

async function read(address: number, count: number): Promise<number[]> {
  const view = new Float32Array(count);
  await device.memcpyDtoH(view, address);
  return Array.from(view);
}

describe('asynchrony', () => {
  test('a launch returns before the kernel has run, and the event loop goes on', async () => {
    const out = device.alloc(16);
    const started = performance.now();
    slowFill.launch(1, 1, 0, [out, 4, 1, 150]);
    expect(performance.now() - started).toBeLessThan(100);
    let ticks = 0;
    const timer = setInterval(() => ticks++, 5);
    await device.synchronize();
    clearInterval(timer);
    expect(performance.now() - started).toBeGreaterThan(140);
    expect(ticks).toBeGreaterThan(3);
    device.free(out);
  });

  test('a read returns what the buffer held when it was called', async () => {
    const out = device.alloc(16);
    slowFill.launch(1, 1, 0, [out, 4, 1, 30]);
    const first = read(out, 4);
    fill.launch(4, 1, 0, [out, 4, 2]);
    const second = read(out, 4);
    device.memset(out, 0, 16);
    const third = read(out, 4);
    expect(await Promise.all([third, first, second])).toEqual([
      [0, 0, 0, 0],
      [1, 1, 1, 1],
      [2, 2, 2, 2],
    ]);
    device.free(out);
  });

  test('many reads at once all arrive', async () => {
    const addresses = Array.from({ length: 40 }, () => device.alloc(64));
    for (const [i, address] of addresses.entries()) fill.launch(16, 1, 0, [address, 16, i]);
    const all = await Promise.all(addresses.map((address) => read(address, 16)));
    for (const [i, values] of all.entries()) expect(values).toEqual(new Array(16).fill(i));
    for (const address of addresses) device.free(address);
  });

  test('a read into a buffer that is detached meanwhile rejects', async () => {
    const out = device.alloc(16);
    slowFill.launch(1, 1, 0, [out, 4, 1, 30]);
    const view = new Float32Array(4);
    const pending = device.memcpyDtoH(view, out);
    structuredClone(view.buffer, { transfer: [view.buffer] });
    await expect(pending).rejects.toThrow('detached');
    device.free(out);
  });
});

describe('streams and events', () => {
  test('an event orders two streams', async () => {
    using producer = device.createStream();
    using consumer = device.createStream();
    using ready = device.createEvent();
    const a = device.alloc(64);
    const b = device.alloc(64);
    slowFill.launch(1, 1, 0, [a, 16, 3, 60], producer);
    ready.record(producer);
    consumer.waitEvent(ready);
    scale.launch(16, 1, 0, [b, a, 16, 2], consumer);
    const view = new Float32Array(16);
    await device.memcpyDtoH(view, b, consumer);
    expect(Array.from(view)).toEqual(new Array(16).fill(6));
    device.free(a);
    device.free(b);
  });

  test('query, synchronize and elapsed time agree', async () => {
    using stream = device.createStream();
    using start = device.createEvent();
    using end = device.createEvent();
    const out = device.alloc(16);
    start.record(stream);
    slowFill.launch(1, 1, 0, [out, 4, 1, 80], stream);
    end.record(stream);
    expect(end.query()).toBe(false);
    await end.synchronize();
    expect(end.query()).toBe(true);
    const elapsed = end.elapsedMs(start);
    expect(elapsed).toBeGreaterThan(70);
    expect(elapsed).toBeLessThan(5000);
    stream.synchronizeSync();
    end.synchronizeSync();
    await stream.synchronize();
    device.free(out);
  });

  test('elapsed time of an unrecorded event is refused', () => {
    using start = device.createEvent();
    using end = device.createEvent();
    start.record(device.defaultStream);
    expect(code(() => end.elapsedMs(start))).toBe('INVALID_ARGUMENT');
  });

  test('waiting right behind the end of a stream ends', () => {
    const out = device.alloc(64);
    for (let i = 0; i < 20_000; i++) {
      const stream = device.createStream();
      device.memset(out, i & 255, 64, stream);
      stream.dispose();
      device.synchronizeSync();
    }
    const back = new Uint8Array(64);
    device.memcpyDtoHSync(back, out);
    expect(back[63]).toBe(19_999 & 255);
    device.free(out);
  });

  test('an event may be disposed while it is waited for', async () => {
    const out = device.alloc(16);
    const event = device.createEvent();
    slowFill.launch(1, 1, 0, [out, 4, 1, 40]);
    event.record(device.defaultStream);
    const wait = event.synchronize();
    event.dispose();
    await wait;
    expect(await read(out, 4)).toEqual([1, 1, 1, 1]);
    device.free(out);
  });
});

describe('graphs', () => {
  test('captured work runs when launched, and again', async () => {
    using stream = device.createStream();
    const a = device.alloc(64);
    const b = device.alloc(64);
    device.memset(a, 0, 64);
    device.memset(b, 0, 64);
    device.synchronizeSync();
    stream.beginCapture();
    fill.launch(16, 1, 0, [a, 16, 5], stream);
    scale.launch(16, 1, 0, [b, a, 16, 3], stream);
    device.memcpyDtoD(a, b, 32, stream);
    using graph = stream.endCapture();
    expect(await read(b, 16)).toEqual(new Array(16).fill(0));
    using exec = graph.instantiate();
    const before = device.counters().graphLaunch;
    for (let i = 0; i < 3; i++) {
      device.memset(b, 0, 64, stream);
      exec.launch(stream);
      await stream.synchronize();
      expect(await read(b, 16)).toEqual(new Array(16).fill(15));
      expect(await read(a, 16)).toEqual([...new Array(8).fill(15), ...new Array(8).fill(5)]);
    }
    expect(device.counters().graphLaunch - before).toBe(3);
    device.free(a);
    device.free(b);
  });

  test('update takes other parameters and declines another shape', async () => {
    using stream = device.createStream();
    const a = device.alloc(64);
    const record = (value: number, twice: boolean) => {
      stream.beginCapture();
      fill.launch(16, 1, 0, [a, 16, value], stream);
      if (twice) scale.launch(16, 1, 0, [a, a, 16, 2], stream);
      return stream.endCapture();
    };
    using first = record(1, false);
    using second = record(2, false);
    using longer = record(3, true);
    using exec = first.instantiate();
    expect(exec.update(second)).toBe(true);
    expect(exec.update(longer)).toBe(false);
    exec.launch(stream);
    await stream.synchronize();
    expect(await read(a, 16)).toEqual(new Array(16).fill(2));
    device.free(a);
  });

  test('waits and host copies are refused while capturing, and the capture survives', async () => {
    using stream = device.createStream();
    const a = device.alloc(64);
    stream.beginCapture();
    expect(code(() => stream.beginCapture())).toBe('INVALID_ARGUMENT');
    expect(code(() => device.memcpyHtoD(a, new Uint8Array(64), stream))).toBe('INVALID_ARGUMENT');
    expect(code(() => device.memcpyDtoHSync(new Uint8Array(64), a, stream))).toBe('INVALID_ARGUMENT');
    expect(code(() => stream.synchronizeSync())).toBe('INVALID_ARGUMENT');
    expect(code(() => device.synchronizeSync())).toBe('INVALID_ARGUMENT');
    await expect(device.synchronize()).rejects.toThrow('endCapture()');
    fill.launch(16, 1, 0, [a, 16, 9], stream);
    using graph = stream.endCapture();
    expect(code(() => stream.endCapture())).toBe('INVALID_ARGUMENT');
    using exec = graph.instantiate();
    exec.launch(stream);
    await stream.synchronize();
    expect(await read(a, 16)).toEqual(new Array(16).fill(9));
    device.free(a);
  });

  test('a disposed graph or instance is refused', () => {
    using stream = device.createStream();
    stream.beginCapture();
    const graph = stream.endCapture();
    const exec = graph.instantiate();
    graph.dispose();
    expect(code(() => graph.instantiate())).toBe('DISPOSED');
    exec.dispose();
    expect(code(() => exec.launch(stream))).toBe('DISPOSED');
  });

  test('a stream disposed while capturing ends the capture', async () => {
    const out = device.alloc(4);
    device.memset(out, 0, 4);
    const stream = device.createStream();
    stream.beginCapture();
    fill.launch(1, 1, 0, [out, 1, 1], stream);
    stream.dispose();
    expect(await read(out, 1)).toEqual([0]);
    using other = device.createStream();
    other.beginCapture();
    scale.launch(1, 1, 0, [out, out, 1, 3], other);
    using graph = other.endCapture();
    using exec = graph.instantiate();
    fill.launch(1, 1, 0, [out, 1, 2], other);
    exec.launch(other);
    other.synchronizeSync();
    expect(await read(out, 1)).toEqual([6]);
    device.free(out);
  });
});
