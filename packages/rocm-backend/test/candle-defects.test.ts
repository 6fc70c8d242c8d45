/**
 * One regression test for each defect of candle's shipped CUDA path that this project knows of, on every device: what
 * each test asks for is what candle gets wrong.
 */
import { DTYPES, type DType, Tensor } from '@x/core';
import { AFFINE, BINARY, QUANTIZED } from '@x/kernels';
import { kernelDevices, testDevices } from '@x/testing/devices';
import { describe, expect, test } from 'vitest';
import { KernelLookupError, type RocmDevice, type RocmStorage } from '../src/index';

const GUARD = 64;
const SENTINEL = -12345;
const K = 64;
/** candle's MATRIX_ROW_PADDING: quantized activations are as wide as a multiple of this. */
const PADDED = 512;

describe.each(testDevices())('defects of candle on %s', (device) => {
  const from = (data: Parameters<typeof Tensor.from>[0], dtype?: DType) => Tensor.from(data, { dtype, device });

  test('defect 1: f8e4m3 has casts, arithmetic, comparisons, reductions, indexing and strided copies', () => {
    const x = from([1, -2, 4, 0.5, 8, -16], 'f8e4m3').reshape([2, 3]);
    for (const dtype of DTYPES) {
      const positive = from([1, 2, 4, 8, 16, 32], dtype);
      expect(positive.toDtype('f8e4m3').toDtype('f64').toVecSync()).toEqual([1, 2, 4, 8, 16, 32]);
      expect(positive.toDtype('f8e4m3').toDtype(dtype).eq(positive).toVecSync()).toEqual([1, 1, 1, 1, 1, 1]);
    }
    const f32 = (t: Tensor) => t.toDtype('f32').toVecSync();
    expect(f32(x.add(x))).toEqual([
      [2, -4, 8],
      [1, 16, -32],
    ]);
    expect(f32(x.affine(2, 1))).toEqual([
      [3, -3, 9],
      // 17 and -31 lie in the middle between two values: ties go to the even one.
      [2, 16, -32],
    ]);
    expect(x.gt(x.neg()).toVecSync()).toEqual([
      [1, 0, 1],
      [1, 1, 0],
    ]);
    expect(f32(x.abs())).toEqual([
      [1, 2, 4],
      [0.5, 8, 16],
    ]);
    expect(f32(x.sum(1))).toEqual([3, -7.5]);
    expect(f32(x.max(0))).toEqual([1, 8, 4]);
    expect(x.argmin(1).toVecSync()).toEqual([1, 2]);
    expect(f32(x.t().copy())).toEqual([
      [1, 0.5],
      [-2, 8],
      [4, -16],
    ]);
    expect(f32(x.indexSelect(from([2, 0], 'u32'), 1))).toEqual([
      [4, 1],
      [-16, 0.5],
    ]);
    expect(f32(x.gt(0).whereCond(x, x.neg()))).toEqual([
      [1, 2, 4],
      [0.5, 8, 16],
    ]);
  });

  test('defect 2: conv1d and conv2d use the values of a kernel that is not contiguous', () => {
    const input = from([1, 2, 3, 4, 5, 6, 7, 8], 'f32').reshape([1, 2, 4]);
    // Stored as [k, cIn, cOut], seen as [cOut, cIn, k].
    const stored = from(Array.from({ length: 12 }, (_, i) => i * i - 7)).reshape([3, 2, 2]);
    const kernel = stored.permute([2, 1, 0]);
    expect(kernel.isContiguous()).toBe(false);
    const dense = input.conv1d(kernel.copy(), { padding: 1 });
    expect(input.conv1d(kernel, { padding: 1 }).toVecSync()).toEqual(dense.toVecSync());
    expect(dense.toVecSync()).toEqual([[0, 1].map((c) => conv1d(input, kernel, c, { padding: 1 }))]);

    const image = from(Array.from({ length: 18 }, (_, i) => (i * 5) % 7)).reshape([1, 2, 3, 3]);
    const turned = from(Array.from({ length: 16 }, (_, i) => (i * 3) % 5)).reshape([2, 2, 2, 2]);
    for (const view of [turned.permute([3, 2, 1, 0]), turned.transpose(0, 1), turned.transpose(2, 3)]) {
      expect(view.isContiguous()).toBe(false);
      expect(image.conv2d(view).toVecSync()).toEqual(image.conv2d(view.copy()).toVecSync());
    }
    const [row] = image.conv2d(turned.transpose(2, 3)).get(0).toVecSync() as number[][][];
    expect(row).toEqual(conv2d(image, turned.transpose(2, 3), 0));
  });

  test('defect 3: arg-sort of rows wider than shared memory', () => {
    for (const width of [8193, 152_064]) {
      const up = new Uint32Array(width).map((_, i) => i);
      const falling = from(Float32Array.from(up, (i) => width - i)).unsqueeze(0);
      const rows = Tensor.cat([falling, falling.neg()], 0);
      const [first, second] = [0, 1].map((row) => rows.argSortLastDim(true).get(row).toArraySync<Uint32Array>());
      expect(first.every((value, i) => value === width - 1 - i)).toBe(true);
      expect(second.every((value, i) => value === i)).toBe(true);
      expect(rows.argSortLastDim(false).get(0).toArraySync<Uint32Array>()).toEqual(up);
    }
  });

  test('defect 6: index_add to a view with an offset, or one that is not contiguous', () => {
    const base = from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]).reshape([4, 3]);
    const ids = from([1, 0, 1], 'u32');
    const src = from([100, 200, 300, 400, 500, 600, 700, 800, 900]).reshape([3, 3]);
    expect(base.narrow(0, 2, 2).indexAdd(ids, src, 0).toVecSync()).toEqual([
      [406, 507, 608],
      [809, 1010, 1211],
    ]);
    const turned = base.narrow(0, 1, 3).t();
    expect(turned.isContiguous()).toBe(false);
    expect(turned.indexAdd(ids, src, 1).toVecSync()).toEqual([
      [203, 406, 9],
      [504, 1007, 10],
      [805, 1608, 11],
    ]);
    // What was added to is unchanged.
    expect(base.get(3).toVecSync()).toEqual([9, 10, 11]);
  });

  test.each(['i16', 'i32'] as const)(
    'defect 7: %s has casts, reductions, comparisons, copies, fills and strided copies',
    (dtype) => {
      const x = from([3, -1, 2, 0, 7, -5], dtype).reshape([2, 3]);
      const plain = (t: Tensor) => t.toDtype('f64').toVecSync();
      for (const other of DTYPES) {
        const small = from([0, 1, 2, 7], other);
        expect(plain(small.toDtype(dtype).toDtype(other))).toEqual([0, 1, 2, 7]);
      }
      expect([x.sum(1), x.min(0), x.max(1)].map(plain)).toEqual([
        [4, 2],
        [0, -1, -5],
        [3, 7],
      ]);
      expect([x.argmin(1), x.argmax(0)].map((t) => t.toVecSync())).toEqual([
        [1, 2],
        [0, 1, 0],
      ]);
      const compared = [x.eq(0), x.ne(0), x.lt(0), x.le(0), x.gt(0), x.ge(0)].map((t) => t.flattenAll().toVecSync());
      expect(compared).toEqual([
        [0, 0, 0, 1, 0, 0],
        [1, 1, 1, 0, 1, 1],
        [0, 1, 0, 0, 0, 1],
        [0, 1, 0, 1, 0, 1],
        [1, 0, 1, 0, 1, 0],
        [1, 0, 1, 1, 1, 0],
      ]);
      expect(plain(Tensor.cat([x, x.narrow(1, 1, 1)], 1))).toEqual([
        [3, -1, 2, -1],
        [0, 7, -5, 7],
      ]);
      expect(plain(x.t().copy())).toEqual([
        [3, 0],
        [-1, 7],
        [2, -5],
      ]);
      const filled = x.copy();
      filled.narrow(1, 1, 2).constSet(-9);
      expect(plain(filled)).toEqual([
        [3, -9, -9],
        [0, -9, -9],
      ]);
    },
  );

  // u32 takes the direct kernel on devices that multiply matrices for floats: candle's defect is in that one.
  test.each(['f32', 'u32'] as const)('defect 8: conv1d with stride, padding and dilation at once, in %s', (dtype) => {
    const values = (length: number, step: number, below: number) =>
      from(
        Array.from({ length }, (_, i) => (i * step) % below),
        dtype,
      );
    const input = values(24, 7, 11).reshape([2, 2, 6]);
    const kernel = values(8, 3, 5).reshape([2, 2, 2]);
    for (const options of [
      { stride: 2, dilation: 2 },
      { stride: 2, dilation: 3, padding: 2 },
      { stride: 3, dilation: 2, padding: 1 },
    ]) {
      const actual = input.conv1d(kernel, options).toVecSync();
      const expected = [0, 1].map((b) => [0, 1].map((c) => conv1d(input.narrow(0, b, 1), kernel, c, options)));
      expect(actual).toEqual(expected);
    }
  });

  test('defect 10: batched products of views whose rows lie apart', () => {
    const x = from(Array.from({ length: 24 }, (_, i) => (i % 7) - 3)).reshape([2, 3, 4]);
    const w = from([1, 2, -1, 3, 0, 1]).reshape([3, 2]);
    const product = (lhs: Tensor) =>
      (lhs.toVecSync() as number[][][]).map((matrix) =>
        matrix.map((row) =>
          [0, 1].map((j) => row.reduce((sum, v, k) => sum + v * (w.toVecSync() as number[][])[k][j], 0)),
        ),
      );
    // One rhs for all of the batch: candle multiplies [b * m, k] at once, right only when rows follow each other.
    for (const lhs of [x.narrow(2, 0, 3), x.narrow(2, 1, 3), x.transpose(1, 2), x.transpose(0, 1).narrow(2, 1, 3)]) {
      expect(lhs.isContiguous()).toBe(false);
      const batch = w.unsqueeze(0).broadcastAs([lhs.dim(0), 3, 2]);
      expect(lhs.matmul(batch).toVecSync()).toEqual(product(lhs));
      expect(lhs.broadcastMatmul(w).toVecSync()).toEqual(product(lhs));
    }
    // Where it shows in candle: a transposed convolution of more than one sample.
    const input = from(Array.from({ length: 12 }, (_, i) => i - 5)).reshape([2, 2, 3]);
    const kernel = from([1, 2, 3, -1, 0, 1, 2, -2]).reshape([2, 2, 2]);
    const both = input.convTranspose1d(kernel, { stride: 2 });
    const alone = [0, 1].map((b) => input.narrow(0, b, 1).convTranspose1d(kernel, { stride: 2 }));
    expect(both.toVecSync()).toEqual(Tensor.cat(alone, 0).toVecSync());
    expect(both.get(0).get(0).toVecSync()).toEqual([1 * -5 + 0 * -2, -10 - 2, -4 + 0, -8 - 1, -3 + 0, -6 + 0]);
  });

  test('defect 11: upsample_nearest1d, of views too', () => {
    const x = from([1, 2, 3, 4, 5, 6]).reshape([1, 2, 3]);
    expect(x.upsampleNearest1d(5).toVecSync()).toEqual([
      [
        [1, 1, 2, 2, 3],
        [4, 4, 5, 5, 6],
      ],
    ]);
    expect(x.upsampleNearest1d(2).toVecSync()).toEqual([
      [
        [1, 2],
        [4, 5],
      ],
    ]);
    expect(x.transpose(1, 2).upsampleNearest1d(4).toVecSync()).toEqual([
      [
        [1, 1, 4, 4],
        [2, 2, 5, 5],
        [3, 3, 6, 6],
      ],
    ]);
  });
});

