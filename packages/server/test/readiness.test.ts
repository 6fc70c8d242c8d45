// What balancers ask: whether requests should come here, before the models are there, while the server drains, and at its end.
import { writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { serve } from '../src';
import { ON_CPU, testServer, tiny, until } from './support';

test('not ready before the models are loaded, nor while it drains; alive all the time', async () => {
  const { server, ask, post } = testServer({ models: tiny, preload: true, apiKey: 'key' });
  const states = async () => Promise.all(['/ready', '/live', '/health'].map(async (path) => (await ask(path)).status));
  const loading = await ask('/ready');
  expect([loading.status, await loading.json()]).toEqual([503, { status: 'loading' }]);
  expect(await states()).toEqual([503, 200, 200]);
  await server.ready;
  expect(server.stats.models).toEqual([{ name: 'tiny', state: 'loaded' }]);
  expect(await states()).toEqual([200, 200, 200]);
  server.drain();
  expect(await (await ask('/ready')).json()).toEqual({ status: 'draining' });
  expect(await states()).toEqual([503, 200, 200]);
  // What comes is answered, on a connection that is not used again.
  const answer = await post('/v1/completions', { prompt: 'a', max_tokens: 1 }, { authorization: 'Bearer key' });
  expect([answer.status, answer.headers.get('connection')]).toEqual([200, 'close']);
  await server.close();
  expect(await (await ask('/ready')).json()).toEqual({ status: 'closing' });
  expect(await states()).toEqual([503, 200, 503]);
});

test('without preload it is ready at once, and loads with the first request', async () => {
  const { server, ask } = testServer({ models: tiny });
  expect((await ask('/ready')).status).toBe(200);
  expect(server.stats.models[0].state).toBe('unloaded');
  await server.ready;
  await server.close();
});

test('a model that cannot be loaded is told to who waits for it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'candle-ready-'));
  const broken = join(folder, 'broken.gguf');
  writeFileSync(broken, 'GGUF, or not');
  const { server, ask } = testServer({ models: { broken: { path: broken, options: ON_CPU } }, preload: true });
  await expect(server.ready).rejects.toThrow(/broken\.gguf/);
  const answer = await ask('/ready');
  expect([answer.status, await answer.json()]).toEqual([503, { status: 'failed' }]);
  await server.close();
  await rm(folder, { recursive: true });
});

test('models that have no room beside the others are left for later', async () => {
  const two = { one: tiny.tiny, two: tiny.tiny };
  const { server } = testServer({ models: two, preload: true, maxModelBytes: 600_000 });
  await server.ready;
  expect(server.stats.models.map(({ state }) => state)).toEqual(['loaded', 'unloaded']);
  await server.close();
});

test('while it drains, a server on a port takes requests; then it is gone', async () => {
  const server = await serve({ models: tiny, port: 0 });
  const ready = async () => (await fetch(`${server.url}/ready`)).status;
  expect(await ready()).toBe(200);
  const closed = server.close({ drainMs: 400 });
  expect(await ready()).toBe(503);
  const init = { method: 'POST', headers: { 'content-type': 'application/json' } };
  const body = JSON.stringify({ prompt: 'a', max_tokens: 1 });
  expect((await fetch(`${server.url}/v1/completions`, { ...init, body })).status).toBe(200);
  let isOver = false;
  void closed.then(() => {
    isOver = true;
  });
  await until(() => isOver);
  await expect(ready()).rejects.toThrow();
});
