/** The runtime binding on every platform that is present, with shipped kernels: streams, events, copies and graphs. */
import { type HipDevice, type HipFunction, openDevice } from '@x/hip';
import { AFFINE } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

const platforms = kernelDevices().map(
  ({ location }) => (location.kind === 'cpu' ? 'host' : location.kind) as 'host' | 'cuda' | 'rocm',
);
const N = 10_000;

describe.each(platforms)('driver table of %s', (platform) => {
  let device: HipDevice;
  let affine: HipFunction;
  let x: number;
  let y: number;

  beforeEach(() => {
    device = openDevice(platform, 0);
    const object = AFFINE.codeObjectFor(device.properties.arch);
    affine = device.loadModule(object.bytes).getFunction('affine_f32', object.kernels.affine_f32.params as never);
    x = device.alloc(N * 4);
    y = device.alloc(N * 4);
  });
  afterEach(() => device.dispose());

  const launch = (from: number, to: number, mul: number, add: number, stream = device.defaultStream) =>
    affine.launch(16, 256, 0, [N, 1, 0, from, to, mul, add], stream);

  const read = async (ptr: number, stream = device.defaultStream) => {
    const values = new Float32Array(N);
    await device.memcpyDtoH(values, ptr, stream);
    return values;
  };

  it('describes the device', () => {
    const { name, arch, warpSize, multiprocessorCount, totalMemory } = device.properties;
    expect(name).not.toBe('');
    expect(arch).toMatch(/^(gfx|sm_|x86-64|aarch64)/);
    expect([1, 32, 64]).toContain(warpSize);
    expect(multiprocessorCount).toBeGreaterThan(0);
    const { free, total } = device.memoryInfo();
    expect(free).toBeGreaterThan(0);
    expect(free).toBeLessThanOrEqual(total);
    expect(totalMemory).toBeGreaterThan(2 ** 28);
  });

  it('orders copies, fills and launches on a stream', async () => {
    device.memcpyHtoD(
      x,
      new Float32Array(N).map((_, i) => i),
    );
    launch(x, y, 2, 1);
    device.memcpyDtoD(x, y, N * 4);
    device.memset(y, 0, N * 2);
    const [copied, filled] = await Promise.all([read(x), read(y)]);
    expect(copied.every((value, i) => value === 2 * i + 1)).toBe(true);
    expect(filled.slice(0, N / 2).every((value) => value === 0)).toBe(true);
    expect(filled[N - 1]).toBe(2 * (N - 1) + 1);
    const sync = new Float32Array(4);
    device.memcpyDtoHSync(sync, x + 8);
    expect([...sync]).toEqual([5, 7, 9, 11]);
  });

  it('orders streams by events, and times them', async () => {
    const other = device.createStream();
    const start = device.createEvent();
    const done = device.createEvent();
    start.record(device.defaultStream);
    device.memset(x, 0, N * 4);
    for (let i = 0; i < 100; i++) launch(x, x, 1, 1);
    done.record(device.defaultStream);
    other.waitEvent(done);
    launch(x, y, 3, 0, other);
    expect((await read(y, other)).every((value) => value === 300)).toBe(true);
    expect(done.query()).toBe(true);
    expect(done.elapsedMs(start)).toBeGreaterThan(0);
    await device.synchronize();
  });

  it('captures a graph, replays it, and updates its arguments', async () => {
    const stream = device.createStream();
    const capture = (add: number) => {
      stream.beginCapture();
      launch(x, y, 1, add, stream);
      launch(y, x, 2, 0, stream);
      device.memcpyDtoD(y, x, N * 4, stream);
      return stream.endCapture();
    };
    device.memset(x, 0, N * 4, stream);
    const graph = capture(1);
    expect((await read(x, stream))[0]).toBe(0);
    const executable = graph.instantiate();
    for (let i = 0; i < 3; i++) executable.launch(stream);
    // x -> 2 (x + 1), three times from 0.
    expect((await read(y, stream)).every((value) => value === 14)).toBe(true);
    const changed = capture(10);
    expect(executable.update(changed)).toBe(true);
    executable.launch(stream);
    expect((await read(x, stream)).every((value) => value === 48)).toBe(true);
    executable.dispose();
    graph.dispose();
    changed.dispose();
  });
});
