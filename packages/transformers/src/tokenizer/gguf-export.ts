/**
 * The tokenizer of a checkpoint, what begins and ends its texts and its chat templates as GGUF metadata: the inverse of
 * `from-gguf.ts` and of `textsFromGguf`. What GGUF has no words for is an error where the same text would become other tokens,
 * and a warning where only rare ones would.
 */
import { type GgufArray, type GgufValue, gguf } from '@x/quantized';
import { TransformersError } from '../errors';
import { checkDefinition } from './definition';
import { END_OF_GENERATION_NAMES, TYPE } from './from-gguf';
import { PRE_TOKENIZERS } from './pre-tokenizers';
import type { AddedTokenJson, TokenizerJson } from './tokenizer';

/** What files beside tokenizer.json and config.json say of a model's texts. */
export interface TokenizerFiles {
  /** The parsed generation_config.json. */
  generationConfig?: unknown;
  /** Texts of special tokens by their names, `bos_token` and so on, as tokenizer_config.json has them. */
  specialTokens?: Readonly<Record<string, string>>;
  /** Chat templates by name; the one for everything is `default`. */
  templates?: ReadonlyMap<string, string>;
}

/**
 * @param vocabSize of config.json @param source config.json, or the part of it that is a language model
 * @param warnings gets what is not written
 * @throws TransformersError UNSUPPORTED_TOKENIZER, BAD_TOKENIZER
 */
export function tokenizerMetadata(
  json: unknown,
  vocabSize: number,
  source: Readonly<Record<string, unknown>>,
  files: TokenizerFiles,
  warnings: string[],
): Record<string, GgufValue> {
  const kind = (json as { model?: { type?: unknown } | null } | null)?.model?.type;
  if (typeof kind === 'string' && kind !== 'BPE') throw notBpe(kind);
  const definition = checkDefinition(json).json;
  const { model, added_tokens: added } = definition;
  const bpe = model as {
    type?: string;
    vocab: Record<string, number>;
    merges: (string | [string, string])[];
    byte_fallback?: boolean;
    unk_token?: string | null;
  };
  if (bpe.type !== 'BPE') throw notBpe(bpe.type ?? 'WordLevel');
  const tokens = Array.from({ length: vocabSize }, (_, id) => `[PAD${id}]`);
  const types = new Int32Array(vocabSize).fill(TYPE.unused);
  const put = (token: string, id: number, type: number) => {
    if (!Number.isInteger(id) || id < 0 || id >= vocabSize) {
      throw new TransformersError(
        'BAD_TOKENIZER',
        `tokenizer.json gives the token "${token}" the id ${id}, outside config.json's vocabulary of ${vocabSize}; they do not belong together.`,
      );
    }
    tokens[id] = token;
    types[id] = type;
  };
  for (const [token, id] of Object.entries(bpe.vocab)) {
    const byte = bpe.byte_fallback === true && /^<0x[0-9A-F]{2}>$/.test(token);
    put(token, id, byte ? TYPE.byte : token === bpe.unk_token ? TYPE.unknown : TYPE.normal);
  }
  for (const { content, id, special } of added) {
    if (types[id] !== TYPE.unknown) put(content, id, special ? TYPE.control : TYPE.userDefined);
  }
  warnOfAdded(added, warnings);
  const merges = bpe.merges.map((merge) => (typeof merge === 'string' ? merge : merge.join(' ')));
  const pieces =
    bpe.byte_fallback === true
      ? sentencePiece(definition, tokens, merges, warnings)
      : byteLevel(definition, merges, warnings);
  return {
    'tokenizer.ggml.tokens': gguf.strings(tokens),
    'tokenizer.ggml.token_type': gguf.array('int32', types),
    ...pieces,
    ...endMetadata(definition, tokens, source, files, warnings),
    ...templateMetadata(files.templates ?? new Map()),
  };
}

