/** One token from a row of logits on the host: what kernels/sampling/choose.h does on a device, in the plainest form. */
import { applyMask } from '../constraint';
import { applyEdits, largest, likeliest, logSum } from './logits';
import type { Choice, Sampler } from './sampler';
import { momentOf, shareOf, weightOf } from './weights';

const { fround } = Math;

/**
 * Undefined where logits hold NaN, +Infinity or no finite value.
 * @param logits [vocab]; not modified
 */
export function choose(logits: Float32Array, sampler: Sampler): Choice | undefined {
  const { mask, edits, logprob, top } = sampler;
  let row = logits;
  if (mask) {
    row = row.slice();
    applyMask(row, mask);
  }
  const masked = row;
  if (edits.length > 0) {
    row = row.slice();
    applyEdits(row, edits);
  }
  const best = likeliest(row);
  if (best === undefined) return undefined;
  const id = sampler.kind === 'greedy' ? best : draw(row, row[best], sampler);
  if (!logprob) return { id };
  const sum = logSum(masked);
  const choice: Choice = { id, logprob: masked[id] - sum };
  if (top > 0) {
    const possible = largest(masked, top).filter((other) => masked[other] > Number.NEGATIVE_INFINITY);
    choice.top = possible.map((other) => ({ id: other, logprob: masked[other] - sum }));
  }
  return choice;
}

function draw(row: Float32Array, max: number, sampler: Sampler): number {
  const { inverseTemperature, topK, topP, leastLogit, typicalP, uniform } = sampler;
  const n = row.length;
  const scaled = (id: number) => fround(fround(row[id] - max) * inverseTemperature);
  const weights = new Float64Array(n);
  for (let id = 0; id < n; id++) weights[id] = weightOf(scaled(id));
  let ids: number[] | undefined; // undefined: every token
  if (topK > 0 && topK < n) ids = largest(row, topK);
  if (topP > 0) {
    const mass = Math.max(1, shareOf(topP, sum(ids, weights)));
    ids = nucleus(ids ?? likely(row, weights, mass), weights, mass);
  }
  if (leastLogit > Number.NEGATIVE_INFINITY)
    ids = (ids ?? [...row.keys()]).filter((id) => fround(row[id] - max) >= leastLogit);
  if (typicalP > 0) ids = typical(ids ?? [...row.keys()], weights, scaled, typicalP);
  ids?.sort((a, b) => a - b);
  const target = shareOf(uniform, sum(ids, weights));
  let cumulative = 0;
  for (let i = 0; ; i++) {
    const id = ids ? ids[i] : i;
    cumulative += weights[id];
    if (cumulative > target) return id;
  }
}

function sum(ids: readonly number[] | undefined, weights: Float64Array): number {
  let total = 0;
  if (ids) for (const id of ids) total += weights[id];
  else for (let id = 0; id < weights.length; id++) total += weights[id];
  return total;
}

/** The shortest prefix of `sorted` whose weight reaches `mass`. */
function nucleus(sorted: readonly number[], weights: Float64Array, mass: number): number[] {
  let cumulative = 0;
  let count = 0;
  while (count < sorted.length && cumulative < mass) cumulative += weights[sorted[count++]];
  return sorted.slice(0, count);
}

/**
 * The most likely tokens, sorted, together weighing at least `mass`: lowers a threshold until enough weight lies above
 * it, so that only those are sorted.
 */
function likely(row: Float32Array, weights: Float64Array, mass: number): number[] {
  for (let limit = 2 ** 25; ; limit = limit < 1 ? 0 : limit / 64) {
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

/**
 * Those whose log probability is nearest to the mean of it, together weighing at least a share of all. What differs between
 * log probabilities is the scaled logits. Tokens equally near stay together.
 */
function typical(ids: readonly number[], weights: Float64Array, scaled: (id: number) => number, p: number): number[] {
  const moment = ids.reduce((total, id) => total + momentOf(scaled(id)), 0);
  const total = sum(ids, weights);
  const mean = -fround(moment / total);
  const distance = (id: number) => Math.abs(fround(scaled(id) - mean));
  const sorted = ids.map((id) => ({ id, distance: distance(id) })).sort((a, b) => a.distance - b.distance);
  const kept = nucleus(
    sorted.map(({ id }) => id),
    weights,
    Math.max(1, shareOf(p, total)),
  );
  const furthest = sorted[kept.length - 1].distance;
  return sorted.filter((token) => token.distance <= furthest).map(({ id }) => id);
}
