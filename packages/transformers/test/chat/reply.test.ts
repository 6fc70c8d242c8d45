/** Answers of each family, cut in every way: the pieces add up to the same message. */
import { describe, expect, it } from 'vitest';
import type { ChatMessage, ChatPiece, ToolDefinition } from '../../src/chat/messages';
import { type ReplyFormat, replyFormatOf } from '../../src/chat/reply/formats';
import { ReplyParser, type ReplyParserOptions } from '../../src/chat/reply/parser';

const TOOLS: ToolDefinition[] = [
  {
    name: 'f',
    parameters: { type: 'object', properties: { x: { type: 'integer' }, s: { type: 'string' } } },
  },
  { name: 'g', parameters: { type: 'object' } },
];

/** Words by which a template is known. */
const FORMATS: Record<string, ReplyFormat> = {
  plain: replyFormatOf('{{ messages }}'),
  hermes: replyFormatOf('<think></think><tool_call>'),
  llama3: replyFormatOf('<|python_tag|>'),
  mistral: replyFormatOf('[TOOL_CALLS]'),
  ministral: replyFormatOf('[TOOL_CALLS][ARGS][THINK]'),
  deepseek: replyFormatOf('<｜tool▁calls▁begin｜>'),
  granite: replyFormatOf('<|tool_call|>'),
  thinker: replyFormatOf('granite <think></think> <response></response> <tool_call>'),
  phi: replyFormatOf('<|tool|><|end|>'),
  coder: replyFormatOf('<tool_call><function='),
  glm: replyFormatOf('<arg_key>'),
  gemma: replyFormatOf('<start_function_call>'),
  gemma4: replyFormatOf('<|tool_call>'),
  harmony: replyFormatOf('<|channel|><|message|>'),
};

function parse(format: string, texts: Iterable<string>, options: ReplyParserOptions = {}) {
  let ids = 0;
  const parser = new ReplyParser(FORMATS[format], { tools: TOOLS, newId: () => `id${ids++}`, ...options });
  const pieces: ChatPiece[] = [];
  for (const text of texts) pieces.push(...parser.push(text));
  pieces.push(...parser.end());
  return { pieces, message: parser.message };
}

/** The message that pieces add up to, and that calls are complete and in order. */
function summed(pieces: readonly ChatPiece[]): ChatMessage {
  const message: ChatMessage = { role: 'assistant', content: '' };
  let open: { index: number; text: string } | undefined;
  for (const piece of pieces) {
    if (piece.type === 'text') message.content += piece.text;
    else if (piece.type === 'reasoning') message.reasoning = (message.reasoning ?? '') + piece.text;
    else if (piece.type === 'tool-call-start') open = { index: piece.index, text: '' };
    else if (piece.type === 'tool-call-arguments') {
      expect(piece.index).toBe(open?.index);
      open!.text += piece.text;
    } else if (piece.type === 'tool-call-end') {
      expect(piece.index).toBe(open?.index);
      const given = JSON.parse(open!.text);
      expect(typeof given === 'string' ? JSON.parse(given) : given).toEqual(piece.call.arguments);
      message.toolCalls = [...(message.toolCalls ?? []), piece.call];
      open = undefined;
    }
  }
  return message;
}

const call = (name: string, args: Record<string, unknown>, id = 'id0') => ({ id, name, arguments: args });

interface Case {
  format: string;
  what: string;
  answer: string;
  message: Partial<ChatMessage>;
  options?: ReplyParserOptions;
}