/** The tokens before and behind texts, and those that end a generation. */
function endMetadata(
  definition: TokenizerJson,
  tokens: readonly string[],
  source: Readonly<Record<string, unknown>>,
  { generationConfig, specialTokens = {} }: TokenizerFiles,
  warnings: string[],
): Record<string, GgufValue> {
  const ids = new Map(tokens.map((token, id) => [token, id]));
  const special = new Set(definition.added_tokens.flatMap((token) => (token.special ? [token.id] : [])));
  const idOf = (token: string | undefined) => (token === undefined ? undefined : ids.get(token));
  const marks = marksOf(definition.post_processor);
  const [before, behind] = [marks.before, marks.behind].map((list) => {
    if (list.length > 1)
      throw unsupported(`puts ${list.join(', ')} beside texts; GGUF files hold one token on each side`);
    const [token] = list;
    const id = idOf(token);
    if (token !== undefined && id === undefined)
      throw new TransformersError(
        'BAD_TOKENIZER',
        `tokenizer.json puts "${token.slice(0, 60)}" beside texts, which is none of its tokens.`,
      );
    return id;
  });
  const ends = idsOf(
    (generationConfig as Readonly<Record<string, unknown>> | null | undefined)?.eos_token_id ?? source.eos_token_id,
  );
  const named = idOf(specialTokens.eos_token);
  // The one that templates print comes first, and behind texts none but the first can be put.
  const first = behind ?? (named !== undefined && ends.includes(named) ? named : ends[0]);
  if (behind !== undefined && ends.length > 0 && !ends.includes(behind))
    warnings.push(`"${tokens[behind]}", which is put behind texts, ends a generation by the file, and did not before.`);
  const isKnownByName = (id: number) => special.has(id) && END_OF_GENERATION_NAMES.has(tokens[id]);
  const others = ends.filter((id) => id !== first && id < tokens.length);
  const unnamed = others.filter((id) => !isKnownByName(id));
  const [turn, message, ...lost] = [...unnamed, ...others.filter(isKnownByName)];
  const missing = lost.filter((id) => !isKnownByName(id));
  if (missing.length > 0)
    warnings.push(
      `${missing.map((id) => `"${tokens[id]}"`).join(', ')} end a generation too, and GGUF files name three such tokens; the file leaves them out.`,
    );
  const numbers: Record<string, number | undefined> = {
    bos: before ?? idsOf(source.bos_token_id)[0] ?? idOf(specialTokens.bos_token),
    eos: first ?? named,
    eot: turn,
    eom: message,
    padding: idOf(specialTokens.pad_token),
  };
  const metadata: Record<string, GgufValue> = {
    'tokenizer.ggml.add_bos_token': gguf.bool(before !== undefined),
    'tokenizer.ggml.add_eos_token': gguf.bool(behind !== undefined),
  };
  for (const [name, id] of Object.entries(numbers))
    if (id !== undefined && id < tokens.length) metadata[`tokenizer.ggml.${name}_token_id`] = gguf.uint32(id);
  return metadata;
}

/** Token ids of a configuration: one, several or none. */
function idsOf(value: unknown): number[] {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.filter((id): id is number => Number.isSafeInteger(id) && (id as number) >= 0);
}

interface PostProcessor {
  type?: string;
  processors?: unknown[];
  single?: { SpecialToken?: { id: string }; Sequence?: unknown }[];
}

/** Special tokens that single texts are put between. */
function marksOf(processor: unknown): { before: string[]; behind: string[] } {
  const { type, processors = [], single = [] } = (processor ?? {}) as PostProcessor;
  if (type === 'Sequence') {
    const all = processors.map(marksOf);
    return { before: all.flatMap(({ before }) => before), behind: all.flatMap(({ behind }) => behind) };
  }
  if (type !== undefined && type !== 'ByteLevel' && type !== 'TemplateProcessing')
    throw unsupported(`has the post-processor ${type}`);
  const text = single.findIndex(({ Sequence }) => Sequence !== undefined);
  const marks = (parts: typeof single) => parts.flatMap(({ SpecialToken }) => (SpecialToken ? [SpecialToken.id] : []));
  return { before: marks(single.slice(0, Math.max(0, text))), behind: marks(single.slice(text + 1)) };
}

