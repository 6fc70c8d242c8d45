/**
 * Which neighbours byte-pair encoding joins first, for `@huggingface/tokenizers`. The library writes every merge rule as JSON when it is
 * made, and SentencePiece's files have no rules at all: here tables are made when a text asks for them first, so that loading a
 * model does not wait for them.
 */
import type { BPE } from '@huggingface/tokenizers';
import { PairJoiner } from './pair-joiner';

/** The place of joining two pieces among all that are possible, a whole number; undefined where they are not joined. */
export type PairRank = (left: string, right: string) => number | undefined;

/** What neighbours are joined by. */
export interface PairRules {
  rank: PairRank;
  /** All that joining two pieces gives. */
  joined(): Iterable<string>;
}

/** A vocabulary that is a table already, with its rules. */
export interface PairModel extends PairRules {
  /** Ids by token. It becomes the model's. */
  vocab: Map<string, number>;
}

/** Rules in order; of equal ones the last counts. */
export function rulesOfMerges(merges: readonly (string | readonly [string, string])[]): PairRules {
  const key = (left: string, right: string) => `${left.length} ${left}${right}`;
  const pairs = () => merges.map((merge) => (typeof merge === 'string' ? merge.split(' ', 2) : merge));
  return {
    rank: ranked(() => new Map(pairs().map(([left, right], i) => [key(left, right), i])), key),
    joined: () => pairs().map(([left, right]) => left + right),
  };
}

/** The same of rules whose pieces hold no space, as GGUF files write them: two pieces with a space between. */
export function rulesOfLines(lines: readonly string[]): PairRules {
  const ranks = () => {
    const made = new Map<string, number>();
    for (let i = 0; i < lines.length; i++) made.set(lines[i], i);
    return made;
  };
  return {
    rank: ranked(ranks, (left, right) => `${left} ${right}`),
    joined: () => lines.map((line) => line.replace(' ', '')),
  };
}

function ranked(make: () => Map<string, number>, key: (left: string, right: string) => string): PairRank {
  let ranks: Map<string, number> | undefined;
  return (left, right) => {
    ranks ??= make();
    return ranks.get(key(left, right));
  };
}

/** A vocabulary of SentencePiece. */
export interface ScoredPieces {
  tokens: readonly string[];
  /** By token, finite. */
  scores: readonly number[];
  /** By token; of equal ones the last. */
  ids: Map<string, number>;
  /** Whether neighbours become this token. */
  joins(id: number): boolean;
}

/** Ids of the pieces that neighbours become, the best first; equal scores keep the vocabulary's order. */
function bestFirst({ tokens, scores, joins }: ScoredPieces): number[] {
  const ids = tokens.map((_, id) => id).filter(joins);
  return ids.sort((a, b) => scores[b] - scores[a]);
}

/**
 * Rules of SentencePiece, which joins the neighbours whose union has the best score: every way to cut a piece into two pieces,
 * ordered by the piece's score. That is how transformers converts such vocabularies, too.
 */
export function mergesOfScores(pieces: ScoredPieces): [string, string][] {
  return bestFirst(pieces).flatMap((id) => {
    const token = pieces.tokens[id];
    return cutsOf(token, pieces.ids).map((at): [string, string] => [token.slice(0, at), token.slice(at)]);
  });
}

/** These rules without a list of them: the same order with gaps between. */
export function rulesOfScores(pieces: ScoredPieces): PairRules {
  const { tokens } = pieces;
  // Added tokens are put into the model's table, which changes ids of those that are there twice.
  const ids = pieces.ids.size === tokens.length ? pieces.ids : new Map(pieces.ids);
  let places: Map<string, number> | undefined;
  let longest = 0;
  const cuts = new Map<string, readonly number[]>();
  const rank: PairRank = (left, right) => {
    if (!places) {
      places = new Map(bestFirst(pieces).map((id, i) => [tokens[id], i]));
      for (const token of tokens) longest = Math.max(longest, token.length);
    }
    const piece = left + right;
    const place = places.get(piece);
    if (place === undefined) return undefined;
    let own = cuts.get(piece);
    if (!own) {
      own = cutsOf(piece, ids);
      cuts.set(piece, own);
    }
    const cut = own.indexOf(left.length);
    return cut < 0 ? undefined : place * longest + cut;
  };
  return { rank, joined: () => tokens.filter((_, id) => pieces.joins(id)) };
}

/** Lengths of the left parts of all ways to cut a piece into two, ordered by the parts' ids. Half a character is no token. */
function cutsOf(piece: string, ids: ReadonlyMap<string, number>): readonly number[] {
  const cuts: { at: number; left: number; right: number }[] = [];
  for (let at = 1; at < piece.length; at++) {
    const left = ids.get(piece.slice(0, at));
    const right = left === undefined ? undefined : ids.get(piece.slice(at));
    if (left !== undefined && right !== undefined) cuts.push({ at, left, right });
  }
  cuts.sort((a, b) => a.left - b.left || a.right - b.right);
  return cuts.map(({ at }) => at);
}

/**
 * Gives a model that was made without a vocabulary its own.
 * @param added tokens that the library has put into the empty one
 */
export function fillPairModel(
  model: BPE,
  { vocab, rank }: PairModel,
  added: readonly { content: string; id: number }[],
): void {
  model.unk_token_id = model.unk_token === undefined ? undefined : vocab.get(model.unk_token);
  model.tokens_to_ids = vocab;
  const names = new Array<string>(vocab.size);
  for (const [token, id] of vocab) names[id] = token;
  for (const { content, id } of added) {
    vocab.set(content, id);
    names[id] = content;
  }
  model.vocab = names;
  const joiner = new PairJoiner(rank);
  const { end_of_word_suffix: suffix, continuing_subword_suffix: within } = model;
  model.bpe = (word) => {
    const characters = Array.from(word);
    if (suffix && characters.length > 0) characters[characters.length - 1] += suffix;
    const pieces = characters.length > 1 ? joiner.join(characters) : characters;
    return within ? pieces.map((piece, i) => (i + 1 < pieces.length ? piece + within : piece)) : pieces;
  };
}
