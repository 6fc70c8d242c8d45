/**
 * What an operation leaves when a call of the driver fails under it: every call of every operation fails once, then as out of
 * memory, then with the device gone from there on. Each failure is a CandleError or does no harm, nothing stays alive, and the
 * operation gives the same result afterwards. The same for a step of training.
 */
import { Device, memoryStats, scope, Tensor } from '@x/core';
import { AdamW, conv2d, linear, loss, lstm, sdpa, VarBuilder, VarMap } from '@x/nn';
import { QMatMul, QTensor } from '@x/quantized';
import { kernelDevices } from '@x/testing/devices';
import { Faults, type FaultTrial } from '@x/testing/faults';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RocmDevice as KernelDevice } from '../src/index';

/** Calls of an entry point that are gone over; operations have fewer but for training. */
const MOST = 8;

/** Tensors that operations read. */
function inputs(device: Device) {
  const values = (shape: number[]) =>
    Tensor.from(
      new Float32Array(shape.reduce((a, b) => a * b, 1)).map((_, i) => Math.sin(i)),
      { shape, device },
    );
  const matrix = values([16, 64]);
  return {
    matrix,
    row: values([64]),
    cube: values([4, 6, 8]),
    image: values([2, 4, 9, 9]),
    line: values([2, 4, 16]),
    heads: values([1, 4, 24, 64]),
    long: values([2, 20_000]),
    ids: Tensor.from(new Uint32Array([3, 0, 2, 2]), { device }),
    places: Tensor.zeros([16, 64], 'u32', device),
    kernel: values([6, 4, 3, 3]),
    grouped: values([4, 1, 3, 3]),
    transposed: values([4, 3, 3, 3]),
    taps: values([5, 4, 3]),
    angles: values([24, 32]),
    weight: QTensor.quantizeSync(values([24, 64]), 'q8_0'),
    experts: QTensor.quantizeSync(values([3, 24, 64]), 'q4_0'),
    chosen: Tensor.from(
      new Uint32Array(32).map((_, i) => i % 3),
      { device },
    ).reshape([16, 2]),
  };
}

type Inputs = ReturnType<typeof inputs>;

const OPERATIONS: Record<string, (x: Inputs, device: Device) => Tensor | Tensor[]> = {
  elementwise: ({ matrix, row }) => matrix.broadcastAdd(row).exp().affine(2, 1).powf(2).clamp(0, 9),
  'strided elementwise': ({ cube }) => cube.transpose(0, 2).add(cube.transpose(0, 2).sqr()),
  'with a number': ({ matrix }) => matrix.maximum(0.5).eq(0.5).whereCond(matrix, matrix.neg()),
  casts: ({ matrix }) => matrix.toDtype('f16').toDtype('i64').toDtype('f32'),
  copies: ({ cube, matrix }) => [cube.permute([2, 0, 1]).contiguous(), matrix.t().copy(), cube.flip([0])],
  joining: ({ cube, matrix }) => [
    Tensor.cat([cube, cube], 1),
    Tensor.stack([matrix, matrix], 0),
    cube.padWithZeros(1, 1, 2),
  ],
  'writing in place': ({ matrix, row }) => {
    const target = matrix.copy();
    target.narrow(0, 2, 1).copyFrom(row.unsqueeze(0));
    target.addSet(matrix);
    return target;
  },
  creation: (_, device) => [
    Tensor.full(3, [70], { device }),
    Tensor.arange(0, 9, 'i64', device),
    Tensor.from([1, 2, 3], { device }),
    Tensor.zeros([5], { device }),
  ],
  reductions: ({ cube, long }) => [
    cube.sum([0, 2]),
    cube.max(1),
    cube.argmin(1),
    long.sumAll(),
    long.argmax(1),
    cube.var(1),
  ],
  'reductions of views': ({ cube }) => [cube.transpose(0, 1).sum([0, 2]), cube.transpose(0, 2).mean(1)],
  scan: ({ matrix }) => matrix.cumsum(1),
  softmax: ({ matrix, row }) => [matrix.softmaxLastDim(), matrix.rmsNorm(row, 1e-5), matrix.layerNorm(row, row, 1e-5)],
  rotation: ({ heads, angles }) => heads.rope(angles, angles, 'half'),
  attention: ({ heads }) => sdpa(heads, heads, heads, { scale: 0.1, causal: true }),
  lookups: ({ matrix, ids, places }) => [
    matrix.indexSelect(ids, 0),
    matrix.gather(places, 0),
    matrix.scatterAdd(places, matrix, 0),
  ],
  products: ({ matrix, cube }) => [
    matrix.matmul(matrix.t()),
    cube.matmul(cube.transpose(1, 2)),
    matrix.narrow(0, 0, 2).matmul(matrix.t()),
  ],
  'products of views': ({ image }) => {
    const views = image.narrow(3, 0, 8).permute([1, 0, 2, 3]);
    return views.matmul(views.transpose(2, 3));
  },
  convolutions: ({ image, kernel, grouped, transposed, line, taps }) => [
    image.conv2d(kernel, { padding: 1 }),
    image.conv2d(grouped, { groups: 4 }),
    image.convTranspose2d(transposed, { stride: 2 }),
    line.conv1d(taps, { padding: 1 }),
  ],
  pooling: ({ image }) => [image.maxPool2d(3), image.avgPool2d(2), image.upsampleNearest2d(18, 18)],
  sorting: ({ long, matrix }) => [...long.sortLastDim(true), matrix.argSortLastDim(false), ...matrix.topk(5)],
  'random numbers': (_, device) => Tensor.rand(0, 1, [40], { device }).mul(0),
  'products with blocks': ({ matrix, weight }) => {
    using product = QMatMul.fromQTensor(weight);
    return [product.forward(matrix), product.forward(matrix.narrow(0, 0, 1)), weight.dequantize('f32')];
  },
  experts: ({ matrix, experts, chosen }) =>
    experts.indexedMoeForwardSync(matrix.unsqueeze(1), chosen, { readIds: false }),
  streams: ({ matrix }, device) => {
    const { streams } = device.backend as KernelDevice;
    using stream = streams.create();
    const there = stream.run(() => matrix.add(matrix));
    using event = stream.record();
    streams.own.wait(event);
    return there.sqr();
  },
  'a captured graph': ({ matrix, cube }, device) => {
    using graph = device.capture(() =>
      matrix
        .softmaxLastDim()
        .add(cube.transpose(0, 2).sumAll())
        .add(Tensor.from([1], { device }).sumAll()),
    );
    graph.replay();
    return graph.outputs.copy();
  },
  'a recurrent layer': ({ line }, device) => {
    using map = new VarMap();
    device.setSeed(1);
    using layer = lstm(16, 8, {}, VarBuilder.fromVarMap(map, { device }));
    return layer.statesToTensor(layer.seq(line));
  },
  'a step of training': ({ image, ids }, device) => {
    using map = new VarMap();
    device.setSeed(2);
    const vb = VarBuilder.fromVarMap(map, { device });
    const [first, last] = [conv2d(4, 6, 3, { padding: 1 }, vb.pp('first')), linear(6 * 81, 5, vb.pp('last'))];
    using optimizer = new AdamW(map.allVars(), { lr: 0.01 });
    const now = () => loss.crossEntropy(last.forward(first.forward(image).gelu().flattenFrom(1)), ids.narrow(0, 0, 2));
    for (let step = 0; step < 2; step++) optimizer.backwardStep(now());
    return now().detach();
  },
};

