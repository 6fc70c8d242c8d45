/** Convolutions, pooling, resizing and sorting of every device against the TypeScript reference, on views of all kinds. */
import { type Conv2dParams, DTYPES, isFloat, Layout } from '@x/core';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at, operandSpec, pairsOf, randomBytes, runs, sumError } from '@x/testing/operands';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

const dtype = fc.constantFrom(...DTYPES);
const small = (min: number, max: number) => fc.integer({ min, max });

const geometry = fc
  .record({
    b: small(1, 3),
    cIn: small(1, 5),
    cOut: small(1, 12),
    groups: fc.constantFrom(1, 1, 2, 3),
    hIn: small(1, 12),
    wIn: small(1, 80),
    kH: small(1, 3),
    // Wide ones leave results smaller than themselves, as gradients of kernels are.
    kW: fc.oneof({ weight: 7, arbitrary: small(1, 5) }, { weight: 1, arbitrary: small(20, 40) }),
    padding: small(0, 3),
    stride: small(1, 3),
    dilation: small(1, 3),
    outputPadding: small(0, 2),
    transposed: fc.boolean(),
  })
  .map((g) => {
    const size = (n: number, k: number) => {
      const reach = g.dilation * (k - 1) + 1;
      if (g.transposed) return (n - 1) * g.stride - 2 * g.padding + reach + g.outputPadding;
      return Math.floor((n + 2 * g.padding - reach) / g.stride) + 1;
    };
    const { groups } = g;
    // Groups of few channels: the reference is slow.
    const channels = (count: number) => groups * (groups === 1 ? count : 1 + (count % 3));
    const [cIn, cOut] = [channels(g.cIn), channels(g.cOut)];
    return { ...g, cIn, cOut, hOut: size(g.hIn, g.kH), wOut: size(g.wIn, g.kW) };
  })
  .filter((g) => g.hOut > 0 && g.wOut > 0);

