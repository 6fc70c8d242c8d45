// A text as ids of its characters: split, batches, and the perplexity of counting characters, which a model has to beat.
import { readFileSync } from 'node:fs';

/** The last part of the text, which no model sees while it learns. */
const HELD_OUT = 0.1;

export interface Corpus {
  /** Every character of the text, in order; an id is a position here. */
  alphabet: string[];
  train: Uint32Array;
  heldOut: Uint32Array;
}

export function readCorpus(path: string | URL): Corpus {
  const characters = [...readFileSync(path, 'utf8')];
  const alphabet = [...new Set(characters)].sort();
  const idOf = new Map(alphabet.map((character, id) => [character, id]));
  const ids = Uint32Array.from(characters, (character) => idOf.get(character)!);
  const split = Math.floor(ids.length * (1 - HELD_OUT));
  return { alphabet, train: ids.subarray(0, split), heldOut: ids.subarray(split) };
}

/** Windows of one length, and for each of their characters the one that follows. */
export interface Batch {
  /** [count, length], row after row, as are the targets. */
  inputs: Uint32Array;
  targets: Uint32Array;
  count: number;
}

export function batchAt(ids: Uint32Array, starts: readonly number[], length: number): Batch {
  const inputs = new Uint32Array(starts.length * length);
  const targets = new Uint32Array(starts.length * length);
  starts.forEach((start, row) => {
    inputs.set(ids.subarray(start, start + length), row * length);
    targets.set(ids.subarray(start + 1, start + length + 1), row * length);
  });
  return { inputs, targets, count: starts.length };
}

/** Windows side by side over a whole text, or over evenly spaced parts of it when it has more than `limit` of them. */
export function* windows(ids: Uint32Array, length: number, count: number, limit = Infinity): Generator<Batch> {
  const all = Math.floor((ids.length - 1) / length);
  const used = Math.min(all, limit);
  const starts = Array.from({ length: used }, (_, i) => Math.floor((i * all) / used) * length);
  for (let at = 0; at < used; at += count) yield batchAt(ids, starts.slice(at, at + count), length);
}

/** Perplexity a character on the held-out text of counting single characters, and of counting pairs. */
export function countingPerplexity({ alphabet, train, heldOut }: Corpus): { unigram: number; bigram: number } {
  const size = alphabet.length;
  // Every character and pair counts as seen once more than it was, so that nothing is impossible.
  const single = new Float64Array(size).fill(1);
  const pairs = new Float64Array(size * size).fill(1);
  for (const id of train) single[id]++;
  for (let i = 1; i < train.length; i++) pairs[train[i - 1] * size + train[i]]++;
  const sums = Array.from({ length: size }, (_, id) => sum(pairs.subarray(id * size, (id + 1) * size)));
  const total = sum(single);
  let [ofSingle, ofPairs] = [0, 0];
  for (let i = 1; i < heldOut.length; i++) {
    ofSingle -= Math.log(single[heldOut[i]] / total);
    ofPairs -= Math.log(pairs[heldOut[i - 1] * size + heldOut[i]] / sums[heldOut[i - 1]]);
  }
  const count = heldOut.length - 1;
  return { unigram: Math.exp(ofSingle / count), bigram: Math.exp(ofPairs / count) };
}

function sum(values: Float64Array): number {
  return values.reduce((a, b) => a + b, 0);
}
