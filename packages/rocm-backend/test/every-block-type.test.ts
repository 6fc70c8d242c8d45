/**
 * Every kernel of QUANTIZED that quantized-products.test.ts leaves out, for every block type once, on few blocks: see
 * every-kernel.test.ts. Activations are whole numbers that q8_1 blocks hold exactly.
 */
import { bf16ToF32, type DType, f16ToF32, f32ToBf16, f32ToF16, Layout } from '@x/core';
import { QUANTIZED } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { at } from '@x/testing/operands';
import { BLOCK_TYPES, randomBlocks } from '@x/testing/quantized/random-blocks';
import { describe, expect, it } from 'vitest';
import { blockFormat } from '../../quantized/src/blocks';
import type { RocmDevice, RocmStorage } from '../src/index';

type BlockType = (typeof BLOCK_TYPES)[number];

/** candle's products of dequantised weights with an f32 column. */
const DEQUANTIZED_PRODUCTS: Partial<Record<BlockType, string>> = {
  ...{ q4_0: 'q4_0_cuda', q4_1: 'q4_1_cuda', q5_0: 'q5_0_cuda', q5_1: 'q5_1_cuda', q8_0: 'q8_0_cuda' },
  ...{ q2_K: 'q2_k', q3_K: 'q3_k', q4_K: 'q4_k', q5_K: 'q5_k', q6_K: 'q6_k' },
};
const K = 512;

/** Whole numbers whose largest in every 32 is 127. */
function activations(rows: number): Float32Array {
  return new Float32Array(rows * K).map((_, i) => (i % 32 === 5 ? 127 : ((i * 11) % 23) - 11));
}

/** Weight rows as blocks and as numbers. */
function weights(type: BlockType, rows: number): { bytes: Uint8Array; values: Float32Array } {
  const { blockSize, dequantize } = blockFormat(type);
  const blocks = (rows * K) / blockSize;
  const bytes = randomBlocks(type, blocks, 5);
  const values = new Float32Array(rows * K);
  dequantize(bytes, 0, values, 0, blocks);
  return { bytes, values };
}

function expectProduct(got: number, w: Float32Array, x: Float32Array, what: string, relative = 2e-5): void {
  let [sum, magnitude] = [0, 0];
  for (let i = 0; i < K; i++) {
    sum += w[i] * x[i];
    magnitude += Math.abs(w[i] * x[i]);
  }
  expect(Math.abs(got - sum), `${what}: ${got} for ${sum}`).toBeLessThanOrEqual(relative * magnitude + 1e-3);
}

