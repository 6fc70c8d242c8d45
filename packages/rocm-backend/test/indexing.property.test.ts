/** Indexing ops of every device against the TypeScript reference, with ids of every integer dtype. */
import { type BackendStorage, DTYPES, type DType, isFloat, Layout } from '@x/core';
import { INDEXING } from '@x/kernels';
import { expectClose } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { at, generator, operandSpec, pairsOf, runs } from '@x/testing/operands';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src';

const ID_ARRAYS = {
  u8: Uint8Array,
  u32: Uint32Array,
  i16: Int16Array,
  i32: Int32Array,
  i64: BigInt64Array,
} as const;
type IdDType = keyof typeof ID_ARRAYS;

/** Ids in [0, limit); with `distinct` none repeats, so that a set has one right result. */
function idBytes(dtype: IdDType, count: number, limit: number, seed: number, distinct = false): ArrayBufferView {
  const next = generator(seed);
  const pool = Array.from({ length: limit }, (_, i) => i);
  const values = Array.from({ length: count }, () => {
    const at = Math.floor(next() * pool.length);
    return distinct ? pool.splice(at, 1)[0] : pool[at];
  });
  return dtype === 'i64' ? BigInt64Array.from(values, BigInt) : ID_ARRAYS[dtype].from(values as never);
}

const idDtype = fc.constantFrom<IdDType>('u8', 'u32', 'i16', 'i32', 'i64');
const dtype = fc.constantFrom<DType>(...DTYPES);
const shape = fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 3 });

