/**
 * Layers with a state against their recurrences in f64: batches of sequences of several lengths, states from nowhere and from
 * elsewhere, whole and cut. On devices with kernels these are what is tested, and the composed form beside them.
 */
import { type Device, memoryStats, scope, Tensor } from '@x/core';
import { testDevices } from '@x/testing/devices';
import { random } from '@x/testing/random';
import { describe, expect, it } from 'vitest';
import { causalConv1d, gatedDeltaRule, lstm, type SequenceSpans, selectiveScan, ssd, VarBuilder } from '../src';

const NOWHERE = 2 ** 32 - 1;
const SLOTS = 7;

type Values = Record<string, Float32Array>;

/** One sequence of a reference: rows [count][...] by name and its state, which it changes. */
type Recurrence = (rows: (name: string, row: number) => Float32Array, count: number, state: Float64Array) => number[][];

interface Layer {
  title: string;
  /** Widths of matrices with a row each, by name. */
  rows: Record<string, number>;
  weights: Record<string, number[]>;
  state: number[];
  run: (rows: Record<string, Tensor>, weights: Record<string, Tensor>, states: Tensor, spans: SequenceSpans) => Tensor;
  reference: (weights: Values) => Recurrence;
}

const silu = (x: number) => x / (1 + Math.exp(-x));
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));
const softplus = (x: number) => Math.log1p(Math.exp(x));
const negative = (values: Float32Array) => values.map((value) => -Math.exp(value));

function conv(
  channels: number,
  taps: number,
  options: { bias?: boolean; silu?: boolean; gates?: 'alike' | 'apart' },
): Layer {
  return {
    title: `causalConv1d of ${channels} channels and ${taps} taps ${JSON.stringify(options)}`,
    rows: { x: channels, ...(options.gates && { b: channels, c: channels }) },
    weights: { weight: [channels, taps], ...(options.bias && { bias: [channels] }) },
    state: [taps - 1, channels],
    run: ({ x, b, c }, { weight, bias }, states, spans) =>
      causalConv1d(x, weight, states, spans, {
        ...{ bias, activation: options.silu ? 'silu' : undefined },
        inGate: b,
        // Rows that begin where those of x do, or others.
        outGate: options.gates === 'apart' ? Tensor.cat([c, c], 1).narrow(1, channels, channels) : c,
      }),
    reference:
      ({ weight, bias }) =>
      (rows, count, state) => {
        const out: number[][] = [];
        for (let row = 0; row < count; row++) {
          const own = rows('x', row);
          const x = options.gates ? rows('b', row).map((factor, c) => factor * own[c]) : own;
          const factors = options.gates ? rows('c', row) : undefined;
          out.push(
            Array.from({ length: channels }, (_, c) => {
              let sum = (bias?.[c] ?? 0) + weight[c * taps + taps - 1] * x[c];
              for (let tap = 0; tap < taps - 1; tap++) sum += weight[c * taps + tap] * state[tap * channels + c];
              return (options.silu ? silu(sum) : sum) * (factors?.[c] ?? 1);
            }),
          );
          state.copyWithin(0, channels);
          state.set(x, (taps - 2) * channels);
        }
        return out;
      },
  };
}

function scan(channels: number, n: number): Layer {
  return {
    title: `selectiveScan of ${channels} channels of ${n} values`,
    rows: { x: channels, dt: channels, b: n, c: n },
    weights: { dtBias: [channels], a: [channels, n], d: [channels] },
    state: [channels, n],
    run: ({ x, dt, b, c }, { dtBias, a, d }, states, spans) =>
      selectiveScan({ x, dt, dtBias, a, b, c, d }, states, spans),
    reference:
      ({ dtBias, a, d }) =>
      (rows, count, state) =>
        Array.from({ length: count }, (_, row) => {
          const [x, dt, b, c] = ['x', 'dt', 'b', 'c'].map((name) => rows(name, row));
          return Array.from({ length: channels }, (_, channel) => {
            const step = softplus(dt[channel] + dtBias[channel]);
            let sum = d[channel] * x[channel];
            for (let e = 0; e < n; e++) {
              const at = channel * n + e;
              state[at] = Math.exp(step * a[at]) * state[at] + step * x[channel] * b[e];
              sum += state[at] * c[e];
            }
            return sum;
          });
        }),
  };
}