describe.each(kernelDevices())('every block type on %s', (device) => {
  const backend = device.backend as RocmDevice;
  const { quantized } = backend;

  /** Calls with storages that are freed when it is done. */
  function withStorages<T>(data: [ArrayBufferView, DType][], use: (...storages: RocmStorage[]) => T): T {
    const storages = data.map(([view, dtype]) => backend.fromHost(view, dtype));
    try {
      return use(...storages);
    } finally {
      for (const storage of storages) storage.dispose();
    }
  }

  it.each(BLOCK_TYPES)('values and rows of %s', (type) => {
    const w = weights(type, 3);
    const ids = Uint32Array.of(2, 0, 2, 1);
    withStorages(
      [
        [w.bytes, 'u8'],
        [ids, 'u32'],
      ],
      (blocks, wanted) => {
        const full = quantized.dequantize(blocks, type, 3 * K, 'f32');
        expect(new Float32Array(full.toHostSync())).toEqual(w.values);
        const half = quantized.dequantize(blocks, type, 3 * K, 'f16');
        const rounded = w.values.map((value) => f16ToF32(f32ToF16(value)));
        // With the signs of zeros.
        expect(Float32Array.from(new Uint16Array(half.toHostSync()), f16ToF32)).toEqual(rounded);
        const short = quantized.dequantize(blocks, type, 3 * K, 'bf16');
        const shortened = w.values.map((value) => bf16ToF32(f32ToBf16(value)));
        expect(Float32Array.from(new Uint16Array(short.toHostSync()), bf16ToF32)).toEqual(shortened);
        const rows = quantized.embedding(blocks, type, K, at(wanted, Layout.contiguous([4])));
        const expected = [...ids].flatMap((id) => [...w.values.subarray(id * K, (id + 1) * K)]);
        expect([...new Float32Array(rows.toHostSync())]).toEqual(expected);
        for (const storage of [full, half, short, rows]) storage.dispose();
      },
    );
  });

  it.each(BLOCK_TYPES)('experts of %s', (type) => {
    const [experts, n, tokens, topk] = [3, 5, 2, 2];
    const w = weights(type, experts * n);
    const x = activations(tokens);
    const ids = Uint32Array.of(2, 0, 1, 2);
    withStorages(
      [
        [w.bytes, 'u8'],
        [x, 'f32'],
        [ids, 'u32'],
      ],
      (blocks, input, chosen) => {
        const size = { n, k: K, topk, shared: true };
        const layout = Layout.contiguous([tokens, 1, K]);
        const y = quantized.indexedMoe(
          blocks,
          type,
          size,
          at(input, layout),
          at(chosen, Layout.contiguous([tokens, topk])),
        );
        const got = new Float32Array(y.toHostSync());
        y.dispose();
        for (const [i, value] of got.entries()) {
          const task = Math.floor(i / n);
          const row = ids[task] * n + (i % n);
          const token = Math.floor(task / topk);
          expectProduct(value, w.values.subarray(row * K), x.subarray(token * K), `${type} ${i}`);
        }
      },
    );
  });

  it.each(Object.entries(DEQUANTIZED_PRODUCTS))('dequantised products of %s', (type, name) => {
    const n = 5;
    const w = weights(type as BlockType, n);
    const x = activations(1);
    withStorages(
      [
        [w.bytes, 'u8'],
        [x, 'f32'],
        [new Float32Array(n), 'f32'],
      ],
      (blocks, input, out) => {
        // That of q5_K takes a block a row and does not say how many.
        const args = [blocks.ptr, input.ptr, out.ptr, K, ...(type === 'q5_K' ? [] : [n])];
        backend.launch(QUANTIZED, `dequantize_mul_mat_vec_${name}`, { grid: n, block: 64 }, args);
        for (const [row, value] of new Float32Array(out.toHostSync()).entries())
          expectProduct(value, w.values.subarray(row * K), x, `${type} ${row}`);
      },
    );
  });

  it.each([
    ['f32', (x) => x],
    ['f16', (x) => Uint16Array.from(x, f32ToF16)],
    ['bf16', (x) => Uint16Array.from(x, f32ToBf16)],
  ] as [DType, (x: Float32Array) => ArrayBufferView][])('rows and activations of %s', (dtype, stored) => {
    const x = activations(3);
    const ids = Uint32Array.of(1, 2, 0, 1);
    const w = weights('q8_0', 4);
    withStorages(
      [
        [stored(x), dtype],
        [ids, 'u32'],
        [new Float32Array(4 * K), 'f32'],
        [w.bytes, 'u8'],
      ],
      (source, wanted, out, blocks) => {
        const shape = { grid: [4, 2, 1], block: 64 } as const;
        const args = [source.ptr, wanted.ptr, out.ptr, K, K * (dtype === 'f32' ? 4 : 2)];
        backend.launch(QUANTIZED, `get_rows_${dtype}`, shape, args);
        const expected = [...ids].flatMap((id) => [...x.subarray(id * K, (id + 1) * K)]);
        expect([...new Float32Array(out.toHostSync())]).toEqual(expected);
        const y = quantized.matmul(blocks, 'q8_0', { m: 3, n: 4, k: K }, at(source, Layout.contiguous([3, K])));
        // NVIDIA's GPUs multiply a few rows of activations in f16.
        const relative = device.kind === 'cuda' ? 2 ** -11 : undefined;
        for (const [i, value] of new Float32Array(y.toHostSync()).entries()) {
          const row = x.subarray(Math.floor(i / 4) * K);
          expectProduct(value, w.values.subarray((i % 4) * K), row, `${dtype} ${i}`, relative);
        }
        y.dispose();
      },
    );
  });
});
