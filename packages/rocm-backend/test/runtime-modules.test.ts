/**
 * Shipped modules through the run-time compilers: NVRTC on cuda, hiprtc on rocm, clang on the cpu. What comes out has
 * the kernels of the code object built ahead of time, loads, and computes.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Device, PhiloxGenerator } from '@x/core';
import { compilers } from '@x/hip';
import { AFFINE, ALL_MODULES, FILL, type KernelModule, parseCodeObject, RANDOM, SAMPLING } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compileCacheStats, RocmDevice } from '../src/index';
import { compileCached } from '../src/runtime-compile';

/** The host's run-time compiler is the one that built its objects: beyond these, its optimiser says nothing new in minutes. */
const OPTIMIZED: readonly KernelModule[] = [AFFINE, FILL, RANDOM, SAMPLING];
type Kind = 'cpu' | 'cuda' | 'rocm';
const kinds = [...new Set(kernelDevices().map((device) => device.location.kind as Kind))].filter((kind) =>
  compilers().some(({ platform, available }) => platform === (kind === 'cpu' ? 'host' : kind) && available),
);

/** One launch of a module's kernel: operands in the order in which `args` gets their addresses, the result last. */
interface Launch {
  kernel: string;
  operands: ArrayBufferView[];
  out: Float32Array | Int32Array | Uint32Array;
  args: (...addresses: number[]) => number[];
  expected: number[];
  sharedBytes?: number;
  /** Threads and dynamic shared memory where they depend on the device's matrix units. */
  shape?: (units: RocmDevice['matrixUnits']) => { block: number; sharedBytes: number };
}

const f32 = (...values: number[]) => Float32Array.from(values);
const words = (...values: number[]) => BigUint64Array.from(values, BigInt);
const x4 = f32(1, 2, 3, 4);
const stream = new PhiloxGenerator();
stream.setSeed(5);
const { seed, call } = stream.nextCall();

const halfOnes = new Uint16Array(64).fill(0x3c00);

/** A q8_0 block: scale 0.5 as f16, then 32 signed bytes. */
const q8Block = new Uint8Array(34).map((_, i) => (i < 2 ? [0x00, 0x38][i] : i - 10));

/** A q8_1 block: scale 1 as f16, a sum that is not read, then ones. */
const q8Ones = new Uint8Array(36).map((_, i) => (i < 4 ? [0x00, 0x3c, 0, 0][i] : 1));

const LAUNCHES: Record<string, Launch> = {
  AFFINE: {
    kernel: 'affine_f32',
    operands: [x4],
    out: f32(0, 0, 0, 0),
    args: (x, y) => [4, 1, 0, x, y, 2, 1],
    expected: [3, 5, 7, 9],
  },
  ATTENTION: {
    // One query and one key: the value itself, 64 ones in f16.
    kernel: 'attention_64_f16',
    operands: [halfOnes, halfOnes, halfOnes],
    out: new Uint32Array(32),
    args: (q, k, v, y) => [1, 1, 1, 1, 1, q, 64, 64, 64, k, 64, 64, 64, v, 64, 64, 64, y, 0.125, 0],
    expected: Array(32).fill(0x3c003c00),
    shape: (units) => (units === 'nvidia' ? { block: 128, sharedBytes: 384 * 64 * 2 } : { block: 256, sharedBytes: 0 }),
  },
  BINARY: {
    kernel: 'bmul_f32',
    operands: [x4, f32(2, 2, 0.5, -1)],
    out: f32(0, 0, 0, 0),
    args: (a, b, y) => [4, 1, 0, a, b, y],
    expected: [2, 4, 1.5, -4],
  },
  CAST: {
    kernel: 'cast_f32_i32',
    operands: [f32(1.9, -2.7, 3e10, Number.NaN)],
    out: new Int32Array(4),
    args: (x, y) => [4, 1, 0, x, y],
    expected: [1, -2, 2 ** 31 - 1, 0],
  },
  COLLECTIVES: {
    // Of one rank, whose sum is what it has.
    kernel: 'all_reduce_peers_f32',
    operands: [x4, new Uint32Array(256)],
    out: f32(0, 0, 0, 0),
    args: (x, stage, y) => [4, 0, 1, 1, 0, x, y, 0, stage],
    expected: [1, 2, 3, 4],
  },
  CONV: {
    kernel: 'upsample_nearest1d_f32',
    operands: [words(1, 2, 2, 4, 2, 1), x4],
    out: new Float32Array(8),
    args: (info, x, y) => [4, 0.5, info, x, y],
    expected: [1, 1, 2, 2, 3, 3, 4, 4],
  },
  DECODE: {
    kernel: 'decode_norm_q8_1_f32',
    operands: [f32(2, 2, 2, 2), x4],
    out: f32(0, 0, 0, 0),
    args: (x, alpha, y) => [1, 4, 512, 0, 1, 0, x, 0, 0, alpha, 0, 0, 0, y],
    expected: [1, 2, 3, 4],
  },
  EXPERTS: {
    // One row of one expert times ones.
    kernel: 'experts_mixed_q8_0',
    operands: [q8Block, q8Ones],
    out: f32(0),
    args: (weights, x, y) => [weights, x, 0, 0, 0, 0, 0, 0, y, 1, 1, 32, 1, 1, 32, 0, 0, 0, 0],
    expected: [120],
  },
  FILL: { kernel: 'fill_f32', operands: [], out: f32(0, 0, 0), args: (y) => [y, 2.5, 3], expected: [2.5, 2.5, 2.5] },
  GEMM: {
    kernel: 'gemv_f32',
    operands: [x4, f32(1, 0, 10, 1)],
    out: new Float32Array(4),
    args: (a, b, y) => [1, 2, 2, 2, a, 4, 2, 1, b, 4, 2, 1, y],
    expected: [21, 2, 43, 4],
  },
  INDEXING: {
    kernel: 'gather_u32_f32',
    operands: [Uint32Array.of(3, 0, 3), x4],
    out: f32(0, 0, 0),
    args: (ids, x, y) => [3, ids, x, y, 1, 4, 3, 1],
    expected: [4, 1, 4],
  },
  OPTIM: {
    kernel: 'scale_by_f32',
    operands: [x4, f32(0.5)],
    out: f32(0, 0, 0, 0),
    args: (x, factor, y) => [4, factor, x, y],
    expected: [0.5, 1, 1.5, 2],
  },
  QUANTIZED: {
    kernel: 'dequantize_block_q8_0_f32',
    operands: [q8Block],
    out: new Float32Array(32),
    args: (x, y) => [x, y, 1],
    expected: Array.from({ length: 32 }, (_, i) => (i - 8) * 0.5),
  },
  RANDOM: {
    kernel: 'rand_uniform_f32',
    operands: [],
    out: new Float32Array(64),
    args: (y) => [64, seed, call, 1, 0, y],
    expected: uniformReference(64),
  },
  RECURRENT: {
    // Two rows of two channels, of a sequence that begins with nothing.
    kernel: 'causal_conv1d_f32',
    operands: [Uint32Array.of(0, 2), Uint32Array.of(0), x4, f32(10, 1, 0, 2)],
    out: f32(0, 0, 0, 0),
    args: (starts, place, x, weight, y) => [1, 2, starts, place, place, 0, 2, 2, 0, x, 2, weight, 0, 0, y, 0, 0],
    expected: [1, 4, 13, 8],
  },
  REDUCE: {
    kernel: 'fast_sum_f32',
    operands: [x4],
    out: f32(0, 0),
    args: (x, y) => [4, 2, 0, 0, x, y],
    expected: [3, 7],
  },
  SAMPLING: {
    // The likeliest token, and its logit less a sum that was not wanted.
    kernel: 'sample_f32',
    operands: [f32(1, 2, 8, 3), Uint32Array.of(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)],
    out: new Uint32Array(2),
    args: (logits, params, y) => [1, 4, 0, logits, params, 0, 0, y],
    expected: [2, 0x41000000],
  },
  SORT: {
    kernel: 'asort_desc_f32',
    operands: [f32(3, 9, 4, 9)],
    out: new Uint32Array(4),
    args: (x, y) => [x, y, 4, 4],
    expected: [1, 3, 2, 0],
    sharedBytes: 16,
  },
  TERNARY: {
    kernel: 'where_u8_f32',
    operands: [words(4, 1, 1, 1), Uint8Array.of(1, 0, 0, 7), x4, f32(-1, -2, -3, -4)],
    out: f32(0, 0, 0, 0),
    args: (info, cond, t, f, y) => [4, 1, info, cond, t, f, y],
    expected: [1, -2, -3, 4],
  },
  UNARY: {
    kernel: 'usqr_f32',
    operands: [x4],
    out: f32(0, 0, 0, 0),
    args: (x, y) => [4, 1, 0, x, y],
    expected: [1, 4, 9, 16],
  },
};

