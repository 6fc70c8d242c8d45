/**
 * How byte-level BPE models split text before merging, by the name that GGUF files give under `tokenizer.ggml.pre`.
 *
 * A GGUF file holds only that name; the patterns are the ones in the original models' `tokenizer.json`. candle
 * (candle-core/src/quantized/tokenizer.rs) knows three of them and takes GPT-2's for every other name, which gives wrong
 * tokens silently; here an unknown name is an error.
 */
export interface PreTokenizer {
  /** Patterns applied one after another, each splitting the pieces of the one before; what matches and what lies between both stay. */
  readonly split: readonly string[];
  /** A whole piece that is in the vocabulary is one token even if the merges would not build it. */
  readonly ignoreMerges?: boolean;
  /** Whether a file without `add_bos_token` starts texts with the BOS token. */
  readonly addBos?: boolean;
  /** Unicode normalisation C before splitting. */
  readonly nfc?: boolean;
  /** Whether a file without `add_sep_token` has a second mark between the texts of a pair, as RoBERTa does. */
  readonly addSep?: boolean;
}

const CONTRACTIONS = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`;
const SPACES = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
/** GPT-4's shape: words with one leading non-letter, `digits`, punctuation with following line ends, white space. */
const modern = (letters: string, digits: string, others = letters) =>
  String.raw`${CONTRACTIONS}|[^\r\n\p{L}\p{N}]?${letters}+|${digits}| ?[^\s${others}\p{N}]+[\r\n]*|${SPACES}`;
const LLAMA3 = modern(String.raw`\p{L}`, String.raw`\p{N}{1,3}`);
const QWEN2 = modern(String.raw`\p{L}`, String.raw`\p{N}`);
const QWEN35 = modern(String.raw`[\p{L}\p{M}]`, String.raw`\p{N}`, String.raw`\p{L}\p{M}`);
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;
const UPPER = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const LOWER = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
/** Words split where case changes: Tekken, and GPT-4o with contractions as suffixes. */
const cased = (suffix: string, digits: string) =>
  String.raw`[^\r\n\p{L}\p{N}]?${UPPER}*${LOWER}+${suffix}|[^\r\n\p{L}\p{N}]?${UPPER}+${LOWER}*${suffix}|${digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${SPACES}`;
const DEEPSEEK_WORDS = String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_${'`'}{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|${SPACES}`;

const DEEPSEEK_CJK = '[一-龥ࠀ-一가-\ud7ff]+';
const LINE_END = '[\r\n]';
/** Letters of scripts with two cases, in the ranges of the model's tokenizer.json: fewer than Unicode's. */
const CASED =
  'A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼ' +
  'ℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃';
/** DeepSeek's first models: line ends, words, punctuation and digits one after the other. */
const DEEPSEEK_LLM = [
  LINE_END,
  String.raw`\s?[${CASED}]+`,
  String.raw`\s?[!-/:-~！-／：-～‘-‟　-。]+`,
  String.raw`\s+$`,
  DEEPSEEK_CJK,
  String.raw`\p{N}`,
];
const DEEPSEEK_CODER = [LINE_END, String.raw`\s?\p{L}+`, String.raw`\s?\p{P}+`, DEEPSEEK_CJK, String.raw`\p{N}`];
const NO_HAN = String.raw`(?!\p{Script=Han})`;
/** GPT-4o's with words of Chinese characters apart. */
const KIMI = String.raw`[\p{Script=Han}]+|[^\r\n\p{L}\p{N}]?(?:${NO_HAN}${UPPER})*(?:${NO_HAN}${LOWER})+${CONTRACTIONS}?|[^\r\n\p{L}\p{N}]?(?:${NO_HAN}${UPPER})+(?:${NO_HAN}${LOWER})*${CONTRACTIONS}?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|${SPACES}`;
const SEED_CODER = String.raw`${CONTRACTIONS}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|${SPACES}`;

const llama3: PreTokenizer = { split: [LLAMA3], ignoreMerges: true, addBos: true };
const gpt2: PreTokenizer = { split: [GPT2] };
const digitsThenGpt2: PreTokenizer = { split: [String.raw`\p{N}`, GPT2] };
const qwen2: PreTokenizer = { split: [QWEN2], nfc: true };
const plainLlama3: PreTokenizer = { split: [LLAMA3] };
const GPT4O = cased(`${CONTRACTIONS}?`, String.raw`\p{N}{1,3}`);
const gpt4o: PreTokenizer = { split: [GPT4O] };
const roberta: PreTokenizer = { split: [GPT2], addSep: true };
const deepseekV3: PreTokenizer = { split: [String.raw`\p{N}{1,3}`, '[一-龥぀-ゟ゠-ヿ]+', DEEPSEEK_WORDS] };
/** Digits by threes from the right. */
const tinyAya: PreTokenizer = { split: [String.raw`\d{1,3}(?=(?:\d{3})*\b)`, GPT4O] };

/** Names of tokenizers whose tokens are characters, with `▁` for spaces, and not bytes: no splitting before merging. */
export const CHARACTER_BPE: ReadonlySet<string> = new Set(['gemma4', 'granite-embed-multi-311m']);

/** Every pre-tokenizer name of byte-level BPE that {@link Tokenizer.fromGguf} understands. */
export const PRE_TOKENIZERS: ReadonlyMap<string, PreTokenizer> = new Map([
  ['llama-bpe', llama3],
  ['llama3', llama3],
  ['llama-v3', llama3],
  ['falcon3', llama3],
  ['falcon-h1', llama3],
  ['pixtral', llama3],
  ['midm-2.0', llama3],
  ['lfm2', llama3],
  ['jina-v5-nano', llama3],
  ['smaug-bpe', plainLlama3],
  ['dbrx', plainLlama3],
  ['glm4', plainLlama3],
  ['chatglm-bpe', plainLlama3],
  ['qwen2', qwen2],
  ['deepseek-r1-qwen', qwen2],
  ['megrez', qwen2],
  ['kormo', qwen2],
  ['f2llmv2', qwen2],
  ['stablelm2', { split: [QWEN2] }],
  ['hunyuan', { split: [QWEN2] }],
  ['solar-open', { split: [QWEN2] }],
  ['grok-2', { split: [QWEN2] }],
  ['qwen35', { split: [QWEN35], nfc: true }],
  ['gpt-2', gpt2],
  ['gpt2', gpt2],
  ['phi-2', gpt2],
  ['mpt', gpt2],
  ['olmo', gpt2],
  ['jais', gpt2],
  ['trillion', gpt2],
  ['gigachat', gpt2],
  ['a.x-4.0', gpt2],
  ['mellum', gpt2],
  ['exaone4', gpt2],
  ['granite-docling', gpt2],
  ['modern-bert', gpt2],
  ['jina-es', gpt2],
  ['jina-de', gpt2],
  ['jina-v2-es', gpt2],
  ['jina-v2-de', gpt2],
  ['roberta-bpe', roberta],
  ['jina-v1-en', roberta],
  ['jina-v2-code', roberta],
  ['falcon', { split: [String.raw`[\p{P}$+<=>^~|${'`'}]+`, GPT2, '[0-9][0-9][0-9]'] }],
  ['smollm', digitsThenGpt2],
  ['starcoder', digitsThenGpt2],
  ['refact', digitsThenGpt2],
  ['command-r', digitsThenGpt2],
  ['codeshell', digitsThenGpt2],
  ['exaone', digitsThenGpt2],
  ['minerva-7b', digitsThenGpt2],
  ['mellum2', digitsThenGpt2],
  ['tekken', { split: [cased('', String.raw`\p{N}`)], ignoreMerges: true, addBos: true }],
  ['gpt-4o', gpt4o],
  ['llama4', gpt4o],
  ['kanana2', gpt4o],
  ['minimax-m2', gpt4o],
  ['granite-embed-multi-97m', { split: [GPT4O], ignoreMerges: true }],
  ['deepseek-v3', deepseekV3],
  ['hunyuan-dense', deepseekV3],
  ['joyai-llm', deepseekV3],
  ['deepseek-llm', { split: DEEPSEEK_LLM }],
  ['deepseek-coder', { split: DEEPSEEK_CODER }],
  ['kimi-k2', { split: [KIMI] }],
  ['tiny_aya', tinyAya],
  ['cohere2moe', tinyAya],
  ['seed-coder', { split: [SEED_CODER] }],
  ['minicpm5', { split: [String.raw`\p{N}{1,3}`, modern(String.raw`\p{L}`, String.raw`\p{N}+`)], ignoreMerges: true }],
  // Files from before the key existed; llama.cpp splits them so.
  ['default', { split: [String.raw`[\p{P}$+<=>^~|]+`, GPT2, String.raw`\p{N}+`, '[0-9][0-9][0-9]'] }],
]);