describe.each(kernelDevices())('defects of candle’s kernels on %s', (device) => {
  const backend = device.backend as RocmDevice;

  test('defect 4: mul_mat_vec of an odd number of rows writes its rows and nothing else', () => {
    const rows = 5;
    const weights = q8Matrix(1, rows);
    for (let columns = 1; columns <= 8; columns++) {
      // Columns of the result that lie apart, as when several products share one result.
      for (const stride of [rows, rows + 3]) {
        const x = activations(columns);
        const used = new Array<number>(stride * columns).fill(SENTINEL);
        for (let c = 0; c < columns; c++)
          for (let r = 0; r < rows; r++) used[c * stride + r] = dot(weights.values[r], x.subarray(c * K));
        const expected = [...new Array(GUARD).fill(SENTINEL), ...used, ...new Array(GUARD).fill(SENTINEL)];
        for (const [grid, block] of [
          [1, 64],
          [3, 128],
          [2, 33],
        ]) {
          const made: RocmStorage[] = [];
          const put = (data: ArrayBufferView, dtype: DType) => {
            made.push(backend.fromHost(data, dtype));
            return made[made.length - 1];
          };
          const w = put(weights.bytes, 'u8');
          const y = quantized(backend, x, columns, made);
          const out = put(new Float32Array(expected.length).fill(SENTINEL), 'f32');
          const args = [w.ptr, y, out.ptr + GUARD * 4, K, rows, PADDED, stride];
          backend.launch(QUANTIZED, `mul_mat_vec_q8_0_q8_1_cuda${columns}`, { grid, block }, args);
          expect([...new Float32Array(out.toHostSync())]).toEqual(expected);
          for (const storage of made) storage.dispose();
        }
      }
    }
  });

  test('defect 5: indexed_moe_forward_q8_0 finds every expert', () => {
    const [experts, rows, batch, topk] = [3, 4, 2, 2];
    const weights = q8Matrix(experts, rows);
    const ids = Uint32Array.of(2, 0, 1, 2);
    const x = activations(batch);
    const made = [backend.fromHost(weights.bytes, 'u8'), backend.fromHost(ids, 'u32')];
    const y = quantized(backend, x, batch, made);
    const out = backend.fromHost(new Float32Array(batch * topk * rows).fill(SENTINEL), 'f32');
    backend.launch(QUANTIZED, 'indexed_moe_forward_q8_0_q8_1', { grid: [1, batch, topk], block: 128 }, [
      made[0].ptr,
      y,
      made[1].ptr,
      out.ptr,
      rows,
      K,
      batch,
      topk,
      PADDED,
      1,
    ]);
    const expected = [...ids].flatMap((expert, task) =>
      Array.from({ length: rows }, (_, r) =>
        dot(weights.values[expert * rows + r], x.subarray(Math.floor(task / topk) * K)),
      ),
    );
    expect([...new Float32Array(out.toHostSync())]).toEqual(expected);
    for (const storage of [...made, out]) storage.dispose();
  });

  test('defect 9: a kernel that is not there is named, with its module and target', () => {
    const { arch } = backend.hip.properties;
    for (const [kernel, module] of [
      ['badd_f12', BINARY],
      ['affine_c64', AFFINE],
    ] as const) {
      const look = () => backend.getOrLoadFunc(kernel, module);
      expect(look).toThrow(KernelLookupError);
      expect(look).toThrow(expect.objectContaining({ code: 'KERNEL_NOT_FOUND' }));
      const { target } = module.codeObjectFor(arch);
      expect(look).toThrow(new RegExp(`kernel ${kernel} is not in module ${module.name} for ${target}`));
    }
  });
});

