/** Quantized weights that are kept as numbers for products of many rows: when they are, what they give, and when they go. */
import { Layout } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { at } from '@x/testing/operands';
import { randomBlocks } from '@x/testing/quantized/random-blocks';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RocmDevice, type RocmStorage } from '../src/index';

const kinds = kernelDevices().map((device) => device.location.kind as 'cpu' | 'cuda' | 'rocm');
const SIZE = { m: 70, n: 96, k: 512 };

describe.each(kinds)('dense weights on %s', (kind) => {
  let device: RocmDevice;
  let weight: RocmStorage;
  let input: RocmStorage;
  let free: number;

  beforeEach(() => {
    device = RocmDevice.open(kind, 0);
    device.quantized.choice = 'dense';
    free = 100e9;
    device.hip.memoryInfo = () => ({ free, total: 150e9 });
    weight = blocks();
    input = device.fromHost(
      new Float32Array(SIZE.m * SIZE.k).map((_, i) => Math.round(8 * Math.sin(i))),
      'f32',
    );
  });
  afterEach(() => device.dispose());

  function blocks(): RocmStorage {
    const { n, k } = SIZE;
    const storage = device.quantized.allocate('q4_K', n * k);
    device.write(storage, 0, randomBlocks('q4_K', (n * k) / 256, k));
    return storage;
  }
  const enqueue = (from = weight) =>
    device.quantized.matmul(from, 'q4_K', SIZE, at(input, Layout.contiguous([SIZE.m, SIZE.k]))) as RocmStorage;
  function product(from = weight): Float32Array {
    const result = enqueue(from);
    try {
      return new Float32Array(result.toHostSync());
    } finally {
      result.dispose();
    }
  }
  /** Bytes of a weight's numbers in the form that products have there. */
  const bytesOfOne = () => SIZE.n * SIZE.k * (device.quantized.formOf(SIZE.m) === 'bf16' ? 2 : 4);

  it('are kept while their weight is there, and give what those for one product give', () => {
    const { denseWeights } = device.quantized;
    denseWeights.isOn = false;
    const expected = product();
    expect(denseWeights.bytes).toBe(0);
    denseWeights.isOn = true;
    const { liveBytes } = device.memory();
    expect(product()).toEqual(expected);
    expect(denseWeights.bytes).toBe(bytesOfOne());
    const launches = device.launchCount;
    expect(product()).toEqual(expected);
    const again = device.launchCount - launches;
    denseWeights.isOn = false;
    const before = device.launchCount;
    product();
    expect(again).toBeLessThan(device.launchCount - before);
    denseWeights.isOn = true;
    const { byteLength } = weight;
    weight.dispose();
    expect(denseWeights.bytes).toBe(0);
    expect(device.memory().liveBytes).toBeLessThanOrEqual(liveBytes - byteLength);
  });

  it('are of each weight its own', () => {
    const other = device.quantized.allocate('q4_K', SIZE.n * SIZE.k);
    const zeros = new Uint8Array((SIZE.n * SIZE.k * 144) / 256);
    device.write(other, 0, zeros);
    const first = product();
    expect(product(other).every((value) => value === 0)).toBe(true);
    expect(device.quantized.denseWeights.bytes).toBe(2 * bytesOfOne());
    expect(product()).toEqual(first);
    other.dispose();
    expect(product()).toEqual(first);
  });

  it('are made again when their weight is written to', () => {
    product();
    device.write(weight, 0, new Uint8Array((SIZE.n * SIZE.k * 144) / 256));
    expect(device.quantized.denseWeights.bytes).toBe(0);
    expect(product().every((value) => value === 0)).toBe(true);
  });

  it('are made for one product where less than half of the memory would stay free', () => {
    const { denseWeights } = device.quantized;
    free = 75e9 + bytesOfOne() - 1;
    const expected = product();
    expect(denseWeights.bytes).toBe(0);
    // The driver is not asked for each product.
    device.hip.memoryInfo = () => {
      throw new Error('asked');
    };
    expect(product()).toEqual(expected);
    device.hip.memoryInfo = () => ({ free: 75e9 + bytesOfOne(), total: 150e9 });
    device.emptyCache();
    expect(product()).toEqual(expected);
    expect(denseWeights.bytes).toBe(bytesOfOne());
  });

  it('go before an allocation fails, and with emptyCache', () => {
    const { denseWeights } = device.quantized;
    const expected = product();
    expect(() => device.malloc(2 ** 52)).toThrow(expect.objectContaining({ code: 'OUT_OF_MEMORY' }));
    expect(denseWeights.bytes).toBe(0);
    expect(product()).toEqual(expected);
    expect(denseWeights.bytes).toBe(bytesOfOne());
    device.emptyCache();
    expect(denseWeights.bytes).toBe(0);
    expect(product()).toEqual(expected);
  });

  it('stay while a captured graph reads them, and are not made in a capture', () => {
    const { denseWeights } = device.quantized;
    const expected = product();
    device.emptyCache();
    let result!: RocmStorage;
    const record = () => {
      result = enqueue();
    };
    const made = device.capture(record)!;
    expect(denseWeights.bytes).toBe(0);
    made.replay();
    expect(new Float32Array(result.toHostSync())).toEqual(expected);
    result.dispose();
    made.dispose();

    product();
    const reading = device.capture(record)!;
    device.emptyCache();
    expect(denseWeights.bytes).toBe(bytesOfOne());
    reading.replay();
    expect(new Float32Array(result.toHostSync())).toEqual(expected);
    result.dispose();
    reading.dispose();
    device.emptyCache();
    expect(denseWeights.bytes).toBe(0);
  });

  it('are not those of rows of a weight', () => {
    const { n, k } = SIZE;
    const rows = { ...SIZE, n: n / 2, firstRow: n / 2 };
    const part = device.quantized.matmul(
      weight,
      'q4_K',
      rows,
      at(input, Layout.contiguous([SIZE.m, k])),
    ) as RocmStorage;
    expect(device.quantized.denseWeights.bytes).toBe(0);
    const whole = product();
    const got = new Float32Array(part.toHostSync());
    expect(got).toEqual(whole.filter((_, i) => i % n >= n / 2));
  });
});