describe.each(kernelDevices())('indexing on %s', (device) => {
  const withPair = pairsOf(device);

  it('indexSelect', () => {
    fc.assert(
      fc.property(
        idDtype,
        dtype,
        shape,
        operandSpec,
        fc.nat({ max: 9 }),
        fc.nat(),
        (ids, type, dims, spec, count, pick) =>
          withPair((pair) => {
            const dim = pick % dims.length;
            const x = pair.operand(dims, type, spec);
            const index = pair.from(idBytes(ids, count, dims[dim], pick + 1), ids, Layout.contiguous([count]));
            expectClose(
              pair.run((side) =>
                x[side].device.ops.indexSelect(at(x[side], x.layout), at(index[side], index.layout), dim),
              ),
              `indexSelect ${x.layout} dim ${dim}`,
            );
          }),
      ),
      runs(200),
    );
  });

  it('gather', () => {
    fc.assert(
      fc.property(
        idDtype,
        dtype,
        shape,
        operandSpec,
        fc.integer({ min: 1, max: 9 }),
        fc.nat(),
        (ids, type, dims, spec, count, pick) =>
          withPair((pair) => {
            const dim = pick % dims.length;
            // As many elements as the tensor has outside the dim, or fewer.
            const idShape = dims.map((size, d) =>
              d === dim ? count : size - (((pick >> d) % 3) & 1 && size > 1 ? 1 : 0),
            );
            const rows = Layout.contiguous(idShape);
            const layout = pick % 5 === 0 ? new Layout(idShape, [1, ...rows.strides.slice(1).map(() => 0)]) : rows;
            const x = pair.operand(dims, type, spec);
            const index = pair.from(idBytes(ids, layout.elemCount, dims[dim], pick + 1), ids, layout);
            expectClose(
              pair.run((side) => x[side].device.ops.gather(at(x[side], x.layout), at(index[side], index.layout), dim)),
              `gather ${x.layout} dim ${dim}`,
            );
          }),
      ),
      runs(200),
    );
  });

  it('indexAdd', () => {
    fc.assert(
      fc.property(
        idDtype,
        dtype,
        shape,
        operandSpec,
        operandSpec,
        fc.integer({ min: 1, max: 9 }),
        fc.nat(),
        (ids, type, dims, a, b, count, pick) =>
          withPair((pair) => {
            const dim = pick % dims.length;
            const x = pair.operand(dims, type, a, true);
            const src = pair.operand(
              dims.map((size, d) => (d === dim ? count : size)),
              type,
              b,
              true,
            );
            const index = pair.from(idBytes(ids, count, dims[dim], pick + 1), ids, Layout.contiguous([count]));
            const scale = isFloat(type)
              ? { relative: 1e-5, absolute: { f16: 0.05, bf16: 0.4, f8e4m3: 12 }[type as string] ?? 1e-5 }
              : {};
            expectClose(
              pair.run((side) =>
                x[side].device.ops.indexAdd(
                  at(x[side], x.layout),
                  at(index[side], index.layout),
                  at(src[side], src.layout),
                  dim,
                ),
              ),
              'indexAdd',
              scale,
            );
          }),
      ),
      runs(200),
    );
  });

  it('scatterSet and scatterAddSet', () => {
    fc.assert(
      fc.property(idDtype, dtype, shape, operandSpec, fc.nat(), (ids, type, dims, spec, pick) =>
        withPair((pair) => {
          const dim = pick % dims.length;
          const others = dims.reduce((product, size, d) => (d === dim ? product : product * size), 1);
          // The target may be larger outside the dim.
          const target = Layout.contiguous(dims.map((size, d) => size + (d === dim ? 0 : (pick >> d) % 3)));
          const src = pair.operand(dims, type, spec, true);
          const scale = isFloat(type)
            ? { relative: 1e-5, absolute: { f16: 0.05, bf16: 0.4, f8e4m3: 12 }[type as string] ?? 1e-5 }
            : {};
          // One permutation along `dim`, repeated over the other dims: set has one right result.
          const one = idBytes('u32', dims[dim], dims[dim], pick + 1, true) as Uint32Array;
          const right = dims.slice(dim + 1).reduce((product, size) => product * size, 1);
          const all = Array.from({ length: others * dims[dim] }, (_, i) => one[Math.floor(i / right) % dims[dim]]);
          const bytes = ids === 'i64' ? BigInt64Array.from(all, BigInt) : ID_ARRAYS[ids].from(all as never);
          const index = pair.from(bytes, ids, Layout.contiguous(dims));
          for (const op of ['scatterSet', 'scatterAddSet'] as const) {
            const result = pair.run((side) => {
              const dst = src[side].device.zeros(target.elemCount, type);
              dst.device.ops.fill(at(dst, target), 1);
              dst.device.ops[op](at(dst, target), at(index[side], index.layout), at(src[side], src.layout), dim);
              return dst;
            });
            expectClose(result, `${op} ${dims} dim ${dim}`, scale);
          }
        }),
      ),
      runs(150),
    );
  });

  it("candle's kernels take the largest value of an id's type for no element, also where it is a position", () => {
    const backend = device.backend as RocmDevice;
    const storages: BackendStorage[] = [];
    const on = (bytes: ArrayBufferView, dtype: DType) => {
      const storage = backend.fromHost(bytes, dtype);
      storages.push(storage);
      return storage.view(Layout.contiguous([storage.elemCount])).ptr;
    };
    const table = on(
      new Float32Array(300).map((_, i) => i + 1),
      'f32',
    );
    const ids = on(Uint8Array.of(1, 255, 254), 'u8');
    const results = Array.from({ length: 2 }, () => backend.zeros(3, 'f32'));
    const shape = backend.shapes.elementwise(3);
    backend.launch(INDEXING, 'is_u8_f32', shape, [3, 1, 0, ids, table, results[0].ptr, 1, 300, 3, 1]);
    backend.launch(INDEXING, 'gather_u8_f32', shape, [3, ids, table, results[1].ptr, 1, 300, 3, 1]);
    const target = backend.zeros(300, 'f32');
    const source = on(Float32Array.of(5, 6, 7), 'f32');
    backend.launch(INDEXING, 'sa_u8_f32', shape, [ids, source, target.ptr, 1, 3, 300, 1]);
    for (const result of results) expect(new Float32Array(result.toHostSync())).toEqual(Float32Array.of(2, 0, 255));
    const sums = new Float32Array(target.toHostSync());
    expect([sums[1], sums[254], sums[255]]).toEqual([5, 7, 0]);
    for (const storage of [...storages, ...results, target]) storage.dispose();
  });
});