const X = { x: 1 };
const CASES: Case[] = [
  { format: 'plain', what: 'text', answer: ' Hello <think> \n', message: { content: ' Hello <think> \n' } },
  { format: 'plain', what: 'nothing', answer: '', message: { content: '' } },
  {
    format: 'hermes',
    what: 'reasoning, text and a call',
    answer:
      '<think>\nLet me see.\n\n</think>\n\nI look.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>',
    message: { content: 'I look.', reasoning: 'Let me see.', toolCalls: [call('f', X)] },
  },
  {
    format: 'hermes',
    what: 'a prompt that opened the reasoning',
    answer: 'Hm.\n</think>\n\nYes.',
    message: { content: 'Yes.', reasoning: 'Hm.' },
    options: { inReasoning: true },
  },
  {
    format: 'hermes',
    what: 'the end of reasoning right before a call',
    answer: 'Hm</think><tool_call>{"name":"f","arguments":{"x":1}}</tool_call>',
    message: { content: '', reasoning: 'Hm', toolCalls: [call('f', X)] },
    options: { inReasoning: true },
  },
  {
    format: 'hermes',
    what: 'two calls, braces in strings, nested objects',
    answer:
      '<tool_call>\n{"name": "f", "arguments": {"s": "}{\\"]", "deep": {"a": [{"b": "}"}]}}}\n</tool_call>\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
    message: {
      content: '',
      toolCalls: [call('f', { s: '}{"]', deep: { a: [{ b: '}' }] } }), call('g', {}, 'id1')],
    },
  },
  {
    format: 'hermes',
    what: 'arguments before the name, as a string, and none at all',
    answer:
      '<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call><tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call><tool_call>{"name": "g"}</tool_call>',
    message: { content: '', toolCalls: [call('f', X), call('f', X, 'id1'), call('g', {}, 'id2')] },
  },
  {
    format: 'hermes',
    what: 'raw line breaks in a string',
    answer: '<tool_call>{"name": "f", "arguments": {"s": "a\nb"}}</tool_call>',
    message: { content: '', toolCalls: [call('f', { s: 'a\nb' })] },
  },
  {
    format: 'hermes',
    what: 'text after a call',
    answer: '<tool_call>{"name": "g", "arguments": {}}</tool_call>\n\nDone.',
    message: { content: 'Done.', toolCalls: [call('g', {})] },
  },
  {
    format: 'hermes',
    what: 'a call that breaks off',
    answer: 'So: <tool_call>\n{"name": "f", "arguments": {"x": 1',
    message: { content: 'So: <tool_call>\n{"name": "f", "arguments": {"x": 1' },
  },
  {
    format: 'hermes',
    what: 'text around a call',
    answer: 'Let me check.\n\n<tool_call>{"name": "g", "arguments": {}}</tool_call>\n\nDone.',
    message: { content: 'Let me check.\n\nDone.', toolCalls: [call('g', {})] },
  },
  {
    format: 'hermes',
    what: 'a call whose arguments are no object, and text behind it',
    answer: 'So.\n<tool_call>\n{"name": "f", "arguments": [1]}\n</tool_call>\nYes.',
    message: { content: 'So.\n<tool_call>\n{"name": "f", "arguments": [1]}\nYes.' },
  },
  {
    format: 'hermes',
    what: 'a call that is no JSON',
    answer: '<tool_call>f(1)</tool_call> ok',
    message: { content: '<tool_call>f(1)</tool_call> ok' },
  },
  {
    format: 'hermes',
    what: 'what only begins like a mark',
    answer: 'a <tool_cal and <thin b',
    message: { content: 'a <tool_cal and <thin b' },
  },
  {
    format: 'hermes',
    what: 'tags that the answer is about',
    answer: 'The tag <think> opens.',
    message: { content: 'The tag <think> opens.' },
  },
  {
    format: 'llama3',
    what: 'a call without a mark',
    answer: '{"name": "f", "parameters": {"x": 1}}',
    message: { content: '', toolCalls: [call('f', X)] },
  },
  {
    format: 'llama3',
    what: 'several calls by semicolons',
    answer: '<|python_tag|>{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}',
    message: { content: '', toolCalls: [call('f', X), call('g', {}, 'id1')] },
  },
  {
    format: 'llama3',
    what: 'JSON that is an answer',
    answer: '{"name": "Bob", "parameters": {"x": 1}} ',
    message: { content: '{"name": "Bob", "parameters": {"x": 1}} ' },
  },
  { format: 'llama3', what: 'a list that is an answer', answer: '[1, 2]\n', message: { content: '[1, 2]\n' } },
  { format: 'llama3', what: 'text', answer: '\n Hi', message: { content: '\n Hi' } },
  {
    format: 'mistral',
    what: 'a list of calls',
    answer: '[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "id": "abcdef123", "arguments": {}}]',
    message: { content: '', toolCalls: [call('f', X), call('g', {}, 'abcdef123')] },
  },
  {
    format: 'ministral',
    what: 'names before arguments, one mark after the other',
    answer: '[THINK]Hm.[/THINK][TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}',
    message: { content: '', reasoning: 'Hm.', toolCalls: [call('f', X), call('g', {}, 'abc')] },
  },
  {
    format: 'deepseek',
    what: 'V3',
    answer:
      'Look:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"x": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    message: { content: 'Look:', toolCalls: [call('f', X), call('g', {}, 'id1')] },
  },
  {
    format: 'deepseek',
    what: 'V3.1',
    answer:
      'Hm</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    message: { content: '', reasoning: 'Hm', toolCalls: [call('f', X), call('g', {}, 'id1')] },
    options: { inReasoning: true },
  },
  ...[
    ['a fence', '```js\nlet a = 1;\n```'],
    ['a list', '[1] says so, [2] too'],
    ['a bracket', '] is what ends it'],
    ['a comma', ', and more'],
  ].map(([what, text]) => ({
    format: 'hermes',
    what: `${what} behind a call`,
    answer: `<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>\n${text}`,
    message: { content: text, toolCalls: [call('f', X)] },
  })),
  {
    format: 'llama3',
    what: 'a list of calls, and text that begins with a bracket',
    answer: '[{"name": "f", "parameters": {"x": 1}}, {"name": "g", "parameters": {}}]\n[1] says so',
    message: { content: '[1] says so', toolCalls: [call('f', X), call('g', {}, 'id1')] },
  },
  {
    format: 'granite',
    what: '3.0 and 3.1',
    answer: '<|tool_call|>[{"name": "f", "arguments": {"x": 1}}]<tool_call>[{"name": "g", "arguments": {}}]',
    message: { content: '', toolCalls: [call('f', X), call('g', {}, 'id1')] },
  },
  {
    format: 'phi',
    what: 'brackets inside of arguments',
    answer: 'functools[{"name": "f", "arguments": {"s": "a]b", "l": [1, [2]]}}, {"name": "g", "arguments": {}}]',
    message: { content: '', toolCalls: [call('f', { s: 'a]b', l: [1, [2]] }), call('g', {}, 'id1')] },
  },
  {
    format: 'phi',
    what: 'the word alone',
    answer: 'Use functools to curry.',
    message: { content: 'Use functools to curry.' },
  },
  {
    format: 'coder',
    what: 'types by the schema',
    answer:
      '<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=s>\n1\n</parameter>\n<parameter=o>\n{"a": [1]}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>',
    message: { content: '', toolCalls: [call('f', { x: 1, s: '1', o: { a: [1] } }), call('g', {}, 'id1')] },
  },
  {
    format: 'coder',
    what: 'a string of several lines with tags in it',
    answer: '<tool_call><function=f><parameter=s>\n<b>\n\n</b>\n</parameter></function></tool_call>',
    message: { content: '', toolCalls: [call('f', { s: '<b>\n\n</b>' })] },
  },
  {
    format: 'glm',
    what: 'keys and values',
    answer:
      'Hm</think>\n<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key>\n<arg_value>a b</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>',
    message: { content: '', reasoning: 'Hm', toolCalls: [call('f', { x: 1, s: 'a b' }), call('g', {}, 'id1')] },
    options: { inReasoning: true },
  },
  {
    format: 'gemma',
    what: 'its own notation',
    answer: '<start_function_call>call:f{x:1,s:<escape>a, "b"}<escape>}<end_function_call>',
    message: { content: '', toolCalls: [call('f', { x: 1, s: 'a, "b"}' })] },
  },
  {
    format: 'gemma4',
    what: 'nesting, and a channel for thoughts',
    answer:
      '<|channel>thought\nHm.\n<channel|><|tool_call>call:f{x:1,o:{a:[true,null,<|"|>t<|"|>]}}<tool_call|><|tool_call>call:g{}<tool_call|>',
    message: {
      content: '',
      reasoning: 'Hm.',
      toolCalls: [call('f', { x: 1, o: { a: [true, null, 't'] } }), call('g', {}, 'id1')],
    },
  },
  {
    format: 'thinker',
    what: 'tags around the answer',
    answer: '<think>Hm.</think>\n<response>\nHello <b>you</b>\n</response>',
    message: { content: 'Hello <b>you</b>', reasoning: 'Hm.' },
  },
  {
    format: 'harmony',
    what: 'analysis and final',
    answer: '<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Answer.',
    message: { content: 'Answer.', reasoning: 'Think.' },
  },
  {
    format: 'harmony',
    what: 'a preamble and a call',
    answer:
      '<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x":1}<|call|>',
    message: { content: 'I look.', reasoning: 'Think.', toolCalls: [call('f', X)] },
  },
  {
    format: 'harmony',
    what: 'the recipient before the channel',
    answer: ' to=functions.f<|channel|>commentary json<|message|>{"x":1}',
    message: { content: '', toolCalls: [call('f', X)] },
  },
  {
    format: 'harmony',
    what: 'several thoughts, and a header that breaks off',
    answer:
      '<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final',
    message: { content: '', reasoning: 'One.\n\nTwo.' },
  },
  { format: 'harmony', what: 'a header alone', answer: '<|channel|>analysis', message: { content: '' } },
  {
    format: 'harmony',
    what: 'reasoning that the prompt has begun',
    answer: ' more.<|end|><|start|>assistant<|channel|>final<|message|>Yes.',
    message: { content: 'Yes.', reasoning: ' more.' },
    options: { inReasoning: true, continued: true },
  },
  { format: 'harmony', what: 'a word of headers', answer: 'final', message: { content: 'final' } },
  { format: 'harmony', what: 'no format', answer: 'Just text. ', message: { content: 'Just text. ' } },
];