describe.each(kernelDevices().map(String))('faults on %s', (name) => {
  const faults = new Faults(name);
  let device: Device;
  let x: Inputs;

  beforeAll(() => {
    device = Device.parse(name);
    x = Device.scoped(device, () => inputs(device));
  });

  afterAll(() => {
    for (const input of Object.values(x)) input.dispose();
    expect(memoryStats().liveTensors).toBe(0);
    device.dispose();
    expect(faults.state.live).toEqual({});
  });

  it.each(Object.keys(OPERATIONS))('%s', async (operation) => {
    /** The values, read in both ways. */
    const compute = async (): Promise<string> => {
      const results = scope(() => [OPERATIONS[operation](x, device)].flat());
      try {
        const values: string[] = [];
        for (const [i, result] of results.entries())
          values.push(String(i % 2 === 0 ? await result.toArray() : result.toArraySync()));
        return values.join('; ');
      } finally {
        for (const result of results) result.dispose();
      }
    };
    /** What stays: uploads of dims and strides. Memory comes from the driver again. */
    const kept = () => {
      device.emptyCache();
      const { liveStorages, liveBytes, graphBytes } = device.memory();
      const { liveTensors } = memoryStats();
      return JSON.stringify({ liveTensors, liveStorages, liveBytes, graphBytes });
    };
    await compute();
    const before = kept();
    faults.clear();
    const allocations = faults.allocations(device.backend);
    const expected = await compute();
    const { counts } = faults.state;
    const count = allocations();
    expect(count).toBeGreaterThan(0);
    expect(counts).toHaveProperty('memcpyDtoHAsync');
    expect(kept()).toBe(before);
    const trial: FaultTrial = async function* (settled) {
      const { value, problem } = await settled(compute);
      yield problem;
      if (value !== undefined && value !== expected) yield `gives ${value}, not ${expected}`;
      faults.clear();
      const now = kept();
      if (now !== before) yield `leaves ${now}, not ${before}`;
      const again = await compute();
      if (again !== expected) yield `is followed by ${again}, not ${expected}`;
      kept();
    };
    const problems = await faults.problems(counts, MOST, trial, { backend: device.backend, count });
    expect(problems).toEqual([]);
  });
});
