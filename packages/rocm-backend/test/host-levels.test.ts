/** The code objects of every host level that is built and that this CPU runs: the same bits of quantized products, and the host's own exp. */
import { readFileSync } from 'node:fs';
import { bf16ToF32, f16ToF32, f32ToBf16, f32ToF16 } from '@x/core';
import { type KernelModule, QUANTIZED, resolveTarget, UNARY } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { BLOCK_TYPES, randomBlocks } from '@x/testing/quantized/random-blocks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { blockFormat } from '../../quantized/src/blocks';
import { RocmDevice } from '../src/index';

const FEATURES = {
  'x86-64-v2': 'sse4_2',
  'x86-64-v3': 'avx2',
  'x86-64-v3-vnni': 'avx_vnni',
  'x86-64-v4': 'avx512bw',
  'x86-64-v4-vnni': 'avx512_vnni',
};

const hasCpu = kernelDevices().some((device) => device.location.kind === 'cpu');
const flags = process.arch === 'x64' ? (/^flags\s*:(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? '') : '';
/** On ARM the levels are one upon the other, and what the device has is asked, which qemu's /proc/cpuinfo does not know. */
function runs(): string[] {
  if (process.arch === 'x64') {
    return Object.entries(FEATURES).flatMap(([level, feature]) => (flags.split(' ').includes(feature) ? [level] : []));
  }
  if (!hasCpu) return [];
  const device = RocmDevice.open('cpu', 0);
  const { arch } = device.hip.properties;
  device.dispose();
  return resolveTarget(arch).reverse();
}
const built = (module: KernelModule) => runs().flatMap((level) => module.codeObject(level) ?? []);
/** x86-64-v2 is not among them: it rounds products before it adds them. */
const levels = built(QUANTIZED).filter(({ target }) => target !== 'x86-64-v2');

describe.runIf(hasCpu && levels.length > 1)(`quantized products of ${levels.map(({ target }) => target)}`, () => {
  let device: RocmDevice;
  beforeAll(() => {
    device = RocmDevice.open('cpu', 0);
  });
  afterAll(() => device.dispose());

  // Products of 1 column, of 4, and of more than panels begin with, and columns that end within a step where a format's may.
  it.each(BLOCK_TYPES.flatMap((type) => [1, 4, 13].map((m) => [type, m] as const)))('%s, %i columns', (type, m) => {
    const [n, padded] = [37, 2560];
    const k = blockFormat(type).blockSize === 256 ? padded : padded - 192;
    const weight = device.fromHost(randomBlocks(type, (n * k) / blockFormat(type).blockSize, 3), 'u8');
    const x = device.random.uniform(m * k, 'f32', -1, 1);
    const columns = device.zeros((m * padded * 36) / 32, 'u8');
    const rows = { grid: [padded / 256, m, 1], block: 256 } as const;
    device.launch(QUANTIZED, 'quantize_q8_1', rows, [x.ptr, columns.ptr, k, padded]);
    const results = levels.map(({ bytes, kernels }) => {
      const name = `mul_mat_${type}`;
      using module = device.hip.loadModule(bytes);
      const y = device.zeros(m * n, 'f32');
      const args = [weight.ptr, columns.ptr, y.ptr, k, n, m, padded, n];
      module.getFunction(name, kernels[name].params as never).launch(3, 1, 0, args);
      const got = Buffer.from(y.toHostSync());
      y.dispose();
      return got;
    });
    for (const storage of [weight, x, columns]) storage.dispose();
    expect(new Float32Array(results[0].buffer, results[0].byteOffset, m * n).some((value) => value !== 0)).toBe(true);
    expect(results.map((got) => got.equals(results[0]))).toEqual(levels.map(() => true));
  });
});

const word = new Uint32Array(1);
const float = new Float32Array(word.buffer);
const bitsOf = (value: number) => {
  float[0] = value;
  return word[0];
};
const floatOf = (bits: number) => {
  word[0] = bits;
  return float[0];
};
/** Values through exp's range in f32, and what lies at and beyond its ends; every value of 16 bits. */
const FLOATS = Uint32Array.of(
  ...[0, -0, 88.72283, 88.72284, 1e30, Infinity, -87.33654, -87.4, -103.97, -103.98, -1e30, -Infinity, NaN].map(bitsOf),
  ...Array.from({ length: 2 ** 16 }, (_, i) => bitsOf(-105 + (195 * i) / 2 ** 16)),
);
const HALVES = new Uint16Array(2 ** 16).map((_, bits) => bits);
const INPUTS = {
  f32: { data: FLOATS, decode: floatOf, encode: bitsOf },
  f16: { data: HALVES, decode: f16ToF32, encode: f32ToF16 },
  bf16: { data: HALVES, decode: bf16ToF32, encode: f32ToBf16 },
};

describe.runIf(hasCpu).each(built(UNARY))('exp of $target', ({ bytes, kernels }) => {
  it.each(['f32', 'f16', 'bf16'] as const)('%s: one unit in the last place off at most', (dtype) => {
    const { data, decode, encode } = INPUTS[dtype];
    const device = RocmDevice.open('cpu', 0);
    try {
      using module = device.hip.loadModule(bytes);
      const x = device.fromHost(data, dtype);
      const y = device.zeros(data.length, dtype);
      const name = `uexp_${dtype}`;
      module.getFunction(name, kernels[name].params as never).launch(3, 1, 0, [data.length, 0, 0, x.ptr, y.ptr]);
      const raw = y.toHostSync();
      const got = dtype === 'f32' ? new Uint32Array(raw) : new Uint16Array(raw);
      const wrong = [...got].flatMap((bits, at) => {
        const value = decode(data[at]);
        const expected = encode(Math.exp(value));
        // Results are not negative, so their order is that of their bits.
        const right = Number.isNaN(value) ? Number.isNaN(decode(bits)) : Math.abs(bits - expected) <= 1;
        return right ? [] : [`exp(${value}) has bits ${bits}, not ${expected}`];
      });
      expect(wrong).toEqual([]);
    } finally {
      device.dispose();
    }
  });
});
