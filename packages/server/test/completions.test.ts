// Texts, tokens, log probabilities and streams of /v1/completions, against the engine's own.
import { loadModel, type Piece } from '@x/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { events, ON_CPU, TINY, testServer } from './support';

const { server, post, ask } = testServer({ models: { tales: { path: TINY, options: ON_CPU } } });
let model: Awaited<ReturnType<typeof loadModel>>;
beforeAll(async () => {
  model = await loadModel(TINY, ON_CPU);
});
afterAll(async () => {
  model.dispose();
  await server.close();
});
const greedy = { model: 'tales', prompt: 'Once upon a time', max_tokens: 12, temperature: 0 };

test('the text is what the engine generates', async () => {
  const response = await post('/v1/completions', greedy);
  expect(response.status).toBe(200);
  expect(response.headers.get('x-request-id')).toMatch(/^req_/);
  const body = await response.json();
  const expected = await model.generate('Once upon a time', { maxTokens: 12 }).text();
  const promptTokens = model.tokenizer.encode('Once upon a time').length;
  expect(body).toMatchObject({
    object: 'text_completion',
    model: 'tales',
    choices: [{ index: 0, text: expected, logprobs: null, finish_reason: 'length' }],
    usage: { prompt_tokens: promptTokens, completion_tokens: 12, total_tokens: promptTokens + 12 },
  });
});

test('a stream gives the same text in pieces, then usage and an end', async () => {
  const response = await post('/v1/completions', { ...greedy, stream: true, stream_options: { include_usage: true } });
  expect(response.headers.get('content-type')).toMatch('text/event-stream');
  const all = await events(response);
  expect(all.at(-1)).toBe('done');
  expect(all.at(-2)).toMatchObject({ choices: [], usage: { completion_tokens: 12 } });
  const chunks = all.slice(0, -2);
  expect(chunks.every(({ usage }) => usage === null)).toBe(true);
  const text = chunks.map(({ choices: [{ text }] }) => text).join('');
  expect(text).toBe(await model.generate('Once upon a time', { maxTokens: 12 }).text());
  expect(chunks.at(-1).choices[0].finish_reason).toBe('length');
});

test('several prompts and choices, each reproducible from the seed', async () => {
  const body = { ...greedy, prompt: ['The king', 'The wolf'], n: 2, temperature: 1, seed: 7, max_tokens: 6 };
  const first = await (await post('/v1/completions', body)).json();
  const again = await (await post('/v1/completions', body)).json();
  expect(first.choices).toEqual(again.choices);
  expect(first.choices.map(({ index }: { index: number }) => index)).toEqual([0, 1, 2, 3]);
  expect(new Set(first.choices.map(({ text }: { text: string }) => text)).size).toBe(4);
  const streamed = await events(await post('/v1/completions', { ...body, stream: true }));
  const texts = ['', '', '', ''];
  for (const { choices } of streamed.slice(0, -1)) for (const { index, text } of choices) texts[index] += text;
  expect(texts).toEqual(first.choices.map(({ text }: { text: string }) => text));
});

test('stop strings, echo, biases and token prompts', async () => {
  const whole = (await (await post('/v1/completions', { ...greedy, max_tokens: 24 })).json()).choices[0].text as string;
  const stop = whole.slice(8, 11);
  const stopped = (await (await post('/v1/completions', { ...greedy, max_tokens: 24, stop: [stop] })).json())
    .choices[0];
  expect(stopped).toMatchObject({ text: whole.slice(0, whole.indexOf(stop)), finish_reason: 'stop' });
  const echoed = (await (await post('/v1/completions', { ...greedy, echo: true })).json()).choices[0].text;
  expect(echoed.startsWith('Once upon a time')).toBe(true);
  const ids = model.tokenizer.encode('Once upon a time');
  const fromIds = (await (await post('/v1/completions', { ...greedy, prompt: ids })).json()).choices[0].text;
  expect(whole.startsWith(fromIds)).toBe(true);
  const biased = await post('/v1/completions', { ...greedy, logit_bias: { 300: 100 }, max_tokens: 2 });
  expect((await biased.json()).choices[0].text).toBe(
    model.tokenizer.decode([...ids, 300, 300]).slice('Once upon a time'.length),
  );
});

test('log probabilities of the chosen and the likeliest tokens', async () => {
  const { choices } = await (await post('/v1/completions', { ...greedy, logprobs: 3, max_tokens: 4 })).json();
  const [{ text, logprobs }] = choices;
  // Special tokens are told here, and are no part of the text.
  expect(logprobs.tokens.filter((token: string) => !token.startsWith('<|')).join('')).toBe(text);
  expect(logprobs.text_offset[0]).toBe(0);
  expect(logprobs.text_offset[1]).toBe(logprobs.tokens[0].length);
  const pieces: Piece[] = [];
  for await (const piece of model.generate('Once upon a time', { maxTokens: 4, topLogprobs: 3 })) pieces.push(piece);
  logprobs.token_logprobs.forEach((value: number, i: number) => {
    expect(value).toBeCloseTo(pieces[i].logprob!, 4);
    expect(Object.keys(logprobs.top_logprobs[i])).toHaveLength(3);
    expect(Math.max(...Object.values<number>(logprobs.top_logprobs[i]))).toBeCloseTo(value, 4);
  });
});

test('tokens of a text and back', async () => {
  const { tokens, count } = await (await post('/tokenize', { model: 'tales', prompt: 'A fox ran.' })).json();
  expect(tokens).toEqual(model.tokenizer.encode('A fox ran.'));
  expect(count).toBe(tokens.length);
  const plain = (await (await post('/tokenize', { content: 'A fox ran.', add_special_tokens: false })).json()).tokens;
  expect((await (await post('/detokenize', { tokens: plain })).json()).content).toBe('A fox ran.');
});

test('models, health and figures', async () => {
  expect(await (await ask('/v1/models')).json()).toMatchObject({
    object: 'list',
    data: [{ id: 'tales', object: 'model' }],
  });
  expect(await (await ask('/v1/models/tales')).json()).toMatchObject({ id: 'tales', owned_by: 'candle' });
  expect((await ask('/v1/models/other')).status).toBe(404);
  expect(await (await ask('/health')).json()).toEqual({ status: 'ok' });
  const text = await (await ask('/metrics')).text();
  expect(text).toMatch(/candle_generated_tokens_total\{model="tales"\} \d+/);
  expect(text).toMatch(/candle_requests_total\{route="\/v1\/completions",status="200"\} \d+/);
  expect(text).toMatch(/candle_first_token_seconds_count \d+/);
  for (const line of text.trimEnd().split('\n'))
    expect(line).toMatch(/^(# (HELP|TYPE) |[a-z_]+(\{.*\})? -?[\d.e+-]+$)/);
  expect(server.stats).toMatchObject({ requests: 0, running: 0, waiting: 0 });
});
