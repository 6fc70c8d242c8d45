// Clients that others wrote, against models of this repository: what comes is what the engine computes.
import { fileURLToPath } from 'node:url';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI, OpenAI as LangChainCompletions, OpenAIEmbeddings } from '@langchain/openai';
import { loadEmbeddingModel, loadModel } from '@x/engine';
import { embedMany, generateObject, streamText } from 'ai';
import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { createServer } from '../src';
import { ON_CPU, TINY, until } from './support';

const BERT = fileURLToPath(new URL('../../../models/encoders/bert', import.meta.url));
const chatml = { ...ON_CPU, chatTemplate: 'chatml' };
const server = createServer({
  models: {
    chat: { path: TINY, options: chatml },
    plain: { path: TINY, options: { ...ON_CPU, chatTemplate: '{{ raise_exception("roles must alternate") }}' } },
    broken: { path: TINY, options: { ...ON_CPU, chatTemplate: '{{ messages | nothing_of_this_name }}' } },
    embed: { path: BERT, kind: 'embedding', options: ON_CPU },
  },
});
const toServer = (url: unknown, init?: RequestInit) => server.fetch(new Request(url as string, init));
const openai = new OpenAI({ apiKey: 'none', baseURL: 'http://localhost/v1', maxRetries: 0, fetch: toServer });
const compatible = createOpenAICompatible({
  name: 'candle',
  baseURL: 'http://localhost/v1',
  fetch: toServer as typeof fetch,
});
let model: Awaited<ReturnType<typeof loadModel>>;
let bert: Awaited<ReturnType<typeof loadEmbeddingModel>>;
beforeAll(async () => {
  [model, bert] = await Promise.all([loadModel(TINY, chatml), loadEmbeddingModel(BERT, ON_CPU)]);
});
afterAll(async () => {
  model.dispose();
  bert.dispose();
  await server.close();
});
const messages = [
  { role: 'system' as const, content: 'You tell stories.' },
  { role: 'user' as const, content: 'Tell me one.' },
];
const greedy = { model: 'chat', messages, max_completion_tokens: 24, temperature: 0 };

test('a chat is what the engine answers, whole, in a stream, and from each client', async () => {
  const { content } = await model.generateChat(messages, { maxTokens: 24 }).message();
  expect(content).not.toBe('');
  const whole = await openai.chat.completions.create(greedy);
  expect(whole.choices[0].message.content).toBe(content);
  const stream = openai.chat.completions.stream(greedy);
  expect(await stream.finalContent()).toBe(content);
  const response = await openai.responses.create({
    model: 'chat',
    instructions: messages[0].content,
    input: messages[1].content,
    max_output_tokens: 24,
    temperature: 0,
  });
  expect(response.output_text).toBe(content);
  const [{ content: system }, ...rest] = messages;
  const ai = streamText({ model: compatible('chat'), system, messages: rest, maxOutputTokens: 24, temperature: 0 });
  expect(await ai.text).toBe(content);
  const langchain = new ChatOpenAI({
    model: 'chat',
    apiKey: 'none',
    temperature: 0,
    maxTokens: 24,
    configuration: { baseURL: 'http://localhost/v1', fetch: toServer },
  });
  expect((await langchain.invoke(messages)).content).toBe(content);
});

test('a text goes on as the engine goes on with it, from the clients of completions', async () => {
  const expected = await model.generate('Once upon', { maxTokens: 16, temperature: 0 }).text();
  const asked = { model: 'chat', prompt: 'Once upon', max_tokens: 16, temperature: 0 };
  expect((await openai.completions.create(asked)).choices[0].text).toBe(expected);
  const langchain = new LangChainCompletions({
    model: 'chat',
    apiKey: 'none',
    temperature: 0,
    maxTokens: 16,
    maxRetries: 0,
    configuration: { baseURL: 'http://localhost/v1', fetch: toServer },
  });
  expect(await langchain.invoke('Once upon')).toBe(expected);
  const parts: string[] = [];
  for await (const part of await langchain.stream('Once upon')) parts.push(part);
  expect(parts.join('')).toBe(expected);
  expect(parts.length).toBeGreaterThan(1);
  // Several prompts are one request there; what each costs is said.
  const { generations, llmOutput } = await langchain.generate(['Once upon', 'The king']);
  expect(generations.map(([{ text }]) => text)).toEqual([
    expected,
    await model.generate('The king', { maxTokens: 16, temperature: 0 }).text(),
  ]);
  expect(llmOutput?.tokenUsage).toMatchObject({ completionTokens: 32 });
  await expect(langchain.invoke('word '.repeat(400))).rejects.toThrow(/positions|context/i);
});

