// The handler inside other servers of Node: Express and hono, at their root and under a path, beside routes of theirs.
import { createServer as createHttpServer, type Server as HttpServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { loadModel } from '@x/engine';
import express from 'express';
import { Hono } from 'hono';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createServer, type Server } from '../src';
import { type Answer, ON_CPU, TINY, until } from './support';

let model: Awaited<ReturnType<typeof loadModel>>;
let server: Server;
beforeAll(async () => {
  model = await loadModel(TINY, ON_CPU);
  server = createServer({ models: { tiny: model }, maxBodyBytes: 10_000 });
});
afterAll(async () => {
  await server.close();
  model.dispose();
});
const prompt = { model: 'tiny', prompt: 'Once', temperature: 0 };

/** Each way to mount it, and the path under which it is then. */
const mounts: [name: string, under: string, listener: () => RequestListener][] = [
  [
    'Express',
    '',
    () => {
      const app = express();
      app.get('/mine', (_, response) => void response.send('mine'));
      app.use(getRequestListener(server.fetch));
      return app;
    },
  ],
  [
    'Express, under a path',
    '/llm',
    () => {
      const app = express();
      app.get('/mine', (_, response) => void response.send('mine'));
      app.use('/llm', getRequestListener(server.fetch));
      return app;
    },
  ],
  [
    'hono',
    '',
    () => {
      const app = new Hono();
      app.get('/mine', (context) => context.text('mine'));
      app.all('*', (context) => server.fetch(context.req.raw));
      return getRequestListener(app.fetch);
    },
  ],
  [
    'hono, under a path',
    '/llm',
    () => {
      const app = new Hono();
      app.get('/mine', (context) => context.text('mine'));
      app.mount('/llm', server.fetch);
      return getRequestListener(app.fetch);
    },
  ],
];

describe.each(mounts)('in %s', (_, under, listener) => {
  let http: HttpServer;
  let url: string;
  beforeAll(async () => {
    http = createHttpServer(listener());
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  });
  afterAll(() => new Promise((resolve) => http.close(resolve)));

  test('texts come, whole and in a stream, and the routes beside it stay', async () => {
    const openai = new OpenAI({ apiKey: 'none', baseURL: `${url}${under}/v1`, maxRetries: 0 });
    const expected = await model.generate('Once', { maxTokens: 12, temperature: 0 }).text();
    const whole = await openai.completions.create({ ...prompt, max_tokens: 12 });
    expect(whole.choices[0].text).toBe(expected);
    const parts: string[] = [];
    for await (const chunk of await openai.completions.create({ ...prompt, max_tokens: 12, stream: true }))
      parts.push(chunk.choices[0].text);
    expect(parts.join('')).toBe(expected);
    expect(parts.length).toBeGreaterThan(1);
    expect((await openai.models.list()).data.map(({ id }) => id)).toEqual(['tiny']);
    expect(await (await fetch(`${url}/mine`)).text()).toBe('mine');
  });

  test('errors are its own: a field, a body that is too large, a route that is none', async () => {
    const post = (body: string): Promise<Answer> =>
      fetch(`${url}${under}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      });
    const field = await post(JSON.stringify({ ...prompt, max_tokens: -1 }));
    expect([field.status, (await field.json()).error.param]).toEqual([400, 'max_tokens']);
    expect((await post(JSON.stringify({ ...prompt, prompt: 'a'.repeat(20_000) }))).status).toBe(413);
    const none: Answer = await fetch(`${url}${under}/v1/nothing`);
    expect([none.status, typeof (await none.json()).error.message]).toEqual([404, 'string']);
  });

  test('a client that leaves in a stream frees its slot', async () => {
    const left = async () => {
      const text = await (await fetch(`${url}${under}/metrics`)).text();
      return Number(/^candle_sequences_total\{[^}]*(?:aborted|left)[^}]*\} (\d+)$/m.exec(text)?.[1] ?? 0);
    };
    const before = await left();
    const controller = new AbortController();
    const response = await fetch(`${url}${under}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...prompt, max_tokens: 250, ignore_eos: true, stream: true }),
      signal: controller.signal,
    });
    await response.body!.getReader().read();
    controller.abort();
    await until(() => server.stats.running === 0);
    // It did not come to its own end.
    expect(await left()).toBe(before + 1);
  });
});
