/** Gradients of a long short-term memory over whole sequences against those that are followed step by step. */
import { scope, Tensor, Var } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { generator } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';
import { type Direction, type LSTM, lstm, VarBuilder } from '../src';

const INPUTS = 3;

describe.each(testDevices())('gradients of long short-term memories on %s', (device) => {
  const next = generator(3);
  const numbers = (shape: number[], scale = 1) => {
    const values = new Float32Array(shape.reduce((a, b) => a * b, 1)).map(() => (2 * next() - 1) * scale);
    return Tensor.from(values, { shape, device });
  };

  /** A layer whose weights are variables, and these by their names; with its inputs. */
  function layerOf([rows, steps, hidden]: readonly number[], direction: Direction, biases = true) {
    const suffix = direction === 'backward' ? 'l0_reverse' : 'l0';
    const shapes: Record<string, number[]> = {
      weight_ih: [4 * hidden, INPUTS],
      weight_hh: [4 * hidden, hidden],
      ...(biases && { bias_ih: [4 * hidden], bias_hh: [4 * hidden] }),
    };
    const vars = Object.fromEntries(
      Object.entries(shapes).map(([name, shape]) => [
        `${name}_${suffix}`,
        Var.fromTensor(numbers(shape, 1 / Math.sqrt(hidden))),
      ]),
    );
    const none = biases ? {} : { bIhInit: null, bHhInit: null };
    const layer = lstm(INPUTS, hidden, { direction, ...none }, VarBuilder.fromTensors(vars, { device }));
    const xs = Var.fromTensor(numbers([rows, steps, INPUTS]));
    return { layer, xs, all: [...Object.values(vars), xs] };
  }

  const byStep = (layer: LSTM, xs: Tensor) => layer.statesToTensor(layer.seq(xs));

  function close(actual: Tensor, expected: Tensor, what: string): void {
    expect(actual.shape).toEqual(expected.shape);
    const [a, b] = [actual, expected].map((tensor) => tensor.contiguous().toArraySync<Float32Array>());
    const most = b.reduce((top, value) => Math.max(top, Math.abs(value)), 0);
    expect(most).toBeGreaterThan(0);
    for (let i = 0; i < a.length; i++)
      if (!(Math.abs(a[i] - b[i]) <= 2e-5 * (1 + most))) expect.fail(`${what}, element ${i}: ${a[i]}, not ${b[i]}`);
  }

  it.each([
    [[1, 2, 1], 'forward', true],
    [[5, 4, 7], 'forward', true],
    [[3, 6, 33], 'backward', true],
    [[6, 3, 130], 'forward', false],
    [[4, 2, 64], 'backward', false],
  ] as const)('of %j, %s', (size, direction, biases) => {
    scope(() => {
      const { layer, xs, all } = layerOf(size, direction, biases);
      const [rows, steps, hidden] = size;
      const weights = numbers([rows, steps, hidden]);
      const outputs = layer.forward(xs);
      const expected = byStep(layer, xs);
      close(outputs, expected, 'outputs');
      const [own, others] = [outputs, expected].map((made) => made.mul(weights).sumAll().backward());
      for (const [i, variable] of all.entries()) close(own.get(variable)!, others.get(variable)!, `gradient ${i}`);
    });
  });

  it('of the last output alone, of weights alone and of inputs alone', () => {
    scope(() => {
      const { layer, xs, all } = layerOf([2, 5, 18], 'forward');
      const last = (outputs: Tensor) => outputs.narrow(1, 4, 1).sqr().sumAll();
      const fixed = xs.detach();
      const [own, others] = [layer.forward(fixed), byStep(layer, fixed)].map((made) => last(made).backward());
      for (const variable of all.slice(0, -1)) close(own.get(variable)!, others.get(variable)!, 'of weights');
    });
  });

  it('of gradients', () => {
    scope(() => {
      const { layer, xs, all } = layerOf([2, 3, 5], 'backward');
      const second = (outputs: Tensor) => {
        const first = outputs.sqr().sumAll().backward({ createGraph: true }).get(xs)!;
        return first.sqr().sumAll().backward();
      };
      const [own, others] = [layer.forward(xs), byStep(layer, xs)].map(second);
      for (const variable of all) close(own.get(variable)!, others.get(variable)!, 'of a gradient');
    });
  });

  it('twice of one history, and of two layers one behind the other', () => {
    scope(() => {
      const { layer, xs, all } = layerOf([2, 4, INPUTS], 'forward');
      const loss = layer.forward(layer.forward(xs)).sqr().sumAll();
      const [first, again] = [loss.backward(), loss.backward()];
      const expected = byStep(layer, byStep(layer, xs)).sqr().sumAll().backward();
      for (const variable of all) {
        close(first.get(variable)!, expected.get(variable)!, 'first');
        expect(again.get(variable)!.toArraySync()).toEqual(first.get(variable)!.toArraySync());
      }
    });
  });

  it.each(['bf16', 'f16'] as const)('of weights and inputs in %s', (dtype) => {
    scope(() => {
      const { layer, xs, all } = layerOf([3, 4, 20], 'forward');
      const vars = all.slice(0, -1).map((variable) => Var.fromTensor(variable.toDtype(dtype)));
      const names = ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0'];
      const named = Object.fromEntries(names.map((name, i) => [name, vars[i]]));
      const narrow = lstm(INPUTS, 20, {}, VarBuilder.fromTensors(named, { device, dtype }));
      const outputs = narrow.forward(xs.toDtype(dtype));
      expect(outputs.dtype).toBe(dtype);
      const own = outputs.toDtype('f32').sumAll().backward();
      const expected = byStep(layer, xs).sumAll().backward();
      for (const [i, variable] of vars.entries()) {
        const gradient = own.get(variable)!;
        expect(gradient.dtype).toBe(dtype);
        const [a, b] = [gradient.toDtype('f32'), expected.get(all[i])!].map((t) =>
          t.contiguous().toArraySync<Float32Array>(),
        );
        const most = b.reduce((top, value) => Math.max(top, Math.abs(value)), 0);
        for (let at = 0; at < a.length; at++) expect(Math.abs(a[at] - b[at])).toBeLessThanOrEqual(0.05 * (1 + most));
      }
    });
  });
});
