// Calls of tools while an answer is free: whatever tokens a model would choose, what it calls meets the schema.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { compileSchema, Vocabulary } from '@x/grammar';
import { ChatTemplate, ReplyParser, Tokenizer } from '@x/transformers';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { beforeAll, describe, expect, test } from 'vitest';
import { CallConstraint } from './call-constraint';
import { callForm, forcedCall } from './call-form';

const TOKENIZER = fileURLToPath(new URL('../../../../models/tiny/llama/tokenizer.json', import.meta.url));
const replyFormatOf = (template: string) => ChatTemplate.fromText(template).replyFormat(true);
let tokenizer: Tokenizer;
let vocabulary: Vocabulary;
let vocabSize: number;
/** Tokens of single bytes. */
const spelling = new Vocabulary({ size: 257, bytes: (id) => Uint8Array.of(id), endIds: [256] });
beforeAll(async () => {
  tokenizer = await Tokenizer.fromFile(TOKENIZER);
  vocabSize = Object.keys(JSON.parse(readFileSync(TOKENIZER, 'utf8')).model.vocab).length;
  vocabulary = new Vocabulary({ size: vocabSize, bytes: tokenizer.tokenBytes(), endIds: tokenizer.eosIds });
});

const digit = { type: 'integer', minimum: 0, maximum: 9 };
const add = { name: 'add', parameters: { type: 'object', properties: { n: digit }, required: ['n'] } };
const say = {
  name: 'say',
  parameters: { type: 'object', properties: { what: { enum: ['yes', 'no'] }, n: digit }, required: ['what'] },
};
const tools = [add, say];
/** A template's words, how an answer begins that calls, and whether calls follow each other without free text between. */
const FAMILIES = {
  hermes: ['<tool_call></tool_call>', 'Let me see. <tool_call>', true],
  granite: ['granite <|tool_call|>', '<|tool_call|>', true],
  phi: ['<|tool|><|end|>', 'functools[', true],
  llama: ['ipython <|eot_id|>', '{"name": "say", "parameters": ', false],
  mistral: ['[TOOL_CALLS]', 'I look. [TOOL_CALLS]', true],
  ministral: ['[TOOL_CALLS][ARGS][THINK]', '[TOOL_CALLS]', true],
  'deepseek V3': [
    "<｜tool▁calls▁begin｜> '<｜tool▁sep｜>' + tool['function']['name']",
    'So: <｜tool▁calls▁begin｜>',
    true,
  ],
  'deepseek V3.1': ['<｜tool▁calls▁begin｜>', '<｜tool▁calls▁begin｜>', true],
  coder: ['<tool_call><function=', 'Let me see. <tool_call>', true],
  'coder without a mark': ['<tool_call><function=', '<function=', true],
  glm: ['<arg_key>', 'Yes. <tool_call>', false],
  functiongemma: ['<start_function_call>', '<start_function_call>', true],
  gemma4: ['<|tool_call>', 'I look. <|tool_call>', true],
  harmony: ['<|channel|><|message|>', '<|channel|>commentary to=', false],
  'harmony, recipient first': ['<|channel|><|message|>', ' to=functions.', false],
} as const;

/** mulberry32. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** An answer that begins with a text and goes on with any tokens that are possible, once a call has begun. */
function answer(
  constraint: CallConstraint,
  begun: string,
  seed: number,
  most = 400,
): { text: string; inCall: boolean } {
  const next = random(seed);
  const ids = tokenizer.encode(begun, { addSpecialTokens: false });
  for (const id of ids) constraint.accept(id);
  for (let i = 0; i < most; i++) {
    const mask = constraint.mask();
    if (!mask) return { text: tokenizer.decode(ids), inCall: false };
    const possible = Array.from({ length: vocabSize }, (_, id) => id).filter((id) => mask[id >>> 5] & (1 << (id & 31)));
    const end = possible.find((id) => tokenizer.eosIds.includes(id));
    // Long rows of calls show no more than short ones.
    if (end !== undefined && (next() < 0.2 || i > 120)) return { text: tokenizer.decode(ids), inCall: false };
    const choices = possible.filter((id) => !tokenizer.eosIds.includes(id));
    const id = choices[Math.floor(next() * choices.length)];
    constraint.accept(id);
    ids.push(id);
  }
  return { text: tokenizer.decode(ids), inCall: true };
}