/** Channel `out` of a convolution of [1, cIn, l] with [cOut, cIn, k], written out. */
function conv1d(
  input: Tensor,
  kernel: Tensor,
  out: number,
  { stride = 1, padding = 0, dilation = 1 }: { stride?: number; padding?: number; dilation?: number } = {},
): number[] {
  const [x] = input.toVecSync() as number[][][];
  const w = (kernel.toVecSync() as number[][][])[out];
  const length = Math.floor((x[0].length + 2 * padding - dilation * (w[0].length - 1) - 1) / stride) + 1;
  return Array.from({ length }, (_, o) => {
    let sum = 0;
    for (const [c, row] of w.entries())
      for (const [k, weight] of row.entries()) sum += weight * (x[c][o * stride + k * dilation - padding] ?? 0);
    return sum;
  });
}

/** Channel `out` of a convolution of [1, cIn, h, w] with [cOut, cIn, kH, kW]. */
function conv2d(input: Tensor, kernel: Tensor, out: number): number[][] {
  const [x] = input.toVecSync() as number[][][][];
  const weights = (kernel.toVecSync() as number[][][][])[out];
  const size = (image: number, window: number) => ({ length: image - window + 1 });
  return Array.from(size(x[0].length, weights[0].length), (_, i) =>
    Array.from(size(x[0][0].length, weights[0][0].length), (_, j) => {
      let sum = 0;
      for (const [c, plane] of weights.entries())
        for (const [a, row] of plane.entries()) for (const [b, w] of row.entries()) sum += w * x[c][i + a][j + b];
      return sum;
    }),
  );
}

