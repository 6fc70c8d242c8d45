/**
 * Chooses the next token from one row of logits: candle's `LogitsProcessor` and `apply_repeat_penalty`
 * (candle-transformers/src/generation), with min-p added.
 *
 * Differences from candle, and why: it works on a host `Float32Array` (the row is read back anyway); after top-k the
 * probabilities are renormalised before top-p, as llama.cpp and transformers do; nucleus sampling does not sort the whole
 * vocabulary (152k entries for Qwen) but only the candidates that can matter; NaN is an error instead of a random token.
 *
 * Order: repetition penalty, temperature, top-k, top-p, min-p, draw.
 */
import { TransformersError } from '@x/transformers';
import { Random } from './random';

export interface SamplingOptions {
  /**
   * Divides the logits: below 1 sharpens the distribution, above 1 flattens it; 0 always takes the most likely token.
   * Default: 0, or 1 when `topK`, `topP` or `minP` is given.
   */
  temperature?: number;
  /** Keep only this many most likely tokens. Default 0: all. */
  topK?: number;
  /** Keep the smallest set of most likely tokens whose probability reaches this, in (0, 1]. Default 1: all. */
  topP?: number;
  /** Drop tokens less likely than this fraction of the most likely one, in [0, 1]. Default 0: none. */
  minP?: number;
  /** An integer in [0, 2^53). The same seed, options and logits give the same tokens. Default: a random one. */
  seed?: number;
  /** Divides positive and multiplies negative logits of recent tokens. Default 1: off. Usual: 1.05 to 1.3. */
  repetitionPenalty?: number;
  /** How many of the last tokens (prompt included) the penalty looks at. Default 64; `Infinity`: all. */
  repetitionWindow?: number;
}

function invalid(name: string, value: unknown, allowed: string): TransformersError {
  return new TransformersError('INVALID_OPTION', `${name} is ${String(value)}; give ${allowed}.`);
}

function checkRange(name: string, value: number, ok: boolean, allowed: string): void {
  if (typeof value !== 'number' || !ok) throw invalid(name, value, allowed);
}

/** Applies the penalty in place to every token that occurs among the last `window` of `history`. */
export function applyRepetitionPenalty(
  logits: Float32Array,
  penalty: number,
  history: readonly number[],
  window = Number.POSITIVE_INFINITY,
): void {
  const seen = new Set<number>();
  for (let i = Math.max(0, history.length - window); i < history.length; i++) {
    const id = history[i];
    if (id >= logits.length || seen.has(id)) continue;
    seen.add(id);
    logits[id] = logits[id] >= 0 ? logits[id] / penalty : logits[id] * penalty;
  }
}

/** Index of the largest value, the first of equals. Throws when a value is NaN or +Infinity, or when none is finite. */
export function argmax(logits: Float32Array): number {
  let best = 0;
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) {
    const x = logits[i];
    if (x > max) {
      max = x;
      best = i;
    } else if (Number.isNaN(x)) {
      max = Number.NaN;
      break;
    }
  }
  if (!Number.isFinite(max)) {
    throw new TransformersError(
      'BAD_LOGITS',
      `The ${logits.length} logits hold NaN, +Infinity or no finite value, so no token can be chosen; ` +
        'the weights are damaged or an operation overflowed: check the file, or load it on another device to compare.',
    );
  }
  return best;
}

/** Natural log of the probability that softmax over `logits` gives to `id`. */
export function logProbability(logits: Float32Array, id: number): number {
  const max = logits[argmax(logits)];
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - max);
  return logits[id] - max - Math.log(sum);
}

/** Ids of the `k` largest logits, largest first, equals by ascending id. O(n) when few elements enter the heap. */
export function largest(logits: Float32Array, k: number): number[] {
  const worse = (a: number, b: number) => logits[a] < logits[b] || (logits[a] === logits[b] && a > b);
  const heap: number[] = []; // the worst kept id at the root
  const sink = () => {
    for (let at = 0; ; ) {
      const left = 2 * at + 1;
      let worst = at;
      if (left < heap.length && worse(heap[left], heap[worst])) worst = left;
      if (left + 1 < heap.length && worse(heap[left + 1], heap[worst])) worst = left + 1;
      if (worst === at) return;
      [heap[at], heap[worst]] = [heap[worst], heap[at]];
      at = worst;
    }
  };
  for (let id = 0; id < logits.length; id++) {
    if (heap.length < k) {
      let at = heap.push(id) - 1;
      while (at > 0 && worse(heap[at], heap[(at - 1) >> 1])) {
        const up = (at - 1) >> 1;
        [heap[at], heap[up]] = [heap[up], heap[at]];
        at = up;
      }
    } else if (worse(heap[0], id)) {
      heap[0] = id;
      sink();
    }
  }
  return heap.sort((a, b) => (worse(a, b) ? 1 : -1));
}

export class LogitsProcessor {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  /** The seed in use, also when it was chosen at random: give it again to repeat a run. */
  readonly seed: number;
  readonly repetitionPenalty: number;
  readonly repetitionWindow: number;
  private readonly random: Random;
  private weights = new Float64Array(0);