describe.each(CASES)('$format: $what', ({ format, answer, message, options }) => {
  const expected = { role: 'assistant', ...message };

  it('is read in one piece', () => {
    const whole = parse(format, [answer], options);
    expect(whole.message).toEqual(expected);
    expect(summed(whole.pieces)).toEqual(expected);
  });

  it('is read in single characters', () => {
    const single = parse(format, answer, options);
    expect(single.message).toEqual(expected);
    expect(summed(single.pieces)).toEqual(expected);
  });

  it('is read in any two pieces', () => {
    for (let at = 1; at < answer.length; at++) {
      const { pieces, message: got } = parse(format, [answer.slice(0, at), answer.slice(at)], options);
      expect(got, `cut at ${at}`).toEqual(expected);
      expect(summed(pieces), `cut at ${at}`).toEqual(expected);
    }
  });

  it('ends anywhere', () => {
    for (let at = 0; at < answer.length; at++) {
      const { pieces, message: got } = parse(format, [answer.slice(0, at)], options);
      expect(summed(pieces), `ended at ${at}`).toEqual(got);
    }
  });
});

it('gives text and arguments out as soon as they are known', () => {
  const parser = new ReplyParser(FORMATS.hermes, { tools: TOOLS, newId: () => 'id' });
  expect(parser.push('Hello wor')).toEqual([{ type: 'text', text: 'Hello wor' }]);
  expect(parser.push('ld. <tool_call>{"name": "f", "argum')).toEqual([{ type: 'text', text: 'ld.' }]);
  expect(parser.push('ents": {"s": "lo')).toEqual([
    { type: 'tool-call-start', index: 0, id: 'id', name: 'f' },
    { type: 'tool-call-arguments', index: 0, text: '{"s": "lo' },
  ]);
  expect(parser.push('ng"}')).toEqual([{ type: 'tool-call-arguments', index: 0, text: 'ng"}' }]);
  expect(parser.push('}')).toEqual([
    { type: 'tool-call-end', index: 0, call: { id: 'id', name: 'f', arguments: { s: 'long' } } },
  ]);
});