describe.each(kernelDevices())('convolution, pooling and sorting on %s', (device) => {
  const withPair = pairsOf(device);

  it('2-D convolutions in both directions', () => {
    fc.assert(
      fc.property(dtype, geometry, operandSpec, operandSpec, (type, p, a, c) =>
        withPair((pair) => {
          // Integers of their whole range: products and sums wrap.
          const x = pair.operand([p.b, p.cIn, p.hIn, p.wIn], type, a, isFloat(type));
          const channels = p.transposed ? [p.cIn, p.cOut / p.groups] : [p.cOut, p.cIn / p.groups];
          const kernel = pair.operand([...channels, p.kH, p.kW], type, c, isFloat(type));
          const op = p.transposed ? 'convTranspose2d' : 'conv2d';
          expectClose(
            pair.run((side) => x[side].device.conv![op]!(at(x[side], x.layout), at(kernel[side], kernel.layout), p)),
            `${op} ${JSON.stringify(p)} ${x.layout} ${kernel.layout}`,
            sumError(type, p.cIn * p.kH * p.kW),
          );
        }),
      ),
      runs(250),
    );
  });

  it('1-D convolutions in both directions', () => {
    fc.assert(
      fc.property(dtype, geometry, fc.boolean(), operandSpec, operandSpec, (type, g, plain, a, c) =>
        withPair((pair) => {
          // Half of the transposed ones as col2im takes them: neither padded nor dilated.
          const free = g.transposed && plain ? { padding: 0, dilation: 1, outputPadding: 0 } : {};
          const p = { ...g, ...free, lIn: g.wIn, k: g.kW, lOut: g.wOut };
          if (g.transposed && plain) p.lOut = (p.lIn - 1) * p.stride + p.k;
          const x = pair.operand([p.b, p.cIn, p.lIn], type, a, isFloat(type));
          const channels = p.transposed ? [p.cIn, p.cOut / p.groups] : [p.cOut, p.cIn / p.groups];
          const kernel = pair.operand([...channels, p.k], type, c, isFloat(type));
          const op = p.transposed ? 'convTranspose1d' : 'conv1d';
          expectClose(
            pair.run((side) => x[side].device.conv![op]!(at(x[side], x.layout), at(kernel[side], kernel.layout), p)),
            `${op} ${JSON.stringify(p)} ${x.layout} ${kernel.layout}`,
            sumError(type, p.cIn * p.k),
          );
        }),
      ),
      runs(250),
    );
  });

  it('groups of one channel: kernels of 3 x 3 and others, rows of more than a vector', () =>
    withPair((pair) => {
      for (const [type, size, stride, transposed] of [
        ['f32', 3, 1, false],
        ['f32', 3, 1, true],
        ['f64', 3, 1, false],
        ['bf16', 3, 2, false],
        ['f16', 5, 1, false],
        ['f32', 4, 2, true],
      ] as const) {
        const [b, groups, hIn, wIn, padding] = [2, 3, 7, 37, 1];
        const out = (n: number) =>
          transposed ? (n - 1) * stride - 2 * padding + size : Math.floor((n + 2 * padding - size) / stride) + 1;
        const p = {
          ...{ b, cIn: groups, cOut: groups, groups, hIn, wIn, hOut: out(hIn), wOut: out(wIn), kH: size, kW: size },
          ...{ padding, stride, dilation: 1, outputPadding: 0 },
        };
        const x = pair.operand([b, groups, hIn, wIn], type, { kind: 'contiguous', seed: size }, true);
        const kernel = pair.operand([groups, 1, size, size], type, { kind: 'contiguous', seed: 7 }, true);
        const op = transposed ? 'convTranspose2d' : 'conv2d';
        expectClose(
          pair.run((side) => x[side].device.conv![op]!(at(x[side], x.layout), at(kernel[side], kernel.layout), p)),
          `${op} ${JSON.stringify(p)}`,
          sumError(type, size * size),
        );
      }
    }));

  it('a kernel whose strides allow no matrix view is multiplied from its copy', () =>
    withPair((pair) => {
      const x = pair.operand([2, 6, 9, 10], 'f32', { kind: 'contiguous', seed: 1 }, true);
      const base = pair.operand([3, 6, 5, 4], 'f32', { kind: 'contiguous', seed: 2 }, true);
      const layout = base.layout.transpose(0, 3).narrow(0, 1, 3).narrow(2, 2, 2);
      const p: Conv2dParams = {
        ...{ b: 2, cIn: 6, cOut: 3, groups: 1, hIn: 9, wIn: 10, hOut: 8, wOut: 8, kH: 2, kW: 3 },
        ...{ padding: 0, stride: 1, dilation: 1 },
      };
      const result = pair.run((side) => x[side].device.conv!.conv2d!(at(x[side], x.layout), at(base[side], layout), p));
      expectClose(result, 'conv2d', { absolute: 4e-4 });
    }));

  it('an infinity or NaN reaches the results that read it and no other', () =>
    withPair((pair) => {
      for (const [lIn, k, padding, stride] of [
        [40, 3, 1, 1],
        [40, 30, 0, 1],
        [75, 33, 2, 2],
      ]) {
        const values = new Float32Array(2 * lIn).map((_, i) => (i % lIn === lIn - 1 ? Number.NaN : 1));
        values[lIn] = Number.POSITIVE_INFINITY;
        const x = pair.from(values, 'f32', Layout.contiguous([2, 1, lIn]));
        const kernel = pair.from(new Float32Array(3 * k).fill(1), 'f32', Layout.contiguous([3, 1, k]));
        const lOut = Math.floor((lIn + 2 * padding - k) / stride) + 1;
        const p = { ...{ b: 2, cIn: 1, cOut: 3, groups: 1, lIn, lOut, k }, ...{ padding, stride, dilation: 1 } };
        const run = pair.run((side) =>
          x[side].device.conv!.conv1d!(at(x[side], x.layout), at(kernel[side], kernel.layout), p),
        );
        expect([...new Float32Array(run.actual)]).toEqual([...new Float32Array(run.expected)]);
      }
    }));

  it('pooling', () => {
    const windows = fc.record({ kH: small(1, 4), kW: small(1, 4), strideH: small(1, 3), strideW: small(1, 4) });
    fc.assert(
      fc.property(
        fc.constantFrom('avgPool2d' as const, 'maxPool2d' as const),
        dtype,
        windows,
        fc.tuple(small(1, 3), small(1, 4), small(4, 9), small(4, 90)),
        operandSpec,
        (op, type, window, shape, spec) =>
          withPair((pair) => {
            const x = pair.operand(shape, type, spec, op === 'avgPool2d');
            const hOut = Math.floor((shape[2] - window.kH) / window.strideH) + 1;
            const wOut = Math.floor((shape[3] - window.kW) / window.strideW) + 1;
            expectClose(
              pair.run((side) => x[side].device.resampling![op]!(at(x[side], x.layout), { ...window, hOut, wOut })),
              `${op} ${JSON.stringify(window)} ${x.layout}`,
              isFloat(type) && op === 'avgPool2d' ? { absolute: type === 'f64' ? 1e-14 : 1e-5 } : {},
            );
          }),
      ),
      runs(200),
    );
  });

  it('resizing', () => {
    const target = fc.tuple(small(1, 20), small(1, 100));
    const factor = fc.option(fc.double({ min: 0.4, max: 3, noNaN: true }), { nil: undefined });
    fc.assert(
      fc.property(
        dtype,
        fc.tuple(small(1, 3), small(1, 3), small(1, 9), small(1, 40)),
        target,
        fc.boolean(),
        factor,
        operandSpec,
        (type, shape, [hOut, wOut], alignCorners, scale, spec) =>
          withPair((pair) => {
            const x = pair.operand(shape, type, spec, true);
            const label = `${x.layout} to ${hOut}, ${wOut}, scale ${scale}`;
            const resized = pair.run((side) =>
              x[side].device.resampling!.upsampleNearest2d!(at(x[side], x.layout), hOut, wOut),
            );
            expectClose(resized, `nearest ${label}`);
            const line = new Layout(
              [shape[0], shape[1], shape[3]],
              [x.layout.strides[0], x.layout.strides[1], x.layout.strides[3]],
              x.layout.startOffset,
            );
            expectClose(
              pair.run((side) => x[side].device.resampling!.upsampleNearest1d!(at(x[side], line), wOut)),
              `nearest of a line, ${label}`,
            );
            const params = { hOut, wOut, alignCorners, scaleH: scale, scaleW: scale };
            // A mean of whole numbers may be whole itself: on either side of it by a rounding.
            const near = { absolute: { f64: 1e-14, f32: 1e-6 }[type as 'f32'] ?? (isFloat(type) ? 1e-6 : 1) };
            expectClose(
              pair.run((side) => x[side].device.resampling!.upsampleBilinear2d!(at(x[side], x.layout), params)),
              `bilinear ${label}`,
              near,
            );
          }),
      ),
      runs(200),
    );
  });

  it('arg-sort of rows, narrow and wide, of every dtype', () => {
    const shape = fc.oneof(
      { weight: 4, arbitrary: fc.tuple(small(1, 6), small(1, 70)) },
      { weight: 2, arbitrary: fc.tuple(small(1, 3), small(900, 9000)) },
      { weight: 1, arbitrary: fc.tuple(fc.constant(2), small(12000, 40000)) },
    );
    fc.assert(
      fc.property(fc.constantFrom(...DTYPES), shape, fc.boolean(), operandSpec, (type, rows, descending, spec) =>
        withPair((pair) => {
          const x = pair.operand(rows, type, spec);
          expectClose(
            pair.run((side) => x[side].device.sorting!.argSortLastDim!(at(x[side], x.layout), descending)),
            `argSort ${x.layout}`,
          );
        }),
      ),
      runs(80),
    );
  });

  it('averages of 64-bit integers whose sum needs more bits', () =>
    withPair((pair) => {
      const extremes = [2n ** 63n - 1n, -(2n ** 63n), 2n ** 62n + 5n, -1n, 0n, -(2n ** 61n) - 3n, 7n, 2n ** 33n];
      const values = BigInt64Array.from({ length: 6 * 24 }, (_, i) => extremes[(i * 5 + (i >> 3)) % extremes.length]);
      const x = pair.from(values, 'i64', Layout.contiguous([1, 1, 6, 24]));
      for (const [kH, kW] of [
        [1, 1],
        [2, 3],
        [6, 7],
      ]) {
        const window = { kH, kW, strideH: 1, strideW: 2 };
        const params = { ...window, hOut: 6 - kH + 1, wOut: Math.floor((24 - kW) / 2) + 1 };
        expectClose(
          pair.run((side) => x[side].device.resampling!.avgPool2d!(at(x[side], x.layout), params)),
          `avgPool2d ${kH} x ${kW}`,
        );
      }
    }));

  it('gives back what a convolution needed on the way', () => {
    const { backend } = device;
    const make = (count: number) => backend.fromHost(randomBytes('f32', count, count, true), 'f32');
    const [x, kernel] = [make(2 * 3 * 8 * 8), make(4 * 3 * 3 * 3)];
    const before = backend.memory().liveBytes;
    const p = { b: 2, cIn: 3, cOut: 4, groups: 1, hIn: 8, wIn: 8, hOut: 6, wOut: 6, kH: 3, kW: 3 };
    const steps = { padding: 0, stride: 1, dilation: 1 };
    const kernelLayout = Layout.contiguous([3, 4, 3, 3]).transpose(0, 1);
    const run = () =>
      x.device.conv!.conv2d!(at(x, Layout.contiguous([2, 3, 8, 8])), at(kernel, kernelLayout), { ...p, ...steps });
    run().dispose();
    const held = backend.memory().liveBytes;
    run().dispose();
    expect(backend.memory().liveBytes).toBe(held);
    // Descriptions of the layouts stay cached: some hundred bytes.
    expect(held - before).toBeLessThan(8192);
    for (const storage of [x, kernel]) storage.dispose();
  });
});