  constructor(options: SamplingOptions = {}) {
    this.topK = options.topK ?? 0;
    this.topP = options.topP ?? 1;
    this.minP = options.minP ?? 0;
    const filtered = this.topK > 0 || this.topP < 1 || this.minP > 0;
    this.temperature = options.temperature ?? (filtered ? 1 : 0);
    this.seed = options.seed ?? Math.floor(Math.random() * Number.MAX_SAFE_INTEGER);
    this.repetitionPenalty = options.repetitionPenalty ?? 1;
    this.repetitionWindow = options.repetitionWindow ?? 64;
    checkRange('topK', this.topK, Number.isInteger(this.topK) && this.topK >= 0, 'an integer of 0 (off) or more');
    checkRange('topP', this.topP, this.topP > 0 && this.topP <= 1, 'a number above 0 and at most 1 (off)');
    checkRange('minP', this.minP, this.minP >= 0 && this.minP <= 1, 'a number from 0 (off) to 1');
    const finite = (x: number) => Number.isFinite(x);
    checkRange(
      'temperature',
      this.temperature,
      finite(this.temperature) && this.temperature >= 0,
      'a finite number of 0 (greedy) or more',
    );
    checkRange('seed', this.seed, Number.isSafeInteger(this.seed) && this.seed >= 0, 'an integer from 0 to 2^53 - 1');
    const { repetitionPenalty: penalty, repetitionWindow: window } = this;
    checkRange('repetitionPenalty', penalty, finite(penalty) && penalty > 0, 'a finite number above 0 (1 is off)');
    checkRange(
      'repetitionWindow',
      window,
      window >= 0 && (Number.isInteger(window) || window === Number.POSITIVE_INFINITY),
      'an integer of 0 or more, or Infinity',
    );
    this.random = Random.fromSeed(this.seed);
  }

  /**
   * The next token's id.
   * @param logits one row, [vocab]; not modified
   * @param history the tokens so far, prompt included; only the repetition penalty reads it
   */
  sample(logits: Float32Array, history: readonly number[] = []): number {
    let row = logits;
    if (this.repetitionPenalty !== 1 && history.length > 0) {
      row = logits.slice();
      applyRepetitionPenalty(row, this.repetitionPenalty, history, this.repetitionWindow);
    }
    const best = argmax(row);
    // Below 1e-7 candle, too, treats a temperature as zero: the division would overflow.
    if (this.temperature < 1e-7 || this.topK === 1) return best;
    return this.draw(row, row[best]);
  }

  private draw(row: Float32Array, max: number): number {
    const n = row.length;
    if (this.weights.length !== n) this.weights = new Float64Array(n);
    const weights = this.weights;
    let total = 0;
    for (let i = 0; i < n; i++) {
      weights[i] = Math.exp((row[i] - max) / this.temperature);
      total += weights[i];
    }
    let ids: number[] | undefined; // undefined: every token, in id order
    if (this.topK > 0 && this.topK < n) {
      ids = largest(row, this.topK);
      total = sum(ids, weights);
    }
    if (this.topP < 1) {
      ids = nucleus(ids ?? likely(row, weights, this.topP * total), weights, this.topP * total);
      total = sum(ids, weights);
    }
    if (this.minP > 0) {
      // The most likely token weighs 1, so minP is the limit itself.
      const kept: number[] = [];
      if (ids) for (const id of ids) weights[id] >= this.minP && kept.push(id);
      else for (let id = 0; id < n; id++) if (weights[id] >= this.minP) kept.push(id);
      ids = kept;
      total = sum(ids, weights);
    }
    const target = this.random.nextFloat() * total;
    let cumulative = 0;
    let last = 0;
    const count = ids ? ids.length : n;
    for (let i = 0; i < count; i++) {
      const id = ids ? ids[i] : i;
      if (weights[id] === 0) continue;
      cumulative += weights[id];
      last = id;
      if (cumulative > target) break;
    }
    return last;
  }
}

function sum(ids: readonly number[], weights: Float64Array): number {
  let total = 0;
  for (const id of ids) total += weights[id];
  return total;
}

/** The shortest prefix of `sorted` whose weight reaches `mass`; at least one. */
function nucleus(sorted: readonly number[], weights: Float64Array, mass: number): number[] {
  let cumulative = 0;
  let count = 0;
  while (count < sorted.length && (count === 0 || cumulative < mass)) cumulative += weights[sorted[count++]];
  return sorted.slice(0, count);
}

/**
 * The most likely tokens, sorted, together weighing at least `mass`: lowers a threshold until enough weight lies above
 * it, so that only those are sorted.
 */
function likely(row: Float32Array, weights: Float64Array, mass: number): number[] {
  for (let limit = 1e-2; ; limit = limit < 1e-30 ? 0 : limit * 1e-2) {
    const ids: number[] = [];
    let total = 0;
    for (let id = 0; id < weights.length; id++) {
      if (weights[id] >= limit) {
        ids.push(id);
        total += weights[id];
      }
    }
    if (total >= mass || limit === 0) return ids.sort((a, b) => row[b] - row[a] || a - b);
  }
}