function templateMetadata(templates: ReadonlyMap<string, string>): Record<string, GgufValue | GgufArray> {
  const key = 'tokenizer.chat_template';
  const metadata: Record<string, GgufValue | GgufArray> = {};
  const names = [...templates.keys()].filter((name) => name !== 'default');
  if (names.length > 0) metadata[`${key}s`] = gguf.strings(names);
  for (const [name, text] of templates) metadata[name === 'default' ? key : `${key}.${name}`] = gguf.string(text);
  return metadata;
}

function warnOfAdded(added: readonly AddedTokenJson[], warnings: string[]): void {
  const odd = added.filter(({ lstrip, rstrip, single_word }) => lstrip || rstrip || single_word);
  if (odd.length === 0) return;
  const shown = odd.slice(0, 3).map(({ content }) => `"${content}"`);
  const more = odd.length > shown.length ? ` and ${odd.length - shown.length} more` : '';
  warnings.push(
    `${shown.join(', ')}${more} take spaces beside them, or stand between words alone, and the file does not say so: texts with spaces there get other tokens.`,
  );
}

/** What a normalizer's steps are by kind; those of a Sequence one after the other. */
function stepsOf(normalizer: unknown): { type: string; [key: string]: unknown }[] {
  const { type, normalizers } = (normalizer ?? {}) as { type?: string; normalizers?: unknown[] };
  if (type === undefined) return [];
  return type === 'Sequence' ? (normalizers ?? []).flatMap(stepsOf) : [normalizer as { type: string }];
}

/** Forms of Unicode that most texts are in. */
const UNICODE_FORMS: ReadonlySet<string> = new Set(['NFC', 'NFD', 'NFKC', 'NFKD', 'Precompiled']);

function unsupported(what: string): TransformersError {
  return new TransformersError(
    'UNSUPPORTED_TOKENIZER',
    `The tokenizer ${what}, which has no place in GGUF. Convert the model with the tool of its family.`,
  );
}

function notBpe(kind: string): TransformersError {
  return new TransformersError(
    'UNSUPPORTED_TOKENIZER',
    `The tokenizer is of the kind "${kind.slice(0, 40)}"; BPE can be written to GGUF. Convert the model with the tool of its family.`,
  );
}

function byteLevel(
  { pre_tokenizer, normalizer, model }: TokenizerJson,
  merges: string[],
  warnings: string[],
): Record<string, GgufValue> {
  if (JSON.stringify(pre_tokenizer ?? null).includes('"add_prefix_space":true'))
    throw unsupported('puts a space before texts');
  const patterns = splitPatterns(pre_tokenizer);
  const wanted = JSON.stringify(patterns);
  // Names of models for vectors are of no model that is written here.
  const isOfOthers = (name: string) => name.startsWith('granite-embed');
  const named = [...PRE_TOKENIZERS].filter(
    ([name, { split }]) => JSON.stringify(split) === wanted && !isOfOthers(name),
  );
  const steps = unicodeForms(normalizer, []);
  // Of names for one way of splitting the one that says the rest as the tokenizer does.
  const nfc = steps.includes('NFC');
  const whole = (model as { ignore_merges?: boolean }).ignore_merges === true;
  const isExact = ({ nfc: own = false, ignoreMerges = false }: { nfc?: boolean; ignoreMerges?: boolean }) =>
    own === nfc && ignoreMerges === whole;
  const found = named.find(([, one]) => isExact(one)) ?? named[0];
  if (found !== undefined) {
    const [pre, one] = found;
    if ((one.nfc ?? false) !== nfc || steps.some((step) => step !== 'NFC')) warnings.push(UNICODE_WARNING);
    if ((one.ignoreMerges ?? false) !== whole)
      warnings.push(
        'Words that are one token although no merges lead there get other tokens by the file, or the other way round.',
      );
    return {
      'tokenizer.ggml.model': gguf.string('gpt2'),
      'tokenizer.ggml.pre': gguf.string(pre),
      'tokenizer.ggml.merges': gguf.strings(merges),
    };
  }
  throw new TransformersError(
    'UNSUPPORTED_TOKENIZER',
    `The tokenizer splits text by ${wanted}, which has no name in GGUF that is known here. Convert the model with the tool of its family.`,
  );
}