interface Heads {
  heads: number;
  keyHeads: number;
  keyDim: number;
  valueDim: number;
  sharing?: 'grouped' | 'tiled';
}

function matrices(kind: 'ssd' | 'delta', sizes: Heads, dtLimit?: [number, number]): Layer {
  const { heads, keyHeads, keyDim, valueDim, sharing } = sizes;
  const [keys, values] = [keyHeads * keyDim, heads * valueDim];
  return {
    title: `${kind} of ${JSON.stringify({ ...sizes, dtLimit })}`,
    rows: { q: keys, k: keys, v: values, dt: heads, ...(kind === 'delta' && { beta: heads }) },
    weights: { dtBias: [heads], a: [heads], ...(kind === 'ssd' && { d: [heads] }) },
    state: [heads, valueDim, keyDim],
    run: ({ q, k, v, dt, beta }, { dtBias, a, d }, states, spans) =>
      kind === 'ssd'
        ? ssd({ q, k, v, dt, dtBias, a, d }, { keyHeads, sharing, dtLimit }, states, spans)
        : gatedDeltaRule({ q, k, v, dt, dtBias, a, beta }, { keyHeads, sharing }, states, spans),
    reference:
      ({ dtBias, a, d }) =>
      (rows, count, state) =>
        Array.from({ length: count }, (_, row) => {
          const [q, k, v, dt] = ['q', 'k', 'v', 'dt'].map((name) => rows(name, row));
          return Array.from({ length: values }, (_, place) => {
            const [head, base] = [Math.floor(place / valueDim), place * keyDim];
            const from = (sharing === 'tiled' ? head % keyHeads : Math.floor((head * keyHeads) / heads)) * keyDim;
            let step = softplus(dt[head] + dtBias[head]);
            if (dtLimit) step = Math.min(Math.max(step, dtLimit[0]), dtLimit[1]);
            const [query, key] = [q, k].map((all) => Float64Array.from(all.subarray(from, from + keyDim)));
            if (kind === 'delta') {
              for (const x of [query, key]) {
                const norm = Math.sqrt(x.reduce((sum, value) => sum + value * value, 1e-6));
                x.forEach((value, e) => {
                  x[e] = value / norm;
                });
              }
              query.forEach((value, e) => {
                query[e] = value / Math.sqrt(keyDim);
              });
            }
            let known = 0;
            for (let e = 0; e < keyDim; e++) {
              state[base + e] *= Math.exp(step * a[head]);
              known += state[base + e] * key[e];
            }
            const write = kind === 'ssd' ? step * v[place] : sigmoid(rows('beta', row)[head]) * (v[place] - known);
            let sum = kind === 'ssd' ? d[head] * v[place] : 0;
            for (let e = 0; e < keyDim; e++) {
              state[base + e] += write * key[e];
              sum += state[base + e] * query[e];
            }
            return sum;
          });
        }),
  };
}

