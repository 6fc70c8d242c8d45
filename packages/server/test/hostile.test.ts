// What a server is sent by programs that are broken or mean it harm: each gets a clear answer, and the next request works.
import { afterAll, describe, expect, test } from 'vitest';
import { createServer, type LogEntry } from '../src';
import { type Answer, TINY, testServer, tiny } from './support';

const log: LogEntry[] = [];
const { server, post, ask } = testServer({ models: tiny, maxBodyBytes: 100_000, onLog: (entry) => log.push(entry) });
afterAll(() => server.close());

// biome-ignore lint/suspicious/noExplicitAny: an error's body
const errorOf = async (response: Answer): Promise<any> => {
  const { error } = await response.json();
  expect(Object.keys(error).sort()).toEqual(['code', 'message', 'param', 'type']);
  expect(error.message).toMatch(/\.$/);
  expect(response.headers.get('x-request-id')).toBeTruthy();
  expect(response.headers.get('x-should-retry')).toBe(String(response.headers.has('retry-after')));
  return error;
};
const complete = (parts: object, headers = {}) =>
  post('/v1/completions', { model: 'tiny', prompt: 'a', max_tokens: 1, ...parts }, headers);
afterAll(async () => expect((await complete({})).status).toBe(200));

test('the content of a message that is neither text nor parts', async () => {
  for (const content of [5, true, { type: 'text', text: 'a' }]) {
    const response = await post('/v1/chat/completions', { model: 'tiny', messages: [{ role: 'user', content }] });
    expect(response.status).toBe(400);
    const { message, param } = await errorOf(response);
    expect(param).toBe('messages[0].content');
    expect(message).toMatch(/give a text, or a list of parts/);
  }
});

