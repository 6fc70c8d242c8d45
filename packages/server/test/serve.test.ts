// The server on a real port: sockets that are cut, bodies that are too large, ports in use, addresses that others reach.
import { get } from 'node:http';
import { connect } from 'node:net';
import { loadModel } from '@x/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RunningServer, serve } from '../src';
import { MODEL, ON_CPU, tiny, until } from './support';

let model: Awaited<ReturnType<typeof loadModel>>;
let server: RunningServer;
beforeAll(async () => {
  model = await loadModel(MODEL, ON_CPU);
  server = await serve({ models: { tales: model }, port: 0 });
});
afterAll(async () => {
  await server.close({ timeoutMs: 0 });
  model.dispose();
});
const long = { prompt: 'Once upon a time', max_tokens: 480, ignore_eos: true, temperature: 0 };
const idle = () => until(() => server.stats.requests === 0 && server.stats.running === 0);

/** Sends bytes as they are; what comes back until the end, or until `enough`. */
function raw(text: string, enough: (received: string) => boolean = () => false): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(server.port, '127.0.0.1', () => socket.write(text));
    let received = '';
    socket.setTimeout(5000, () => socket.destroy(new Error(`nothing more after: ${received}`)));
    socket.on('data', (data) => {
      received += data;
      if (enough(received)) socket.destroy();
    });
    socket.on('close', () => resolve(received));
    socket.on('error', (error: NodeJS.ErrnoException) =>
      error.code === 'ECONNRESET' || error.code === 'EPIPE' ? resolve(received) : reject(error),
    );
  });
}

const postRaw = (body: string, extra = '', length = Buffer.byteLength(body)) =>
  `POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n${extra}\r\n${body}`;

test('listens on loopback, and answers', async () => {
  expect(server.url).toBe(`http://127.0.0.1:${server.port}`);
  expect(await (await fetch(`${server.url}/health`)).json()).toEqual({ status: 'ok' });
});

test('the name of another host is refused', async () => {
  expect(await raw('GET /v1/models HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n')).toMatch(
    /^HTTP\/1.1 403 /,
  );
});

