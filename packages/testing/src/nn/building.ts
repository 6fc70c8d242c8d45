/** Layers from a VarBuilder, and containers of layers, on one device. */
import { Device, type Tensor } from '@x/core';
import {
  Conv1d,
  Conv2d,
  ConvTranspose1d,
  ConvTranspose2d,
  conv1d,
  conv1dNoBias,
  conv2d,
  conv2dNoBias,
  convTranspose1d,
  convTranspose1dNoBias,
  convTranspose2d,
  convTranspose2dNoBias,
  DEFAULT_KAIMING_NORMAL,
  DEFAULT_KAIMING_UNIFORM,
  embedding,
  func,
  funcT,
  Init,
  init,
  linear,
  linearB,
  linearNoBias,
  PReLU,
  prelu,
  seq,
  VarBuilder,
  VarMap,
} from '@x/nn';
import { describe, expect } from 'vitest';
import { check } from './check';
import { expectClose } from './close';
import { tensorMakers } from './helpers';

export function buildingSuite(name: string, device: () => Device): void {
  const { from, rand } = tensorMakers(device);
  describe(`building on ${name}`, () => {
    check('initial values have the moments that they should', () => {
      device().setSeed(3);
      const moments = (given: Init, shape = [64, 100]) => {
        const made = init.initTensor(given, shape, 'f32', device()).toArraySync<Float32Array>();
        const mean = made.reduce((a, b) => a + b, 0) / made.length;
        const std = Math.sqrt(made.reduce((a, b) => a + (b - mean) ** 2, 0) / made.length);
        return { mean, std, least: Math.min(...made), most: Math.max(...made) };
      };
      expect(moments(Init.const(0.5))).toEqual({ mean: 0.5, std: 0, least: 0.5, most: 0.5 });
      const normal = moments(Init.randn(2, 0.5));
      expect(Math.abs(normal.mean - 2)).toBeLessThan(0.03);
      expect(Math.abs(normal.std - 0.5)).toBeLessThan(0.02);
      const uniform = moments(Init.uniform(-1, 3));
      expect([uniform.least >= -1, uniform.most <= 3, uniform.most > 2.9]).toEqual([true, true, true]);
      // sqrt(2 / 100) for rectified units with 100 inputs.
      for (const kaiming of [DEFAULT_KAIMING_NORMAL, DEFAULT_KAIMING_UNIFORM]) {
        expect(Math.abs(moments(kaiming).std - Math.sqrt(2 / 100))).toBeLessThan(0.005);
      }
      expect(moments(DEFAULT_KAIMING_UNIFORM).most).toBeLessThanOrEqual(Math.sqrt(3) * Math.sqrt(2 / 100));
      const out = Init.kaiming('normal', 'fanOut', 'linear');
      expect(Math.abs(moments(out).std - Math.sqrt(1 / 64))).toBeLessThan(0.005);
      expect([
        init.fanForShape('fanIn', [8, 3, 5, 5]),
        init.fanForShape('fanOut', [8, 3, 5, 5]),
        init.fanForShape('fanIn', [8]),
      ]).toEqual([75, 200, 1]);
      expect([init.gainOf('tanh'), init.gainOf('selu'), init.gainOf('sigmoid'), init.gainOf(3)]).toEqual([
        5 / 3,
        0.75,
        1,
        3,
      ]);
      expect(() => init.initTensor(Init.uniform(2, 1), [1], 'f32', device())).toThrow(/2 to 1/);
    });

    check('layers ask for what candle asks for', () => {
      using map = new VarMap();
      const vb = VarBuilder.fromVarMap(map, { device: device() });
      const transposed = { stride: 2, outputPadding: 1 };
      const layers = [
        linear(3, 5, vb.pp('linear')),
        linearNoBias(3, 5, vb.pp('linearNoBias')),
        linearB(3, 5, true, vb.pp('linearB')),
        embedding(7, 4, vb.pp('embedding')),
        conv1d(4, 6, 3, { groups: 2 }, vb.pp('conv1d')),
        conv1dNoBias(4, 6, 3, {}, vb.pp('conv1dNoBias')),
        conv2d(4, 6, 3, { groups: 2 }, vb.pp('conv2d')),
        conv2dNoBias(4, 6, 3, {}, vb.pp('conv2dNoBias')),
        convTranspose1d(4, 6, 3, { ...transposed, groups: 2 }, vb.pp('convTranspose1d')),
        convTranspose1dNoBias(4, 6, 3, {}, vb.pp('convTranspose1dNoBias')),
        convTranspose2d(4, 6, 3, transposed, vb.pp('convTranspose2d')),
        convTranspose2dNoBias(4, 6, 3, {}, vb.pp('convTranspose2dNoBias')),
        prelu(undefined, vb.pp('prelu')),
        prelu(3, vb.pp('prelus')),
      ];
      const shapes = Object.fromEntries([...map.data].map(([path, { shape }]) => [path, shape]));
      expect(shapes).toEqual({
        'linear.weight': [5, 3],
        'linear.bias': [5],
        'linearNoBias.weight': [5, 3],
        'linearB.weight': [5, 3],
        'linearB.bias': [5],
        'embedding.weight': [7, 4],
        'conv1d.weight': [6, 2, 3],
        'conv1d.bias': [6],
        'conv1dNoBias.weight': [6, 4, 3],
        'conv2d.weight': [6, 2, 3, 3],
        'conv2d.bias': [6],
        'conv2dNoBias.weight': [6, 4, 3, 3],
        'convTranspose1d.weight': [4, 3, 3],
        'convTranspose1d.bias': [6],
        'convTranspose1dNoBias.weight': [4, 6, 3],
        'convTranspose2d.weight': [4, 6, 3, 3],
        'convTranspose2d.bias': [6],
        'convTranspose2dNoBias.weight': [4, 6, 3, 3],
        'prelu.weight': [1],
        'prelus.weight': [3],
      });
      // The same path is the same variable.
      using again = linear(3, 5, vb.pp('linear'));
      expect(again.weight).toBe(map.data.get('linear.weight'));
      expect(() => linear(4, 5, vb.pp('linear'))).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
      for (const layer of layers) layer.dispose();
      expect(map.allVars().some((variable) => variable.isDisposed)).toBe(false);
    });

    check('convolution layers add their bias by channel', () => {
      const x1 = rand([2, 4, 9], 1);
      const x2 = rand([2, 4, 5, 6], 2);
      const shift = (bias: Tensor, rank: number) => bias.reshape([1, -1, ...new Array(rank - 2).fill(1)]);
      const compare = (layer: Conv1d | Conv2d | ConvTranspose1d | ConvTranspose2d, x: Tensor, plain: Tensor) => {
        expectClose(layer.forward(x), plain.broadcastAdd(shift(layer.bias!, x.rank)).toVecSync(), 1e-5);
        layer.dispose();
      };
      const options = { padding: 1, stride: 2, groups: 2 };
      const w1 = rand([6, 2, 3], 3);
      compare(new Conv1d(w1, rand([6], 4), options), x1, x1.conv1d(w1.copy(), options));
      const w2 = rand([6, 2, 3, 3], 5);
      compare(new Conv2d(w2, rand([6], 6), options), x2, x2.conv2d(w2.copy(), options));
      const w3 = rand([4, 3, 3], 7);
      const transposed = { ...options, outputPadding: 1 };
      compare(new ConvTranspose1d(w3, rand([6], 8), transposed), x1, x1.convTranspose1d(w3.copy(), transposed));
      const w4 = rand([4, 3, 3, 3], 9);
      compare(new ConvTranspose2d(w4, rand([6], 10), transposed), x2, x2.convTranspose2d(w4.copy(), transposed));
      expect(() => new Conv2d(rand([6, 2, 3], 1))).toThrow(/must have 4 dimensions/);
      expect(() => new ConvTranspose1d(rand([4, 3, 3], 1), rand([4], 1))).toThrow(/give \[3\]/);
    });

    check('PReLU with one weight, one a channel, and one an element', () => {
      const xs = from([-2, 3, -4, 5, -6, 7], [1, 2, 3]);
      using scalar = new PReLU(from([0.5]), true);
      expect(scalar.forward(xs).toVecSync()).toEqual([
        [
          [-1, 3, -2],
          [5, -3, 7],
        ],
      ]);
      using channels = new PReLU(from([0.5, 0.1]), false);
      expectClose(channels.forward(xs), [
        [
          [-1, 3, -2],
          [5, -0.6, 7],
        ],
      ]);
      using elements = new PReLU(from([1, 2, 0.5]), false);
      expect(elements.forward(from([-1, -1, -1])).toVecSync()).toEqual([-1, -2, -0.5]);
      expect(() => channels.forward(from([1, 2, 3], [1, 3]))).toThrow(/must be 2/);
      expect(() => new PReLU(from([1, 2]), true)).toThrow(/one element/);
    });

    check('layers one after the other, closures among them', () => {
      using map = new VarMap();
      const vb = VarBuilder.fromVarMap(map, { device: device() });
      using model = seq()
        .add(linear(4, 3, vb.pp(0)))
        .addFn((xs) => xs.relu().affine(2, 0))
        .add(linear(3, 2, vb.pp(2)));
      const xs = rand([5, 4], 1);
      const [first, second, third] = model.forwardAll(xs);
      expect([model.length, model.isEmpty, seq().isEmpty]).toEqual([3, false, true]);
      expect(second.toVecSync()).toEqual(first.relu().affine(2, 0).toVecSync());
      expect(model.forward(xs).toVecSync()).toEqual(third.toVecSync());
      expect(seq().forward(xs).toVecSync()).toEqual(xs.toVecSync());
      expect(
        func((t) => t.sqr().neg())
          .forward(from([2]))
          .toVecSync(),
      ).toEqual([-4]);
      const byMode = funcT((t, train) => (train ? t.neg() : t.sqr()));
      expect([byMode.forwardT(from([3]), true).toVecSync(), byMode.forwardT(from([3]), false).toVecSync()]).toEqual([
        [-3],
        [9],
      ]);
    });

    check('zeros, renamed, converted and rerooted tensors', () => {
      const zeros = VarBuilder.zeros({ device: device(), dtype: 'f16' });
      expect(zeros.containsTensor('anything')).toBe(true);
      const made = zeros.pp('a').getSync([2, 3], 'w');
      expect([made.dtype, made.toVecSync()]).toEqual([
        'f16',
        [
          [0, 0, 0],
          [0, 0, 0],
        ],
      ]);
      const vb = VarBuilder.fromTensors({ foo: rand([2, 3], 1), 'a.b': rand([1], 2) }, { device: device() });
      expect([vb.containsTensor('foo'), vb.containsTensor('bar')]).toEqual([true, false]);
      const renamed = vb.renameF((path) => (path === 'bar' ? 'foo' : path));
      expect(['foo', 'bar', 'baz'].map((path) => renamed.containsTensor(path))).toEqual([true, true, false]);
      expect(renamed.getSync([2, 3], 'bar').toVecSync()).toEqual(vb.getSync([2, 3], 'foo').toVecSync());
      expect(() => renamed.getSync([2, 3], 'baz')).toThrow(/"baz"/);
      expect(() => vb.renameF((() => 3) as never).getSync([2, 3], 'foo')).toThrow(
        /renameF: rename gave number for "foo"/,
      );
      expect(vb.toDtype('f64').getUncheckedSync('foo').dtype).toBe('f64');
      expect(vb.pp('x').setPrefix('a').getUncheckedSync('b').shape).toEqual([1]);
      expect(vb.pushPrefix('a').root().prefix).toBe('');
      expect(vb.setDevice(Device.js()).getUncheckedSync('foo').device.equals(Device.js())).toBe(true);
    });

    check('parts of a tensor for several devices', () => {
      const vb = VarBuilder.fromTensors({ 'a.w': from([0, 1, 2, 3, 4, 5, 6, 7], [2, 4]) }, { device: device() });
      const part = (dim: number, rank: number, worldSize: number) =>
        vb.pp('a').getShardSync('w', { dim, rank, worldSize }).toVecSync();
      expect([part(0, 1, 2), part(1, 1, 2), part(-1, 0, 4)]).toEqual([
        [[4, 5, 6, 7]],
        [
          [2, 3],
          [6, 7],
        ],
        [[0], [4]],
      ]);
      expect(() => part(1, 0, 3)).toThrow(/no 3 equal parts/);
      expect(() => part(1, 2, 2)).toThrow(/part 2 of 2/);
    });

    check('a map refuses what its variable is not', () => {
      using map = new VarMap();
      const vb = VarBuilder.fromVarMap(map, { device: device(), dtype: 'f32' });
      vb.getWithHintsSync([2], 'w', Init.const(3));
      expect(vb.getSync([2], 'w').toVecSync()).toEqual([3, 3]);
      expect(() => vb.getSync([3], 'w')).toThrow(expect.objectContaining({ code: 'SHAPE_MISMATCH' }));
      expect(() => vb.toDtype('f64').getSync([2], 'w')).toThrow(expect.objectContaining({ code: 'DTYPE_MISMATCH' }));
      expect(() => map.setOne('v', rand([2], 1))).toThrow(/"v" among 1/);
      if (device().location.kind !== 'js') {
        expect(() => vb.setDevice(Device.js()).getSync([2], 'w')).toThrow(
          expect.objectContaining({ code: 'DEVICE_MISMATCH' }),
        );
      }
    });
  });
}