test('log probabilities of a chat, whole and in a stream', async () => {
  const asked = { ...greedy, max_completion_tokens: 6, logprobs: true, top_logprobs: 2 };
  const { choices } = await openai.chat.completions.create(asked);
  const content = choices[0].logprobs!.content!;
  expect(content).toHaveLength(6);
  for (const { token, logprob, bytes, top_logprobs } of content) {
    expect(top_logprobs).toHaveLength(2);
    expect(top_logprobs[0]).toEqual({ token, logprob, bytes });
    if (bytes) expect(Buffer.from(bytes).toString()).toBe(token);
  }
  const streamed = [];
  for await (const chunk of await openai.chat.completions.create({ ...asked, stream: true })) {
    streamed.push(...(chunk.choices[0]?.logprobs?.content ?? []));
  }
  expect(streamed.map(({ token }) => token)).toEqual(content.map(({ token }) => token));
});

test('an answer goes on where it was cut, and a prompt that was read before is not read again', async () => {
  const first = await openai.chat.completions.create({ ...greedy, max_completion_tokens: 8 });
  const begun = [...messages, { role: 'assistant' as const, content: first.choices[0].message.content }];
  const more = await openai.chat.completions.create({
    ...greedy,
    messages: begun,
    max_completion_tokens: 4,
    continue_final_message: true,
  } as never);
  const expected = await model.generateChat(begun as never, { maxTokens: 4, continueLast: true }).message();
  expect(more.choices[0].message.content).toBe(expected.content);
  const long = [{ role: 'user' as const, content: 'word '.repeat(60) }];
  await openai.chat.completions.create({ ...greedy, messages: long, max_completion_tokens: 1 });
  const again = await openai.chat.completions.create({ ...greedy, messages: long, max_completion_tokens: 1 });
  expect(again.usage!.prompt_tokens_details!.cached_tokens).toBeGreaterThanOrEqual(32);
});

const Animal = z.object({ name: z.enum(['fox', 'wolf']), legs: z.number().int().min(0).max(9), wild: z.boolean() });

test('an answer meets its schema whatever the model would say, from each client', async () => {
  const format = zodResponseFormat(Animal, 'animal');
  const asked = { ...greedy, max_completion_tokens: 100, temperature: 1, seed: 3, response_format: format };
  const { choices } = await openai.chat.completions.parse(asked);
  expect(Animal.parse(choices[0].message.parsed)).toEqual(choices[0].message.parsed);
  const streamed = await openai.chat.completions.stream(asked).finalChatCompletion();
  expect(streamed.choices[0].message.parsed).toEqual(choices[0].message.parsed);
  const ai = createOpenAICompatible({
    name: 'candle',
    baseURL: 'http://localhost/v1',
    fetch: toServer as typeof fetch,
    supportsStructuredOutputs: true,
  });
  const { object } = await generateObject({ model: ai('chat'), schema: Animal, prompt: 'An animal.', seed: 5 });
  expect(Animal.parse(object)).toEqual(object);
  const response = await openai.responses.parse({
    model: 'chat',
    input: 'An animal.',
    text: { format: zodTextFormat(Animal, 'animal') },
  });
  expect(Animal.parse(response.output_parsed)).toEqual(response.output_parsed);
});

test.each([
  ['a keyword that is not enforced', { type: 'object', not: {} }],
  ['a type that there is not', { type: 'person' }],
  ['no value at all', false],
  ['a pattern that is none', { type: 'string', pattern: '(' }],
  ['an enum of nothing', { enum: [] }],
])('a schema with %s is refused', async (_, schema) => {
  const response_format = { type: 'json_schema', json_schema: { name: 'a', schema } };
  const error = await openai.chat.completions.create({ ...greedy, response_format } as never).catch((error) => error);
  expect(error).toMatchObject({ status: 400, type: 'invalid_request_error' });
  expect(error.message.length).toBeLessThan(600);
});

