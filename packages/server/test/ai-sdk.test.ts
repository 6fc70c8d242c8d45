// The AI SDK over models of this process: with answers that a test writes, and with models of this repository.
import { fileURLToPath } from 'node:url';
import { loadEmbeddingModel, loadModel } from '@x/engine';
import { embeddingModel, languageModel } from '@x/server/ai-sdk';
import { embedMany, generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { callPieces, type Script, type ScriptedModel, scriptedModel } from './scripted';
import { ON_CPU, TINY } from './support';

const at = (path: string) => fileURLToPath(new URL(`../../../models/${path}`, import.meta.url));
let scripts: Script[] = [];
let scripted: ScriptedModel;
beforeEach(async () => {
  scripted = await scriptedModel(at('tiny/llama/tokenizer.json'), () => scripts.shift()!);
});
const text: Script = { pieces: ['Good ', 'morning', '!'].map((part) => ({ type: 'text', text: part })) };
const thinking: Script = { pieces: [{ type: 'reasoning', text: 'Be brief.' }, ...text.pieces] };
const calls: Script = {
  pieces: [
    { type: 'text', text: 'Let me look.' },
    ...callPieces(0, 'a', 'weather', { city: 'Oslo' }),
    ...callPieces(1, 'b', 'weather', { city: 'Rome' }),
  ],
};
const weather = tool({ inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => `${city}: rain` });

test('text and reasoning, whole and in a stream', async () => {
  scripts = [thinking, thinking];
  const model = languageModel(scripted.model, { modelId: 'mine' });
  const asked = {
    model,
    system: 'Be kind.',
    prompt: 'Hello',
    temperature: 0.5,
    maxOutputTokens: 9,
    stopSequences: ['x'],
    seed: 4,
  };
  const whole = await generateText({ ...asked, providerOptions: { candle: { minP: 0.1 } } });
  expect([whole.text, whole.reasoningText, whole.finishReason]).toEqual(['Good morning!', 'Be brief.', 'stop']);
  expect(whole.usage).toMatchObject({ inputTokens: 3, outputTokens: 4, totalTokens: 7 });
  expect(scripted.asked[0]).toMatchObject({
    messages: [
      { role: 'system', content: 'Be kind.' },
      { role: 'user', content: 'Hello' },
    ],
    options: { temperature: 0.5, maxTokens: 9, stop: ['x'], seed: 4, minP: 0.1 },
  });
  const stream = streamText(asked);
  const types: string[] = [];
  for await (const part of stream.fullStream) types.push(part.type);
  const expected =
    'start start-step reasoning-start reasoning-delta reasoning-end text-start text-delta text-delta text-delta text-end finish-step finish';
  expect(types).toEqual(expected.split(' '));
  expect([await stream.text, await stream.reasoningText]).toEqual(['Good morning!', 'Be brief.']);
});

test.each(['whole', 'in a stream'])('tools, %s', async (way) => {
  scripts = [calls, text];
  const asked = { model: languageModel(scripted.model), prompt: 'Hello', tools: { weather }, stopWhen: stepCountIs(3) };
  const result = way === 'whole' ? await generateText(asked) : streamText(asked);
  if ('consumeStream' in result) await result.consumeStream();
  const [first] = await result.steps;
  expect([first.finishReason, first.toolResults.map(({ output }) => output)]).toEqual([
    'tool-calls',
    ['Oslo: rain', 'Rome: rain'],
  ]);
  expect(await result.text).toBe('Good morning!');
  expect(scripted.asked[1].messages.slice(1)).toMatchObject([
    { role: 'assistant', content: 'Let me look.', toolCalls: [{ id: 'a', arguments: { city: 'Oslo' } }, { id: 'b' }] },
    { role: 'tool', toolCallId: 'a', name: 'weather', content: 'Oslo: rain' },
    { role: 'tool', toolCallId: 'b' },
  ]);
});

test.each(['whole', 'in a stream'])('a call that breaks off is an invalid one, %s', async (way) => {
  const broken: Script = {
    pieces: [
      { type: 'tool-call-start', index: 0, id: 'a', name: 'weather' },
      { type: 'tool-call-arguments', index: 0, text: '{"ci' },
      { type: 'text', text: '<tool_call>{"name": "weather", "arguments": {"ci', ofCall: 0 },
    ],
    finishReason: 'length',
  };
  scripts = [broken, text];
  const asked = { model: languageModel(scripted.model), prompt: 'Hello', tools: { weather }, stopWhen: stepCountIs(2) };
  const result = way === 'whole' ? await generateText(asked) : streamText({ ...asked, onError: () => {} });
  if ('consumeStream' in result) await result.consumeStream();
  const [first] = await result.steps;
  expect([first.text, first.finishReason]).toEqual(['', 'length']);
  expect(first.toolCalls).toMatchObject([{ toolCallId: 'a', toolName: 'weather', input: '{"ci', invalid: true }]);
  expect(await result.text).toBe('Good morning!');
  expect(scripted.asked[1].messages.slice(1)).toMatchObject([
    { toolCalls: [{ id: 'a', name: 'weather', arguments: {} }] },
    { role: 'tool', toolCallId: 'a', content: expect.stringContaining('Invalid input for tool weather') },
  ]);
});

test('what other providers left in a history is taken, and options as HTTP takes them', async () => {
  scripts = [text];
  const call = { type: 'tool-call', toolCallId: 'a', toolName: 'weather', input: '{bad' } as const;
  await languageModel(scripted.model).doGenerate({
    prompt: [
      { role: 'user', content: [{ type: 'text', text: 'Hello' }] },
      { role: 'assistant', content: [call] },
    ],
    topP: 0,
    seed: -5,
  });
  const { messages, options } = scripted.asked[0];
  expect(messages[1].toolCalls).toEqual([{ id: 'a', name: 'weather', arguments: { invalid_json: '{bad' } }]);
  expect(options).toMatchObject({ topP: Number.MIN_VALUE, seed: 2 ** 53 - 5 });
});

test('models of another kind are refused at once', () => {
  expect(() => languageModel({ embed: () => [] } as never)).toThrow(
    /languageModel: the model cannot generateChat; give what loadModel/,
  );
  expect(() => embeddingModel(undefined as never)).toThrow(
    /embeddingModel: the model cannot embed; give what loadEmbeddingModel/,
  );
});

test('tools of zod with a model of this repository: the calls meet their schemas, which providerOptions takes too', async () => {
  const chatTemplate = '{{ messages | length }}{{ tools | length }}<tool_call></tool_call>';
  const loaded = await loadModel(TINY, { ...ON_CPU, chatTemplate });
  const model = languageModel(loaded);
  const inputSchema = z.object({ city: z.enum(['Oslo', 'Rome']), days: z.int().min(1).max(9) });
  const asked = { model, prompt: 'x', toolChoice: 'required', maxOutputTokens: 200, temperature: 2, seed: 1 } as const;
  try {
    const tools = { weather: tool({ inputSchema, strict: true }) };
    const { toolCalls } = await generateText({ ...asked, tools });
    expect(toolCalls).toMatchObject([{ toolName: 'weather', input: inputSchema.parse(toolCalls[0].input) }]);
    const own = { tools: [{ name: 'own', parameters: inputSchema }], toolChoice: 'required' };
    const called = await model.doGenerate({
      prompt: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }],
      maxOutputTokens: 200,
      temperature: 2,
      // The type says JSON; in one process it may be anything.
      providerOptions: { candle: own as never },
    });
    expect(called.content).toMatchObject([{ type: 'tool-call', toolName: 'own' }]);
    const klingon = tool({
      inputSchema: jsonSchema({ type: 'object', properties: { a: { format: 'klingon' } } }),
      strict: true,
    });
    await expect(generateText({ ...asked, tools: { klingon }, toolChoice: 'auto', maxRetries: 0 })).rejects.toThrow(
      /klingon/,
    );
  } finally {
    loaded.dispose();
  }
});