/** Regular expressions by which text is split before byte-level BPE; of another step its kind, which no name in GGUF has. */
function splitPatterns(preTokenizer: unknown): string[] {
  const steps = (preTokenizer as { pretokenizers?: unknown[] } | null)?.pretokenizers ?? [preTokenizer];
  return steps.flatMap((step) => {
    const { type, pattern, individual_digits, use_regex } = (step ?? {}) as PreTokenizerStep;
    if (type === 'Split' && pattern?.Regex !== undefined) return [pattern.Regex];
    if (type === 'Digits' && individual_digits) return ['\\p{N}'];
    if (type === 'ByteLevel') return use_regex === false ? [] : [...(PRE_TOKENIZERS.get('gpt-2')?.split ?? [])];
    return [type ?? 'nothing'];
  });
}

interface PreTokenizerStep {
  type?: string;
  pattern?: { Regex?: string };
  individual_digits?: boolean;
  use_regex?: boolean;
  prepend_scheme?: string;
  add_prefix_space?: boolean;
}

/** Scores that give the merges their order: a piece's is less the later it is merged. */
function sentencePiece(
  { normalizer, pre_tokenizer }: TokenizerJson,
  tokens: readonly string[],
  merges: readonly string[],
  warnings: string[],
): Record<string, GgufValue | GgufArray> {
  if (unicodeForms(normalizer, ['Prepend', 'Replace']).length > 0) warnings.push(UNICODE_WARNING);
  const ids = new Map(tokens.map((token, id) => [token, id]));
  const scores = new Float32Array(tokens.length).fill(-merges.length);
  for (let rank = merges.length - 1; rank >= 0; rank--) {
    const id = ids.get(merges[rank].replace(' ', ''));
    if (id !== undefined) scores[id] = -rank;
  }
  return {
    'tokenizer.ggml.model': gguf.string('llama'),
    'tokenizer.ggml.scores': gguf.array('float32', scores),
    'tokenizer.ggml.add_space_prefix': gguf.bool(hasSpaceInFront(normalizer, pre_tokenizer)),
  };
}

/** Whether texts get a space in front: a step that prepends one, or a Metaspace that does. */
function hasSpaceInFront(normalizer: unknown, preTokenizer: unknown): boolean {
  if (stepsOf(normalizer).some(({ type }) => type === 'Prepend')) return true;
  const { pretokenizers = [preTokenizer] } = (preTokenizer ?? {}) as { pretokenizers?: unknown[] };
  return pretokenizers.some((step) => {
    const { type, prepend_scheme, add_prefix_space } = (step ?? {}) as PreTokenizerStep;
    if (type !== 'Metaspace') return false;
    return prepend_scheme === undefined ? add_prefix_space !== false : prepend_scheme !== 'never';
  });
}

const UNICODE_WARNING =
  'The tokenizer and the file put texts into different forms of Unicode: those that are not in a common form, such as letters with accents apart, get other tokens.';

/** The steps of a normalizer that choose among forms of Unicode; the others have to be `expected`. @throws TransformersError UNSUPPORTED_TOKENIZER */
function unicodeForms(normalizer: unknown, expected: readonly string[]): string[] {
  return stepsOf(normalizer).flatMap(({ type }) => {
    if (UNICODE_FORMS.has(type)) return [type];
    if (expected.includes(type)) return [];
    throw unsupported(`changes texts by a step of the kind ${type.slice(0, 40)}`);
  });
}