test('embeddings as floats, as base64, of tokens, and from each client', async () => {
  const texts = ['A fox ran over the hill.', 'The king slept.'];
  const vectors = (await bert.embed(texts)).map(({ vector }) => Array.from(vector));
  const near = (found: number[][]) => {
    for (const [i, row] of found.entries())
      for (const [j, value] of row.entries()) expect(value).toBeCloseTo(vectors[i][j], 5);
  };
  const coded = await openai.embeddings.create({ model: 'embed', input: texts });
  near(coded.data.map(({ embedding }) => embedding));
  const plain = await openai.embeddings.create({ model: 'embed', input: texts, encoding_format: 'float' });
  near(plain.data.map(({ embedding }) => embedding));
  expect(plain.usage.prompt_tokens).toBe((await bert.embed(texts)).reduce((sum, { tokens }) => sum + tokens, 0));
  near((await embedMany({ model: compatible.embeddingModel('embed'), values: texts })).embeddings);
  near(
    await new OpenAIEmbeddings({
      model: 'embed',
      apiKey: 'none',
      configuration: { baseURL: 'http://localhost/v1', fetch: toServer },
    }).embedDocuments(texts),
  );
  const ids = bert.tokenizer.encode(texts[0]);
  near([(await openai.embeddings.create({ model: 'embed', input: ids })).data[0].embedding]);
  const short = await openai.embeddings.create({ model: 'embed', input: texts[0], dimensions: 8 });
  expect(short.data[0].embedding).toHaveLength(8);
});

test.each([
  ['a model of another kind', { model: 'chat', input: 'a' }, 'wrong_model'],
  ['too long a text', { model: 'embed', input: 'word '.repeat(2000) }, 'context_length_exceeded'],
  ['no text', { model: 'embed', input: '' }, 'invalid_value'],
  ['no texts', { model: 'embed', input: [] }, 'invalid_value'],
  ['a number', { model: 'embed', input: 5 as never }, 'invalid_value'],
  ['more numbers than there are', { model: 'embed', input: 'a', dimensions: 100_000 }, 'invalid_value'],
  ['tokens that there are not', { model: 'embed', input: [9_999_999] }, 'invalid_value'],
])('embeddings of %s are refused', async (_, body, code) => {
  await expect(openai.embeddings.create(body)).rejects.toMatchObject({ status: 400, code });
});

test.each([
  ['a model of vectors', { model: 'embed' }, 400, 'wrong_model'],
  ['messages that the template refuses', { model: 'plain' }, 400, 'invalid_value'],
  ['a broken template', { model: 'broken' }, 500, 'bad_chat_template'],
  ['variables that are not to be set', { chat_template_kwargs: { messages: [] } }, 400, 'invalid_value'],
  [
    'a prompt that is too long',
    { messages: [{ role: 'user', content: 'word '.repeat(500) }] },
    400,
    'context_length_exceeded',
  ],
])('chats with %s are refused', async (_, parts, status, code) => {
  const error = await openai.chat.completions.create({ ...greedy, ...parts } as never).catch((error) => error);
  expect(error).toMatchObject({ status, code });
  expect(error.message).not.toMatch(/models[/\\]/);
});