describe('bodies', () => {
  const nested = `{"prompt":${'['.repeat(60_000)}${']'.repeat(60_000)}}`;
  test.each([
    ['nothing', '', 400],
    ['half of it', '{"prompt": "a', 400],
    ['two of them', '{}{}', 400],
    ['a list', '[]', 400],
    ['null', 'null', 400],
    ['a number', '1e999', 400],
    ['too deep', nested.slice(0, 90_000), 400],
    ['too long', JSON.stringify({ prompt: 'a'.repeat(200_000) }), 413],
  ])('%s', async (_, body, status) => {
    const response = await post('/v1/completions', body);
    expect(response.status).toBe(status);
    expect((await errorOf(response)).message).not.toMatch(/prompt/);
  });

  test('a compressed one', async () => {
    const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
    const response = await ask('/v1/completions', { method: 'POST', headers, body: '{"prompt": "a"}' });
    expect(response.status).toBe(415);
    expect((await errorOf(response)).message).toMatch('content-encoding');
  });

  test('bytes that are no UTF-8', async () => {
    const body = new Uint8Array([0x7b, 0xff, 0xfe, 0x7d]);
    const response = await ask('/v1/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    expect(response.status).toBe(400);
    expect((await errorOf(response)).message).toMatch('UTF-8');
  });

  test('more than content-length says, without an end', async () => {
    let sent = 0;
    const body = new ReadableStream({
      pull: (controller) => {
        sent += 10_000;
        controller.enqueue(new Uint8Array(10_000).fill(32));
      },
    });
    const response = await ask('/v1/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    expect(response.status).toBe(413);
    expect(sent).toBeLessThan(300_000);
  });

  test('one that never arrives', async () => {
    const slow = testServer({ models: tiny, bodyTimeoutMs: 50 });
    const body = new ReadableStream({ start: (controller) => controller.enqueue(new Uint8Array([0x7b])) });
    const response = await slow.ask('/v1/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
    expect(response.status).toBe(408);
    await errorOf(response);
    await slow.server.close();
  });

  test.each(['text/plain', 'application/x-www-form-urlencoded', ''])(
    'as "%s", which pages may send anywhere',
    async (type) => {
      const response = await post('/v1/completions', { prompt: 'a' }, { 'content-type': type });
      expect(response.status).toBe(415);
      await errorOf(response);
    },
  );
});

/** Names of the engine's own: functions, and options as no request spells them. */
const INTERNAL = /^[a-z]+: |\b[a-z]+[A-Z]/;

describe('fields', () => {
  const WRONG: [string, unknown[]][] = [
    ['model', [1, [], {}, true, 'other', 'x'.repeat(1000), '../../etc/passwd', '__proto__', 'constructor']],
    ['prompt', [1, {}, true, [], [[]], ['a', 1], [1.5], [-1], [1e9], [1, 'a'], Array(33).fill('a')]],
    ['max_tokens', [0, -1, 1.5, 'a', '5', [], {}, true, 1e12]],
    ['n', [0, -1, 1.5, 33, 1e6, '1', []]],
    ['best_of', [2, 0, 'a']],
    ['temperature', [-1, 101, 'hot', [], {}, true]],
    ['top_p', [-0.1, 1.1, 'a']],
    ['top_k', [-2, 1.5, 'a']],
    ['min_p', [-1, 2, '0']],
    ['typical_p', [-1, 2]],
    ['repetition_penalty', [0, -1, 'a']],
    ['frequency_penalty', [-2.1, 2.1, 'a']],
    ['presence_penalty', [-2.1, 2.1, []]],
    ['seed', [1.5, 1e300, 'a', {}]],
    ['stop', ['', [''], [1], {}, 5, Array(17).fill('a'), 'x'.repeat(513)]],
    ['logprobs', [-1, 21, 1.5, true, 'a']],
    ['logit_bias', [[], 'a', { a: 1 }, { 1: 'x' }, { 1: 101 }, { '-1': 1 }, { 1e6: 1 }, { 99999999999: 1 }]],
    ['echo', ['a', 1]],
    ['stream', ['a', 1, {}]],
    ['stream_options', [[], 'a', { include_usage: true }]],
    ['suffix', ['a']],
    ['ignore_eos', [1]],
  ];
  test.each(
    WRONG.flatMap(([name, values]) =>
      values.map((value) => [name, JSON.stringify(value).slice(0, 40), value] as const),
    ),
  )('%s as %s', async (name, _, value) => {
    const response = await complete({ [name]: value });
    expect([400, 404]).toContain(response.status);
    const { message, param, type } = await errorOf(response);
    expect(type).toBe('invalid_request_error');
    expect(param?.startsWith(name), `${param}: ${message}`).toBe(true);
    expect(message.length).toBeLessThan(300);
    expect(message).not.toMatch(INTERNAL);
  });

  test('null is as good as nothing', async () => {
    const nothing = Object.fromEntries(WRONG.filter(([name]) => name !== 'prompt').map(([name]) => [name, null]));
    expect((await complete({ ...nothing, max_tokens: 1 })).status).toBe(200);
  });

  test('a prompt that is longer than the context', async () => {
    const response = await complete({ prompt: 'word '.repeat(1000) });
    expect(response.status).toBe(400);
    const error = await errorOf(response);
    expect(error).toMatchObject({ code: 'context_length_exceeded', param: 'prompt' });
    expect(error.message).toMatch(/has \d+ tokens .*; shorten it\.$/);
  });
});

describe('routes and methods', () => {
  test.each([
    ['/nothing', 'GET', 404],
    ['/v1/models/a/b/../c', 'GET', 404],
    ['/page/../package.json', 'GET', 404],
    ['/page/%2e%2e/package.json', 'GET', 404],
    ['/v1/completions', 'GET', 405],
    ['/v1/models', 'POST', 405],
    ['/health', 'DELETE', 405],
  ])('%s by %s', async (path, method, status) => {
    const response = await ask(path, { method });
    expect(response.status).toBe(status);
    await errorOf(response);
  });
});

describe('who may ask', () => {
  test.each([
    'evil.example',
    'evil.example:8080',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '192.168.0.7',
    '[::2]',
    'localhost@evil.example',
  ])('the host name %s is not ours', async (host) => {
    for (const path of ['/v1/models', '/', '/health']) {
      const response = await ask(path, { headers: { host } });
      expect(response.status).toBe(403);
      await errorOf(response);
    }
  });
  test.each(['localhost', 'LOCALHOST:8080', '127.0.0.1:1', '127.8.9.1', '[::1]:80', 'candle.localhost'])(
    'the host name %s is',
    async (host) => {
      expect((await ask('/v1/models', { headers: { host } })).status).toBe(200);
    },
  );

  test.each<['network' | string[], string, number]>([
    ['network', 'evil.example', 403],
    ['network', 'evil.localhost.example', 403],
    ['network', '10.0.0.5', 200],
    ['network', '[fd00::5]:8080', 200],
    ['network', 'candle:8080', 200],
    ['network', 'candle.default.svc.cluster.local', 200],
    ['network', 'localhost', 200],
    [['Models.example'], 'models.example', 200],
    [['Models.example'], 'evil.example', 403],
    [['Models.example'], 'candle', 403],
    // Probes and proxies of the machine and the cluster.
    [['Models.example'], '127.0.0.1:8080', 200],
    [['Models.example'], '10.0.0.5', 200],
  ])('with allowedHosts %j, the host name %s gets %i', async (allowedHosts, host, status) => {
    const own = testServer({ models: tiny, allowedHosts });
    expect((await own.ask('/health', { headers: { host } })).status).toBe(status);
    await own.server.close();
  });

  test('pages of other origins get no answer, and no permission', async () => {
    const headers = { origin: 'https://evil.example', host: 'localhost:80' };
    for (const response of [
      await ask('/v1/models', { headers }),
      await ask('/v1/models', { method: 'OPTIONS', headers }),
    ]) {
      expect(response.status).toBe(403);
      expect([...response.headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
    }
    expect((await ask('/v1/models', { headers: { origin: 'null', host: 'localhost' } })).status).toBe(403);
    expect((await ask('/v1/models', { headers: { origin: 'http://localhost:80', host: 'localhost' } })).status).toBe(
      200,
    );
  });

  test('named origins do', async () => {
    const open = testServer({ models: tiny, cors: ['https://app.example'] });
    const headers = { origin: 'https://app.example' };
    const before = await open.ask('/v1/completions', { method: 'OPTIONS', headers });
    expect([before.status, before.headers.get('access-control-allow-origin')]).toEqual([204, 'https://app.example']);
    expect(before.headers.get('access-control-allow-headers')).toMatch('authorization');
    const after = await open.post('/v1/completions', {}, headers);
    expect([after.status, after.headers.get('access-control-allow-origin')]).toEqual([400, 'https://app.example']);
    expect((await open.ask('/v1/models', { headers: { origin: 'https://evil.example' } })).status).toBe(403);
    await open.server.close();
  });

  test('keys: only the right one, on every route but health and the page', async () => {
    const locked = testServer({ models: tiny, apiKey: ['first', 'second'] });
    for (const path of ['/v1/models', '/v1/models/tiny', '/metrics']) {
      for (const authorization of [
        '',
        'Bearer',
        'Bearer ',
        'Bearer wrong',
        'Basic first',
        'Bearer firs',
        'Bearer first second',
        `Bearer ${'x'.repeat(5000)}`,
      ]) {
        const response = await locked.ask(path, { headers: { authorization } });
        expect(response.status).toBe(401);
        expect((await errorOf(response)).code).toBe('invalid_api_key');
      }
      expect((await locked.ask(path, { headers: { authorization: 'Bearer second' } })).status).toBe(200);
      expect((await locked.ask(path, { headers: { 'x-api-key': 'first' } })).status).toBe(200);
    }
    expect((await locked.post('/v1/completions', '{"prompt": "a"}')).status).toBe(401);
    expect((await locked.ask('/health')).status).toBe(200);
    expect((await locked.ask('/')).status).toBe(200);
    await locked.server.close();
  });

  test('a key with a space in it', async () => {
    const locked = testServer({ models: tiny, apiKey: 'my key' });
    for (const [authorization, status] of [
      ['Bearer my key', 200],
      ['Bearer my  key', 401],
      ['Bearer my', 401],
    ] as const)
      expect((await locked.ask('/v1/models', { headers: { authorization } })).status).toBe(status);
    const authorization = `Bearer ${' '.repeat(15_000)}\xa0`;
    expect((await locked.ask('/v1/models', { headers: { authorization } })).status).toBe(401);
    await locked.server.close();
  });

  test('headers as large as books', async () => {
    const response = await ask('/v1/models', { headers: { 'x-long': 'a'.repeat(20_000) } });
    expect(response.status).toBe(431);
    await errorOf(response);
  });

  test('ids that a client chooses come back only where they are plain', async () => {
    expect((await ask('/health', { headers: { 'x-request-id': 'my-id.1' } })).headers.get('x-request-id')).toBe(
      'my-id.1',
    );
    for (const id of ['a b', 'x'.repeat(65), '<b>'])
      expect((await ask('/health', { headers: { 'x-request-id': id } })).headers.get('x-request-id')).toMatch(/^req_/);
  });
});

test('a model that cannot be loaded: its path stays in the log', async () => {
  const entries: LogEntry[] = [];
  const broken = testServer({
    models: { broken: new URL(import.meta.url).pathname },
    onLog: (entry) => entries.push(entry),
  });
  const response = await broken.post('/v1/completions', { prompt: 'a' });
  expect(response.status).toBe(500);
  const error = await errorOf(response);
  expect(error).toMatchObject({ code: 'model_load_failed', message: expect.stringMatching('"broken"') });
  expect(error.message).not.toMatch(/[/\\]/);
  expect(String((entries.find(({ error }) => error)!.error as Error).message)).toMatch('hostile.test.ts');
  expect(broken.server.stats).toMatchObject({ requests: 0, running: 0, models: [{ state: 'unloaded' }] });
  await broken.server.close();
});

test('functions of the caller that throw become errors, not rejections', async () => {
  const fail = () => {
    throw new Error('of the caller');
  };
  const made = testServer({ models: tiny, clientOf: fail, onLog: fail });
  const response = await made.ask('/v1/models');
  expect(response.status).toBe(500);
  await errorOf(response);
  await made.server.close();
});

test('nothing that was sent or answered is in the log, and no path in any figure', async () => {
  log.length = 0;
  await complete({ prompt: 'my secret prompt' });
  await complete({ prompt: 'my secret prompt', max_tokens: 'my secret' });
  expect(log.map(({ status }) => status)).toEqual([200, 400]);
  expect(JSON.stringify(log)).not.toMatch('secret');
  expect(await (await ask('/metrics')).text()).not.toMatch(/models\/tiny|secret/);
});

describe('servers that cannot be made', () => {
  test.each([
    [{}, 'no models'],
    [{ models: {} }, 'no models'],
    [{ models: [] }, 'no models'],
    [{ models: 'a.gguf' }, 'models'],
    [{ models: ['nowhere/a.gguf'] }, 'no such file'],
    [{ models: { a: {} } }, 'no path'],
    [{ models: { a: null } }, 'no path'],
    [{ models: { '': TINY } }, 'called'],
    [{ models: [TINY, TINY] }, 'Two models'],
    [{ models: [TINY], maxModelBytes: 1000 }, 'maxModelBytes'],
    [{ models: [TINY], apiKey: '' }, 'apiKey'],
    [{ models: [TINY], apiKey: [] }, 'apiKey'],
    [{ models: [TINY], maxSequences: 0 }, 'maxSequences'],
    [{ models: [TINY], maxSequences: Number.NaN }, 'maxSequences'],
    [{ models: [TINY], waitTimeoutMs: 2 ** 40 }, 'waitTimeoutMs'],
    [{ models: [TINY], maxSequence: 1 }, 'maxSequence'],
  ])('%j', (options, message) => {
    expect(() => createServer(options as never)).toThrow(
      expect.objectContaining({ code: expect.stringMatching(/^[A-Z_]+$/), message: expect.stringMatching(message) }),
    );
  });
});
