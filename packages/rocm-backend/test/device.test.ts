/** Memory, disposal and errors of a device. */
import { DisposedError, Layout, OutOfMemoryError, UnsupportedError } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { at } from '@x/testing/operands';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RocmDevice } from '../src/index';

const kinds = testDevices()
  .filter((device) => device.location.kind !== 'js')
  .map((device) => device.location.kind as 'cpu' | 'cuda' | 'rocm');

describe.each(kinds)('device %s', (kind) => {
  let device: RocmDevice;
  beforeEach(() => {
    device = RocmDevice.open(kind, 0);
  });
  afterEach(() => device.dispose());

  it('asks the driver for nothing in steady state', () => {
    const layout = Layout.contiguous([1000]);
    const x = device.zeros(1000, 'f32');
    const step = () => x.device.ops.affine(at(x, layout), 1, 1).dispose();
    step();
    const before = device.hip.counters();
    for (let i = 0; i < 50; i++) step();
    const after = device.hip.counters();
    expect(after.malloc).toBe(before.malloc);
    expect(after.htod).toBe(before.htod);
    expect(after.launch - before.launch).toBe(50);
    x.dispose();
  });

  it('uploads the description of a strided view once', () => {
    const x = device.zeros(12, 'f32');
    const transposed = Layout.contiguous([3, 4]).transpose(0, 1);
    x.device.ops.affine(at(x, transposed), 1, 1).dispose();
    const before = device.hip.counters().htod;
    for (let i = 0; i < 10; i++) x.device.ops.affine(at(x, transposed), 2, 1).dispose();
    expect(device.hip.counters().htod).toBe(before);
    x.dispose();
  });

  it('keeps a result that is read later although its buffer is reused at once', async () => {
    const reads: Promise<ArrayBuffer>[] = [];
    for (let i = 0; i < 20; i++) {
      const x = device.zeros(5000, 'f32');
      x.device.ops.fill(at(x, Layout.contiguous([5000])), i);
      reads.push(x.toHost());
      x.dispose();
    }
    const values = (await Promise.all(reads)).map((buffer) => new Float32Array(buffer));
    for (const [i, array] of values.entries()) expect(array.every((value) => value === i)).toBe(true);
  });

  it('counts memory and gives it back', () => {
    const before = device.memory().liveBytes;
    const x = device.allocUninit(1 << 20, 'f32');
    expect(device.memory().liveBytes - before).toBe(4 << 20);
    x.dispose();
    expect(device.memory().liveBytes).toBe(before);
    expect(device.memory().cachedBytes).toBeGreaterThanOrEqual(4 << 20);
    device.emptyCache();
    expect(device.memory().cachedBytes).toBeLessThan(4 << 20);
  });

  it('reports exhaustion with the sizes and stays usable', () => {
    expect(() => device.allocUninit(2 ** 50, 'f32')).toThrow(OutOfMemoryError);
    expect(() => device.allocUninit(2 ** 50, 'f32')).toThrow(
      /no memory for 4503599627370496 bytes: \d+ of \d+ bytes are free/,
    );
    const x = device.zeros(4, 'f32');
    expect([...new Float32Array(x.toHostSync())]).toEqual([0, 0, 0, 0]);
    x.dispose();
  });

  it('refuses a dtype without a kernel, naming op, dtype and device', () => {
    const x = device.zeros(4, 'i64');
    expect(() => x.device.ops.unary('exp', at(x, Layout.contiguous([4])))).toThrow(UnsupportedError);
    expect(() => x.device.ops.unary('exp', at(x, Layout.contiguous([4])))).toThrow(
      new RegExp(`exp has no kernel for i64 on ${kind}:0`),
    );
    x.dispose();
  });

  it('refuses use after disposal of a storage and of the device', () => {
    const x = device.zeros(4, 'f32');
    x.dispose();
    x.dispose();
    expect(() => x.device.ops.affine(at(x, Layout.contiguous([4])), 1, 1)).toThrow(DisposedError);
    const y = device.zeros(4, 'f32');
    device.dispose();
    expect(() => y.device.ops.affine(at(y, Layout.contiguous([4])), 1, 1)).toThrow(DisposedError);
    expect(() => device.zeros(4, 'f32')).toThrow(DisposedError);
    y.dispose();
  });

  it('streams bytes into a buffer and refuses to pass its end', () => {
    const x = device.zeros(8, 'u8');
    device.write(x, 2, Uint8Array.of(1, 2, 3));
    expect([...new Uint8Array(x.toHostSync())]).toEqual([0, 0, 1, 2, 3, 0, 0, 0]);
    expect(() => device.write(x, 6, Uint8Array.of(1, 2, 3))).toThrow(RangeError);
    x.dispose();
  });

  it('gives the same random numbers for a seed', () => {
    device.random.setSeed(7);
    expect(device.random.seed).toBe(7);
    const a = new Float32Array(device.random.uniform(100, 'f32', -1, 1).toHostSync());
    device.random.setSeed(7);
    const b = new Float32Array(device.random.uniform(100, 'f32', -1, 1).toHostSync());
    expect(a).toEqual(b);
    expect(a.every((value) => value >= -1 && value < 1)).toBe(true);
  });

  it('prints every launch with its time at X_DEBUG=4', () => {
    const lines: string[] = [];
    const write = process.stderr.write;
    process.stderr.write = (text: string | Uint8Array) => lines.push(String(text)) > 0;
    process.env.X_DEBUG = '4';
    try {
      const traced = RocmDevice.open(kind, 0);
      const x = traced.zeros(1000, 'f32');
      x.device.ops.affine(at(x, Layout.contiguous([1000])), 2, 1).dispose();
      x.dispose();
      traced.dispose();
    } finally {
      delete process.env.X_DEBUG;
      process.stderr.write = write;
    }
    expect(lines.some((line) => /affine_f32 grid \d+ block \d+ [\d.]+ us/.test(line))).toBe(true);
  });
});
