/**
 * Random operands for property tests: values of a dtype including the awkward ones, in a buffer that is larger than the
 * view, seen through a contiguous, offset, narrowed, permuted or broadcast layout.
 */
import {
  type BackendDevice,
  type BackendStorage,
  Device,
  type DType,
  f32ToBf16,
  f32ToF8e4m3,
  f32ToF16,
  isFloat,
  Layout,
  type Shape,
} from '@x/core';
import fc from 'fast-check';
import { testSettings } from './settings';

export type ViewKind = 'contiguous' | 'offset' | 'narrowed' | 'permuted' | 'broadcast';

export interface OperandSpec {
  kind: ViewKind;
  seed: number;
}

export const operandSpec = fc.record({
  kind: fc.constantFrom<ViewKind>('contiguous', 'offset', 'narrowed', 'permuted', 'broadcast'),
  seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
});

/** Ranks 0 to 4, sizes from 0; now and then a long last dim, so that vector paths and several blocks are reached. */
export const shapes: fc.Arbitrary<number[]> = fc.oneof(
  { weight: 6, arbitrary: fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 0, maxLength: 4 }) },
  { weight: 1, arbitrary: fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 1, maxLength: 4 }) },
  {
    weight: 2,
    arbitrary: fc.tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 200, max: 5000 })).map(([a, b]) => [a, b]),
  },
  { weight: 1, arbitrary: fc.integer({ min: 8000, max: 40000 }).map((n) => [n]) },
);

/** A view of `shape` and the size of the buffer that it needs. */
export function viewOf(shape: Shape, kind: ViewKind): { layout: Layout; bufferElems: number } {
  switch (kind) {
    case 'contiguous':
      return finish(Layout.contiguous(shape));
    case 'offset':
      return finish(Layout.contiguous(shape, 3));
    case 'narrowed': {
      let layout = Layout.contiguous(shape.map((size) => size + 2));
      shape.forEach((size, dim) => {
        layout = layout.narrow(dim, 1, size);
      });
      return finish(layout);
    }
    case 'permuted': {
      const order = shape.map((_, dim) => (dim + 1) % shape.length);
      const base: number[] = [];
      order.forEach((from, to) => {
        base[from] = shape[to];
      });
      return finish(Layout.contiguous(base).permute(order));
    }
    case 'broadcast': {
      const base = shape.map((size, dim) => (dim % 2 === 0 ? 1 : size));
      return finish(Layout.contiguous(base).broadcastAs(shape));
    }
  }
}

function finish(layout: Layout): { layout: Layout; bufferElems: number } {
  return { layout, bufferElems: Math.max(1, layout.endOffset()) + 2 };
}

const SPECIAL = [
  0,
  -0,
  1,
  -1,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  Number.NEGATIVE_INFINITY,
  1e-40,
  6e4,
  -3e38,
  0.5,
  -2.5,
];

/** Raw bytes of `count` values; floats are mostly in [-4, 4], `tame` leaves the special ones out. */
export function randomBytes(dtype: DType, count: number, seed: number, tame = false): Uint8Array {
  const next = generator(seed);
  const value = () => {
    const pick = next();
    if (!tame && pick < 0.08) return SPECIAL[Math.floor(next() * SPECIAL.length)];
    return (next() - 0.5) * 8;
  };
  const integer = (span: number) => Math.floor((next() - 0.5) * (next() < 0.2 && !tame ? span : 40));
  const view = (array: ArrayBufferView) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  const indices = { length: count };
  switch (dtype) {
    case 'f32':
      return view(Float32Array.from(indices, value));
    case 'f64':
      return view(Float64Array.from(indices, value));
    case 'f16':
      return view(Uint16Array.from(indices, () => f32ToF16(value())));
    case 'bf16':
      return view(Uint16Array.from(indices, () => f32ToBf16(value())));
    case 'f8e4m3':
      return view(Uint8Array.from(indices, () => f32ToF8e4m3(value())));
    case 'u8':
      return view(Uint8Array.from(indices, () => integer(512)));
    case 'u32':
      return view(Uint32Array.from(indices, () => integer(2 ** 33)));
    case 'i16':
      return view(Int16Array.from(indices, () => integer(2 ** 17)));
    case 'i32':
      return view(Int32Array.from(indices, () => integer(2 ** 33)));
    case 'i64':
      return view(BigInt64Array.from(indices, () => BigInt(integer(2 ** 53))));
  }
}

