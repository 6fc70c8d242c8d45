import { memoryStats, scope, Tensor } from '@x/core';
import { deviceNames, expectClose, openDevice, tensor, values } from '@x/testing/nn/helpers';
import { describe, expect, it } from 'vitest';
import {
  ACTIVATIONS,
  activate,
  Embedding,
  LayerNorm,
  Linear,
  logSoftmax,
  RmsNorm,
  silu,
  softmax,
  softmaxLastDim,
  swiglu,
} from '../src';

/** y = x · wᵀ + b, row by row. */
function product(x: Float32Array, w: Float32Array, width: number, out: number, bias?: ArrayLike<number>): number[] {
  const ys: number[] = [];
  for (let row = 0; row < x.length / width; row++) {
    for (let o = 0; o < out; o++) {
      let sum = bias?.[o] ?? 0;
      for (let i = 0; i < width; i++) sum += x[row * width + i] * w[o * width + i];
      ys.push(sum);
    }
  }
  return ys;
}

describe.each(deviceNames)('layers on %s', (name) => {
  const device = openDevice(name);

  it('Linear multiplies by the transposed weight and adds the bias, whatever the rank', () => {
    scope(() => {
      const w = values(12, 3);
      const bias = [0.5, -1, 2];
      using plain = new Linear(tensor(w, [3, 4], device));
      using biased = new Linear(tensor(w, [3, 4], device), tensor(bias, [3], device));
      for (const lead of [[], [2], [2, 5], [1, 2, 3]]) {
        const x = values(4 * lead.reduce((a, b) => a * b, 1), 5);
        const xs = tensor(x, [...lead, 4], device);
        expectClose(plain.forward(xs), [...lead, 3], product(x, w, 4, 3));
        expectClose(biased.forward(xs), [...lead, 3], product(x, w, 4, 3, bias));
      }
      expect(() => plain.forward(tensor(values(5), [1, 5], device))).toThrow(/must be 4/);
      expect(() => new Linear(tensor(w, [12], device))).toThrow(/\[out, in\]/);
      expect(() => new Linear(tensor(w, [3, 4], device), tensor(w, [12], device))).toThrow(/give \[3\]/);
    });
  });

  it('Embedding has a row for every byte', () => {
    scope(() => {
      const table = values(512);
      using bytes = new Embedding(tensor(table, [256, 2], device));
      const ids = Tensor.from([0, 255], { dtype: 'u8', device });
      expectClose(bytes.forward(ids), [2, 2], [table[0], table[1], table[510], table[511]], 0);
    });
  });

  it('Embedding looks rows up', () => {
    scope(() => {
      using table = new Embedding(tensor(values(10), [5, 2], device));
      const rows = values(10);
      const ids = Tensor.from(Uint32Array.of(4, 0, 3, 3), { shape: [2, 2], device });
      expectClose(
        table.forward(ids),
        [2, 2, 2],
        [8, 9, 0, 1, 6, 7, 6, 7].map((i) => rows[i]),
        0,
      );
      expect(table.hiddenSize).toBe(2);
      expect(() => new Embedding(tensor(values(10), [10], device))).toThrow(/\[vocab, hidden\]/);
    });
  });

  it('RmsNorm and LayerNorm normalise rows', () => {
    scope(() => {
      const x = values(12, 7);
      const weight = values(4, 8);
      const bias = values(4, 9);
      const rms: number[] = [];
      const layer: number[] = [];
      for (let row = 0; row < 3; row++) {
        const r = [...x.subarray(row * 4, row * 4 + 4)];
        const mean = r.reduce((a, b) => a + b) / 4;
        const square = r.reduce((a, b) => a + b * b, 0) / 4;
        const variance = r.reduce((a, b) => a + (b - mean) ** 2, 0) / 4;
        r.forEach((v, i) => {
          rms.push((v / Math.sqrt(square + 1e-5)) * weight[i]);
          layer.push(((v - mean) / Math.sqrt(variance + 1e-5)) * weight[i] + bias[i]);
        });
      }
      const xs = tensor(x, [1, 3, 4], device);
      using rmsNorm = new RmsNorm(tensor(weight, [4], device), 1e-5);
      expectClose(rmsNorm.forward(xs), [1, 3, 4], rms);
      using layerNorm = new LayerNorm(tensor(weight, [4], device), tensor(bias, [4], device), 1e-5);
      expectClose(layerNorm.forward(xs), [1, 3, 4], layer);
      using unbiased = new LayerNorm(tensor(weight, [4], device), undefined, 1e-5);
      expectClose(
        unbiased.forward(xs),
        [1, 3, 4],
        layer.map((v, i) => v - bias[i % 4]),
      );
      expect(() => new RmsNorm(tensor(weight, [2, 2], device), 1e-5)).toThrow(/\[size\]/);
    });
  });

  it('softmax and logSoftmax normalise any dimension, without overflow', () => {
    scope(() => {
      const x = values(24, 11).map((v) => v * 5 + 1000);
      const xs = tensor(x, [2, 3, 4], device);
      for (const dim of [0, 1, 2, -1, -3]) {
        const d = (dim + 3) % 3;
        const stride = [12, 4, 1][d];
        const size = [2, 3, 4][d];
        const expected = Array.from(x, (v, i) => {
          const first = i - (Math.floor(i / stride) % size) * stride;
          let sum = 0;
          for (let k = 0; k < size; k++) sum += Math.exp(x[first + k * stride] - v);
          return 1 / sum;
        });
        expectClose(softmax(xs, dim), [2, 3, 4], expected);
        expectClose(logSoftmax(xs, dim), [2, 3, 4], expected.map(Math.log), 1e-4);
      }
      const transposed = xs.transpose(0, 2);
      expectClose(
        softmaxLastDim(transposed),
        [4, 3, 2],
        softmax(xs, 0).transpose(0, 2).toArraySync<Float32Array>(),
        1e-6,
      );
    });
  });

  it('activations are what their names say', () => {
    scope(() => {
      const x = values(8, 13).map((v) => v * 3);
      const xs = tensor(x, [2, 4], device);
      const sigmoid = (v: number) => 1 / (1 + Math.exp(-v));
      const hardSigmoid = (v: number) => Math.min(1, Math.max(0, (v + 3) / 6));
      const tanhGelu = (v: number) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3)));
      const expected: Record<string, (v: number) => number> = {
        relu: (v) => Math.max(v, 0),
        relu2: (v) => Math.max(v, 0) ** 2,
        silu: (v) => v * sigmoid(v),
        swish: (v) => v * sigmoid(v),
        sigmoid,
        tanh: Math.tanh,
        elu: (v) => (v > 0 ? v : Math.expm1(v)),
        relu6: (v) => Math.min(Math.max(v, 0), 6),
        hard_sigmoid: hardSigmoid,
        hard_swish: (v) => v * hardSigmoid(v),
        mish: (v) => v * Math.tanh(Math.log1p(Math.exp(v))),
        leaky_relu: (v) => (v > 0 ? v : 0.01 * v),
        gelu_new: tanhGelu,
        gelu_pytorch_tanh: tanhGelu,
      };
      for (const [key, fn] of Object.entries(expected))
        expectClose(activate(xs, key as 'relu'), [2, 4], Array.from(x, fn));
      // The exact form differs from the tanh one by less than 5e-4.
      expectClose(activate(xs, 'gelu'), [2, 4], Array.from(x, tanhGelu), 5e-4);
      const gated = [0, 1, 4, 5].map((i) => x[i] * sigmoid(x[i]) * x[i + 2]);
      expectClose(activate(xs, 'swiglu'), [2, 2], gated);
      expectClose(swiglu(xs), [2, 2], gated);
      expectClose(silu(xs), [2, 4], Array.from(x, expected.silu));
      expect(ACTIVATIONS.length).toBe(Object.keys(expected).length + 2);
      expectClose(
        activate(xs, { elu: 0.5 }),
        [2, 4],
        Array.from(x, (v) => (v > 0 ? v : 0.5 * Math.expm1(v))),
      );
      expectClose(
        activate(xs, { leaky_relu: 0.3 }),
        [2, 4],
        Array.from(x, (v) => (v > 0 ? v : 0.3 * v)),
      );
      expect(() => activate(xs, 'maxout' as never)).toThrow(/"maxout".*silu/);
      expect(() => activate(xs, 'constructor' as never)).toThrow(/no activation/);
      expect(() => swiglu(tensor(x.subarray(0, 3), [3], device))).toThrow(/odd/);
    });
  });

  it('modules own their tensors and leave nothing behind', () => {
    const before = memoryStats();
    const make = () => {
      const shared = tensor(values(12), [4, 3], device);
      return [
        new Embedding(shared),
        new Linear(shared.detach(), tensor([1, 2, 3, 4], [4], device)),
        new RmsNorm(tensor(values(3), [3], device), 1e-6),
      ] as const;
    };
    // The scope takes nothing from modules made in it.
    const [embedding, linear, norm] = scope(make);
    for (let i = 0; i < 2; i++) {
      scope(() => {
        const ids = Tensor.from(Uint32Array.of(1, 2), { device });
        expect(linear.forward(norm.forward(embedding.forward(ids))).shape).toEqual([2, 4]);
      });
    }
    expect(memoryStats().liveTensors).toBe(before.liveTensors + 4);
    expect(memoryStats().liveStorages).toBe(before.liveStorages + 3);
    embedding.dispose();
    expect(memoryStats().liveStorages).toBe(before.liveStorages + 3); // the linear layer shares the table
    linear.dispose();
    linear.dispose();
    norm[Symbol.dispose]();
    expect(memoryStats()).toEqual(before);
    scope(() => {
      const xs = tensor(values(3), [1, 3], device);
      expect(() => linear.forward(xs)).toThrow(expect.objectContaining({ code: 'DISPOSED' }));
    });
  });
});
