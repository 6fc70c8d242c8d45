/**
 * What structured output costs the host: one JSON line a schema.
 *
 *   tsx tools/bench/grammar.ts [--words 128256] [--texts 40] [--sequences 64] [--only NAME]
 *
 * The vocabulary is made up: bytes, words of syllables with and without a space, numbers, white space, punctuation as JSON has it,
 * words in other scripts. Texts are written by choosing among the allowed tokens at random, one in five times the longest.
 * `compile_ms` is without the vocabulary, of which the first line tells. `mask_us` and `accept_us` are of single tokens after
 * the first text; `first_us` are the masks of the first text. `step_us` is a step of many sequences, each with a text of its
 * own: masks, acceptance, and copying the masks to one array.
 */
import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { compileRegex, compileSchema, type Grammar, type Matcher, Vocabulary } from '../../packages/grammar/src';

const address = {
  type: 'object',
  properties: {
    street: { type: 'string' },
    city: { type: 'string', maxLength: 200 },
    zip: { type: 'string', pattern: '^[0-9]{5}$' },
  },
  required: ['street', 'city'],
  additionalProperties: false,
};
const SUBJECTS: Record<string, () => Grammar> = {
  person: () =>
    compileSchema({
      type: 'object',
      properties: {
        name: { type: 'string', minLength: 1, maxLength: 100 },
        age: { type: 'integer', minimum: 0, maximum: 150 },
        email: { type: 'string', format: 'email' },
        born: { type: 'string', format: 'date' },
        role: { enum: ['admin', 'editor', 'reader'] },
        tags: { type: 'array', items: { type: 'string' }, maxItems: 5 },
        address: address,
      },
      required: ['name', 'age', 'email', 'role', 'tags', 'address'],
      additionalProperties: false,
    }),
  orders: () =>
    compileSchema({
      type: 'array',
      minItems: 1,
      items: { $ref: '#/$defs/order' },
      $defs: {
        order: {
          type: 'object',
          properties: {
            id: { type: 'string', format: 'uuid' },
            lines: {
              type: 'array',
              items: {
                type: 'object',
                properties: {
                  item: { type: 'string' },
                  count: { type: 'integer', minimum: 1 },
                  price: { type: 'number', minimum: 0 },
                },
                required: ['item', 'count', 'price'],
                additionalProperties: false,
              },
            },
            to: address,
          },
          required: ['id', 'lines', 'to'],
          additionalProperties: false,
        },
      },
    }),
  long_text: () =>
    compileSchema({
      type: 'object',
      properties: { text: { type: 'string', maxLength: 5000 } },
      required: ['text'],
      additionalProperties: false,
    }),
  any_json: () => compileSchema({ type: 'object' }),
  any_spaced: () => compileSchema({ type: 'object' }, { whitespace: 'any' }),
  regex: () => compileRegex('(?:[A-Z][a-z]+ ){2,8}[0-9]{4}-[0-9]{2}\\.'),
};

