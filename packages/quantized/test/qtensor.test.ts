/** QTensor and QMatMul on the plain device and on one with kernels for some types. */
import { mkdtempSync, readFileSync, rmSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { CandleError, Device, DisposedError, memoryStats, scope, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { random } from '@x/testing/random';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { GgufFile, QMatMul, QTensor, type QuantType } from '../src';
import { calls, kernelDevice, PADDING, writes } from './devices';
import { ALL_TYPES, EXPECTED, TINY_TALES } from './fixture';
import { store } from './raw-gguf';

const js = Device.js();
const gpu = kernelDevice(['q8_0', 'q4_K']);
const file = GgufFile.open(ALL_TYPES);
const names = [...EXPECTED.map(([name]) => name), 'f32', 'f16'];

beforeEach(() => {
  calls.length = 0;
  writes.length = 0;
});
afterAll(() => file.close());

function normal(count: number, seed: number): Float32Array {
  const next = random(seed);
  return Float32Array.from({ length: count }, () => next() + next() + next() + next() - 2);
}

/** Root of the mean square of the difference, over that of the expected values. */
function relativeError(got: Tensor, expected: Tensor): number {
  const a = got.toArraySync();
  const b = expected.toArraySync();
  let difference = 0;
  let square = 0;
  for (let i = 0; i < b.length; i++) {
    difference += (Number(a[i]) - Number(b[i])) ** 2;
    square += Number(b[i]) ** 2;
  }
  return Math.sqrt(difference / square);
}

describe.each([js, gpu])('on %s', (device) => {
  test.each(names)('%s: product and look-up agree with the dequantised weight', (name) => {
    using weight = QTensor.fromGguf(file, name, device);
    expect(weight.shape).toEqual([4, 512]);
    expect(weight.device).toBe(device);
    using numbers = weight.dequantize();
    expect([numbers.dtype, numbers.shape]).toEqual(['f32', [4, 512]]);
    using map = QMatMul.fromQTensor(weight);
    for (const shape of [[512], [1, 512], [2, 3, 512], [5, 512], [0, 512]]) {
      const rows = shape.reduce((a, b) => a * b, 1) / 512;
      using x = Tensor.from(normal(rows * 512, rows), { shape, device });
      using y = map.forward(x);
      expect([y.dtype, y.shape]).toEqual(['f32', [...shape.slice(0, -1), 4]]);
      if (rows === 0) continue;
      using flat = x.reshape([rows, 512]);
      using transposed = numbers.t();
      using expected = flat.matmul(transposed);
      expect(relativeError(y, expected)).toBeLessThan(1e-6);
    }
    using ids = Tensor.from(
      [
        [3, 0],
        [2, 2],
      ],
      { dtype: 'u32', device },
    );
    using looked = weight.embedding(ids);
    using expected = numbers.embedding(ids);
    expect(looked.shape).toEqual([2, 2, 512]);
    expect(looked.toArraySync()).toEqual(expected.toArraySync());
  });

  test.each(['f16', 'bf16'] as const)('%s activations come back as they went in', (dtype) => {
    using weight = QTensor.fromGguf(file, 'Q8_0', device);
    using map = QMatMul.fromQTensor(weight);
    using x = Tensor.from(normal(3 * 512, 1), { shape: [3, 512], device });
    using exact = map.forward(x);
    using narrow = x.toDtype(dtype);
    using y = map.forward(narrow);
    expect(y.dtype).toBe(dtype);
    expect(relativeError(y, exact)).toBeLessThan(dtype === 'f16' ? 2e-3 : 1e-2);
  });

  test('inputs that are views', () => {
    using weight = QTensor.fromGguf(file, 'Q4_K', device);
    using map = QMatMul.fromQTensor(weight);
    using x = Tensor.from(normal(512 * 6, 2), { shape: [512, 6], device });
    using turned = x.t();
    using part = turned.narrow(0, 2, 3);
    using copy = Tensor.from(part.toArraySync(), { shape: [3, 512], device });
    using a = map.forward(part);
    using b = map.forward(copy);
    expect(a.toArraySync()).toEqual(b.toArraySync());
    // Contiguous, but not at the start of its storage.
    using later = copy.narrow(0, 1, 2);
    using c = map.forward(later);
    using expected = b.narrow(0, 1, 2);
    expect(c.toArraySync()).toEqual(expected.toArraySync());
    using ids = Tensor.from([0, 3, 1], { dtype: 'u32', device });
    using laterIds = ids.narrow(0, 1, 2);
    using rows = weight.embedding(ids);
    using laterRows = weight.embedding(laterIds);
    using expectedRows = rows.narrow(0, 1, 2);
    expect(laterRows.toArraySync()).toEqual(expectedRows.toArraySync());
  });

  test('dequantise to f16 and bf16', () => {
    for (const name of ['Q8_0', 'Q6_K', 'f32', 'BF16']) {
      using weight = QTensor.fromGguf(file, name, device);
      using f32 = weight.dequantize();
      using f16 = weight.dequantizeF16();
      using bf16 = weight.dequantize('bf16');
      using toF16 = f32.toDtype('f16');
      using toBf16 = f32.toDtype('bf16');
      expect(f16.toBytesSync()).toEqual(toF16.toBytesSync());
      expect(bf16.toBytesSync()).toEqual(toBf16.toBytesSync());
    }
  });

  test('quantise, await it or not, and the blocks are those of the file', async () => {
    using x = QTensor.fromGguf(file, 'f32', device);
    using numbers = x.dequantize();
    for (const type of ['q4_0', 'q8_0', 'q5_1'] as const) {
      using made = QTensor.quantizeSync(numbers, type);
      using later = await QTensor.quantize(numbers, type);
      using read = QTensor.fromGguf(file, type.toUpperCase(), device);
      expect([made.type, made.shape, made.kind, later.kind]).toEqual([type, [4, 512], read.kind, read.kind]);
      const [a, b, c] = [made, later, read].map((tensor) => {
        using values = tensor.dequantize();
        return values.toArraySync();
      });
      expect(a).toEqual(c);
      expect(b).toEqual(c);
    }
  });

  test('shares, scopes and counts', () => {
    const before = memoryStats();
    const weight = QTensor.fromGguf(file, 'Q8_0', device);
    const held = memoryStats().liveBytes - before.liveBytes;
    // Devices with kernels get room behind the last row.
    expect(held).toBe(device === gpu ? 2176 + (PADDING / 32) * 34 : 2176);
    expect(weight.storageSizeInBytes).toBe(held);
    const map = QMatMul.fromQTensor(weight);
    const second = weight.share();
    weight.dispose();
    weight.dispose();
    expect(weight.isDisposed).toBe(true);
    expect(() => weight.dequantize()).toThrow(DisposedError);
    expect(second.toBytesSync()).toEqual(file.readTensorBytes('Q8_0'));
    second.dispose();
    expect(memoryStats().liveBytes - before.liveBytes).toBe(held);
    const x = Tensor.ones([1, 512], 'f32', device);
    map.forward(x).dispose();
    x.dispose();
    map.dispose();
    expect(memoryStats()).toEqual(before);
    const kept = scope(() => {
      const made = QTensor.fromGguf(file, 'Q8_0', device);
      QTensor.fromGguf(file, 'f32', device);
      return { map: QMatMul.fromQTensor(made) };
    });
    expect(memoryStats().liveStorages).toBe(before.liveStorages + 1);
    kept.map.dispose();
    expect(memoryStats()).toEqual(before);
  });

  test('mistakes', () => {
    using weight = QTensor.fromGguf(file, 'Q8_0', device);
    using map = QMatMul.fromQTensor(weight);
    using wrong = Tensor.ones([2, 500], 'f32', device);
    using scalar = Tensor.ones([], 'f32', device);
    using ints = Tensor.ones([1, 512], 'u32', device);
    using away = Tensor.ones([1, 512], 'f32', Device.cpu());
    expect(() => map.forward(wrong)).toThrow(/\[2, 500\].*512/);
    expect(() => map.forward(scalar)).toThrow(/SHAPE|last dimension/);
    expect(() => map.forward(ints)).toThrow(expect.objectContaining({ code: 'DTYPE_MISMATCH' }));
    expect(() => map.forward(away)).toThrow(expect.objectContaining({ code: 'DEVICE_MISMATCH' }));
    const { liveBytes } = memoryStats();
    const bad: [() => unknown, string][] = [
      [() => QTensor.fromBytes('q8_0', [2, 32], new Uint8Array(67), device), 'SHAPE_MISMATCH'],
      [() => QTensor.fromBytes('q8_0', [2, 31], new Uint8Array(68), device), 'SHAPE_MISMATCH'],
      [() => QTensor.fromBytes('q7_0' as QuantType, [32], new Uint8Array(68), device), 'UNSUPPORTED'],
      [() => QTensor.quantizeSync(wrong, 'q8_0'), 'SHAPE_MISMATCH'],
      [() => QTensor.quantizeSync(ints, 'iq1_s'), 'UNSUPPORTED'],
      [() => QTensor.fromGguf(file, 'nothing', device), 'GGUF_MISSING_TENSOR'],
      [() => QMatMul.fromTensor(scalar), 'SHAPE_MISMATCH'],
    ];
    for (const [use, code] of bad) {
      expect(use).toThrow(CandleError);
      expect(use).toThrow(expect.objectContaining({ code }));
    }
    expect(memoryStats().liveBytes).toBe(liveBytes);
  });
});

describe('what a device gets', () => {
  const kinds = (device: Device, name: string) => {
    using weight = QTensor.fromGguf(file, name, device);
    using map = QMatMul.fromQTensor(weight);
    return [weight.kind, map.kind, weight.data.dtype];
  };

  test('blocks where there are kernels, or none at all; numbers otherwise', () => {
    for (const name of ['Q8_0', 'Q4_K']) {
      expect(kinds(js, name)).toEqual(['blocks', 'quantized', 'u8']);
      expect(kinds(gpu, name)).toEqual(['blocks', 'quantized', 'u8']);
    }
    expect(kinds(js, 'Q6_K')).toEqual(['blocks', 'quantized', 'u8']);
    expect(kinds(gpu, 'Q6_K')).toEqual(['dense', 'dense', 'f32']);
    for (const device of [js, gpu]) {
      expect(kinds(device, 'f32')).toEqual(['dense', 'dense', 'f32']);
      expect(kinds(device, 'f16')).toEqual(['dense', 'dense', 'f16']);
      expect(kinds(device, 'BF16')).toEqual(['dense', 'dense', 'bf16']);
    }
    using half = QTensor.fromGguf(file, 'Q6_K', gpu, { dense: 'f16' });
    expect([half.data.dtype, half.storageSizeInBytes]).toEqual(['f16', 4096]);
    expect(() => half.toBytesSync()).toThrow(expect.objectContaining({ code: 'UNSUPPORTED' }));
  });

  test('kernels are used where they are', () => {
    using weight = QTensor.fromGguf(file, 'Q4_K', gpu);
    using map = QMatMul.fromQTensor(weight);
    using x = Tensor.ones([2, 3, 512], 'f32', gpu);
    map.forward(x).dispose();
    using ids = Tensor.from([1], { dtype: 'u8', device: gpu });
    weight.embedding(ids).dispose();
    weight.dequantize('bf16').dispose();
    weight.dequantize('f16').dispose();
    expect(calls).toEqual([
      'matmul q4_K 6x4x512',
      'embedding q4_K 512',
      'dequantize q4_K 2048 f32',
      'dequantize q4_K 2048 f16',
    ]);
  });

  test('experts: few pairs in one call, many by expert, activations as they are', () => {
    using experts = QTensor.fromBytes('q8_0', [2, 2, 512], file.readTensorBytes('Q8_0'), gpu);
    for (const [tokens, expected] of [
      [2, ['indexedMoe q8_0 4x2x512']],
      [9, ['matmul q8_0 9x2x512', 'matmul q8_0 9x2x512']],
    ] as const) {
      calls.length = 0;
      using x = Tensor.ones([tokens, 1, 512], 'f16', gpu);
      using ids = Tensor.from(
        Uint32Array.from({ length: tokens * 2 }, (_, pair) => pair & 1),
        { shape: [tokens, 2], device: gpu },
      );
      using y = experts.indexedMoeForwardSync(x, ids);
      expect([y.dtype, calls]).toEqual(['f16', expected]);
    }
  });

  test('zeros follow the last row, for kernels that read whole tiles', () => {
    using weight = QTensor.fromGguf(file, 'Q4_K', gpu);
    const { storage } = weight.data.storageAndLayout();
    const bytes = new Uint8Array(storage.toHostSync());
    expect(bytes.length).toBe(1152 + (PADDING / 256) * 144);
    expect(bytes.subarray(0, 1152)).toEqual(file.readTensorBytes('Q4_K'));
    expect(bytes.subarray(1152).every((byte) => byte === 0)).toBe(true);
    expect(weight.toBytesSync().length).toBe(1152);
  });

  test('a dense weight of another dtype', () => {
    using weight = QTensor.fromGguf(file, 'f16', js);
    using exact = QMatMul.fromQTensor(weight);
    using half = QMatMul.fromQTensor(weight, { dense: 'f16' });
    using x = Tensor.from(normal(512, 3), { shape: [1, 512], device: js });
    using a = exact.forward(x);
    using b = half.forward(x);
    expect([a.dtype, b.dtype]).toEqual(['f32', 'f32']);
    expect(relativeError(b, a)).toBeLessThan(2e-3);
    expect(relativeError(b, a)).toBeGreaterThan(0);
  });

  test('an id out of range is an error on the host', () => {
    using weight = QTensor.fromGguf(file, 'Q8_0', js);
    using ids = Tensor.from([0, 4], { dtype: 'u32', device: js });
    expect(() => weight.embedding(ids)).toThrow(expect.objectContaining({ code: 'INDEX_OUT_OF_RANGE' }));
  });
});

describe('large weights', () => {
  test('are streamed in pieces of some MiB at most', () => {
    const count = 16 * 2 ** 20;
    using big = QTensor.fromBytes('f16', [4096, 4096], new Uint8Array(count * 2), js);
    expect(big.storageSizeInBytes).toBe(count * 2);
    using model = GgufFile.open(TINY_TALES);
    using embedding = QTensor.fromGguf(model, 'token_embd.weight', gpu);
    expect(Math.max(...writes)).toBeLessThanOrEqual(4 * 2 ** 20);
    expect(writes.reduce((a, b) => a + b, 0)).toBe(model.tensor('token_embd.weight').byteLength);
    expect(embedding.kind).toBe('blocks');
    expect([...model.tensorChunks('token_embd.weight', 100_000)].length).toBe(12);
  });

  test('a load that fails half-way gives its memory back', async () => {
    const copy = store(new Uint8Array(readFileSync(TINY_TALES)));
    using model = GgufFile.open(copy);
    // Half of the last large tensor is gone.
    const last = [...model.tensors.values()].filter((info) => info.shape.length === 2).pop()!;
    truncateSync(copy, model.dataOffset + last.offset + last.byteLength! / 2);
    for (const device of [js, gpu]) {
      const before = device.memory().liveStorages;
      const truncated = expect.objectContaining({ code: 'GGUF_TRUNCATED' });
      expect(() => QTensor.fromGguf(model, last.name, device)).toThrow(truncated);
      await expect(QTensor.load(model, last.name, device)).rejects.toThrow(truncated);
      expect(device.memory().liveStorages).toBe(before);
    }
  });

  test('load gives way to other work and can be stopped', async () => {
    using model = GgufFile.open(TINY_TALES);
    let turned = false;
    setImmediate(() => {
      turned = true;
    });
    using a = await QTensor.load(model, 'token_embd.weight', js);
    expect(turned).toBe(true);
    using b = QTensor.fromGguf(model, 'token_embd.weight', js);
    expect(Buffer.compare(a.toBytesSync(), b.toBytesSync())).toBe(0);
    const before = memoryStats();
    const stopped = QTensor.load(model, 'token_embd.weight', js, { signal: AbortSignal.abort(new Error('stop')) });
    await expect(stopped).rejects.toThrow('stop');
    expect(memoryStats()).toEqual(before);
  });

  test('stack puts rows one below the other, reshape makes experts of them', async () => {
    using model = GgufFile.open(TINY_TALES);
    using q = await QTensor.load(model, 'blk.0.attn_q.weight', js);
    using k = await QTensor.load(model, 'blk.0.attn_k.weight', js);
    using norm = await QTensor.load(model, 'blk.0.attn_norm.weight', js);
    using down = await QTensor.load(model, 'blk.0.ffn_down.weight', js);
    const before = memoryStats();
    const stacked = QTensor.stack([q, k, q]);
    expect(stacked.shape).toEqual([2 * q.shape[0] + k.shape[0], q.shape[1]]);
    const [a, b] = [q.toBytesSync(), k.toBytesSync()];
    expect(Buffer.compare(stacked.toBytesSync(), Buffer.concat([a, b, a]))).toBe(0);
    const experts = stacked.reshape([5, k.shape[0], k.shape[1]]);
    const third = experts.expert(2);
    expect(Buffer.compare(third.toBytesSync(), b)).toBe(0);
    for (const made of [stacked, experts, third]) made.dispose();
    for (const bad of [[], [q, norm], [q, down]])
      expect(() => QTensor.stack(bad)).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
    expect(() => q.reshape([2 * q.shape[0], q.shape[1] / 2])).toThrow(
      expect.objectContaining({ code: 'SHAPE_MISMATCH' }),
    );
    expect(memoryStats()).toEqual(before);
  });

  test('load takes the numbers of any file', async () => {
    const path = join(mkdtempSync(join(tmpdir(), 'qtensor-')), 'two.safetensors');
    using half = Tensor.from(
      [
        [1, 2],
        [3, 4],
        [5, 6],
      ],
      { dtype: 'bf16', device: js },
    );
    using wide = Tensor.from([7, 8], { dtype: 'f64', device: js });
    await saveSafetensors(path, { half, wide });
    using file = SafetensorsFile.open(path);
    using same = await QTensor.load(file, 'half', js);
    expect([same.kind, same.type, same.shape]).toEqual(['dense', 'bf16', [3, 2]]);
    using made = await QTensor.load(file, 'wide', js, { dense: 'f16' });
    expect([made.type, made.data.toArraySync()]).toEqual(['f16', Float32Array.of(7, 8)]);
    using twice = QTensor.stack([same, same]);
    using numbers = twice.dequantize();
    expect(numbers.toArraySync()).toEqual(Float32Array.of(1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6));
    await expect(QTensor.load(file, 'no', js)).rejects.toMatchObject({ code: 'FILE_NO_SUCH_TENSOR' });
    rmSync(dirname(path), { recursive: true });
  });
});
