// Some experts of a weight on the host in slots on a device: blocks and numbers, and products with them.
import { Device, memoryStats, scope, Tensor } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { describe, expect, test, vi } from 'vitest';
import { ExpertSlots, QTensor } from '../src';

const [EXPERTS, N, K] = [5, 8, 64];
const values = (count: number) => Float32Array.from({ length: count }, (_, i) => Math.sin(i * 0.7) * (1 + (i % 5)));
const numbers = () => Tensor.from(values(EXPERTS * N * K), { shape: [EXPERTS, N, K], device: ExpertSlots.hostDevice });

async function hostWeight(type: 'q8_0' | 'q4_0' | 'f16' | 'f32'): Promise<QTensor> {
  using dense = numbers();
  if (type === 'q8_0' || type === 'q4_0') return QTensor.quantize(dense, type);
  using same = dense.toDtype(type);
  return QTensor.fromTensor(same);
}

describe.each(testDevices().map(String))('slots on %s', (name) => {
  test.each(['q8_0', 'q4_0', 'f16', 'f32'] as const)('of %s', async (type) => {
    const device = Device.parse(name);
    const before = memoryStats();
    const host = await hostWeight(type);
    const slots = ExpertSlots.of(host, 2, device);
    host.dispose();
    expect(slots.weight.shape).toEqual([2, N, K]);
    expect([slots.experts, slots.hostBytes]).toEqual([EXPERTS, EXPERTS * slots.expertBytes]);
    expect(slots.pinnedBytes).toBe(device.kind === 'rocm' || device.kind === 'cuda' ? slots.hostBytes : 0);
    using whole = await hostWeight(type);
    for (const [slot, expert] of [
      [1, 4],
      [0, 2],
      [1, 0],
    ]) {
      slots.put(slot, expert);
      using held = slots.weight.expert(slot);
      using wanted = whole.expert(expert);
      using heldNumbers = held.dequantize();
      using wantedNumbers = wanted.dequantize();
      expect(await heldNumbers.toArray()).toEqual(await wantedNumbers.toArray());
    }
    // Slots hold experts 2 and 0.
    const products = await scope(async () => {
      const all = await whole.dequantize().toDevice(device);
      const x = Tensor.from(values(3 * K), { shape: [3, 1, K], device });
      const ids = Tensor.from(Uint32Array.of(0, 1, 1), { shape: [3, 1], device });
      const options = { readIds: false, areInside: true, experts: EXPERTS };
      const own = slots.weight.indexedMoeForwardSync(x, ids, options);
      const rows = [2, 0, 0].map((expert, i) =>
        x
          .narrow(0, i, 1)
          .squeeze(0)
          .matmul(all.narrow(0, expert, 1).squeeze(0).t()),
      );
      return [await own.flattenAll().toArray(), await Tensor.cat(rows, 0).flattenAll().toArray()];
    });
    const [own, expected] = products.map((array) => Array.from(array as Float32Array));
    const largest = Math.max(...expected.map(Math.abs));
    const difference = Math.max(...own.map((value, i) => Math.abs(value - expected[i])));
    expect(difference).toBeLessThan(0.02 * largest);
    slots.dispose();
    whole.dispose();
    expect(memoryStats()).toEqual(before);
  });

  test('are taken out of a scope with what is returned', async () => {
    const before = memoryStats();
    const host = await hostWeight('q8_0');
    const slots = scope(() => ExpertSlots.of(host, 2, Device.parse(name)));
    slots.put(0, 1);
    scope(() => void ExpertSlots.of(host, 2, Device.parse(name)));
    for (const part of [host, slots]) part.dispose();
    expect(memoryStats()).toEqual(before);
  });
});

test('are numbers where the device has no kernels for the type', async () => {
  const device = Device.cpu();
  const { quantized } = device.backend;
  if (!quantized) return;
  const supports = vi.spyOn(quantized, 'supports').mockReturnValue(false);
  using host = await hostWeight('q8_0');
  using slots = ExpertSlots.of(host, 2, device, 'f16');
  supports.mockRestore();
  expect([slots.weight.kind, slots.weight.data.dtype, slots.expertBytes]).toEqual(['dense', 'f16', N * K * 2]);
  slots.put(1, 3);
  using held = slots.weight.data.narrow(0, 1, 1).toDtype('f32').flattenAll();
  using third = host.expert(3);
  using exact = third.dequantize('f16');
  using wanted = exact.toDtype('f32').flattenAll();
  expect(await held.toArray()).toEqual(await wanted.toArray());
});

test('wants a weight of experts, and a number of slots', async () => {
  using matrix = QTensor.fromTensor(Tensor.zeros([2, 32], 'f32', 'js'));
  expect(() => ExpertSlots.of(matrix, 2, Device.js())).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
  using weight = await hostWeight('f32');
  expect(() => ExpertSlots.of(weight, 0, Device.js())).toThrow(/slots/);
});