function uniformReference(count: number): number[] {
  const { backend } = Device.js();
  backend.random!.setSeed(seed);
  const values = backend.random!.uniform(count, 'f32', 0, 1);
  return [...new Float32Array(values.toHostSync())];
}

describe.each(kinds)('every module compiled at run time on %s', (kind) => {
  let device: RocmDevice;
  let directory: string;
  let previous: string | undefined;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'candle-modules-'));
    previous = process.env.X_CACHE_DIR;
    process.env.X_CACHE_DIR = directory;
    device = RocmDevice.open(kind, 0);
  });
  afterAll(() => {
    device.dispose();
    if (previous === undefined) delete process.env.X_CACHE_DIR;
    else process.env.X_CACHE_DIR = previous;
    rmSync(directory, { recursive: true, force: true });
  });

  it.each(ALL_MODULES as KernelModule[])(
    '$name has the kernels of the object built ahead of time, and computes',
    (module) => {
      const { platform, properties } = device.hip;
      const options =
        kind === 'cpu' && !OPTIMIZED.includes(module) ? { flags: ['-O0', '-Xclang', '-disable-llvm-passes'] } : {};
      const before = compileCacheStats();
      const { bytes } = compileCached({ source: module.source, options, platform, arch: properties.arch });
      const compiled = parseCodeObject(bytes).kernels;
      const built = module.codeObjectFor(properties.arch).kernels;
      expect(Object.keys(compiled)).toEqual(Object.keys(built));
      for (const [name, { params, warpSize }] of Object.entries(compiled)) {
        expect([name, params, warpSize]).toEqual([name, built[name].params, properties.warpSize]);
      }

      const { kernel, operands, out, args, expected, sharedBytes = 0, shape } = LAUNCHES[module.name];
      const size = shape?.(device.matrixUnits) ?? { block: 64, sharedBytes };
      const loaded = device.getOrLoadFuncRaw(kernel, module.source, options);
      const after = compileCacheStats();
      expect([after.compiled - before.compiled, after.memoryHits - before.memoryHits]).toEqual([1, 1]);
      const storages = [...operands, out].map((data) => device.fromHost(bytesOf(data), 'u8'));
      loaded.launch(1, size.block, size.sharedBytes, args(...storages.map(({ ptr }) => ptr)));
      const result = storages[storages.length - 1].toHostSync();
      const values = new (out.constructor as Float32ArrayConstructor)(result);
      expect([...values]).toEqual(expected);
      for (const storage of storages) storage.dispose();
    },
    300_000,
  );
});

function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}
