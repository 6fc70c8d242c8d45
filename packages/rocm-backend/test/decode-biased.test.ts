/**
 * The kernels between products whose biases are still to be added, launched as they are: only the host's device takes them by itself
 * (packages/nn/test/biased.test.ts), and they are there for all.
 */
import type { Device } from '@x/core';
import { DECODE } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { afterAll, describe, it } from 'vitest';
import type { KernelStorage, RocmDevice } from '../src/index';
import { EPS, expectBlocks, expectNear, gelu, memory, noise, silu } from './decode-operands';

/** 1 + 2 / sqrt(pi) times the series of the error function's integral; x is small here. */
function erf(x: number): number {
  let [term, sum] = [x, x];
  for (let n = 1; n < 60; n++) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

const ACTIVATIONS = { silu, gelu, gelu_erf: (x: number) => 0.5 * x * (1 + erf(x / Math.SQRT2)) };
/** Rows, their values, and values from one row to the next. */
const SIZES = [
  [1, 32, 32],
  [3, 160, 200],
  [5, 768, 768],
] as const;
const paddedTo = (n: number) => Math.ceil(n / 512) * 512;

describe.each(kernelDevices())('biased kernels on %s', (device: Device) => {
  const backend = device.backend as RocmDevice;
  const { part, numbers, disposeAll } = memory(device);
  const { warpSize } = backend.hip.properties;
  const isHost = device.location.kind === 'cpu';
  /** Grids of fewer blocks than there are rows, and of more. */
  const shapes = isHost
    ? [{ grid: 2, block: 1 }]
    : [
        { grid: 2, block: 2 * warpSize },
        { grid: 9, block: 4 * warpSize },
      ];
  afterAll(disposeAll);

  const address = (values: Float32Array) => backend.address(part(values));
  /** Results of rows of n values: in blocks, and as numbers. */
  function results(rows: number, n: number) {
    const made: [blocks: KernelStorage, numbers: KernelStorage] = [
      backend.zeros((rows * paddedTo(n) * 36) / 32, 'u8'),
      backend.zeros(rows * n, 'f32'),
    ];
    return made;
  }

  it.each(Object.entries(ACTIVATIONS))('%s of what a bias is added to', (name, apply) => {
    for (const [rows, n, row] of SIZES) {
      const [x, bias] = [noise(rows * row, 1), noise(n, 2)];
      for (const given of [bias, undefined]) {
        const expected = new Float64Array(rows * n).map((_, i) =>
          apply(x[Math.floor(i / n) * row + (i % n)] + (given ? given[i % n] : 0)),
        );
        for (const shape of shapes) {
          const [blocks, y] = results(rows, n);
          const operands = [address(x), row, given ? address(given) : 0];
          backend.launch(DECODE, `decode_activated_${name}`, shape, [rows, n, paddedTo(n), ...operands, blocks.ptr, 0]);
          backend.launch(DECODE, `decode_activated_${name}`, shape, [rows, n, paddedTo(n), ...operands, 0, y.ptr]);
          const label = `${rows} x ${n}, bias: ${given !== undefined}, grid ${shape.grid}`;
          expectBlocks(blocks, rows, n, expected, label);
          expectNear(numbers(y), expected, 1e-5, label);
          for (const storage of [blocks, y]) storage.dispose();
        }
      }
    }
  });

  // On GPUs a block a row.
  it('norms of sums', () => {
    for (const [rows, n] of SIZES) {
      const [x, delta, bias, alpha, beta] = [0, 1, 2, 3, 4].map((seed) => noise(seed < 2 ? rows * n : n, seed));
      const sums = new Float64Array(rows * n).map((_, i) => x[i] + delta[i] + bias[i % n]);
      for (const centred of [true, false]) {
        const normed = new Float64Array(rows * n);
        for (let at = 0; at < rows * n; at += n) {
          const own = sums.subarray(at, at + n);
          const mean = centred ? own.reduce((a, b) => a + b, 0) / n : 0;
          const spread = Math.sqrt(own.reduce((a, b) => a + (b - mean) ** 2, 0) / n + EPS);
          own.forEach((value, i) => {
            normed[at + i] = ((value - mean) / spread) * alpha[i] + (centred ? beta[i] : 0);
          });
        }
        for (const shape of shapes.map(({ grid, block }) => ({ grid: isHost ? grid : rows, block }))) {
          const [blocks, y] = results(rows, n);
          const sum = backend.zeros(rows * n, 'f32');
          const operands = [x, delta, bias, alpha].map(address);
          backend.launch(DECODE, 'decode_norm_biased', shape, [
            ...[rows, n, paddedTo(n), EPS, centred ? 1 : 0, ...operands, centred ? address(beta) : 0],
            ...[sum.ptr, blocks.ptr, y.ptr],
          ]);
          const label = `${rows} x ${n}, centred: ${centred}, grid ${shape.grid}`;
          expectNear(numbers(sum), sums, 1e-5, label);
          expectNear(numbers(y), normed, 1e-4, label);
          expectBlocks(blocks, rows, n, normed, label);
          for (const storage of [sum, blocks, y]) storage.dispose();
        }
      }
    }
  });
});