/** `experts` matrices of `rows` rows of K small whole numbers as q8_0 blocks of scale 1. */
function q8Matrix(experts: number, rows: number): { bytes: Uint8Array; values: number[][] } {
  const values = Array.from({ length: experts * rows }, (_, row) =>
    Array.from({ length: K }, (_, i) => ((row * 31 + i * 7) % 19) - 9),
  );
  const blocks = values.flat().length / 32;
  const bytes = new Uint8Array(blocks * 34);
  const view = new DataView(bytes.buffer);
  for (let block = 0; block < blocks; block++) {
    view.setUint16(block * 34, 0x3c00, true);
    for (let i = 0; i < 32; i++) view.setInt8(block * 34 + 2 + i, values.flat()[block * 32 + i]);
  }
  return { bytes, values };
}

/** Whole numbers whose largest in every 32 is 127, so that q8_1 holds them exactly. */
function activations(rows: number): Float32Array {
  return new Float32Array(rows * K).map((_, i) => (i % 32 === 5 ? 127 : ((i * 11) % 23) - 11));
}

/** The activations as q8_1 blocks on the device; what is allocated is added to `made`. */
function quantized(backend: RocmDevice, x: Float32Array, rows: number, made: RocmStorage[]): number {
  const source = backend.fromHost(x, 'f32');
  const blocks = backend.zeros(rows * (PADDED / 32) * 36, 'u8');
  made.push(source, blocks);
  const shape = { grid: [PADDED / 256, rows, 1], block: 256 } as const;
  backend.launch(QUANTIZED, 'quantize_q8_1', shape, [source.ptr, blocks.ptr, K, PADDED]);
  return blocks.ptr;
}

function dot(row: number[], x: Float32Array): number {
  return row.reduce((sum, value, i) => sum + value * x[i], 0);
}
