/** `candle batch --queue` with BullMQ on a real Redis or Valkey, where one is installed. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type Job, Queue, QueueEvents } from 'bullmq';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bundleCommand } from './command';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const TINY = join(root, 'models/tiny/llama/model-f16.gguf');
/** Debian's redis-tools has the server too, under the name of another of its programs. */
const SERVERS = ['valkey-server', 'redis-server', 'redis-check-rdb'];
const program = SERVERS.map((name) => spawnSync('which', [name], { encoding: 'utf8' }).stdout.trim()).find(Boolean);
const PASSWORD = 'open sesame';

describe.skipIf(program === undefined)('on a real server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'candle-queue-'));
  const [output, password] = [join(folder, 'out.jsonl'), join(folder, 'password')];
  const command = bundleCommand();
  let redis: ChildProcess;
  let url: string;
  let connection: Redis;
  let queue: Queue;
  const children: ChildProcess[] = [];
  beforeAll(async () => {
    writeFileSync(password, `${PASSWORD}\n`);
    const port = await freePort();
    const settings = { port, bind: '127.0.0.1', save: '', dir: folder, requirepass: PASSWORD };
    const flags = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
    redis = spawn(program!, flags, { argv0: 'redis-server', stdio: 'ignore' });
    url = `redis://127.0.0.1:${port}`;
    connection = new Redis(url, { password: PASSWORD, maxRetriesPerRequest: null });
    connection.on('error', () => {});
    await connection.ping();
    queue = new Queue('work', { connection });
  });
  afterAll(async () => {
    for (const child of children) child.kill('SIGKILL');
    await queue?.close();
    connection?.disconnect();
    redis?.kill();
    rmSync(folder, { recursive: true, force: true });
  });

  function start(...args: string[]) {
    const flags = ['--device', 'cpu', '-m', `tiny=${TINY}`, '--queue', url, '--queue-name', 'work', ...args];
    const child = spawn(process.execPath, [command, 'batch', ...flags], { cwd: root });
    children.push(child);
    let [out, err] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      err += text;
    });
    const ended = once(child, 'close').then(([status, signal]) => ({ status, signal, out, err }));
    return { child, ended };
  }
  const add = (custom_id: string, body: object): Promise<Job> =>
    queue.add('request', { custom_id, method: 'POST', url: '/v1/completions', body });
  const lines = () => (existsSync(output) ? readFileSync(output, 'utf8').split('\n').slice(0, -1) : []);
  const ready = ['--queue-password-file', password, '--queue-lock', '1'];

  test('one that is killed loses no job: each has its result, stored once', async () => {
    const ids = Array.from({ length: 24 }, (_, i) => `job ${i}`);
    const jobs: Job[] = [];
    for (const id of ids) jobs.push(await add(id, { prompt: id, max_tokens: 60, ignore_eos: true }));
    const first = start(output, ...ready, '--max-sequences', '2');
    while (lines().length < 4 && first.child.exitCode === null) await sleep(5);
    first.child.kill('SIGKILL');
    expect(await first.ended).toMatchObject({ signal: 'SIGKILL' });
    const before = lines();
    expect(before.length).toBeLessThan(ids.length);
    expect((await queue.getJobCounts('active')).active).toBeGreaterThan(0);
    const second = await start(output, ...ready, '--max-sequences', '2', '--until-empty', '--json').ended;
    expect(second).toMatchObject({ status: 0 });
    const now = lines();
    expect(now.slice(0, before.length)).toEqual(before);
    expect(now.map((line) => JSON.parse(line).custom_id).toSorted()).toEqual(ids.toSorted());
    expect(await queue.getJobCounts('completed', 'failed', 'wait', 'active')).toEqual({
      completed: ids.length,
      failed: 0,
      wait: 0,
      active: 0,
    });
    // What a job returns is its line.
    const values = await Promise.all(
      jobs.map(async ({ id }) => JSON.stringify((await queue.getJob(id!))!.returnvalue)),
    );
    const sorted = (texts: string[]) =>
      texts.map((text) => JSON.parse(text)).toSorted((a, b) => (a.id < b.id ? -1 : 1));
    expect(sorted(values)).toEqual(sorted(now));
  });

  test('what is wrong with a job fails it alone; a signal gives back what is under way', async () => {
    const events = new QueueEvents('work', { connection });
    await events.waitUntilReady();
    const worker = start(...ready, '--max-sequences', '1');
    const failure = async (job: Job) =>
      job.waitUntilFinished(events, 30_000).then(
        () => '',
        (error) => error.message,
      );
    expect(await failure(await add('wrong', { prompt: 'a', max_tokens: -1 }))).toMatch(
      /400 invalid_value: max_tokens is -1/,
    );
    expect(await failure(await queue.add('request', { hello: 1 }))).toMatch(/custom_id is missing/);
    const long = await Promise.all(
      ['a', 'b', 'c', 'd'].map((id) => add(`long ${id}`, { prompt: id, max_tokens: 200, ignore_eos: true })),
    );
    while ((await queue.getJobCounts('active')).active === 0) await sleep(5);
    worker.child.kill('SIGTERM');
    expect((await worker.ended).status).toBe(143);
    const { active, wait } = await queue.getJobCounts('active', 'wait');
    expect([active, wait! > 0]).toEqual([0, true]);
    await start(...ready, '--until-empty').ended;
    const states = await Promise.all(long.map(async ({ id }) => (await queue.getJob(id!))!.getState()));
    expect(states).toEqual(['completed', 'completed', 'completed', 'completed']);
    await events.close();
  });

  test('a password that is missing or wrong is said at once', async () => {
    writeFileSync(password, 'wrong\n');
    for (const args of [[], ['--queue-password-file', password]]) {
      const { status, err } = await start(...args).ended;
      expect(status).toBe(1);
      expect(err).toMatch(/^error NO_QUEUE: redis:\/\/127\.0\.0\.1:\d+ cannot be used: .*(NOAUTH|WRONGPASS)/);
    }
  });
});

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}
