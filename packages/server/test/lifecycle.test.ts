// Requests that begin, wait, are left, stand still, time out, and the end of the server, at every stage.
import { loadModel } from '@x/engine';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createServer } from '../src';
import { events, MODEL, ON_CPU, TINY, testServer, tiny, until } from './support';

let model: Awaited<ReturnType<typeof loadModel>>;
beforeAll(async () => {
  model = await loadModel(MODEL, ON_CPU);
});
afterAll(() => model.dispose());
/** A text that takes a while, and does not end by itself. */
const long = { prompt: 'Once upon a time', max_tokens: 480, ignore_eos: true, temperature: 0 };

function slowServer(options = {}) {
  const made = testServer({ models: { tales: model }, ...options });
  const settled = () => until(() => made.server.stats.requests === 0 && made.server.stats.running === 0);
  return { ...made, settled };
}

describe('a client that leaves', () => {
  test.each(['before it has a slot', 'while it computes', 'with a body that is not read'])('%s', async (stage) => {
    const { server, post, settled } = slowServer({ maxSequences: 1 });
    const controller = new AbortController();
    const first = post(
      '/v1/completions',
      { ...long, stream: stage === 'with a body that is not read' },
      {},
      controller.signal,
    );
    await until(() => server.stats.running === 1);
    const next = new AbortController();
    const waiting = post('/v1/completions', long, {}, next.signal);
    await until(() => server.stats.waiting === 1);
    if (stage === 'before it has a slot') {
      next.abort();
      await until(() => server.stats.waiting === 0);
      expect(server.stats.running).toBe(1);
      expect((await waiting).status).toBe(499);
    }
    const response = stage === 'with a body that is not read' ? await first : undefined;
    const begun = performance.now();
    if (response) await response.body!.cancel();
    controller.abort();
    await until(() => server.stats.waiting === 0);
    // A step of this model takes some milliseconds.
    expect(performance.now() - begun).toBeLessThan(1000);
    next.abort();
    await settled();
    await first;
    await waiting;
    await server.close();
  });

  test('in the middle of a stream, of which one of several choices is left', async () => {
    const { server, post, settled } = slowServer();
    const response = await post('/v1/completions', { ...long, stream: true, n: 3, temperature: 1 });
    const reader = response.body!.getReader();
    await reader.read();
    expect(server.stats.running).toBe(3);
    await reader.cancel();
    await settled();
    await server.close();
  });
});

test('a reader that stands still stops its own sequence, and is cut in time', async () => {
  const { server, post } = testServer({ models: tiny, stallTimeoutMs: 100 });
  const response = await post('/v1/completions', { ...long, max_tokens: 200, stream: true, logprobs: 20 });
  await until(() => server.stats.running === 0);
  const text = await response.text();
  expect(text.length).toBeLessThan(100_000);
  expect(text.trimEnd().split('\n').at(-1)).toMatch(/^data: \{"error":.*"reader_stalled"/);
  await server.close();
});

test('a full server says so at once, with a time to come again, and is not stuck', async () => {
  const { server, post, settled } = slowServer({ maxSequences: 1, maxWaiting: 1 });
  const controller = new AbortController();
  const held = [1, 2].map(() => post('/v1/completions', long, {}, controller.signal));
  await until(() => server.stats.waiting === 1);
  const refused = await post('/v1/completions', { ...long, stream: true });
  expect(refused.status).toBe(429);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(await refused.json()).toMatchObject({ error: { code: 'server_full', type: 'rate_limit_error' } });
  controller.abort();
  await Promise.all(held);
  await settled();
  expect((await post('/v1/completions', { ...long, max_tokens: 2 })).status).toBe(200);
  await server.close();
});

test('one client has no more than its share', async () => {
  const { server, post } = slowServer({
    maxPerClient: 2,
    clientOf: (request: Request) => request.headers.get('x-who') ?? '',
  });
  const controller = new AbortController();
  const held = post('/v1/completions', { ...long, n: 2, temperature: 1 }, { 'x-who': 'a' }, controller.signal);
  await until(() => server.stats.running === 2);
  expect((await post('/v1/completions', long, { 'x-who': 'a' })).status).toBe(429);
  expect((await post('/v1/completions', { ...long, max_tokens: 1 }, { 'x-who': 'b' })).status).toBe(200);
  controller.abort();
  await held;
  await server.close();
});

describe('time limits', () => {
  test('of a whole answer', async () => {
    const { server, post, settled } = slowServer({ requestTimeoutMs: 100 });
    const response = await post('/v1/completions', long);
    expect(response.status).toBe(504);
    expect(response.headers.get('x-should-retry')).toBe('false');
    const streamed = await events(await post('/v1/completions', { ...long, stream: true }));
    expect(streamed.at(-1)).toMatchObject({ error: { code: 'timeout', type: 'server_error' } });
    await settled();
    await server.close();
  });

  test('of waiting', async () => {
    const { server, post, settled } = slowServer({ maxSequences: 1, waitTimeoutMs: 50 });
    const controller = new AbortController();
    const held = post('/v1/completions', long, {}, controller.signal);
    await until(() => server.stats.running === 1);
    const late = await post('/v1/completions', { ...long, stream: true });
    expect([late.status, late.headers.get('x-should-retry')]).toEqual([503, 'true']);
    controller.abort();
    await held;
    await settled();
    await server.close();
  });
});

describe('closing', () => {
  test('lets what runs end, and refuses what comes', async () => {
    const { server, post, ask } = slowServer();
    const running = post('/v1/completions', { ...long, max_tokens: 20 });
    await until(() => server.stats.running === 1);
    const closed = server.close();
    const refused = await post('/v1/completions', long);
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '5']);
    expect((await ask('/health')).status).toBe(503);
    const answer = await running;
    expect(answer.status).toBe(200);
    expect((await answer.json()).usage.completion_tokens).toBe(20);
    await closed;
    await server.close();
  });

  test('cuts what takes too long', async () => {
    const { server, post } = slowServer();
    const streamed = post('/v1/completions', { ...long, stream: true }).then(events);
    const whole = post('/v1/completions', long);
    await until(() => server.stats.running === 2);
    const begun = performance.now();
    await server.close({ timeoutMs: 50 });
    expect(performance.now() - begun).toBeLessThan(2000);
    expect((await whole).status).toBe(503);
    expect((await streamed).at(-1)).toMatchObject({ error: { code: 'server_unavailable' } });
    // A model of the caller's stays.
    expect(await model.generate('Once', { maxTokens: 1 }).text()).not.toBe('');
  });

  test('while a model is loading', async () => {
    const { server, post } = testServer({ models: { tales: { path: MODEL, options: ON_CPU } } });
    const asked = post('/v1/completions', long);
    await until(() => server.stats.models[0].state === 'loading');
    await server.close({ timeoutMs: 0 });
    expect((await asked).status).toBe(503);
    expect(server.stats.models[0].state).toBe('unloaded');
  });
});

