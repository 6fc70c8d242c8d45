/**
 * Layers with states by chunks of rows against the same row by row, on every device with kernels: sequences of no row and of
 * one, ends inside chunks, slots beyond the pool, and what must not depend on the rest of a batch. packages/nn/test/recurrent.test.ts
 * compares both with recurrences in f64.
 */
import type { BackendStorage, StatePoolPart, StateSpans } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';
import { expectNear, memory, noise } from './decode-operands';

const NOWHERE = 2 ** 32 - 1;
const SLOTS = 9;

interface Batch {
  counts: number[];
  from: number[];
  to: number[];
}

/** What one sequence writes no other one reads. */
const BATCHES: Batch[] = [
  { counts: [40], from: [2], to: [2] },
  {
    counts: [0, 1, 7, 8, 0, 9, 33, 16],
    from: [3, 0, NOWHERE, SLOTS, 1, 2, 7, 0],
    to: [4, NOWHERE, SLOTS, 5, 6, 2, 7, 8],
  },
  { counts: [1, 1, 1], from: [NOWHERE, 1, 2], to: [0, 3, 4] },
];

type Kind = 'ssd' | 'delta' | 'scan';

interface Sizes {
  kind: Kind;
  heads: number;
  keyHeads: number;
  keys: number;
  values: number;
  /** Heads that lie beside each other have the same keys; else those that lie keyHeads apart. */
  grouped?: boolean;
  /** Added to the lengths of rows, and where they begin. */
  gap: number;
}

const SIZES: Sizes[] = [
  { kind: 'ssd', heads: 1, keyHeads: 1, keys: 32, values: 1, gap: 0 },
  { kind: 'ssd', heads: 36, keyHeads: 2, keys: 64, values: 5, grouped: true, gap: 1 },
  { kind: 'ssd', heads: 4, keyHeads: 2, keys: 128, values: 67, gap: 4 },
  { kind: 'ssd', heads: 2, keyHeads: 1, keys: 256, values: 34, grouped: true, gap: 3 },
  { kind: 'delta', heads: 3, keyHeads: 3, keys: 32, values: 66, grouped: true, gap: 0 },
  { kind: 'delta', heads: 34, keyHeads: 2, keys: 64, values: 3, gap: 2 },
  { kind: 'delta', heads: 4, keyHeads: 2, keys: 128, values: 35, grouped: true, gap: 4 },
  { kind: 'delta', heads: 2, keyHeads: 2, keys: 256, values: 33, gap: 5 },
  // Of a scan, channels and their values.
  { kind: 'scan', heads: 1, keyHeads: 1, keys: 16, values: 1, gap: 0 },
  { kind: 'scan', heads: 1, keyHeads: 1, keys: 48, values: 75, gap: 3 },
];

