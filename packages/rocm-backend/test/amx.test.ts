/** What a host's kernels do in tile registers (AMX), by loops in their place, so that it is seen on processors without any. */
import { bf16ToF32, Device, f32ToBf16, scope, Tensor } from '@x/core';
import { compilers } from '@x/hip';
import { ATTENTION, CONV, GEMM, QUANTIZED } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { randomBlocks } from '@x/testing/quantized/random-blocks';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { blockFormat } from '../../quantized/src/blocks';
import { RocmDevice } from '../src/index';

const compiles = compilers().some(({ platform, available }) => platform === 'host' && available);
const cpu = kernelDevices().find((device) => device.location.kind === 'cpu');
const { arch } = (cpu?.backend as RocmDevice | undefined)?.hip.properties ?? {};

/** Formats of each order, unit and kind of minima that tile registers have. */
const IN_TILES = ['q4_0', 'q5_1', 'q8_0', 'q2_K', 'q4_K', 'q6_K', 'iq4_xs', 'tq1_0'] as const;
/** The module's headers with tile registers that are loops, and kernels of these formats. */
const quantized = [
  '#define X_TILES_BY_LOOPS 1',
  QUANTIZED.source.slice(0, QUANTIZED.source.indexOf('using namespace quant;')),
  'using namespace quant;',
  ...IN_TILES.map(
    (type) =>
      `KERNEL(tiles_${type}, (const u8* x, const u8* y, float* out, u64 rows, u64 inner, u64 columns, u64 apart)) {
  x_amx = 1;
  if (blockX() == 0 && threadIndex() == 0) hostProducts<${type.toUpperCase()}>(x, 0, rows, inner, y, apart, columns, out, rows);
}`,
  ),
].join('\n');
/** The same of GEMM, and a product of bf16 by them. */
const products = [
  '#define X_TILES_BY_LOOPS 1',
  GEMM.source.slice(0, GEMM.source.indexOf('#define GEMM_KERNEL')),
  `KERNEL(tiles_bf16, (const bf16* l, const bf16* r, bf16* out, u64 b, u64 m, u64 n, u64 k, u64 lr, u64 lc, u64 rr, u64 rc)) {
  gemm::tiles::multiplyAll(b, m, n, k, {l, m * k, lr, lc}, {r, k * n, rr, rc}, out);
}`,
].join('\n');

/** The kernels of convolutions of bf16, which are told that there are such registers. */
const convolutions = [
  '#define X_TILES_BY_LOOPS 1',
  CONV.source.slice(0, CONV.source.indexOf('// Ours: groups of channels')),
  `KERNEL(conv_strips_bf16, (u64 groups, u64 c_out, u64 c_in, u64 phases, u64 group_stride, u64 out_stride, u64 in_stride,
                             const u64* table, const bf16* kernel, float* dst)) {
  x_amx = 1;
  conv::strips(conv::Counts{1, groups, c_out, c_in, phases}, group_stride, out_stride, in_stride, table, kernel, dst);
}
KERNEL(conv_taps_bf16, (u64 images, u64 groups, u64 c_out, u64 c_in, u64 phases, u64 plane_size, u64 rows_each, u64 pitch,
                        u64 down, u64 across, u64 channel, const u64* table, const float* planes, const float* strips, bf16* dst)) {
  x_amx = 1;
  conv::products(conv::Counts{images, groups, c_out, c_in, phases}, plane_size, rows_each,
                 conv::Target{pitch, down, across, channel}, table, planes, strips, dst);
}`,
].join('\n');

/** Attention of bf16 with heads of these sizes. */
const attention = [
  '#define X_TILES_BY_LOOPS 1',
  ATTENTION.source.slice(0, ATTENTION.source.indexOf('#define ATTENTION(')),
  ...[64, 128].map(
    (
      d,
    ) => `KERNEL(attention_${d}_bf16, (u64 b, u64 heads, u64 kv_heads, u64 seq, u64 kv, const bf16* q, u64 qb, u64 qh, u64 qr,
      const bf16* k, u64 kb, u64 kh, u64 kr, const bf16* v, u64 vb, u64 vh, u64 vr, bf16* out, float scale, bool causal)) {
  x_amx = 1;
  attention::attend<${d}, bf16>({b, heads, kv_heads, (u32)seq, (u32)kv, {q, qb, qh, qr}, {k, kb, kh, kr}, {v, vb, vh, vr}, out, scale, causal});
}`,
  ),
].join('\n');