const LAYERS: Layer[] = [
  conv(5, 2, {}),
  conv(64, 3, { bias: true }),
  conv(300, 4, { bias: true, silu: true }),
  conv(33, 5, { silu: true }),
  conv(130, 3, { bias: true, gates: 'alike' }),
  conv(130, 3, { gates: 'apart' }),
  conv(33, 6, { silu: true, gates: 'alike' }),
  scan(1, 16),
  scan(130, 16),
  scan(20, 32),
  // Composed everywhere.
  scan(6, 5),
  matrices('ssd', { heads: 1, keyHeads: 1, keyDim: 32, valueDim: 1 }),
  matrices('ssd', { heads: 8, keyHeads: 1, keyDim: 32, valueDim: 16 }),
  matrices('ssd', { heads: 6, keyHeads: 2, keyDim: 64, valueDim: 20 }, [0.3, 1]),
  matrices('ssd', { heads: 2, keyHeads: 2, keyDim: 128, valueDim: 33 }),
  matrices('ssd', { heads: 2, keyHeads: 1, keyDim: 256, valueDim: 5 }),
  matrices('ssd', { heads: 2, keyHeads: 1, keyDim: 12, valueDim: 3 }),
  matrices('delta', { heads: 4, keyHeads: 2, keyDim: 32, valueDim: 32 }),
  matrices('delta', { heads: 4, keyHeads: 2, keyDim: 64, valueDim: 18, sharing: 'tiled' }),
  matrices('delta', { heads: 2, keyHeads: 1, keyDim: 128, valueDim: 17 }),
  matrices('delta', { heads: 1, keyHeads: 1, keyDim: 256, valueDim: 3 }),
  matrices('delta', { heads: 6, keyHeads: 3, keyDim: 10, valueDim: 4, sharing: 'tiled' }),
];

/** Rows of each sequence, and the slots of its states. */
const BATCHES: { counts: number[]; from: number[]; to: number[] }[] = [
  { counts: [1], from: [NOWHERE], to: [2] },
  { counts: [1, 1, 1], from: [1, NOWHERE, 0], to: [4, 5, NOWHERE] },
  { counts: [9], from: [3], to: [0] },
  { counts: [2, 1, 5, 3], from: [6, 5, NOWHERE, 6], to: [0, 1, 2, 3] },
  // Enough rows for kernels that take them by chunks.
  { counts: [17, 1, 9, 8], from: [NOWHERE, 5, 6, 6], to: [0, 1, NOWHERE, 3] },
];