const USER = { role: 'user', content: 'a' };
const CALL = { id: '1', type: 'function', function: { name: 'f', arguments: '{}' } };
const WRONG: [string, unknown][] = [
  [
    'messages',
    ['a', 1, {}, [], [1], [{}], [{ role: 'king', content: '' }], [{ role: 'user' }], [{ ...USER, content: 5 }]],
  ],
  [
    'messages',
    [
      [{ ...USER, content: [{ type: 'image_url', image_url: { url: 'x' } }] }],
      [{ ...USER, content: [{ type: 'text' }] }],
      [{ ...USER, content: ['a'] }],
    ],
  ],
  [
    'messages',
    [
      [{ role: 'tool', content: 'a' }],
      [{ ...USER, tool_calls: [CALL] }],
      [{ role: 'assistant' }],
      [{ ...USER, name: 5 }],
    ],
  ],
  [
    'messages',
    [
      [{ role: 'assistant', tool_calls: [{}] }],
      [{ role: 'assistant', tool_calls: [{ ...CALL, function: { name: 'f', arguments: {} } }] }],
      [{ role: 'assistant', tool_calls: [{ ...CALL, function: { name: 'f', arguments: ['{}'] } }] }],
    ],
  ],
  [
    'tools',
    [
      'a',
      [1],
      [{}],
      [{ type: 'code_interpreter' }],
      [{ type: 'function' }],
      [{ type: 'function', function: { name: 'a b' } }],
      [{ type: 'function', function: { name: 'a', parameters: [] } }],
      Array(129).fill({ type: 'function', function: { name: 'a' } }),
    ],
  ],
  [
    'tools',
    [
      [
        { type: 'function', function: { name: 'a' } },
        { type: 'function', function: { name: 'a' } },
      ],
    ],
  ],
  ['tool_choice', ['maybe', 'required', { type: 'function' }, { type: 'function', function: { name: 'none' } }, 5, []]],
  ['functions', [[]]],
  [
    'response_format',
    [
      'json',
      {},
      { type: 'xml' },
      { type: 'json_schema' },
      { type: 'json_schema', json_schema: { name: 'a' } },
      { type: 'json_schema', json_schema: { name: 'a', schema: [] } },
    ],
  ],
  ['logprobs', [1, 'a']],
  ['top_logprobs', [1, 21, -1, 'a']],
  ['max_completion_tokens', [0, 'a', 1.5]],
  ['modalities', [['audio'], 'text']],
  ['audio', [{}]],
  ['parallel_tool_calls', ['a']],
  ['chat_template_kwargs', [[], 'a', { constructor: 1 }, { tools: [] }]],
  ['reasoning_effort', [5]],
  ['continue_final_message', ['a', true]],
].flatMap(([name, values]) => (values as unknown[]).map((value): [string, unknown] => [name as string, value]));

test.each(WRONG)('chats with %s as %j are refused', async (name, value) => {
  const error = await openai.chat.completions.create({ ...greedy, [name]: value } as never).catch((error) => error);
  expect(error).toMatchObject({ status: 400, type: 'invalid_request_error' });
  expect(error.message.length).toBeLessThan(500);
});

test.each([
  { input: 5 },
  { input: [] },
  { input: [{ type: 'item_reference', id: 'a' }] },
  { input: [{ role: 'tool', content: 'a' }] },
  { input: [{ type: 'function_call_output', output: 'a' }] },
  { input: [{ type: 'function_call', call_id: 'a', name: 'f', arguments: 5 }] },
  { tools: [{ type: 'web_search' }] },
  { tools: [{ type: 'function' }] },
  { tool_choice: { type: 'function', name: 'a' } },
  { text: { format: { type: 'json_schema', name: 'a' } } },
  { conversation: 'a' },
  { background: true },
  { max_output_tokens: 'a' },
  { reasoning: { effort: 5 } },
])('responses with %j are refused', async (parts) => {
  const error = await openai.responses.create({ model: 'chat', input: 'a', ...parts } as never).catch((error) => error);
  expect(error).toMatchObject({ status: 400, type: 'invalid_request_error' });
});

test.each(['{', '[]', '5', '"{}"', ''])('a call in a history whose arguments are %j is taken', async (written) => {
  const calls = [{ ...CALL, function: { name: 'f', arguments: written } }];
  const messages = [
    { role: 'user', content: 'a' },
    { role: 'assistant', tool_calls: calls },
    { role: 'tool', tool_call_id: '1', content: 'b' },
  ];
  const chat = await openai.chat.completions.create({ ...greedy, messages, max_tokens: 1 } as never);
  expect(chat).toMatchObject({ object: 'chat.completion' });
  const input = [
    { type: 'function_call', call_id: 'a', name: 'f', arguments: written },
    { type: 'function_call_output', call_id: 'a', output: 'b' },
  ];
  const response = await openai.responses.create({ model: 'chat', input, max_output_tokens: 1 } as never);
  expect(response).toMatchObject({ object: 'response' });
});

test('nothing is left of all this', async () => {
  await until(() => server.stats.requests === 0);
  expect(server.stats).toMatchObject({ running: 0, waiting: 0 });
});
