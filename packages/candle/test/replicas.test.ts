/** Two `candle serve` behind HAProxy with deploy/gateway/haproxy.cfg, where HAProxy is installed: one is killed, one is drained. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bundleCommand } from './command';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const TALES = join(root, 'models/tiny-tales/tiny-tales-q8_0.gguf');
const haproxy = spawnSync('sh', ['-c', 'PATH=$PATH:/usr/sbin command -v haproxy'], { encoding: 'utf8' }).stdout.trim();
const NAMES = ['replica1', 'replica2'] as const;
type Name = (typeof NAMES)[number];

describe.skipIf(haproxy === '')('behind a gateway', () => {
  const command = bundleCommand();
  let gateway: ChildProcess;
  let url: string;
  const ports = new Map<Name, number>();
  const replicas = new Map<Name, ChildProcess>();
  beforeAll(async () => {
    const [own, ...others] = await freePorts(3);
    for (const [i, name] of NAMES.entries()) ports.set(name, others[i]);
    url = `http://127.0.0.1:${own}`;
    const [REPLICA_1, REPLICA_2] = others.map((port) => `127.0.0.1:${port}`);
    const env = { ...process.env, BIND: `127.0.0.1:${own}`, REPLICA_1, REPLICA_2 };
    gateway = spawn(haproxy, ['-db', '-f', join(root, 'deploy/gateway/haproxy.cfg')], { env, stdio: 'ignore' });
    while ((await fetch(url).catch(() => undefined)) === undefined) await sleep(20);
  });
  afterAll(() => {
    gateway?.kill('SIGKILL');
    for (const child of replicas.values()) child.kill('SIGKILL');
  });

  function start(name: Name): void {
    const flags = ['--preload', '--port', String(ports.get(name)), '--drain', '3', '--device', 'cpu'];
    const child = spawn(process.execPath, [command, 'serve', `tales=${TALES}`, ...flags], { cwd: root });
    child.stderr.resume();
    replicas.set(name, child);
  }
  const ask = (key: string, body: object) =>
    fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-prefix-key': key },
      body: JSON.stringify({ prompt: 'Once upon a time', temperature: 0, ...body }),
    });
  const by = (response: Response) => response.headers.get('x-served-by') as Name;
  /** Once all of the answer is here: one that is under way counts as work of its replica. */
  const whole = async (response: Response) => {
    await response.text();
    return by(response);
  };
  const short = { max_tokens: 1 };
  const long = { max_tokens: 400, ignore_eos: true, stream: true };
  /** What a stream holds, and how it ended. */
  const read = async (response: Response) => {
    let text = '';
    try {
      for await (const bytes of response.body!) text += Buffer.from(bytes).toString();
    } catch (error) {
      return { text, error: String(error) };
    }
    return { text, error: undefined };
  };
  /** Until the gateway has so many that are ready: as many of its own names are in the answers. */
  const served = async (count: number) => {
    for (const end = Date.now() + 20_000; Date.now() < end; await sleep(50)) {
      const answers = await Promise.all(Array.from({ length: 8 }, (_, i) => ask(`key ${i}`, short)));
      const names = new Set(answers.map(by));
      await Promise.all(answers.map((answer) => answer.text()));
      if (answers.every(({ status }) => status === 200) && names.size === count) return [...names];
    }
    throw new Error(`there are never ${count} replicas`);
  };
  /** Keys by the replica that they belong to. */
  const keys = new Map<Name, string>();

  test('no requests before a model is loaded; the same beginnings go to the same replica', async () => {
    expect((await ask('a', short)).status).toBe(503);
    // The gateway takes replicas for ready until it has looked twice.
    await sleep(3000);
    expect((await ask('a', short)).status).toBe(503);
    for (const name of NAMES) start(name);
    await served(2);
    for (let i = 0; keys.size < 2; i++) keys.set(await whole(await ask(`key ${i}`, short)), `key ${i}`);
    for (const [name, key] of keys) for (let i = 0; i < 4; i++) expect(await whole(await ask(key, short))).toBe(name);
    // Without a header, by the first message or the beginning of the prompt, whatever follows.
    const system = { role: 'system', content: 'You tell tales.' };
    const bodies = [1, 2, 3, 4].map((i) => ({ messages: [system, { role: 'user', content: `Tale ${i}` }] }));
    const names: Name[] = [];
    // One after the other: a replica that has more to do than the others gets no more.
    for (const body of bodies) {
      const init = { method: 'POST', headers: { 'content-type': 'application/json' } };
      names.push(await whole(await fetch(`${url}/v1/chat/completions`, { ...init, body: JSON.stringify(body) })));
    }
    expect(new Set(names).size).toBe(1);
  });

  test('one is killed in the middle of a stream: its client is told, others are not touched, the next are served', async () => {
    const [mine, others] = await Promise.all(NAMES.map((name) => ask(keys.get(name)!, long)));
    expect([by(mine), by(others)]).toEqual(NAMES);
    const [broken, untouched] = [read(mine), read(others)];
    replicas.get('replica1')!.kill('SIGKILL');
    const { error, text } = await broken;
    expect(error).toMatch(/terminated|aborted/);
    expect(text).not.toContain('[DONE]');
    // At once, before a health check has looked.
    const next = await ask(keys.get('replica1')!, short);
    expect([next.status, by(next)]).toEqual([200, 'replica2']);
    const rest = await untouched;
    expect(rest.error).toBe(undefined);
    expect(rest.text).toMatch(/data: \[DONE\]\n\n$/);
    expect(await served(1)).toEqual(['replica2']);
  });

  test('one that drains ends its streams and gets no more; no request is lost', async () => {
    start('replica1');
    await served(2);
    const stream = await ask(keys.get('replica2')!, long);
    expect(by(stream)).toBe('replica2');
    const streamed = read(stream);
    const leaving = replicas.get('replica2')!;
    const ended = once(leaving, 'close');
    leaving.kill('SIGTERM');
    const names: (string | null)[] = [];
    while (leaving.exitCode === null) {
      const answer = await ask(keys.get('replica2')!, short);
      expect(answer.status).toBe(200);
      await answer.text();
      names.push(by(answer));
      await sleep(20);
    }
    expect(await ended).toEqual([143, null]);
    expect((await streamed).text).toMatch(/data: \[DONE\]\n\n$/);
    // Requests were still taken until the gateway had noticed.
    expect(names[0]).toBe('replica2');
    expect(names.lastIndexOf('replica2')).toBeLessThan(names.indexOf('replica1'));
  });
});

async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const ports = servers.map((server) => (server.address() as { port: number }).port);
  await Promise.all(servers.map((server) => once(server.close(), 'close')));
  return ports;
}