test('a probe of HTTP/1.0, which names no host, is answered', async () => {
  expect(await raw('GET /health HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1.1 200 /);
});

test('a body of 100 MB is refused before it is read', async () => {
  const begun = performance.now();
  const announced = await raw(postRaw('{', 'connection: close\r\n', 100_000_000), (text) =>
    text.includes('request_too_large'),
  );
  expect(announced).toMatch(/^HTTP\/1.1 413 /);
  const chunk = new Uint8Array(1_000_000).fill(32);
  let sent = 0;
  const body = new ReadableStream({
    pull(controller) {
      if (sent++ === 100) controller.close();
      else controller.enqueue(chunk);
    },
  });
  const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body, duplex: 'half' } as RequestInit;
  const status = await fetch(`${server.url}/v1/completions`, init).then(
    (response) => response.status,
    (error) => String(error.cause),
  );
  // Either the answer comes, or the connection is cut under what is still being sent.
  expect(String(status)).toMatch(/413|EPIPE|ECONNRESET|other side closed/);
  expect(sent).toBeLessThan(100);
  expect(performance.now() - begun).toBeLessThan(5000);
  await idle();
});

test('headers that never end are cut', async () => {
  expect(await raw(`GET / HTTP/1.1\r\nhost: localhost\r\nx: ${'a'.repeat(100_000)}`)).toMatch(/^HTTP\/1.1 431 |^$/);
});

const bodyOf = (answer: string) => JSON.parse(answer.slice(answer.indexOf('\r\n\r\n'))).error;

test('what is no request is told why, as any other', async () => {
  for (const [request, status, message] of [
    ['NONSENSE\r\n\r\n', 400, /no HTTP request/],
    ['GET / HTTP/1.1\r\nhost localhost\r\n\r\n', 400, /no HTTP request/],
    [postRaw('{}', 'transfer-encoding: chunked\r\n'), 400, /no HTTP request/],
    [`GET / HTTP/1.1\r\nhost: localhost\r\nx: ${'a'.repeat(100_000)}\r\n\r\n`, 431, /16384 bytes/],
    ['OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n', 400, /names no resource/],
    ['GET / HTTP/1.1\r\nhost: a b\r\nconnection: close\r\n\r\n', 400, /names no resource/],
  ] as const) {
    const answer = await raw(request);
    expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(bodyOf(answer)).toMatchObject({ message: expect.stringMatching(message), type: 'invalid_request_error' });
  }
  await idle();
});

test('what is no request behind one whose answer is under way cuts the answer, and is not put into it', async () => {
  const answer = await new Promise<string>((resolve) => {
    let received = '';
    const request = postRaw(JSON.stringify({ ...long, stream: true }));
    const socket = connect(server.port, '127.0.0.1', () => socket.write(request));
    socket.setEncoding('utf8').on('data', (text) => {
      if (received === '') socket.write('NONSENSE\r\n\r\n');
      received += text;
    });
    socket.on('error', () => {}).on('close', () => resolve(received));
  });
  expect(answer).toMatch(/^HTTP\/1.1 200 /);
  expect(answer).not.toContain('HTTP/1.1 400');
  expect(answer).not.toContain('[DONE]');
  await idle();
});

test.each([
  ['in the body', postRaw('{"prompt":', '', 1000), () => true],
  ['before the answer', postRaw(JSON.stringify(long)), () => true],
  ['in the stream', postRaw(JSON.stringify({ ...long, stream: true })), undefined],
])('a connection that is cut %s gives everything back', async (_, request, atOnce) => {
  if (atOnce) {
    const socket = connect(server.port, '127.0.0.1', () => socket.write(request));
    await until(() => server.stats.requests === 1);
    if (_ === 'before the answer') await until(() => server.stats.running === 1);
    socket.destroy();
  } else await raw(request, (received) => received.includes('data:'));
  await idle();
  expect(model.cacheStats.usedBlocks).toBeLessThan(20);
});

test('a port in use, addresses that are none, and open addresses without a key', async () => {
  const { port } = server;
  await expect(serve({ models: tiny, port })).rejects.toMatchObject({
    code: 'PORT_IN_USE',
    message: expect.stringMatching(`port ${port}`),
  });
  await expect(serve({ models: tiny, port: 0, host: '203.0.113.1', apiKey: 'a' })).rejects.toMatchObject({
    code: 'CANNOT_LISTEN',
  });
  await expect(serve({ models: tiny, port: 70_000 })).rejects.toMatchObject({ code: 'INVALID_OPTION' });
  for (const host of ['0.0.0.0', '::', '192.168.0.1', 'example.com'])
    await expect(serve({ models: tiny, port: 0, host })).rejects.toMatchObject({
      code: 'INVALID_OPTION',
      message: expect.stringMatching('apiKey'),
    });
});

test('an open address with a key answers to any name, and asks for the key', async () => {
  const open = await serve({ models: tiny, port: 0, host: '0.0.0.0', apiKey: 'secret' });
  const ask = (headers: Record<string, string>) => fetch(`http://127.0.0.1:${open.port}/v1/models`, { headers });
  expect((await ask({})).status).toBe(401);
  expect((await ask({ authorization: 'Bearer secret' })).status).toBe(200);
  await open.close();
  await expect(ask({})).rejects.toThrow();
});

test('an open address without a key answers to addresses and names of its network', async () => {
  const open = await serve({ models: tiny, port: 0, host: '0.0.0.0', allowOpenNetwork: true });
  const status = (host: string) =>
    new Promise((resolve, reject) => {
      const options = { port: open.port, path: '/health', headers: { host } };
      get(options, (response) => resolve(response.resume().statusCode)).on('error', reject);
    });
  expect(await Promise.all(['evil.example', '10.0.0.5', 'candle'].map(status))).toEqual([403, 200, 200]);
  await open.close();
});

test('closing lets a stream end and drops idle connections', async () => {
  const other = await serve({ models: { tales: model }, port: 0 });
  const response = await fetch(`${other.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...long, max_tokens: 20, stream: true }),
  });
  const [text] = await Promise.all([response.text(), other.close()]);
  expect(text).toMatch(/data: \[DONE\]\n\n$/);
  await other.close();
});