test('failures, aborts, and what these models do not take', async () => {
  scripts = [
    { ...text, error: new Error('broken') },
    { ...text, error: new Error('broken') },
  ];
  const model = languageModel(scripted.model);
  await expect(generateText({ model, prompt: 'a', maxRetries: 0 })).rejects.toThrow('broken');
  const errors: unknown[] = [];
  await streamText({ model, prompt: 'a', onError: ({ error }) => void errors.push(error) }).consumeStream();
  expect(errors).toEqual([new Error('broken')]);
  scripts = [{ pieces: Array.from({ length: 1000 }, () => ({ type: 'text', text: 'x' })), delayMs: 2 }];
  const controller = new AbortController();
  const stream = streamText({ model, prompt: 'a', abortSignal: controller.signal });
  let seen = 0;
  for await (const _ of stream.textStream) if (++seen === 3) controller.abort();
  expect(seen).toBeLessThan(20);
  const image = { type: 'image' as const, image: new Uint8Array([137, 80, 78, 71]), mediaType: 'image/png' };
  const asked = generateText({ model, messages: [{ role: 'user', content: [image] }], maxRetries: 0 });
  await expect(asked).rejects.toMatchObject({ code: 'INVALID_OPTION', message: expect.stringMatching('text alone') });
});

test('a model of this repository: the engine’s text, and an object by a schema', async () => {
  using loaded = await loadModel(TINY, { ...ON_CPU, chatTemplate: 'chatml' });
  const model = languageModel(loaded);
  const { content } = await loaded.generateChat([{ role: 'user', content: 'Hello' }], { maxTokens: 12 }).message();
  expect((await generateText({ model, prompt: 'Hello', maxOutputTokens: 12 })).text).toBe(content);
  const schema = z.object({ name: z.enum(['fox', 'wolf']), legs: z.number().int().min(0).max(9) });
  const { object } = await generateObject({ model, schema, prompt: 'An animal.', temperature: 1, seed: 2 });
  expect(schema.parse(object)).toEqual(object);
});

test('vectors', async () => {
  const loaded = await loadEmbeddingModel(at('encoders/bert'), ON_CPU);
  const values = ['A fox ran.', 'The king slept.'];
  const { embeddings, usage } = await embedMany({ model: embeddingModel(loaded), values });
  expect(embeddings).toEqual((await loaded.embed(values)).map(({ vector }) => Array.from(vector)));
  expect(usage.tokens).toBeGreaterThan(4);
  await expect(
    embedMany({ model: embeddingModel(loaded), values: ['word '.repeat(3000)], maxRetries: 0 }),
  ).rejects.toMatchObject({ code: 'CONTEXT_EXCEEDED' });
  loaded.dispose();
});
