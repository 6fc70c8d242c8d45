/**
 * Convolutions through the vendor libraries that this machine has (cuDNN on cuda, MIOpen on rocm; cpu has none) against the
 * TypeScript reference, and the choice between them and our kernels.
 */
import { type DType, Layout } from '@x/core';
import type { LibraryReport } from '@x/hip';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { failure } from '@x/testing/hip-failure';
import { at, operandSpec, runs } from '@x/testing/operands';
import { tolerance, withPair } from '@x/testing/products';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RocmDevice } from '../src/index';

const small = (min: number, max: number) => fc.integer({ min, max });
const kinds = kernelDevices().map((device) => device.location.kind as 'cpu' | 'cuda' | 'rocm');

describe.each(kinds)('convolution libraries on %s', (kind) => {
  let device: RocmDevice;
  let convolution: LibraryReport | undefined;
  beforeAll(() => {
    device = RocmDevice.open(kind, 0);
    convolution = device.hip.libraries().find((report) => report.available && report.purpose === 'convolution');
  });
  afterAll(() => device.dispose());

  const calls = () => device.hip.counters();

  it('convolves f32 without TF32 unless asked', () => {
    device.gemm = 'auto';
    device.convolution = convolution ? 'library' : 'auto';
    const fine = 1 + 2 ** -12;
    const p = {
      b: 2,
      cIn: 4,
      cOut: 8,
      groups: 1,
      hIn: 16,
      wIn: 16,
      kH: 3,
      kW: 3,
      hOut: 16,
      wOut: 16,
      padding: 1,
      stride: 1,
      dilation: 1,
    };
    const x = device.zeros(2 * 4 * 256, 'f32');
    x.device.ops.fill(at(x, Layout.contiguous([2 * 4 * 256])), fine);
    // The middle of each kernel's first channel.
    const weights = new Float32Array(8 * 4 * 9).map((_, i) => (i % 36 === 4 ? 1 : 0));
    const w = device.fromHost(weights, 'f32');
    const worst = () => {
      const out = x.device.conv.conv2d(
        at(x, Layout.contiguous([2, 4, 16, 16])),
        at(w, Layout.contiguous([8, 4, 3, 3])),
        p,
      );
      const values = new Float32Array(out.toHostSync());
      out.dispose();
      return Math.max(...values.map((value) => Math.abs(value - fine)));
    };
    expect(worst()).toBeLessThan(2e-6);
    device.gemmReducedPrecisionF32 = true;
    expect(worst()).toBeLessThan(2e-3);
    device.gemmReducedPrecisionF32 = false;
    expect(worst()).toBeLessThan(2e-6);
    x.dispose();
    w.dispose();
  });

  const geometry = fc
    .record({
      type: fc.constantFrom<DType>('f32', 'f16', 'bf16'),
      transposed: fc.boolean(),
      flat: fc.boolean(),
      b: small(1, 3),
      cIn: small(1, 8),
      cOut: small(1, 16),
      size: fc.tuple(small(1, 14), small(1, 40)),
      kernel: fc.tuple(small(1, 3), small(2, 5)),
      padding: small(0, 2),
      stride: small(1, 3),
      dilation: small(1, 2),
      outputPadding: small(0, 2),
    })
    .map((g) => {
      const reach = (n: number, k: number) => {
        const span = g.dilation * (k - 1) + 1;
        return g.transposed
          ? (n - 1) * g.stride - 2 * g.padding + span + g.outputPadding
          : Math.floor((n + 2 * g.padding - span) / g.stride) + 1;
      };
      const [hIn, wIn] = g.size;
      const [kH, kW] = g.kernel;
      return { ...g, groups: 1, hIn, wIn, kH, kW, hOut: reach(hIn, kH), wOut: reach(wIn, kW) };
    })
    .filter((g) => g.wOut > 0 && (g.flat || g.hOut > 0));

  it.each(['library', 'auto', 'kernels'] as const)('convolutions in both directions, by %s', (choice) => {
    device.gemm = 'auto';
    if (choice === 'library' && !convolution) {
      const code = failure(() => RocmDevice.open(kind, 0, { convolution: 'library' })).code;
      return expect(['LIBRARY_NOT_FOUND', 'INVALID_ARGUMENT']).toContain(code);
    }
    device.convolution = choice;
    const before = calls().library;
    if (choice === 'kernels') device.gemm = 'kernels';
    fc.assert(
      fc.property(geometry, operandSpec, operandSpec, (g, left, right) =>
        withPair(device, (pair) => {
          const channels = g.transposed ? [g.cIn, g.cOut] : [g.cOut, g.cIn];
          const shape = g.flat ? [g.b, g.cIn, g.wIn] : [g.b, g.cIn, g.hIn, g.wIn];
          const x = pair.operand(shape, g.type, left, true);
          const kernel = pair.operand([...channels, ...(g.flat ? [g.kW] : [g.kH, g.kW])], g.type, right, true);
          const op = g.flat
            ? (['conv1d', 'convTranspose1d'] as const)[Number(g.transposed)]
            : (['conv2d', 'convTranspose2d'] as const)[Number(g.transposed)];
          const p = { ...g, lIn: g.wIn, k: g.kW, lOut: g.wOut };
          expectClose(
            pair.run((side) => x[side].device.conv![op]!(at(x[side], x.layout), at(kernel[side], kernel.layout), p)),
            `${op} ${JSON.stringify(g)} ${x.layout} ${kernel.layout}`,
            tolerance(g.type, g.cIn * g.kH * g.kW),
          );
        }),
      ),
      runs(120),
    );
    if (choice === 'kernels') expect(calls().library).toBe(before);
    if (choice === 'library') expect(calls().library).toBeGreaterThan(before);
  });

  it('plans a convolution once and gives its workspace back', () => {
    if (!convolution)
      return expect(device.hip.libraries().some((report) => report.purpose === 'convolution' && report.available)).toBe(
        false,
      );
    device.convolution = 'library';
    const p = {
      b: 2,
      cIn: 16,
      cOut: 32,
      groups: 1,
      hIn: 20,
      wIn: 20,
      kH: 3,
      kW: 3,
      hOut: 20,
      wOut: 20,
      padding: 1,
      stride: 1,
      dilation: 1,
    };
    const [x, w] = [device.zeros(2 * 16 * 400, 'f16'), device.zeros(32 * 16 * 9, 'f16')];
    const run = () =>
      x.device.conv
        .conv2d(at(x, Layout.contiguous([2, 16, 20, 20])), at(w, Layout.contiguous([32, 16, 3, 3])), p)
        .dispose();
    run();
    const size = device.libraries.plans.values().length;
    const before = device.memory().liveBytes;
    run();
    expect(device.libraries.plans.values().length).toBe(size);
    expect(device.memory().liveBytes).toBe(before);
    x.dispose();
    w.dispose();
  });
});
