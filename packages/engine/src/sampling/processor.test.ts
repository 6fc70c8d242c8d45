import { TransformersError } from '@x/transformers';
import { describe, expect, it } from 'vitest';
import { applyRepetitionPenalty, argmax, largest, logProbability } from './logits';
import type { SamplingOptions } from './options';
import { LogitsProcessor } from './processor';
import { Random } from './random';

const PROBABILITIES = [0.4, 0.3, 0.15, 0.1, 0.05];
const LOGITS = Float32Array.from(PROBABILITIES, Math.log);

/** How often each token is drawn, as fractions. */
function frequencies(options: SamplingOptions, logits = LOGITS, n = 20_000): number[] {
  const processor = new LogitsProcessor({ seed: 1, ...options });
  const counts = new Array<number>(logits.length).fill(0);
  for (let i = 0; i < n; i++) counts[processor.sample(logits)]++;
  return counts.map((count) => count / n);
}

/** Renormalised; 20,000 draws deviate from these by less than 0.015 (four standard deviations). */
function expectClose(actual: number[], weights: number[]): void {
  const total = weights.reduce((a, b) => a + b);
  for (let i = 0; i < weights.length; i++) {
    if (weights[i] === 0) expect(actual[i]).toBe(0);
    else expect(Math.abs(actual[i] - weights[i] / total)).toBeLessThan(0.015);
  }
}

function randomLogits(n: number, seed: number): Float32Array {
  const random = Random.fromSeed(seed);
  return Float32Array.from({ length: n }, () => 8 * (random.nextFloat() + random.nextFloat() - 1));
}