it('marks what is no text of an answer as the call that it breaks off in', () => {
  const broken = (format: string, answer: string) =>
    parse(format, [answer]).pieces.flatMap((piece) => (piece.type === 'text' ? [[piece.text, piece.ofCall]] : []));
  const asked = '<tool_call>\n{"name": "f", "argum';
  expect(broken('hermes', `So: ${asked}`)).toEqual([
    ['So:', undefined],
    [` ${asked}`, 0],
  ]);
  const first = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>\n';
  expect(broken('hermes', first + asked)).toEqual([[asked, 1]]);
  expect(broken('hermes', 'So. <tool_call>\n{"name": "f", "arguments": {"x": 1} ')).toEqual([
    ['So.', undefined],
    [' <tool_call>\n{"name": "f", "arguments": {"x": 1} ', 0],
  ]);
  expect(broken('llama3', '{"name": "g", "parameters": {}}; {"name')).toEqual([[' {"name', 1]]);
  // What only speaks of a mark is text.
  const spoken = broken('hermes', 'The tag <tool_call> opens');
  expect([spoken.map(([text]) => text).join(''), spoken.some(([, ofCall]) => ofCall !== undefined)]).toEqual([
    'The tag <tool_call> opens',
    false,
  ]);
});

it('gives arguments in a string out as the JSON that the string holds', () => {
  const { pieces } = parse('hermes', '<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>');
  const written = pieces.map((piece) => (piece.type === 'tool-call-arguments' ? piece.text : '')).join('');
  expect(written).toBe('{"x": 1}');
});

it('takes white space without end without a square', () => {
  const start = performance.now();
  for (const before of ['', 'a', '<think>', '<think>x</think>'])
    for (const cut of [1, 7, 50_000]) {
      const space = '\n '.repeat(50_000);
      const pieces = Array.from({ length: Math.ceil(space.length / cut) }, (_, i) =>
        space.slice(i * cut, (i + 1) * cut),
      );
      const { content, reasoning } = parse('hermes', [before, ...pieces, 'x']).message;
      expect((content + (reasoning ?? '')).endsWith('x')).toBe(true);
    }
  expect(performance.now() - start).toBeLessThan(20_000);
});

it('takes deep and long input without a stack or a square', () => {
  const deep = '['.repeat(60_000);
  const texts = [
    `<tool_call>{"name": "f", "arguments": {"x": ${deep}`,
    '<tool_call>'.repeat(5000),
    '<'.repeat(100_000),
  ];
  for (const answer of texts) {
    const start = performance.now();
    parse('hermes', [answer]);
    parse('gemma', [`<start_function_call>call:f{x:${deep}`]);
    expect(performance.now() - start).toBeLessThan(4000);
  }
});
