import { once } from 'node:events';
import type { Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { createAdaptorServer } from '@hono/node-server';
import { expect, test } from 'vitest';
import { Job } from './job';
import { type SseWriter, sse } from './sse';

const options = (stallTimeoutMs: number) => ({ stallTimeoutMs, onError: () => {} });
const newJob = (request = new Request('http://localhost/')) => new Job(request, '', 60_000);

test('events, names and an end; the job ends with them', async () => {
  const job = newJob();
  let ended = false;
  job.onEnd(() => {
    ended = true;
  });
  const response = sse(job, options(1000), async (writer) => {
    await writer.write({ a: 1 });
    await writer.write({ text: 'two\n\nlines' }, 'named');
    await writer.done();
  });
  expect(await response.text()).toBe(
    'data: {"a":1}\n\nevent: named\ndata: {"text":"two\\n\\nlines"}\n\ndata: [DONE]\n\n',
  );
  expect(ended).toBe(true);
});

test('a failure is the last event, and says nothing of its cause', async () => {
  const response = sse(newJob(), options(1000), async (writer) => {
    await writer.write({ a: 1 });
    throw new Error('/secret/path');
  });
  const text = await response.text();
  expect(text).toMatch(/^data: \{"a":1\}\n\ndata: \{"error":\{.*"code":"internal_error"\}\}\n\n$/);
  expect(text).not.toMatch('secret');
});

test('writes wait for the reader, several at once too, and none is lost', async () => {
  let written = 0;
  const response = sse(newJob(), options(10_000), async (writer) => {
    const write = async (name: string) => {
      for (let i = 0; i < 200; i++) {
        await writer.write({ name, i, filler: 'x'.repeat(1000) });
        written++;
      }
    };
    await Promise.all([write('a'), write('b')]);
  });
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(written).toBeLessThan(30);
  const lines = (await response.text()).trimEnd().split('\n\n');
  expect(lines).toHaveLength(400);
  expect(lines.filter((line) => line.includes('"name":"b"'))).toHaveLength(200);
});

test('a socket that nobody reads: what is written ends with what the system buffers', async () => {
  let written = 0;
  let ended: unknown;
  const body = async (writer: SseWriter) => {
    try {
      for (; written < 200_000_000; written += 100_000) await writer.write('x'.repeat(100_000));
    } catch (error) {
      ended = error;
      throw error;
    }
  };
  const fetch = (request: Request) => sse(newJob(request), options(100), body);
  const server = createAdaptorServer({ fetch, overrideGlobalObjects: false }) as Server;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1', () => {
    socket.pause();
    socket.write('GET / HTTP/1.1\r\nhost: localhost\r\n\r\n');
  });
  socket.on('error', () => {});
  await expect.poll(() => ended, { timeout: 10_000 }).toMatchObject({ code: 'reader_stalled' });
  expect(written).toBeLessThan(50_000_000);
  socket.destroy();
  server.closeAllConnections();
  server.close();
});