describe.each(kernelDevices())('layers with states by chunks on %s', (device) => {
  const { recurrent } = device.backend as RocmDevice;
  const { part, numbers, disposeAll } = memory(device);

  /** Rows and states after a batch, of which sequence `only` alone where it is given. `spoil` is a row that is not finite; `beyond` are rows that are said to be there. */
  function run(
    sizes: Sizes,
    batch: Batch,
    chunksFrom: number,
    { only, spoil, beyond = 0 }: { only?: number; spoil?: number; beyond?: number } = {},
  ) {
    const { kind, heads, keyHeads, keys, values, gap, grouped } = sizes;
    const total = batch.counts.reduce((sum, count) => sum + count, 0);
    const chosen = only === undefined ? batch.counts.map((_, i) => i) : [only];
    const begin = only === undefined ? 0 : batch.counts.slice(0, only).reduce((sum, count) => sum + count, 0);
    const starts = [0];
    for (const i of chosen) starts.push(starts[starts.length - 1] + batch.counts[i]);
    const matrix = (width: number, seed: number) => {
      const all = noise(total * (width + gap), seed);
      if (spoil !== undefined) all.fill(Number.NaN, spoil * (width + gap), (spoil + 1) * (width + gap));
      return { part: part(all.subarray(begin * (width + gap)), gap), row: width + gap };
    };
    const words = (each: number[]) => part(Uint32Array.from(each));
    const spans: StateSpans = {
      sequences: chosen.length,
      rows: starts[starts.length - 1],
      starts: words(starts.map((start, i) => (i < chosen.length ? start : start + beyond))),
      from: words(chosen.map((i) => batch.from[i])),
      to: words(chosen.map((i) => batch.to[i])),
    };
    const states = part(noise(SLOTS * heads * values * keys, 9));
    const pool: StatePoolPart = { states, slots: SLOTS };
    recurrent.chunksFrom = chunksFrom;
    try {
      const out = rowsOf(kind);
      const result = { rows: numbers(out), states: numbers(states[0]) };
      out.dispose();
      return result;
    } finally {
      recurrent.chunksFrom = usual;
      disposeAll();
    }

    function rowsOf(kind: Kind): BackendStorage {
      const negative = (count: number) => part(noise(count, 5).map((value) => -Math.exp(value)));
      if (kind === 'scan') {
        const weights = { dtBias: part(noise(values, 6)), a: negative(values * keys), d: part(noise(values, 7)) };
        const rows = { x: matrix(values, 1), dt: matrix(values, 2), b: matrix(keys, 3), c: matrix(keys, 4) };
        return recurrent.selectiveScan({ channels: values, n: keys, ...rows, ...weights }, spans, pool);
      }
      const group = grouped ? heads / keyHeads : 1;
      const problem = {
        ...{ heads, keyHeads, keyDim: keys, valueDim: values, group },
        ...{ q: matrix(keyHeads * keys, 1), k: matrix(keyHeads * keys, 2), v: matrix(heads * values, 3) },
        ...{ dt: matrix(heads, 4), dtBias: part(noise(heads, 6)), a: negative(heads) },
      };
      if (kind === 'ssd')
        return recurrent.ssd({ ...problem, d: part(noise(heads, 7)), dtMin: 0.1, dtMax: 2 }, spans, pool);
      const beta = matrix(heads, 8);
      return recurrent.gatedDeltaRule({ ...problem, beta, scale: keys ** -0.5, eps: 1e-6 }, spans, pool);
    }
  }
  const usual = recurrent.chunksFrom;
  const [BY_CHUNKS, BY_ROWS] = [0, Number.POSITIVE_INFINITY];
  const widthOf = ({ kind, heads, values }: Sizes) => (kind === 'scan' ? values : heads * values);

  it.each(SIZES)('$kind of $heads heads, $keys keys and $values values is what it is by rows', (sizes) => {
    for (const batch of BATCHES) {
      const [chunks, rows] = [BY_CHUNKS, BY_ROWS].map((from) => run(sizes, batch, from));
      expectNear(chunks.rows, rows.rows, 5e-5, `rows of ${batch.counts}`);
      expectNear(chunks.states, rows.states, 5e-5, `states of ${batch.counts}`);
    }
  });

  it.each(SIZES)('$kind of $heads heads, $keys keys and $values values ends where the rows do', (sizes) => {
    for (const from of [BY_CHUNKS, BY_ROWS])
      expect(run(sizes, BATCHES[0], from, { beyond: 2 ** 20 })).toEqual(run(sizes, BATCHES[0], from));
  });

  it.each(SIZES)('$kind of $heads heads, $keys keys and $values values is the same in every batch', (sizes) => {
    const batch = BATCHES[1];
    const whole = run(sizes, batch, BY_CHUNKS);
    const width = widthOf(sizes);
    let row = 0;
    for (const [only, count] of batch.counts.entries()) {
      if (count > 0) {
        const alone = run(sizes, batch, BY_CHUNKS, { only });
        expect(alone.rows).toEqual(whole.rows.subarray(row * width, (row + count) * width));
      }
      row += count;
    }
  });

  it.each(SIZES)('$kind of $heads heads, $keys keys and $values values keeps to itself what is not finite', (sizes) => {
    // The fourth row of the sequence of 33.
    const [spoil, end, width] = [28, 58, widthOf(sizes)];
    const [clean, spoilt] = [undefined, spoil].map((row) => run(sizes, BATCHES[1], BY_CHUNKS, { spoil: row }));
    expect(spoilt.rows.subarray(0, spoil * width)).toEqual(clean.rows.subarray(0, spoil * width));
    expect(spoilt.rows.subarray(spoil * width, end * width).every(Number.isNaN)).toBe(true);
    expect(spoilt.rows.subarray(end * width)).toEqual(clean.rows.subarray(end * width));
  });
});
