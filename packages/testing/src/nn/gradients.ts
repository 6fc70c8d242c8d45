/**
 * Gradients through layers, functions and losses on one device: the slope along a random direction of each variable, in
 * f64, against the central difference of the value.
 */
import { type Device, scope, Tensor, Var } from '@x/core';
import {
  AttnMask,
  activate,
  attention,
  batchNorm,
  conv1d,
  conv2d,
  convTranspose1d,
  convTranspose2d,
  embedding,
  flashAttn,
  groupNorm,
  gru,
  layerNorm,
  layerNormNoBias,
  linear,
  loss,
  lstm,
  type Module,
  ops,
  prelu,
  rmsNorm,
  rope,
  ropeI,
  ropeThd,
  sdpa,
  VarBuilder,
  VarMap,
} from '@x/nn';
import { describe, expect } from 'vitest';
import { check } from './check';
import { values } from './helpers';

const STEP = 1e-5;

export function gradientsSuite(name: string, device: () => Device): void {
  const rand = (shape: readonly number[], seed: number) =>
    Tensor.from(
      values(
        shape.reduce((a, b) => a * b, 1),
        seed,
      ),
      { shape, device: device(), dtype: 'f64' },
    );
  const variable = (shape: readonly number[], seed: number) => Var.fromTensor(rand(shape, seed));

  function expectSlopes(vars: ReadonlyMap<string, Var>, value: () => Tensor): void {
    const read = () => scope(() => value().toScalarSync());
    using grads = scope(() => value().backward());
    let seed = 100;
    for (const [path, x] of vars) {
      scope(() => {
        const grad = grads.get(x);
        expect(grad?.shape, path).toEqual(x.shape);
        const direction = rand(x.shape, seed++);
        const start = x.detach().copy();
        x.set(start.add(direction.mul(STEP)));
        const above = read();
        x.set(start.sub(direction.mul(STEP)));
        const below = read();
        x.set(start);
        const expected = (above - below) / (2 * STEP);
        const slope = grad!.mul(direction).sumAll().toScalarSync();
        expect(Math.abs(slope - expected), `${path}: ${slope}, not ${expected}`).toBeLessThan(
          1e-6 * Math.max(1, Math.abs(expected)),
        );
        expect(grad!.abs().sumAll().toScalarSync(), path).toBeGreaterThan(1e-7);
      });
    }
  }

  /** A sum that weighs every element differently. */
  const weigh = (ys: Tensor) => scope(() => ys.sin().mul(rand(ys.shape, 999)).sumAll());
  describe(`gradients on ${name}`, () => {
    const layers: Record<string, [make: (vb: VarBuilder) => Module, shape: number[]]> = {
      linear: [(vb) => linear(3, 4, vb), [2, 5, 3]],
      conv1d: [(vb) => conv1d(4, 2, 3, { padding: 1, groups: 2 }, vb), [2, 4, 6]],
      conv2d: [(vb) => conv2d(2, 3, 3, { stride: 2 }, vb), [1, 2, 5, 5]],
      convTranspose1d: [(vb) => convTranspose1d(2, 3, 3, { stride: 2 }, vb), [2, 2, 4]],
      convTranspose2d: [(vb) => convTranspose2d(2, 3, 2, { padding: 1 }, vb), [1, 2, 3, 3]],
      layerNorm: [(vb) => layerNorm(4, 1e-3, vb), [2, 3, 4]],
      layerNormNoBias: [(vb) => layerNormNoBias(4, 1e-3, vb), [2, 3, 4]],
      rmsNorm: [(vb) => rmsNorm(4, 1e-3, vb), [2, 3, 4]],
      groupNorm: [(vb) => groupNorm(2, 4, 1e-3, vb), [2, 4, 3]],
      prelu: [(vb) => prelu(3, vb), [2, 3, 4]],
      lstm: [(vb) => lstm(3, 2, {}, vb), [2, 4, 3]],
      gru: [(vb) => gru(3, 2, { direction: 'backward' }, vb), [2, 4, 3]],
    };
    for (const [title, [make, shape]] of Object.entries(layers)) {
      check(`${title} and its input`, () => {
        device().setSeed(8);
        using map = new VarMap();
        using layer = make(VarBuilder.fromVarMap(map, { device: device(), dtype: 'f64' }));
        const xs = variable(shape, 1);
        expectSlopes(new Map([...map.data, ['input', xs]]), () => scope(() => weigh(layer.forward(xs))));
      });
    }

    check('batch norm in training and in evaluation', () => {
      using map = new VarMap();
      const vb = VarBuilder.fromVarMap(map, { device: device(), dtype: 'f64' });
      using layer = batchNorm(3, { eps: 1e-3, momentum: 0 }, vb);
      const xs = variable([4, 3, 2], 1);
      const vars = new Map<string, Var>([['input', xs]]);
      for (const path of ['weight', 'bias']) vars.set(path, map.data.get(path)!);
      for (const train of [true, false]) expectSlopes(vars, () => scope(() => weigh(layer.forwardT(xs, train))));
    });

    check('an embedding, with ids that come again', () => {
      using map = new VarMap();
      using layer = embedding(5, 3, VarBuilder.fromVarMap(map, { device: device(), dtype: 'f64' }));
      const ids = Tensor.from(Uint32Array.of(4, 0, 4, 2), { shape: [2, 2], device: device() });
      expectSlopes(map.data, () => scope(() => weigh(layer.forward(ids))));
    });

    check('functions', () => {
      const xs = new Map([['xs', variable([3, 4], 5)]]);
      const x = xs.get('xs')!;
      const functions: Record<string, () => Tensor> = {
        softmax: () => ops.softmax(x, 0),
        softmaxLastDim: () => ops.softmaxLastDim(x),
        logSoftmax: () => ops.logSoftmax(x, 1),
        softplus: () => ops.softplus(x),
        selu: () => ops.selu(x),
        pixels: () => ops.pixelShuffle(x.reshape([1, 4, 1, 3]), 2),
        borders: () => ops.replicationPad2d(x.reshape([1, 1, 3, 4]), 2),
      };
      for (const kind of ['gelu', 'gelu_new', 'relu2', 'silu', 'hard_swish', 'mish', 'leaky_relu', 'swiglu'] as const)
        functions[kind] = () => activate(x, kind);
      for (const run of Object.values(functions)) expectSlopes(xs, () => scope(() => weigh(run())));
    });

    check('rotary embeddings', () => {
      const vars = new Map([
        ['xs', variable([2, 3, 3, 4], 6)],
        ['cos', variable([3, 2], 7)],
        ['sin', variable([3, 2], 8)],
      ]);
      const [x, cos, sin] = vars.values();
      for (const turn of [rope, ropeI, ropeThd]) expectSlopes(vars, () => scope(() => weigh(turn(x, cos, sin))));
    });

    check('attention', () => {
      const vars = new Map([
        ['q', variable([1, 4, 3, 2], 1)],
        ['k', variable([1, 2, 5, 2], 2)],
        ['v', variable([1, 2, 5, 2], 3)],
      ]);
      const [q, k, v] = vars.values();
      expectSlopes(vars, () => scope(() => weigh(sdpa(q, k, v, { causal: true, softcapping: 2 }))));
      const byPosition = () => [q, k, v].map((tensor) => tensor.transpose(1, 2)) as [Tensor, Tensor, Tensor];
      const options = { mask: AttnMask.causalWithOffset(2), maxBias: 8, softcap: 2 };
      expectSlopes(vars, () => scope(() => weigh(flashAttn(...byPosition(), 0.7, options))));
      const packed = () => byPosition().map((tensor) => tensor.squeeze(0)) as [Tensor, Tensor, Tensor];
      for (const run of [attention.flashAttnVarlenCpu, attention.flashAttnVarlenUnfused]) {
        expectSlopes(vars, () => scope(() => weigh(run(...packed(), [1, 2], [2, 3], 0.7, { causal: true }))));
      }
    });

    check('losses', () => {
      const vars = new Map([['xs', variable([3, 4], 9)]]);
      const x = vars.get('xs')!;
      const classes = Tensor.from(Uint32Array.of(3, 0, 1), { device: device() });
      const target = rand([3, 4], 10).abs();
      const losses = [
        () => loss.crossEntropy(x, classes),
        () => loss.mse(x, target),
        () => loss.binaryCrossEntropyWithLogit(x, target),
        () => loss.huber(x, target, 0.6),
      ];
      for (const run of losses) expectSlopes(vars, run);
    });
  });
}
