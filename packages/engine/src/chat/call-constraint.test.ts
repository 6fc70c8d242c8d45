// Calls of tools while an answer is free: whatever tokens a model would choose, what it calls meets the schema.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { compileSchema, Vocabulary } from '@x/grammar';
import { ChatTemplate, ReplyParser, Tokenizer } from '@x/transformers';
import { beforeAll, describe, expect, test } from 'vitest';
import { CallConstraint, callForm } from './call-constraint';

const TOKENIZER = fileURLToPath(new URL('../../../../models/tiny/llama/tokenizer.json', import.meta.url));
const replyFormatOf = (template: string) => ChatTemplate.fromText(template).replyFormat(true);
let tokenizer: Tokenizer;
let vocabulary: Vocabulary;
let vocabSize: number;
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
const FAMILIES = {
  hermes: ['<tool_call></tool_call>', 'Let me see. <tool_call>'],
  granite: ['granite <|tool_call|>', '<|tool_call|>'],
  phi: ['<|tool|><|end|>', 'functools'],
  llama: ['ipython <|eot_id|>', '{"name": "say", "parameters": '],
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
function answer(constraint: CallConstraint, begun: string, seed: number): { text: string; inCall: boolean } {
  const next = random(seed);
  const ids = tokenizer.encode(begun, { addSpecialTokens: false });
  for (const id of ids) constraint.accept(id);
  for (let i = 0; i < 400; i++) {
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

describe.each(Object.entries(FAMILIES))('%s', (_, [template, begun]) => {
  test('every call meets its schema, and there may be several', () => {
    const format = replyFormatOf(template);
    const form = callForm(format, tools)!;
    const schemas = new Map(tools.map(({ name, parameters }) => [name, compileSchema(parameters, { closed: true })]));
    const counts: number[] = [];
    for (let seed = 0; seed < 40; seed++) {
      const { text, inCall } = answer(new CallConstraint(form, vocabulary, new Map()), begun, seed);
      // A bare call ends with a brace that the model writes freely.
      const parser = new ReplyParser(format, { tools, inReasoning: false });
      [...parser.push(begun.startsWith('{') && !inCall ? `${text}}` : text), ...parser.end()];
      const calls = parser.message.toolCalls ?? [];
      counts.push(calls.length);
      for (const { name, arguments: given } of calls)
        expect(schemas.get(name)!.accepts(JSON.stringify(given)), `${name} ${JSON.stringify(given)}`).toBe(true);
      if (!inCall) expect(calls.length, text).toBeGreaterThan(0);
    }
    expect(counts.filter((count) => count > 0).length).toBeGreaterThan(30);
    if (!begun.startsWith('{')) expect(Math.max(...counts)).toBeGreaterThan(1);
  });
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
  const form = callForm(replyFormatOf('<tool_call></tool_call>'), tools)!;
  const [open, close] = [3, 4];
  const marks = new Map([
    [open, '<tool_call>'],
    [close, '</tool_call>'],
  ]);
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
  expect(callForm(format, [odd])!.calls.accepts('{"name": "odd", "arguments": {"of": "x", "more": [1]}}')).toBe(true);
  expect(callForm(replyFormatOf('plain'), tools)).toBeUndefined();
  expect(callForm(format, [])).toBeUndefined();
});