describe('several models', () => {
  const both = {
    models: { one: { path: TINY, options: ON_CPU }, two: { path: TINY, options: ON_CPU } },
    maxModelBytes: 500_000,
  };
  const short = { prompt: 'a', max_tokens: 2, ignore_eos: true };

  test('the least recently used goes where there is room for one', async () => {
    const { server, post } = testServer(both);
    const states = () => server.stats.models.map(({ state }) => state);
    expect((await post('/v1/completions', { ...short, model: 'one' })).status).toBe(200);
    expect(states()).toEqual(['loaded', 'unloaded']);
    expect((await post('/v1/completions', { ...short, model: 'two' })).status).toBe(200);
    expect(states()).toEqual(['unloaded', 'loaded']);
    // Those who come together take turns, and all get their answer.
    const names = ['one', 'two', 'one', 'two', 'two', 'one'];
    const answers = await Promise.all(names.map((name) => post('/v1/completions', { ...short, model: name })));
    expect(answers.map(({ status }) => status)).toEqual(names.map(() => 200));
    expect(await Promise.all(answers.map(async (answer) => (await answer.json()).model))).toEqual(names);
    await server.close();
    expect(states()).toEqual(['unloaded', 'unloaded']);
  });

  test('a request without a name is told to give one', async () => {
    const { server, post } = testServer(both);
    const answer = await post('/v1/completions', short);
    expect(answer.status).toBe(400);
    expect((await answer.json()).error).toMatchObject({ param: 'model', code: 'missing_required_parameter' });
    await server.close();
  });

  test('a client that leaves while its model waits for room holds nobody up', async () => {
    const { server, post } = testServer({
      ...both,
      models: { ...both.models, three: { path: TINY, options: ON_CPU } },
    });
    const busy = await post('/v1/completions', { ...short, model: 'one', stream: true, max_tokens: 200, logprobs: 20 });
    const controller = new AbortController();
    const left = post('/v1/completions', { ...short, model: 'two' }, {}, controller.signal);
    const next = post('/v1/completions', { ...short, model: 'three' });
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(server.stats.models.map(({ state }) => state)).toEqual(['loaded', 'unloaded', 'unloaded']);
    controller.abort();
    expect((await left).status).toBe(499);
    await busy.body!.cancel();
    expect((await next).status).toBe(200);
    await server.close();
  });

  test('what nobody asks for is unloaded after its time', async () => {
    const { server, post } = testServer({ models: tiny, unloadAfterMs: 30 });
    await post('/v1/completions', short);
    expect(server.stats.models[0].state).toBe('loaded');
    await until(() => server.stats.models[0].state === 'unloaded');
    expect((await post('/v1/completions', short)).status).toBe(200);
    await server.close();
  });

  test('the names of files are names without their endings', async () => {
    const server = createServer({ models: [TINY, MODEL] });
    expect(server.stats.models.map(({ name }) => name)).toEqual(['model-f16', 'tiny-tales-q8_0']);
    await server.close();
  });
});