describe('LogitsProcessor', () => {
  it('is greedy by default and with temperature 0', () => {
    expect(new LogitsProcessor().sample(Float32Array.of(1, 3, 3, 2))).toBe(1);
    expect(new LogitsProcessor({ temperature: 0, topK: 3, topP: 0.5 }).sample(Float32Array.of(1, 3, 5, 2))).toBe(2);
  });

  it('draws from the softmax', () => expectClose(frequencies({ temperature: 1 }), PROBABILITIES));

  it('sharpens and flattens with the temperature', () => {
    expectClose(
      frequencies({ temperature: 0.5 }),
      PROBABILITIES.map((p) => p ** 2),
    );
    expectClose(frequencies({ temperature: 2 }), PROBABILITIES.map(Math.sqrt));
  });

  it('keeps topK tokens', () => expectClose(frequencies({ topK: 3 }), [0.4, 0.3, 0.15, 0, 0]));

  it('keeps the nucleus of topP', () => {
    expectClose(frequencies({ topP: 0.5 }), [0.4, 0.3, 0, 0, 0]);
    expectClose(frequencies({ topP: 0.84 }), [0.4, 0.3, 0.15, 0, 0]);
    expectClose(frequencies({ topP: 0.01 }), [1, 0, 0, 0, 0]);
  });

  it('renormalises after topK, before topP', () => {
    // Of the first three, 0.4 / 0.85 = 0.47 and 0.7 / 0.85 = 0.82: two reach 0.8; without renormalising, three would be needed.
    expectClose(frequencies({ topK: 3, topP: 0.8 }), [0.4, 0.3, 0, 0, 0]);
  });

  it('drops what minP says', () => {
    expectClose(frequencies({ minP: 0.3 }), [0.4, 0.3, 0.15, 0, 0]);
    expectClose(frequencies({ minP: 0.3, topK: 2 }), [0.4, 0.3, 0, 0, 0]);
  });

  it('agrees with a full sort on a large vocabulary', () => {
    const logits = randomLogits(30_000, 3);
    const max = logits.reduce((a, b) => Math.max(a, b));
    const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
    const weights = order.map((id) => Math.exp(logits[id] - max));
    const total = weights.reduce((a, b) => a + b);
    for (const topP of [0.2, 0.9, 0.999]) {
      const allowed = new Set<number>();
      for (let i = 0, mass = 0; mass < topP * total; i++) {
        allowed.add(order[i]);
        mass += weights[i];
      }
      const processor = new LogitsProcessor({ seed: 5, topP });
      for (let i = 0; i < 20; i++) expect(allowed.has(processor.sample(logits))).toBe(true);
    }
  });

  it('repeats itself for a seed and tells the seed that it chose', () => {
    const run = (seed?: number) => {
      const processor = new LogitsProcessor({ temperature: 1, seed });
      return { seed: processor.seed, ids: Array.from({ length: 50 }, () => processor.sample(LOGITS)) };
    };
    expect(run(11)).toEqual(run(11));
    const chosen = run();
    expect(run(chosen.seed)).toEqual(chosen);
    expect(run(11).ids).not.toEqual(run(12).ids);
  });

  it('never draws a token of probability zero', () => {
    const logits = Float32Array.of(Number.NEGATIVE_INFINITY, 0, Number.NEGATIVE_INFINITY, 0);
    expectClose(
      frequencies({ temperature: 1 }, logits, 5000).map((x) => x),
      [0, 1, 0, 1],
    );
  });

  it('penalises recent tokens only', () => {
    const logits = Float32Array.of(4, 3, -1, 0);
    const processor = new LogitsProcessor({ repetitionPenalty: 2, repetitionWindow: 2 });
    expect(processor.sample(logits, [0, 0])).toBe(1);
    expect(processor.sample(logits, [0, 3, 3])).toBe(0);
    expect(logits).toEqual(Float32Array.of(4, 3, -1, 0));
    applyRepetitionPenalty(logits, 2, [0, 2, 0, 99]);
    expect(logits).toEqual(Float32Array.of(2, 3, -2, 0));
  });

  it('subtracts for each time, and once for all times, within the window', () => {
    const logits = Float32Array.of(4, 3.5, 3, 0);
    const best = (options: SamplingOptions, history: number[]) => new LogitsProcessor(options).sample(logits, history);
    expect(best({ frequencyPenalty: 0.4 }, [0])).toBe(0);
    expect(best({ frequencyPenalty: 0.4 }, [0, 0])).toBe(1);
    expect(best({ presencePenalty: 0.4 }, [0, 0, 0])).toBe(0);
    expect(best({ presencePenalty: 0.6 }, [0])).toBe(1);
    expect(best({ presencePenalty: 0.6, repetitionWindow: 1 }, [0, 1])).toBe(0);
    expect(best({ presencePenalty: -5 }, [3])).toBe(3);
    expect(logits).toEqual(Float32Array.of(4, 3.5, 3, 0));
  });

  it('adds biases, and draws nothing that one excludes', () => {
    expect(new LogitsProcessor({ logitBias: { 4: 100 } }).sample(LOGITS)).toBe(4);
    expect(new LogitsProcessor({ logitBias: { 0: Number.NEGATIVE_INFINITY } }).sample(LOGITS)).toBe(1);
    expectClose(frequencies({ temperature: 1, logitBias: { 0: Number.NEGATIVE_INFINITY } }), [0, 0.3, 0.15, 0.1, 0.05]);
    expectClose(frequencies({ temperature: 1, logitBias: { 4: Math.log(2) } }), [0.4, 0.3, 0.15, 0.1, 0.1]);
  });

  it('keeps what is about as likely as is to be expected', () => {
    // The entropy is 1.392: -log of the tokens is 0.92, 1.20, 1.90, 2.30 and 3.00; nearest are 0.3, then 0.4, then 0.15.
    expectClose(frequencies({ typicalP: 0.2 }), [0, 0.3, 0, 0, 0]);
    expectClose(frequencies({ typicalP: 0.6 }), [0.4, 0.3, 0, 0, 0]);
    expectClose(frequencies({ typicalP: 0.8 }), [0.4, 0.3, 0.15, 0, 0]);
  });

  it('refuses options that mean nothing', () => {
    const bad: SamplingOptions[] = [
      { temperature: -1 },
      { temperature: Number.NaN },
      { topK: 1.5 },
      { topK: -1 },
      { topP: 0 },
      { topP: 1.1 },
      { minP: 2 },
      { seed: -1 },
      { seed: 0.5 },
      { seed: 2 ** 53 },
      { repetitionPenalty: 0 },
      { repetitionWindow: -1 },
      { typicalP: 0 },
      { typicalP: Number.NaN },
      { frequencyPenalty: Number.POSITIVE_INFINITY },
      { presencePenalty: Number.NaN },
      { logitBias: { [-1]: 1 } },
      { logitBias: { 0.5: 1 } },
      { logitBias: { 1: Number.NaN } },
      { logitBias: { 1: Number.POSITIVE_INFINITY } },
      // Finite here, and not in the f32 of logits.
      { temperature: 1e39 },
      { repetitionPenalty: 1e39 },
      { repetitionPenalty: 1e-39 },
      { frequencyPenalty: -1e39 },
      { presencePenalty: -1e39 },
      { logitBias: { 1: 1e39 } },
      { logitBias: { 1: -1e39 } },
      { topP: '0.9' as never },
    ];
    for (const options of bad) {
      expect(() => new LogitsProcessor(options)).toThrow(TransformersError);
      expect(() => new LogitsProcessor(options)).toThrow(Object.keys(options)[0]);
    }
  });

  it('chooses with the furthest numbers that it takes', () => {
    const far: SamplingOptions[] = [
      { temperature: 1e-46 },
      { temperature: 1e30, minP: 5e-324 },
      { temperature: 1e30, topK: 2, typicalP: 5e-324 },
      { repetitionPenalty: 1e30, temperature: 1 },
      { repetitionPenalty: 1e-30, frequencyPenalty: -1e30, presencePenalty: -1e30, topP: 5e-324 },
      { frequencyPenalty: 1e30, presencePenalty: 1e30, repetitionWindow: Number.POSITIVE_INFINITY },
      { logitBias: { 0: 1e30, 1: -1e30, 2: Number.NEGATIVE_INFINITY }, temperature: 1e-6 },
    ];
    const logits = Float32Array.of(3e5, -3e5, 1, Number.NEGATIVE_INFINITY);
    const history = Array.from({ length: 100_000 }, (_, i) => i % 2);
    for (const options of far)
      expect([0, 1, 2], JSON.stringify(options)).toContain(new LogitsProcessor(options).sample(logits, history));
  });

  it('refuses logits that are not numbers', () => {
    const processor = new LogitsProcessor();
    expect(() => processor.sample(Float32Array.of(1, Number.NaN))).toThrow(/NaN/);
    expect(() => processor.sample(Float32Array.of(1, Number.POSITIVE_INFINITY))).toThrow(TransformersError);
    expect(() => processor.sample(new Float32Array(3).fill(Number.NEGATIVE_INFINITY))).toThrow(TransformersError);
    expect(() => processor.sample(new Float32Array(0))).toThrow(TransformersError);
  });
});

describe('helpers', () => {
  it('largest is the head of a stable sort', () => {
    const logits = randomLogits(5000, 9).map((x) => Math.round(x * 4) / 4); // many equals
    const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
    for (const k of [1, 2, 17, 400, 5000]) expect(largest(logits, k)).toEqual(order.slice(0, k));
  });

  it('logProbability is the log of the softmax', () => {
    for (let i = 0; i < PROBABILITIES.length; i++)
      expect(logProbability(LOGITS, i)).toBeCloseTo(Math.log(PROBABILITIES[i]), 5);
  });

  it('argmax takes the first of equals', () => expect(argmax(Float32Array.of(0, 7, 7))).toBe(1));
});