/** `count` values of which few are distinct, so that ties decide. */
export function tiedBytes(type: DType, count: number, seed: number): Uint8Array {
  const bytes = randomBytes(type, count, seed);
  const size = bytes.length / count;
  const period = 1 + (seed % 5);
  for (let i = period; i < count; i++) bytes.copyWithin(i * size, (i % period) * size, ((i % period) + 1) * size);
  return bytes;
}

/** An operand of core's interface. */
export function at<S extends BackendStorage>(storage: S, layout: Layout): { storage: S; layout: Layout } {
  return { storage, layout };
}

/** The operand on both devices: same bytes, same layout. */
export interface Operand {
  layout: Layout;
  reference: BackendStorage;
  tested: BackendStorage;
}

/** Makes operands on a reference and a tested device and disposes of everything that was made. */
export class Pair {
  readonly #made: BackendStorage[] = [];

  constructor(
    readonly reference: BackendDevice,
    readonly tested: BackendDevice,
  ) {}

  operand(shape: Shape, dtype: DType, spec: OperandSpec, tame = false): Operand {
    const { layout, bufferElems } = viewOf(shape, spec.kind);
    return this.from(randomBytes(dtype, bufferElems, spec.seed, tame), dtype, layout);
  }

  from(bytes: ArrayBufferView, dtype: DType, layout: Layout): Operand {
    return {
      layout,
      reference: this.#keep(this.reference.fromHost(bytes, dtype)),
      tested: this.#keep(this.tested.fromHost(bytes, dtype)),
    };
  }

  /** Runs an op on both sides and returns both results as bytes. */
  run(op: (side: 'reference' | 'tested') => BackendStorage): {
    expected: ArrayBuffer;
    actual: ArrayBuffer;
    dtype: DType;
  } {
    const expected = this.#keep(op('reference'));
    const actual = this.#keep(op('tested'));
    if (expected.dtype !== actual.dtype) throw new Error(`result dtypes differ: ${expected.dtype} and ${actual.dtype}`);
    if (expected.elemCount !== actual.elemCount)
      throw new Error(`result sizes differ: ${expected.elemCount} and ${actual.elemCount}`);
    return { expected: expected.toHostSync(), actual: actual.toHostSync(), dtype: expected.dtype };
  }

  dispose(): void {
    for (const storage of this.#made.splice(0)) storage.dispose();
  }

  #keep(storage: BackendStorage): BackendStorage {
    this.#made.push(storage);
    return storage;
  }
}

/** Runs bodies with a {@link Pair} of the TypeScript reference and `device`, disposed afterwards. */
export function pairsOf(device: Device): (body: (pair: Pair) => void) => void {
  return (body) => {
    const pair = new Pair(Device.js().backend, device.backend);
    try {
      body(pair);
    } finally {
      pair.dispose();
    }
  };
}

/** mulberry32: small and seedable, for test data only. */
export function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Runs of a property; X_TEST_SCALE=0.1 makes a tenth of them. */
export function runs(count: number): { numRuns: number } {
  return { numRuns: Math.max(1, Math.round(count * testSettings.scale)) };
}

/** Error of a sum of `terms` products of values up to 4, by the type that it is made in. Integers are exact. */
export function sumError(type: DType, terms: number): { absolute?: number } {
  if (!isFloat(type)) return {};
  return { absolute: (terms + 1) * { f64: 1e-14, f32: 1e-5, f16: 8e-3, bf16: 6.4e-2, f8e4m3: 1e-5 }[type as 'f32'] };
}

export const FLOAT_DTYPES: readonly DType[] = ['f32', 'f16', 'bf16', 'f64', 'f8e4m3'];
