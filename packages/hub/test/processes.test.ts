/** Several processes and one cache: one download at a time, and what a process that is killed leaves. */
import { type ChildProcess, spawn } from 'node:child_process';
import {
  existsSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { pull, remove } from '../src';
import { acquire } from '../src/lock';
import { FakeHub, noise, sha256 } from './hub-server';

const root = mkdtempSync(join(tmpdir(), 'hub-processes-'));
const program = join(root, 'hub.mjs');
let hub: FakeHub;
let cacheDir: string;
let started: ChildProcess[] = [];

beforeAll(async () => {
  hub = await FakeHub.start();
  await build({
    entryPoints: [fileURLToPath(new URL('../src/index.ts', import.meta.url))],
    outfile: program,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    tsconfig: fileURLToPath(new URL('../../../tsconfig.base.json', import.meta.url)),
    banner: { js: "import { createRequire as req } from 'node:module'; const require = req(import.meta.url);" },
    logLevel: 'error',
  });
});
afterAll(async () => {
  for (const child of started) child.kill('SIGKILL');
  await hub.stop();
  rmSync(root, { recursive: true, force: true });
});
beforeEach(() => {
  hub.reset();
  cacheDir = mkdtempSync(join(root, 'cache-'));
  started = [];
});

const model = noise(400_000);
const blobs = () => join(cacheDir, 'models--org--repo/blobs');
const lockPath = () => join(cacheDir, '.locks/models--org--repo', `${sha256(model)}.lock`);
const options = () => ({ endpoint: hub.endpoint, cacheDir, token: false as const, retryDelayMs: 1 });

/** `pull` in a process of its own; what it prints is its result or its error. */
function pullElsewhere(name = 'hf:org/repo', flags: string[] = []) {
  const script = `import { pull } from ${JSON.stringify(program)};
    pull(${JSON.stringify(name)}, ${JSON.stringify(options())}).then((model) => console.log(JSON.stringify(model)), (error) => console.log(JSON.stringify({ code: error.code })));`;
  const child = spawn(process.execPath, [...flags, '--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  started.push(child);
  let out = '';
  child.stdout.on('data', (text) => {
    out += text;
  });
  const ended = new Promise<{ downloadedBytes: number; path: string; code?: string }>((resolve) =>
    child.once('close', () => resolve(out === '' ? {} : JSON.parse(out))),
  );
  return { child, ended };
}

async function until(holds: () => boolean): Promise<void> {
  for (let turn = 0; !holds(); turn++) {
    if (turn > 1000) throw new Error('it did not come to that in 10 s');
    await pause(10);
  }
}

const sizeOf = (path: string) => (existsSync(path) ? statSync(path).size : 0);

test('two processes that pull the same file download it once', async () => {
  hub.add('org/repo', { 'm.gguf': model });
  hub.fault = () => ({ slow: 25 });
  const [one, two] = [pullElsewhere(), pullElsewhere()];
  const phases = new Set<string>();
  // And this one.
  const own = await pull('hf:org/repo', { ...options(), onProgress: ({ phase }) => phases.add(phase) });
  const ended = [own, ...(await Promise.all([one.ended, two.ended]))];
  expect(ended.map(({ downloadedBytes }) => downloadedBytes).sort()).toEqual([0, 0, model.length]);
  for (const { path } of ended) expect(readFileSync(path).equals(model)).toBe(true);
  expect(hub.downloads.filter(({ at }) => at === 'cdn').length).toBe(1);
  expect(readdirSync(blobs())).toEqual([sha256(model)]);
});

test('a process that is killed in the middle leaves its bytes and no lock; the next goes on', async () => {
  hub.add('org/repo', { 'm.gguf': model });
  hub.fault = (_, count) => (count === 0 ? { hangAfter: 250_000 } : undefined);
  const { child, ended } = pullElsewhere();
  const incomplete = join(blobs(), `${sha256(model)}.incomplete`);
  await until(() => sizeOf(incomplete) > 100_000);
  await expect(remove('hf:org/repo', { cacheDir })).rejects.toMatchObject({ code: 'BUSY' });
  // One that waits for it gets the lock with the death of the other.
  const waiting = pull('hf:org/repo', options());
  await pause(100);
  child.kill('SIGKILL');
  await ended;
  const { path, downloadedBytes } = await waiting;
  expect(readFileSync(path).equals(model)).toBe(true);
  expect(downloadedBytes).toBeLessThan(300_000);
  const ranges = hub.downloads.filter(({ at }) => at === 'cdn').map(({ range }) => range);
  expect(ranges).toEqual([undefined, `bytes=${model.length - downloadedBytes}-`]);
});

test('where Node may not read the cache the pull ends', async () => {
  hub.add('org/repo', { 'm.gguf': model });
  const flag = ['--permission', '--experimental-permission'].find((name) =>
    process.allowedNodeEnvironmentFlags.has(name),
  );
  const flags = [flag!, '--no-warnings', `--allow-fs-read=${program}`, `--allow-fs-write=${cacheDir}/*`];
  expect(await pullElsewhere('hf:org/repo', flags).ended).toEqual({ code: 'CACHE_UNWRITABLE' });
});

describe('locks', () => {
  test("a pull waits for who holds Hugging Face's lock, and holds it itself", async () => {
    hub.add('org/repo', { 'm.gguf': model });
    mkdirSync(dirname(lockPath()), { recursive: true });
    // As filelock of Python does it: flock on the file.
    const other = spawn('flock', ['-x', lockPath(), 'cat'], { stdio: ['pipe', 'pipe', 'inherit'] });
    started.push(other);
    const held = new Promise((resolve) => other.stdout.once('data', resolve));
    other.stdin.write('\n');
    await held;
    const phases: string[] = [];
    const pulled = pull('hf:org/repo', { ...options(), onProgress: ({ phase }) => phases.push(phase) });
    await until(() => phases.includes('waiting'));
    expect(hub.downloads).toEqual([]);
    hub.fault = () => ({ hangAfter: 1000 });
    other.stdin.end();
    await until(() => phases.includes('downloading'));
    const tried = spawn('flock', ['-n', '-x', lockPath(), 'true']);
    expect(await new Promise((resolve) => tried.once('close', resolve))).toBe(1);
    hub.fault = () => undefined;
    hub.content.closeAllConnections();
    await pulled;
    const after = spawn('flock', ['-n', '-x', lockPath(), 'true']);
    expect(await new Promise((resolve) => after.once('close', resolve))).toBe(0);
  });

  test.each(['flock', 'marker'] as const)('%s: one holder, waiting, giving up', async (by) => {
    const path = join(cacheDir, 'a/b.lock');
    const release = await acquire(path, { by });
    expect(await acquire(path, { by, wait: false })).toBeUndefined();
    await expect(acquire(path, { by, signal: AbortSignal.timeout(50) })).rejects.toMatchObject({
      name: 'TimeoutError',
    });
    await expect(acquire(path, { by, signal: AbortSignal.abort() })).rejects.toMatchObject({ name: 'AbortError' });
    let waited = 0;
    const order: string[] = [];
    const next = acquire(path, { by, onWait: () => waited++ }).then((second) => {
      order.push('second');
      return second;
    });
    await until(() => waited === 1);
    order.push('first');
    await release!();
    await (await next)!();
    expect(order).toEqual(['first', 'second']);
    await (await acquire(path, { by, wait: false }))!();
  });

  test('without a flock program the marker is used', async () => {
    const path = join(cacheDir, 'b.lock');
    const before = process.env.PATH;
    process.env.PATH = cacheDir;
    try {
      const release = await acquire(path);
      expect(readFileSync(`${path}.owner`, 'utf8').split('\n')[0]).toBe(String(process.pid));
      await release!();
      expect(existsSync(`${path}.owner`)).toBe(false);
    } finally {
      process.env.PATH = before;
    }
  });

  test('markers of who is gone are taken over, others are not', async () => {
    const path = join(cacheDir, 'c.lock');
    const owner = `${path}.owner`;
    const [, machine] = await ownMarker(path, owner);
    const gone = spawn('true');
    await new Promise((resolve) => gone.once('close', resolve));
    const old = new Date(Date.now() - 120_000);
    const free = async () => {
      const release = await acquire(path, { by: 'marker', wait: false });
      await release?.();
      return release !== undefined;
    };
    const cases: [content: string, age: Date, free: boolean][] = [
      [`${gone.pid}\n${machine}\nx\n`, new Date(), true],
      [`${process.pid}\n${machine}\nx\n`, new Date(), false],
      [`${gone.pid}\nelsewhere\nx\n`, new Date(), false],
      [`${gone.pid}\nelsewhere\nx\n`, old, true],
      ['', new Date(), false],
      ['nonsense', old, true],
    ];
    for (const [content, age, expected] of cases) {
      writeFileSync(owner, content);
      utimesSync(owner, age, age);
      expect([content, await free()]).toEqual([content, expected]);
    }
    expect(machine).toContain(hostname());
    // Of many that find it gone, one has it.
    writeFileSync(owner, `${gone.pid}\n${machine}\nx\n`);
    const got = await Promise.all(Array.from({ length: 8 }, () => acquire(path, { by: 'marker', wait: false })));
    expect(got.filter((release) => release !== undefined).length).toBe(1);
  });

  test.each([
    ['a directory', mkdirSync],
    ['a link to nothing', (owner: string) => symlinkSync('nowhere', owner)],
  ] as const)('%s as a marker is waited for until it is old', async (what, make) => {
    const path = join(cacheDir, 'd.lock');
    const owner = `${path}.owner`;
    const tryOnce = () => acquire(path, { by: 'marker', wait: false, signal: AbortSignal.timeout(5000) });
    make(owner);
    expect(await tryOnce()).toBeUndefined();
    let waited = 0;
    const waiting = acquire(path, { by: 'marker', signal: AbortSignal.timeout(300), onWait: () => waited++ });
    await expect(waiting).rejects.toMatchObject({ name: 'TimeoutError' });
    expect(waited).toBe(1);
    const old = new Date(Date.now() - 120_000);
    lutimesSync(owner, old, old);
    if (what === 'a directory') await expect(tryOnce()).rejects.toMatchObject({ code: 'ERR_FS_EISDIR' });
    else await (await tryOnce())!();
    expect(readdirSync(cacheDir)).toEqual(what === 'a directory' ? ['d.lock.owner'] : []);
  });
});

async function ownMarker(path: string, owner: string): Promise<string[]> {
  const release = await acquire(path, { by: 'marker' });
  const lines = readFileSync(owner, 'utf8').split('\n');
  await release!();
  return lines;
}
