/**
 * Makes a tokenizer of `@huggingface/tokenizers` safe with files of strangers and as exact as the Rust library: expressions that are not those of well-known
 * models are matched in linear time, and pieces are chosen without a lattice of all that are possible.
 */
import { BPE, Tokenizer as HfTokenizer, Unigram } from '@huggingface/tokenizers';
import { exactNormalizer, exactPreTokenizer, type Step, withoutLists } from './exact-steps';
import { badTokenizer } from './fields';
import { rememberWords } from './known-words';
import { LinearPattern } from './linear-pattern';
import { fillPairModel, type PairModel } from './pair-ranks';
import { PRE_TOKENIZERS } from './pre-tokenizers';
import type { TokenizerJson } from './tokenizer';

/** Of well-known models, but with a search to the end of a run at each of its characters. */
const SQUARE = /\$$|\(\?=/;
/** Expressions that take RegExp a time proportional to the text, as they stand in the files. */
const HARMLESS: ReadonlySet<string> = new Set([
  ...[...PRE_TOKENIZERS.values()].flatMap(({ split }) => split).filter((source) => !SQUARE.test(source)),
  ...[' ', '\\s', '\\s+', ' {2,}', '\\n', '\\d', '[0-9]', '\\p{N}', '\\p{N}{1,3}', '\\p{P}', '[\\p{P}\\p{S}]'],
]);

/**
 * @param json as `checkDefinition` gives it, and `pairs`: the library's own tables take much longer to make
 * @throws TransformersError BAD_TOKENIZER, UNSUPPORTED_TOKENIZER
 */
export function guardedTokenizer(json: TokenizerJson, pairs?: PairModel): HfTokenizer {
  const definition = pairs ? { ...json, model: { ...(json.model as object), vocab: {}, merges: [] } } : json;
  let inner: HfTokenizer;
  try {
    // No clean-up: it would turn " ," into "," and make decode(encode(text)) differ from text.
    inner = new HfTokenizer(definition as object, { clean_up_tokenization_spaces: false });
  } catch (cause) {
    throw badTokenizer(`the tokenizer definition was refused (${(cause as Error).message})`, cause);
  }
  for (const step of [inner.normalizer, inner.pre_tokenizer, inner.decoder]) guardStep(step as Step | null);
  each(inner.normalizer as Step | null, json.normalizer, 'normalizers', exactNormalizer);
  each(inner.pre_tokenizer as Step | null, json.pre_tokenizer, 'pretokenizers', exactPreTokenizer);
  if ((inner.pre_tokenizer as Step | null)?.tokenizers) withoutLists(inner.pre_tokenizer as Step);
  if (inner.model instanceof Unigram) guardUnigram(inner.model);
  if (inner.model instanceof BPE && pairs) fillPairModel(inner.model, pairs, json.added_tokens);
  rememberWords(inner.model!, pairs?.joined);
  return inner;
}

interface Splitting {
  added_tokens_map: ReadonlyMap<string, unknown>;
  splitter_normalized: { split(text: string): string[] };
}

/**
 * The same tokenizer for a text in which `breaker` stands inside of what must not read as an added token. The character goes
 * after texts were split at added tokens; a part that is one then, whole, is cut in two.
 */
export function withBreaker(inner: HfTokenizer, breaker: string): HfTokenizer {
  const { added_tokens_map: added, splitter_normalized: splitter } = inner as unknown as Splitting;
  const clean = (part: string): string[] => {
    if (!part.includes(breaker)) return [part];
    const text = part.replaceAll(breaker, '');
    return added.has(text) ? [text.slice(0, 1), text.slice(1)] : [text];
  };
  return Object.assign(Object.create(inner) as HfTokenizer, {
    splitter_normalized: { split: (text: string) => splitter.split(text).flatMap(clean) },
  });
}

type Definition = Record<string, unknown>;

/** Calls `replace` with each step and what it was made from, those of sequences too. */
function each(
  step: Step | null,
  definition: unknown,
  parts: 'normalizers' | 'pretokenizers',
  replace: (step: Step, definition: Definition) => void,
): void {
  if (step === null || definition === null || definition === undefined) return;
  const inner = step.normalizers ?? step.tokenizers;
  const definitions = (definition as Definition)[parts] as unknown[] | undefined;
  if (inner && definitions) for (const [i, one] of inner.entries()) each(one, definitions[i], parts, replace);
  else replace(step, definition as Definition);
}

function guardStep(step: Step | null): void {
  if (step === null) return;
  const source = step.config?.pattern?.Regex;
  if (source !== undefined && step.pattern instanceof RegExp && !HARMLESS.has(source)) {
    step.pattern = new LinearPattern(step.pattern.source);
  }
  for (const inner of [...(step.normalizers ?? []), ...(step.tokenizers ?? []), ...(step.decoders ?? [])])
    guardStep(inner);
}

/** The tree of all pieces, by their characters, with the scores of those that end here. */
interface PieceNode {
  score?: number;
  children: Map<string, PieceNode>;
}

/** The best pieces of a text, found from its beginning to its end; of equal ones the library's. */
function guardUnigram(model: Unigram): void {
  const { vocab, scores, unk_score } = model;
  const root: PieceNode = model.trie.root;
  scores.forEach((score, id) => {
    let node: PieceNode | undefined = root;
    for (const character of vocab[id]) node = node?.children.get(character);
    if (node) node.score = score;
  });
  model.tokenize = (text: string): string[] => {
    const characters = Array.from(text);
    const best = new Float64Array(characters.length + 1).fill(Number.NaN);
    const from = new Uint32Array(characters.length + 1);
    best[0] = 0;
    const reach = (start: number, end: number, score: number) => {
      const total = best[start] + score;
      if (!(Number.isNaN(best[end]) || total > best[end])) return;
      best[end] = total;
      from[end] = start;
    };
    for (let start = 0; start < characters.length; start++) {
      let single = false;
      let node: PieceNode | undefined = root;
      for (let end = start; end < characters.length; end++) {
        node = node.children.get(characters[end]);
        if (node === undefined) break;
        if (node.score === undefined) continue;
        reach(start, end + 1, node.score);
        single ||= end === start;
      }
      if (!single) reach(start, start + 1, unk_score);
    }
    const pieces: string[] = [];
    for (let end = characters.length; end > 0; end = from[end]) pieces.push(characters.slice(from[end], end).join(''));
    return pieces.reverse();
  };
  model.encode = (words: string[]): string[] => words.flatMap((word) => model.tokenize(word));
}