describe.runIf(compiles && arch === 'x86-64-v4-vnni')('products in tile registers, by loops', () => {
  let device: RocmDevice;
  beforeAll(() => {
    device = RocmDevice.open('cpu', 0);
  });
  afterAll(() => device.dispose());

  // Columns, rows and values that end within a tile, a panel and a step, and more steps than are added up at once. From 32 columns on
  // numbers of 16 bits are multiplied.
  it.each(IN_TILES)('%s gives what dot products give', (type) => {
    const { blockSize } = blockFormat(type);
    for (const [m, n, k] of [
      [31, 37, blockSize === 256 ? 2304 : 2272],
      [17, 16, 16384 + 768],
      [32, 32, 512],
      [71, 75, blockSize === 256 ? 2304 : 2272],
      [300, 33, 768],
    ]) {
      const padded = Math.ceil(k / 512) * 512;
      const weight = device.fromHost(randomBlocks(type, (n * k) / blockSize, 3), 'u8');
      const x = device.random.uniform(m * k, 'f32', -1, 1);
      const columns = device.zeros((m * padded * 36) / 32, 'u8');
      const rows = { grid: [padded / 256, m, 1], block: 256 } as const;
      device.launch(QUANTIZED, 'quantize_q8_1', rows, [x.ptr, columns.ptr, k, padded]);
      const [byDots, byTiles] = [device.zeros(m * n, 'f32'), device.zeros(m * n, 'f32')];
      const whole = { grid: 1, block: 1 } as const;
      for (let c = 0; c < m; c++)
        device.launch(QUANTIZED, `mul_mat_${type}`, whole, [
          ...[weight.ptr, columns.ptr + (c * padded * 36) / 32, byDots.ptr + 4 * c * n],
          ...[k, n, 1, padded, n],
        ]);
      const args = [weight.ptr, columns.ptr, byTiles.ptr, n, k, m, (padded * 36) / 32];
      device.getOrLoadFuncRaw(`tiles_${type}`, quantized).launch(1, 1, 0, args);
      const got = new Float32Array(byTiles.toHostSync());
      expect(got.every((value) => Number.isFinite(value))).toBe(true);
      expect(got.some((value) => value !== 0)).toBe(true);
      const wanted = new Float32Array(byDots.toHostSync());
      if (m < 32) expect(got).toEqual(wanted);
      else {
        const deviation = Math.sqrt(wanted.reduce((sum, value) => sum + value * value, 0) / wanted.length);
        const furthest = got.reduce((most, value, i) => Math.max(most, Math.abs(value - wanted[i])), 0);
        expect(furthest).toBeLessThan(deviation * 1.5e-2);
        // Other sums than those of dot products.
        expect(got).not.toEqual(wanted);
      }
      for (const storage of [weight, x, columns, byDots, byTiles]) storage.dispose();
    }
  });

  it('the variable that allows them is no kernel', () => {
    const { bytes } = QUANTIZED.codeObject('x86-64-v4-vnni')!;
    using module = device.hip.loadModule(bytes);
    expect(() => module.getFunction('x_amx', [])).toThrow('no function "x_amx"');
  });

  // Sides and depths that end within a tile, a strip and a slab, one slab and several, each matrix in both orders.
  it.each([
    [1, 40, 50, 33, false, false],
    [2, 200, 210, 256, false, true],
    [1, 97, 33, 600, true, false],
    [1, 16, 400, 31, true, true],
    [1, 560, 34, 64, false, true],
    [1, 65, 20, 2080, false, true],
    [1, 33, 130, 1100, false, false],
  ])('bf16: %i of %i x %i x %i, transposed: %s, %s', (b, m, n, k, leftTurned, rightTurned) => {
    const left = new Float32Array(b * m * k).map((_, i) => ((i * 7919) % 255) / 64 - 2);
    const right = new Float32Array(b * k * n).map((_, i) => ((i * 104729) % 251) / 64 - 2);
    const bits = (values: Float32Array) => device.fromHost(Uint16Array.from(values, f32ToBf16), 'bf16');
    const [l, r, out] = [bits(left), bits(right), device.zeros(b * m * n, 'bf16')];
    const strides = [...(leftTurned ? [1, m] : [k, 1]), ...(rightTurned ? [1, k] : [n, 1])];
    device.getOrLoadFuncRaw('tiles_bf16', products).launch(1, 1, 0, [l.ptr, r.ptr, out.ptr, b, m, n, k, ...strides]);
    const got = Float32Array.from(new Uint16Array(out.toHostSync()), bf16ToF32);
    for (const storage of [l, r, out]) storage.dispose();
    const at = (values: Float32Array, i: number) => bf16ToF32(f32ToBf16(values[i]));
    const [lr, lc, rr, rc] = strides;
    for (let i = 0; i < b * m * n; i++) {
      const [batch, row, column] = [Math.floor(i / (m * n)), Math.floor(i / n) % m, i % n];
      let sum = 0;
      let size = 0;
      for (let e = 0; e < k; e++) {
        const term = at(left, batch * m * k + row * lr + e * lc) * at(right, batch * k * n + e * rr + column * rc);
        sum += term;
        size += Math.abs(term);
      }
      if (!(Math.abs(got[i] - sum) <= Math.abs(sum) * 2 ** -8 + size * 2 ** -20)) expect([i, got[i]]).toEqual([i, sum]);
    }
  });

  // Channels and places that end within a block, a group and a line; several phases, strides and images.
  it.each([
    [1, 32, 16, 7, 3, {}],
    [2, 40, 48, 9, 3, { stride: 2, padding: 1 }],
    [1, 96, 33, 12, 2, {}],
    [3, 17, 20, 6, 3, { padding: 2, dilation: 2 }],
    [1, 128, 64, 5, 3, { groups: 2, padding: 1 }],
    [1, 48, 40, 6, 3, { stride: 2, padding: 1, transposed: true }],
    [2, 15, 7, 8, 3, {}],
  ] as [number, number, number, number, number, Record<string, number | boolean>][])(
    'convolutions of bf16: %i images of %i to %i channels, side %i, kernel %i, %j',
    (images, cIn, cOut, side, k, { transposed, groups = 1, ...options }) => {
      const cpuDevice = Device.cpu();
      const backend = cpuDevice.backend as RocmDevice;
      const made = (conv: (x: Tensor, w: Tensor) => Tensor): Float32Array =>
        scope(() => {
          const numbers = (shape: number[], seed: number) => {
            const count = shape.reduce((a, b) => a * b, 1);
            const values = new Float32Array(count).map((_, i) => ((i * 7919 + seed) % 255) / 64 - 2);
            return Tensor.from(values, { device: cpuDevice }).reshape(shape).toDtype('bf16');
          };
          const per = (all: number) => all / Number(groups);
          const weight = transposed ? [cIn, per(cOut), k, k] : [cOut, per(cIn), k, k];
          return conv(numbers([images, cIn, side, side], 1), numbers(weight, 5))
            .toDtype('f32')
            .toArraySync<Float32Array>();
        });
      const all = { ...options, groups: Number(groups) };
      const conv = (x: Tensor, w: Tensor) => (transposed ? x.convTranspose2d(w, all) : x.conv2d(w, all));
      const wanted = made((x, w) => conv(x.toDtype('f32'), w.toDtype('f32')));
      const launch = backend.launch.bind(backend);
      const launched: string[] = [];
      const spy = vi.spyOn(backend, 'launch').mockImplementation((module, kernel, shape, args) => {
        const isOne = kernel === 'conv_strips_bf16' || kernel === 'conv_taps_bf16';
        if (!isOne) return launch(module, kernel, shape, args);
        launched.push(kernel);
        backend.launchFunction(backend.getOrLoadFuncRaw(kernel, convolutions), shape, args);
      });
      try {
        const got = made(conv);
        expect(launched).toEqual(['conv_strips_bf16', 'conv_taps_bf16']);
        const size = Math.sqrt(wanted.reduce((sum, value) => sum + value * value, 0) / wanted.length);
        for (const [i, value] of wanted.entries())
          if (!(Math.abs(got[i] - value) <= Math.abs(value) * 2 ** -8 + size * 1e-5))
            expect([i, got[i]]).toEqual([i, value]);
      } finally {
        spy.mockRestore();
      }
    },
  );

  // Queries and keys that end within a tile and a step, groups of heads, rows that lie apart, more keys than queries.
  it.each([
    [1, 2, 1, 64, 64, 64, true],
    [2, 4, 2, 70, 70, 64, false],
    [1, 1, 1, 17, 133, 128, true],
    [1, 2, 2, 130, 47, 128, false],
    [1, 2, 1, 200, 200, 64, true],
  ] as const)(
    'attention of bf16: %i of %i heads over %i, %i queries, %i keys of %i, causal: %s',
    (b, heads, kvHeads, seq, kv, d, causal) => {
      const cpuDevice = Device.cpu();
      const backend = cpuDevice.backend as RocmDevice;
      const made = (dtype: 'f32' | 'bf16'): Float32Array =>
        scope(() => {
          const numbers = (of: number, rows: number, seed: number) => {
            const values = Float32Array.from(
              { length: b * rows * of * d },
              (_, i) => ((i * 7919 + seed) % 255) / 64 - 2,
            );
            // Heads of a token lie side by side.
            const tensor = Tensor.from(values, { device: cpuDevice }).reshape([b, rows, of, d]).transpose(1, 2);
            return tensor.toDtype('bf16').toDtype(dtype);
          };
          const operands = [numbers(heads, seq, 1), numbers(kvHeads, kv, 5), numbers(kvHeads, kv, 9)].map((x) =>
            x.storageAndLayout(),
          );
          const [q, k, v] = operands;
          const made = backend.attention!.forward({ b, heads, kvHeads, seq, kv, d, causal, scale: 0.02 }, q, k, v);
          return Tensor.fromStorage(made, [b * heads * seq * d], cpuDevice)
            .toDtype('f32')
            .toArraySync<Float32Array>();
        });
      const wanted = made('f32');
      const launch = backend.launch.bind(backend);
      let launched = 0;
      const spy = vi.spyOn(backend, 'launch').mockImplementation((module, kernel, shape, args) => {
        if (!/^attention_\d+_bf16$/.test(kernel)) return launch(module, kernel, shape, args);
        launched++;
        backend.launchFunction(backend.getOrLoadFuncRaw(kernel, attention), shape, args);
      });
      try {
        const got = made('bf16');
        expect(launched).toBe(1);
        const furthest = got.reduce((most, value, i) => Math.max(most, Math.abs(value - wanted[i])), 0);
        expect(furthest).toBeGreaterThan(0);
        expect(furthest).toBeLessThan(2e-2);
      } finally {
        spy.mockRestore();
      }
    },
  );
});