describe.each(testDevices().map(String))('layers with states on %s', (name) => {
  const device = testDevices().find((candidate) => String(candidate) === name)!;

  it.each(LAYERS)('$title', (layer) => {
    const before = memoryStats().liveTensors;
    for (const [i, batch] of BATCHES.entries()) scope(() => expectReference(layer, batch, device, i));
    expect(memoryStats().liveTensors).toBe(before);
  });

  it('is the same however sequences are cut', () => {
    scope(() => {
      const layer = matrices('delta', { heads: 2, keyHeads: 1, keyDim: 32, valueDim: 8 });
      const { rows, weights } = inputsOf(layer, 12, device, 3);
      const states = Tensor.zeros([4, ...layer.state], { device });
      const at = (counts: number[], from: number, to: number) => spansOf({ counts, from: [from], to: [to] }, device);
      const part = (start: number, count: number) =>
        Object.fromEntries(Object.entries(rows).map(([key, x]) => [key, x.narrow(0, start, count)]));
      const whole = layer.run(rows, weights, states, at([12], NOWHERE, 0));
      const first = layer.run(part(0, 5), weights, states, at([5], NOWHERE, 1));
      const second = layer.run(part(5, 7), weights, states, at([7], 1, 2));
      close(Tensor.cat([first, second], 0), whole.toArraySync<Float32Array>());
      close(states.narrow(0, 2, 1), states.narrow(0, 0, 1).toArraySync<Float32Array>());
    });
  });

  it('refuses what does not fit, by name', () => {
    scope(() => {
      const x = Tensor.zeros([3, 4], { device });
      const weight = Tensor.zeros([4, 3], { device });
      const states = Tensor.zeros([2, 2, 4], { device });
      const spans = spansOf({ counts: [3], from: [0], to: [1] }, device);
      const code = (code: string, message: RegExp) =>
        expect.objectContaining({ code, message: expect.stringMatching(message) });
      expect(() => causalConv1d(x.narrow(1, 0, 3), weight, states, spans)).toThrow(code('SHAPE_MISMATCH', /\[3,3\]/));
      const inGate = x.narrow(1, 0, 3);
      expect(() => causalConv1d(x, weight, states, spans, { inGate })).toThrow(
        code('SHAPE_MISMATCH', /gates of \[3,3\]/),
      );
      expect(() => causalConv1d(x, weight, states.narrow(1, 0, 1), spans)).toThrow(
        code('SHAPE_MISMATCH', /slots, 2, 4/),
      );
      expect(() => causalConv1d(x, weight, states, { ...spans, counts: [2] })).toThrow(
        code('SHAPE_MISMATCH', /of 2 rows/),
      );
      const wide = { ...spans, from: spans.from.toDtype('f32') };
      expect(() => causalConv1d(x, weight, states, wide)).toThrow(code('INVALID_ARGUMENT', /from are f32/));
      expect(() => causalConv1d(x, weight, states, undefined as never)).toThrow(code('INVALID_ARGUMENT', /spans/));
      const heads = matrices('ssd', { heads: 2, keyHeads: 1, keyDim: 32, valueDim: 4 }, [2, 1]);
      const made = inputsOf(heads, 3, device, 1);
      const pool = Tensor.zeros([2, ...heads.state], { device });
      expect(() => heads.run(made.rows, made.weights, pool, spans)).toThrow(code('INVALID_ARGUMENT', /dtLimit/));
    });
  });

  it.each([
    [1, 1, 1],
    [7, 3, 33],
    [2, 2, 600],
  ])('a long short-term memory of %i rows, %i steps and %i units', (rows, steps, hidden) => {
    scope(() => {
      const noise = noiseOf(rows + hidden);
      const shapes = {
        weight_ih: [4 * hidden, 3],
        weight_hh: [4 * hidden, hidden],
        bias_ih: [4 * hidden],
        x: [rows, steps, 3],
      };
      const host = Object.fromEntries(
        Object.entries(shapes).map(([key, shape]) => [key, noise(shape.reduce((product, size) => product * size, 1))]),
      );
      host.weight_hh = host.weight_hh.map((value) => value / Math.sqrt(hidden));
      const [h, c] = [new Float64Array(rows * hidden), new Float64Array(rows * hidden)];
      const outputs = new Float64Array(rows * steps * hidden);
      for (let step = 0; step < steps; step++) {
        const before = h.slice();
        for (let row = 0; row < rows; row++) {
          for (let unit = 0; unit < hidden; unit++) {
            const gates = [0, 1, 2, 3].map((gate) => {
              const own = gate * hidden + unit;
              let sum = host.bias_ih[own];
              for (let k = 0; k < 3; k++) sum += host.weight_ih[own * 3 + k] * host.x[(row * steps + step) * 3 + k];
              for (let k = 0; k < hidden; k++) sum += host.weight_hh[own * hidden + k] * before[row * hidden + k];
              return sum;
            });
            const at = row * hidden + unit;
            c[at] = sigmoid(gates[1]) * c[at] + sigmoid(gates[0]) * Math.tanh(gates[2]);
            h[at] = outputs[(row * steps + step) * hidden + unit] = sigmoid(gates[3]) * Math.tanh(c[at]);
          }
        }
      }
      const named = Object.entries(shapes).map(([key, shape]) => [
        `${key}_l0`,
        Tensor.from(host[key], { shape, device }),
      ]);
      const vb = VarBuilder.fromTensors(Object.fromEntries(named), { device });
      using layer = lstm(3, hidden, { bHhInit: null }, vb);
      const xs = Tensor.from(host.x, { shape: shapes.x, device });
      close(layer.forward(xs), outputs);
      const states = layer.seq(xs);
      close(states[steps - 1].c, c);
      // Weights, inputs and outputs in bf16.
      const narrow = Object.fromEntries(named.map(([key, tensor]) => [key, (tensor as Tensor).toDtype('bf16')]));
      using short = lstm(3, hidden, { bHhInit: null }, VarBuilder.fromTensors(narrow, { device, dtype: 'bf16' }));
      const rounded = short.forward(xs.toDtype('bf16'));
      expect(rounded.dtype).toBe('bf16');
      close(rounded.toDtype('f32'), outputs, 0.03);
    });
  });
});