describe('free text', () => {
  const constraintOf = (template: string) =>
    new CallConstraint(callForm(replyFormatOf(template), tools)!, spelling, new Map());
  const write = (constraint: CallConstraint, text: string) => {
    for (const byte of Buffer.from(text)) constraint.accept(byte);
    return constraint.mask() !== undefined;
  };

  test('may use a word that begins calls, which a list has to follow', () => {
    const phi = constraintOf('<|tool|><|end|>');
    expect(write(phi, 'In Python, use functools import, or functools.wraps')).toBe(false);
    expect(write(phi, ' functools[')).toBe(true);
  });

  test('may speak of the tags of reasoning, in front of a call', () => {
    const hermes = constraintOf('<think></think><tool_call>');
    expect(write(hermes, 'The tag <think> begins thoughts. <tool_call>')).toBe(true);
    const thinking = constraintOf('<think></think><tool_call>');
    expect(write(thinking, '\n<think>\nI could <tool_call>')).toBe(false);
    expect(write(thinking, '</think>\n\n<tool_call>')).toBe(true);
  });

  test('is none where a bare call says its type first', () => {
    expect(write(constraintOf('ipython <|eot_id|>'), '{"type": "function", "name": "say", "parameters": ')).toBe(true);
  });
});

describe.each(Object.entries(FAMILIES))('%s', (_, [template, begun, isRow]) => {
  test('every call meets its schema, and there may be several', () => {
    const format = replyFormatOf(template);
    const form = callForm(format, tools)!;
    const schemas = new Map(tools.map(({ name, parameters }) => [name, compileSchema(parameters, { closed: true })]));
    const counts: number[] = [];
    for (let seed = 0; seed < 40; seed++) {
      const { text, inCall } = answer(new CallConstraint(form, vocabulary, new Map()), begun, seed);
      const parser = new ReplyParser(format, { tools, inReasoning: false });
      [...parser.push(text), ...parser.end()];
      const calls = parser.message.toolCalls ?? [];
      counts.push(calls.length);
      for (const { name, arguments: given } of calls)
        expect(schemas.get(name)!.accepts(JSON.stringify(given)), `${name} ${JSON.stringify(given)}`).toBe(true);
      if (!inCall) expect(calls.length, text).toBeGreaterThan(0);
      if (!inCall && begun !== ' to=functions.')
        expect(parser.message.content).toBe(/^[\w.: ]*/.exec(begun)![0].trimEnd().replace('functools', ''));
    }
    expect(counts.filter((count) => count > 0).length).toBeGreaterThan(30);
    if (isRow) expect(Math.max(...counts)).toBeGreaterThan(1);
  });

  test('one call that has to come meets its schema', () => {
    const format = replyFormatOf(template);
    for (const name of [undefined, 'say']) {
      const begun = format.force!(name);
      const matcher = forcedCall(format, { name }, tools)!.matcher(vocabulary);
      const next = random(7);
      const ids: number[] = [];
      while (!matcher.isFinished && ids.length < 400) {
        const mask = matcher.mask();
        const possible = Array.from({ length: vocabSize }, (_, id) => id).filter(
          (id) => mask[id >>> 5] & (1 << (id & 31)),
        );
        const choices = possible.filter((id) => !tokenizer.eosIds.includes(id));
        ids.push(choices[Math.floor(next() * choices.length)]);
        matcher.accept(ids.at(-1)!);
      }
      const parser = new ReplyParser(format, { tools, inReasoning: false });
      [...parser.push(begun + tokenizer.decode(ids)), ...parser.end()];
      const calls = parser.message.toolCalls ?? [];
      expect([calls.length, parser.message.content], tokenizer.decode(ids)).toEqual([1, '']);
      const { parameters } = tools.find((tool) => tool.name === calls[0].name)!;
      expect(compileSchema(parameters, { closed: true }).accepts(JSON.stringify(calls[0].arguments))).toBe(true);
      if (name) expect(calls[0].name).toBe(name);
    }
  });
});

/** Schemas whose values look like other values, hold marks, or nest. */
const AWKWARD = {
  type: 'object',
  properties: {
    text: { type: 'string', maxLength: 3 },
    number: { enum: ['1', '-', 'null', 'a b', '"', ' 2', 'true '] },
    either: { type: ['string', 'null'], maxLength: 2 },
    any: { anyOf: [{ type: 'string', maxLength: 2 }, { type: 'integer' }, { type: 'boolean' }] },
    list: {
      type: 'array',
      items: { enum: ['}', ']', ',', ':', '', 'x"'] },
      maxItems: 3,
      minItems: 1,
      uniqueItems: true,
    },
    deep: {
      type: 'object',
      properties: { 'a b': { type: 'number' }, c: { $ref: '#/properties/list' } },
      required: ['c'],
      patternProperties: { '^y?x$': { enum: [null, true] } },
      additionalProperties: false,
    },
  },
  required: ['text', 'number', 'either', 'any', 'list', 'deep'],
  patternProperties: { '^[xy]z$': { enum: ['7', 7] } },
  additionalProperties: false,
};