function syntheticVocabulary(words: number): Vocabulary {
  let state = 1;
  const random = (n: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
  const tokens = new Map<string, Buffer>();
  const add = (bytes: Buffer) => tokens.set(bytes.toString('latin1'), bytes);
  for (let byte = 0; byte < 256; byte++) add(Buffer.from([byte]));
  for (let n = 0; n < 1000; n++)
    for (const text of [`${n}`, `${n}`.padStart(2, '0'), `${n}`.padStart(3, '0')]) add(Buffer.from(text));
  for (let n = 1; n <= 64; n++) for (const text of [' ', '\n', '\t']) add(Buffer.from(text.repeat(n)));
  const marks = [
    '"',
    '":',
    '",',
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    ' ',
    '\n',
    '\\',
    '(',
    ')',
    '.',
    ';',
    '=',
    '-',
    '_',
    '/',
    '*',
    "'",
    '<',
    '>',
    '?',
    '!',
    '#',
    '$',
  ];
  for (const a of marks)
    for (const b of marks) for (const c of ['', '"', ' ', '\n', '{', '}']) add(Buffer.from(a + b + c));
  const starts = [
    'b',
    'c',
    'd',
    'f',
    'g',
    'h',
    'k',
    'l',
    'm',
    'n',
    'p',
    'r',
    's',
    't',
    'v',
    'w',
    'st',
    'tr',
    'ch',
    'pl',
    '',
  ];
  const ends = ['a', 'e', 'i', 'o', 'u', 'an', 'er', 'in', 'on', 'ut', 'al', 'ed', 'ing', 'ess', 'ly'];
  const syllable = () => starts[random(starts.length)] + ends[random(ends.length)];
  while (tokens.size < words - 1) {
    let word = '';
    if (random(8) === 0)
      for (let i = 1 + random(3); i > 0; i--)
        word += String.fromCodePoint([0x4e00, 0x430, 0xe0, 0xac00][random(4)] + random(200));
    else for (let i = 1 + random(4); i > 0; i--) word += syllable();
    if (random(4) === 0) word = word[0].toUpperCase() + word.slice(1);
    const mark = random(40) === 0 ? marks[random(marks.length)] : '';
    add(Buffer.from((random(2) ? ' ' : '') + (random(2) ? mark : '') + word + (random(2) ? mark : '')));
  }
  const list = [...tokens.values()];
  return new Vocabulary({ size: list.length + 1, bytes: (id) => list[id], endIds: [list.length] });
}

/** An allowed token: any, or sometimes the longest of several. Undefined at the end of a text. */
function choose(mask: Uint32Array, vocabulary: Vocabulary, end: number, isLate: boolean): number | undefined {
  if (isLate && (mask[end >>> 5] >>> (end & 31)) & 1) return undefined;
  let best: number | undefined;
  for (let tries = 0; tries < 40; tries++) {
    const id = Math.floor(Math.random() * vocabulary.size);
    if (id === end || !((mask[id >>> 5] >>> (id & 31)) & 1)) continue;
    best = id;
    break;
  }
  const closers = ['"', '}', ']', '0', ','].map((text) => text.charCodeAt(0));
  if (best === undefined || isLate || Math.random() < 0.1) {
    const closer = closers.find((id) => (mask[id >>> 5] >>> (id & 31)) & 1);
    if (closer !== undefined && (isLate || best === undefined || Math.random() < 0.5)) return closer;
  }
  if (best !== undefined) return best;
  for (let id = 0; id < vocabulary.size; id++) if (id !== end && (mask[id >>> 5] >>> (id & 31)) & 1) return id;
  return undefined;
}

const at = (sorted: readonly number[], share: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
const round = (value: number) => Math.round(value * 10) / 10;
const spread = (values: number[]) => {
  values.sort((a, b) => a - b);
  return {
    median: round(at(values, 0.5)),
    mean: round(values.reduce((a, b) => a + b, 0) / values.length),
    p99: round(at(values, 0.99)),
    max: round(at(values, 1)),
  };
};

function main(): void {
  const { values } = parseArgs({
    options: {
      words: { type: 'string', default: '128256' },
      texts: { type: 'string', default: '40' },
      sequences: { type: 'string', default: '64' },
      only: { type: 'string' },
    },
  });
  let begun = performance.now();
  const vocabulary = syntheticVocabulary(Number(values.words));
  const made = performance.now() - begun;
  begun = performance.now();
  const again = new Vocabulary({
    size: vocabulary.size,
    bytes: (id) => vocabulary.text(id),
    endIds: vocabulary.endIds,
  });
  console.log(
    JSON.stringify({
      tokens: again.size,
      nodes: again.nodes,
      vocabulary_ms: round(performance.now() - begun),
      made_ms: round(made),
    }),
  );
  const end = vocabulary.endIds[0];
  for (const [name, compile] of Object.entries(SUBJECTS)) {
    if (values.only !== undefined && name !== values.only) continue;
    const compiles: number[] = [];
    let grammar = compile();
    for (let i = 0; i < 7; i++) {
      begun = performance.now();
      grammar = compile();
      compiles.push(performance.now() - begun);
    }
    const first: number[] = [];
    const masks: number[] = [];
    const accepts: number[] = [];
    for (let text = 0; text < Number(values.texts); text++) {
      const matcher = grammar.matcher(vocabulary);
      for (let count = 0; count < 400; count++) {
        begun = performance.now();
        const mask = matcher.mask();
        (text === 0 ? first : masks).push((performance.now() - begun) * 1000);
        const id = choose(mask, vocabulary, end, count > 60);
        if (id === undefined) break;
        begun = performance.now();
        matcher.accept(id);
        accepts.push((performance.now() - begun) * 1000);
      }
    }
    const words = Math.ceil(vocabulary.size / 32);
    const all = new Uint32Array(Number(values.sequences) * words);
    const open = (): Matcher => grammar.matcher(vocabulary);
    const matchers = Array.from({ length: Number(values.sequences) }, open);
    const steps: number[] = [];
    for (let step = 0; step < 200; step++) {
      begun = performance.now();
      for (let i = 0; i < matchers.length; i++) all.set(matchers[i].mask(), i * words);
      let spent = performance.now() - begun;
      const ids = matchers.map((matcher) => choose(matcher.mask(), vocabulary, end, step > 60));
      begun = performance.now();
      for (const [i, id] of ids.entries()) if (id !== undefined) matchers[i].accept(id);
      spent += performance.now() - begun;
      ids.forEach((id, i) => {
        if (id === undefined || matchers[i].isFinished) matchers[i] = open();
      });
      steps.push(spent * 1000);
    }
    console.log(
      JSON.stringify({
        name,
        compile_ms: round(
          at(
            compiles.sort((a, b) => a - b),
            0.5,
          ),
        ),
        first_us: spread(first),
        mask_us: spread(masks),
        accept_us: spread(accepts),
        step_us: spread(steps),
      }),
    );
  }
}

main();