function spansOf(
  { counts, from, to }: { counts: number[]; from: number[]; to: number[] },
  device: Device,
): SequenceSpans {
  const places = (values: number[]) => Tensor.from(Uint32Array.from(values), { device });
  const starts = [0];
  for (const count of counts) starts.push(starts[starts.length - 1] + count);
  return { starts: places(starts), counts, from: places(from), to: places(to) };
}

/** Numbers between -1 and 1. */
function noiseOf(seed: number) {
  const next = random(seed + 1);
  return (count: number) => new Float32Array(count).map(() => 2 * next() - 1);
}

/** Numbers as layers meet them; rows as views of a wider matrix, as of a product of several. */
function inputsOf({ rows, weights }: Layer, total: number, device: Device, seed: number) {
  const noise = noiseOf(seed);
  const host: Values = {};
  const tensors = { rows: {} as Record<string, Tensor>, weights: {} as Record<string, Tensor> };
  for (const [name, width] of Object.entries(rows)) {
    const wide = noise(total * (width + 3));
    host[name] = Float32Array.from(
      { length: total * width },
      (_, i) => wide[Math.floor(i / width) * (width + 3) + 2 + (i % width)],
    );
    tensors.rows[name] = Tensor.from(wide, { shape: [total, width + 3], device }).narrow(1, 2, width);
  }
  for (const [name, shape] of Object.entries(weights)) {
    const values = noise(shape.reduce((product, size) => product * size, 1));
    host[name] = name === 'a' ? negative(values) : values;
    tensors.weights[name] = Tensor.from(host[name], { shape, device });
  }
  return { ...tensors, host, noise };
}

function expectReference(layer: Layer, batch: (typeof BATCHES)[number], device: Device, seed: number): void {
  const { counts, from, to } = batch;
  const total = counts.reduce((sum, count) => sum + count, 0);
  const { rows, weights, host, noise } = inputsOf(layer, total, device, seed);
  const size = layer.state.reduce((product, value) => product * value, 1);
  const pool = noise(SLOTS * size);
  const states = Tensor.from(pool, { shape: [SLOTS, ...layer.state], device });
  const expected = Float64Array.from(pool);
  const run = layer.reference(host);
  const wanted: number[] = [];
  let start = 0;
  for (const [i, count] of counts.entries()) {
    const first = start;
    const row = (name: string, at: number) => {
      const width = layer.rows[name];
      return host[name].subarray((first + at) * width, (first + at + 1) * width);
    };
    const state =
      from[i] === NOWHERE
        ? new Float64Array(size)
        : Float64Array.from(pool.subarray(from[i] * size, (from[i] + 1) * size));
    wanted.push(...run(row, count, state).flat());
    if (to[i] !== NOWHERE) expected.set(state, to[i] * size);
    start += count;
  }
  close(layer.run(rows, weights, states, spansOf(batch, device)), wanted);
  close(states, expected);
}

/** @param apart how far values may be, default what kernels in f32 leave */
function close(actual: Tensor, expected: ArrayLike<number>, apart = 2e-6): void {
  const values = actual.contiguous().toArraySync<Float32Array>();
  expect(values.length).toBe(expected.length);
  for (let i = 0; i < values.length; i++) {
    const difference = Math.abs(values[i] - expected[i]);
    if (!(difference <= apart + 10 * apart * Math.abs(expected[i])))
      expect.fail(`element ${i}: ${values[i]}, not ${expected[i]}`);
  }
}