test.each(['ministral', 'deepseek V3', 'coder', 'glm', 'gemma4', 'functiongemma', 'harmony'] as const)(
  'what the arguments of %s stand for is what the schema means',
  (family) => {
    const [template, begun] = FAMILIES[family];
    const format = replyFormatOf(template);
    const odd = [{ name: 'odd', parameters: AWKWARD, strict: true }];
    const form = callForm(format, odd)!;
    const validate = new Ajv2020({ allowUnionTypes: true }).compile(AWKWARD);
    let whole = 0;
    for (let seed = 0; seed < 12; seed++) {
      const { text, inCall } = answer(new CallConstraint(form, vocabulary, new Map()), begun, seed, 1000);
      const parser = new ReplyParser(format, { tools: odd, inReasoning: false });
      [...parser.push(text), ...parser.end()];
      const calls = parser.message.toolCalls ?? [];
      for (const { arguments: given } of calls)
        expect(validate(given), `${JSON.stringify(given)} from ${text}`).toBe(true);
      if (!inCall) expect(calls.length, text).toBeGreaterThan(0);
      whole += calls.length;
    }
    expect(whole).toBeGreaterThan(3);
  },
);

/** What models of each family write, as their makers' templates show it: all of it is possible, and then more is not. */
const FIXED: readonly (readonly [family: keyof typeof FAMILIES, answer: string, calls: number])[] = [
  ['mistral', '[TOOL_CALLS] [{"name": "add", "arguments": {"n": 1}}, {"name": "say", "arguments": {"what": "no"}}]', 2],
  ['ministral', '[TOOL_CALLS]add[ARGS]{"n": 1}[TOOL_CALLS]say[ARGS]{"what": "no", "n": 2}', 2],
  [
    'deepseek V3',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{"n": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>say\n```json\n{"what":"no"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    2,
  ],
  [
    'deepseek V3.1',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"n": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>say<｜tool▁sep｜>{"what": "no"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    2,
  ],
  [
    'coder',
    'I look.\n<tool_call>\n<function=say>\n<parameter=what>\nno\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>',
    2,
  ],
  [
    'glm',
    '\n<tool_call>say\n<arg_key>what</arg_key>\n<arg_value>no</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>add<arg_key>n</arg_key><arg_value>1</arg_value></tool_call>',
    2,
  ],
  ['functiongemma', '<start_function_call>call:say{what:<escape>no<escape>,n:1}<end_function_call>', 1],
  ['gemma4', '<|tool_call>call:add{n:1}<tool_call|><|tool_call>call:say{what:<|"|>no<|"|>}<tool_call|>', 2],
  [
    'harmony',
    '<|channel|>analysis<|message|>Hm to=x.<|end|><|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"n":1}<|call|>',
    1,
  ],
  [
    'harmony',
    '<|start|>assistant to=functions.add<|channel|>commentary json<|message|>{"n": 1}<|end|><|start|>assistant<|channel|>commentary to=functions.say<|message|>{"what":"no"}<|call|>',
    2,
  ],
];

test.each(FIXED)('%s: %s', (family, text, count) => {
  const [template] = FAMILIES[family];
  const format = replyFormatOf(template);
  const form = callForm(format, tools)!;
  for (const step of [1, 3, text.length]) {
    const constraint = new CallConstraint(form, spelling, new Map());
    for (const byte of Buffer.from(text)) constraint.accept(byte);
    const parser = new ReplyParser(format, { tools, inReasoning: false });
    for (let i = 0; i < text.length; i += step) parser.push(text.slice(i, i + step));
    parser.end();
    expect(parser.message.toolCalls).toHaveLength(count);
  }
  // A tool that there is not, and an argument that does not fit, in the last call.
  for (const [from, to] of [
    [count === 1 && text.includes('say') ? 'say' : 'add', 'sub'],
    [/1(?!.*1)/s, '10'],
    ['no', 'nein'],
  ] as const) {
    const bad = text.replace(from, to);
    if (bad === text) continue;
    const constraint = new CallConstraint(form, spelling, new Map());
    expect(() => {
      for (const byte of Buffer.from(bad)) constraint.accept(byte);
    }, bad).toThrow(/cannot come after/);
  }
});

test('text around calls of each family is free', () => {
  for (const [template, begun] of Object.values(FAMILIES)) {
    const constraint = new CallConstraint(callForm(replyFormatOf(template), tools)!, spelling, new Map());
    const texts = ['<|channel|>analysis<|message|>I go to=', 'A < b, to=c, call:f{x:1}, [1] function=f, {"name"} '];
    for (const byte of Buffer.from(texts.join(begun.includes('to=') ? '' : ' '))) constraint.accept(byte);
    expect(constraint.mask()).toBeUndefined();
  }
});

test('marks of a call are tokens of their own where the model has such, within a call, too', () => {
  const marks = ['[TOOL_CALLS]', '[ARGS]'];
  const tokens = new Map(marks.map((mark, i) => [256 + i, mark]));
  const bytes = (id: number) => (id < 256 ? Uint8Array.of(id) : undefined);
  const own = new Vocabulary({ size: 259, bytes, endIds: [258], marks: tokens });
  const form = callForm(replyFormatOf('[TOOL_CALLS][ARGS]'), [
    { name: 'f', parameters: { type: 'object', properties: { s: { type: 'string' } } } },
  ])!;
  expect(form.calls.get('[TOOL_CALLS]')!.accepts('f[ARGS]{}')).toBe(true);
  const marked = callForm(
    replyFormatOf('[TOOL_CALLS][ARGS]'),
    [{ name: 'f', parameters: { type: 'object', properties: { s: { type: 'string' } } } }],
    marks,
  )!;
  const constraint = new CallConstraint(marked, own, tokens);
  const possible = () => [256, 257, 258, 0x5b].map((id) => (constraint.mask()![id >>> 5] >>> (id & 31)) & 1);
  const write = (text: string) => {
    for (const byte of Buffer.from(text)) constraint.accept(byte);
  };
  write('Well, ');
  expect(constraint.mask()).toBeUndefined();
  constraint.accept(256);
  write('f');
  expect(possible()).toEqual([0, 1, 0, 0]);
  constraint.accept(257);
  write('{"s":"a');
  expect(possible()).toEqual([0, 0, 0, 1]);
  write('[ARGS]"}');
  expect(possible()).toEqual([1, 0, 1, 0]);
});

test('text without a call is free, and so is reasoning', () => {
  const form = callForm(replyFormatOf('<think></think><tool_call></tool_call>'), tools)!;
  const constraint = new CallConstraint(form, vocabulary, new Map(), true);
  const write = (text: string) => {
    for (const id of tokenizer.encode(text, { addSpecialTokens: false })) constraint.accept(id);
    return constraint.mask();
  };
  expect(write('I could write <tool_call> here. ')).toBeUndefined();
  expect(write('</think>A tale of {"name": "add", "arguments": 1}')).toBeUndefined();
  const fork = constraint.fork();
  expect(write('<tool_call>')).toBeDefined();
  expect(fork.mask()).toBeUndefined();
  expect(write('\n{"name": "add", "arguments": {"n": 7}}')).toBeDefined();
  expect(write('\n</tool_call>')).toBeUndefined();
  expect(write(' Done. ')).toBeUndefined();
  expect(write('<tool_call>\n{"name": "say", "arguments": {')).toBeDefined();
});

test('marks that are tokens of their own begin calls, end them, and are possible where a call is whole', () => {
  const [open, close] = [3, 4];
  const marks = new Map([
    [open, '<tool_call>'],
    [close, '</tool_call>'],
  ]);
  const form = callForm(replyFormatOf('<tool_call></tool_call>'), tools, [...marks.values()])!;
  const vocabulary = new Vocabulary({
    size: vocabSize,
    bytes: tokenizer.tokenBytes(),
    endIds: tokenizer.eosIds,
    marks,
  });
  const constraint = new CallConstraint(form, vocabulary, marks);
  const possible = (id: number) => (constraint.mask()![id >>> 5] & (1 << (id & 31))) !== 0;
  const write = (text: string) => {
    for (const id of tokenizer.encode(text, { addSpecialTokens: false })) constraint.accept(id);
  };
  constraint.accept(open);
  expect([possible(open), possible(close)]).toEqual([false, false]);
  write('{"name": "add", "arguments": {"n": 7}}');
  expect([possible(open), possible(close)]).toEqual([true, true]);
  constraint.accept(open);
  expect(possible(close)).toBe(false);
  expect(() => write('{"name": "add", "arguments": {"m"')).toThrow(/cannot come after/);
  const other = new CallConstraint(form, vocabulary, marks);
  other.accept(open);
  for (const id of tokenizer.encode('{"name": "say", "arguments": {"what": "no"}}', { addSpecialTokens: false }))
    other.accept(id);
  other.accept(close);
  expect(other.mask()).toBeUndefined();
});

test('a schema that cannot be enforced is an error where the tool is strict, and any object where it is not', () => {
  const odd = {
    name: 'odd',
    parameters: { type: 'object', properties: { of: { type: 'string', format: 'klingon' } } },
  };
  const format = replyFormatOf('<tool_call></tool_call>');
  expect(() => callForm(format, [add, { ...odd, strict: true }])).toThrow(/The tool|klingon/);
  expect(
    callForm(format, [odd])!
      .calls.get('<tool_call>')!
      .accepts('{"name": "odd", "arguments": {"of": "x", "more": [1]}}'),
  ).toBe(true);
  expect(callForm(replyFormatOf('plain'), tools)).toBeUndefined();
  expect(callForm(format, [])).toBeUndefined();
});
