/** Recurrent layers on one device: candle-nn's tests/rnn.rs, whose values are PyTorch's, and what they leave out. */
import { type Device, noGrad, Tensor } from '@x/core';
import { GRU, gru, LSTM, lstm, type RnnConfig, VarBuilder, VarMap } from '@x/nn';
import { describe, expect } from 'vitest';
import { check } from './check';
import { expectClose } from './close';
import { values } from './helpers';

const BIAS = [-1, 1, -0.5, 2, -1, 1, -0.5, 2, -1, 1, -0.5, 2];

export function rnnSuite(name: string, device: () => Device): void {
  /** Weights of candle's tests: cosines and sines of 0, 1, 2, ... */
  const weights = (rows: number, suffix = 'l0') => {
    const bias = Tensor.from(BIAS.slice(0, rows), { device: device() });
    return {
      [`weight_ih_${suffix}`]: Tensor.arange(0, rows * 2, 'f32', device())
        .reshape([rows, 2])
        .cos(),
      [`weight_hh_${suffix}`]: Tensor.arange(0, rows * 3, 'f32', device())
        .reshape([rows, 3])
        .sin(),
      [`bias_ih_${suffix}`]: bias,
      [`bias_hh_${suffix}`]: bias.cos(),
    };
  };
  const builder = (rows: number, suffix?: string) =>
    VarBuilder.fromTensors(weights(rows, suffix), { device: device() });
  const inputs = [3, 1, 4, 1, 5, 9, 2].map((x) => [x, x / 2]);
  const sequence = () => Tensor.from([inputs], { device: device() });
  describe(`recurrent layers on ${name}`, () => {
    check('rnn::lstm', () => {
      using layer = lstm(2, 3, {}, builder(12));
      let state = layer.zeroState(1);
      for (const input of inputs) state = layer.step(Tensor.from([input], { device: device() }), state);
      expectClose(state.h, [[0.9919, 0.1738, -0.1451]]);
      expectClose(state.c, [[5.725, 0.4458, -0.2908]]);
      const states = layer.seq(sequence());
      expect(states.length).toBe(7);
      expectClose(states[6].c, state.c.toVecSync(), 1e-6);
      const all = layer.forward(sequence());
      expect(all.shape).toEqual([1, 7, 3]);
      expectClose(all.narrow(1, 6, 1).squeeze(1), state.h.toVecSync(), 1e-6);
    });

    check('rnn::gru', () => {
      using layer = gru(2, 3, {}, builder(9));
      let state = layer.zeroState(1);
      for (const input of inputs) state = layer.step(Tensor.from([input], { device: device() }), state);
      expectClose(state.h, [[0.0579, 0.8836, -0.9991]]);
      expectClose(layer.forward(sequence()).narrow(1, 6, 1).squeeze(1), state.h.toVecSync(), 1e-6);
    });

    check('a backward layer is a forward one on the reversed sequence', () => {
      for (const [make, rows] of [
        [lstm, 12],
        [gru, 9],
      ] as const) {
        using forward = make(2, 3, {}, builder(rows));
        using backward = make(2, 3, { direction: 'backward', layerIdx: 2 }, builder(rows, 'l2_reverse'));
        const expected = forward.forward(sequence().flip([1])).flip([1]);
        expectClose(backward.forward(sequence()), expected.toVecSync(), 1e-6);
      }
    });

    check('sequences of several lengths and widths, with and without gradients', () => {
      device().setSeed(6);
      for (const [batch, steps, hidden] of [
        [1, 1, 1],
        [3, 4, 16],
        [7, 3, 33],
        [2, 5, 130],
      ]) {
        for (const direction of ['forward', 'backward'] as const) {
          using map = new VarMap();
          const bIhInit = batch === 3 ? null : undefined;
          using layer = lstm(5, hidden, { direction, bIhInit }, VarBuilder.fromVarMap(map, { device: device() }));
          const xs = Tensor.from(values(batch * steps * 5, 3), { shape: [batch, steps, 5], device: device() });
          const start = { h: layer.zeroState(batch).h.add(0.25), c: layer.zeroState(batch).c.sub(0.5) };
          // Variables are recorded, which is done step by step.
          const recorded = layer.seqInit(xs, start);
          const states = noGrad(() => layer.seqInit(xs, start));
          expect(states.length).toBe(steps);
          for (const [i, { h, c }] of states.entries()) {
            expectClose(h, recorded[i].h.toVecSync(), 2e-6);
            expectClose(c, recorded[i].c.toVecSync(), 2e-6);
          }
          const all = noGrad(() => layer.forward(xs.transpose(0, 1).contiguous().transpose(0, 1)));
          expectClose(all, layer.forward(xs).toVecSync(), 2e-6);
        }
      }
    });

    check('f16 and bf16 beside f32 of the same numbers', () => {
      device().setSeed(8);
      for (const dtype of ['f16', 'bf16'] as const) {
        for (const [batch, steps, hidden] of [
          [1, 3, 1],
          [3, 9, 33],
          [5, 6, 64],
        ]) {
          using map = new VarMap();
          using narrow = lstm(7, hidden, {}, VarBuilder.fromVarMap(map, { dtype, device: device() }));
          const wide = Object.fromEntries([...map.data].map(([name, value]) => [name, value.toDtype('f32')]));
          using layer = lstm(7, hidden, {}, VarBuilder.fromTensors(wide, { device: device() }));
          const xs = Tensor.from(values(batch * steps * 7, 3), { shape: [batch, steps, 7], device: device() }).toDtype(
            dtype,
          );
          const [made, expected] = noGrad(() => [narrow.forward(xs), layer.forward(xs.toDtype('f32'))]);
          expect(made.dtype).toBe(dtype);
          expectClose(made.toDtype('f32'), expected.toVecSync(), dtype === 'f16' ? 4e-3 : 3e-2);
        }
      }
    });

    check('initial values, no biases, and a start state', () => {
      device().setSeed(5);
      using map = new VarMap();
      const vb = VarBuilder.fromVarMap(map, { device: device() });
      const noBias: RnnConfig = { bIhInit: null, bHhInit: null };
      using layer = new LSTM(2, 4, noBias, vb.pp('lstm'));
      using other = new GRU(2, 4, {}, vb.pp('gru'));
      expect([...map.data.keys()]).toEqual([
        'lstm.weight_ih_l0',
        'lstm.weight_hh_l0',
        'gru.weight_ih_l0',
        'gru.weight_hh_l0',
        'gru.bias_ih_l0',
        'gru.bias_hh_l0',
      ]);
      const xs = Tensor.from(values(2 * 5 * 2, 3), { shape: [2, 5, 2], device: device() });
      const half = layer.seq(xs.narrow(1, 0, 3));
      const rest = layer.seqInit(xs.narrow(1, 3, 2), half[2]);
      expectClose(layer.statesToTensor([...half, ...rest]), layer.forward(xs).toVecSync(), 1e-6);
      expect(other.forward(xs).shape).toEqual([2, 5, 4]);
      expect(() => layer.forward(xs.narrow(2, 0, 1))).toThrow(/give \[b, seq, 2\]/);
      const loss = layer.forward(xs).sqr().sumAll().add(other.forward(xs).sqr().sumAll());
      const grads = loss.backward();
      for (const [path, variable] of map.data) {
        const grad = grads.get(variable);
        expect(grad?.shape, path).toEqual(variable.shape);
        expect(grad!.abs().sumAll().toScalarSync(), path).toBeGreaterThan(1e-4);
      }
    });
  });
}
