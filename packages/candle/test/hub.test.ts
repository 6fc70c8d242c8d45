/** The commands that take models from the hub, against a server on this machine. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { FakeHub, noise } from '../../hub/test/hub-server';
import { ProgressText } from '../src/download';
import { bundleCommand } from './command';

const TINY = readFileSync(fileURLToPath(new URL('../../../models/tiny-tales/tiny-tales-q8_0.gguf', import.meta.url)));
const oneLine = /^error [A-Z0-9_]+: [^\n]+\n$/;
const root = mkdtempSync(join(tmpdir(), 'candle-hub-'));
const cache = join(root, 'cache');
const command = bundleCommand();
let hub: FakeHub;

beforeAll(async () => {
  hub = await FakeHub.start();
});
afterAll(async () => {
  await hub.stop();
  rmSync(root, { recursive: true, force: true });
});
beforeEach(() => {
  hub.reset();
  hub.add('org/tales', { 'tales-Q8_0.gguf': TINY, 'tales-F16.gguf': noise(5000), 'README.md': 'tales' });
});

interface Ended {
  status: number | null;
  out: string;
  err: string;
}

function start(args: string[], more: Record<string, string> = {}): { child: ChildProcess; ended: Promise<Ended> } {
  const own = { HF_ENDPOINT: hub.endpoint, HF_HUB_CACHE: cache, HF_HUB_DISABLE_IMPLICIT_TOKEN: '1', ...more };
  const env: NodeJS.ProcessEnv = { ...process.env, ...own };
  for (const name of ['FORCE_COLOR', 'NO_COLOR', 'HF_HUB_OFFLINE']) if (!(name in more)) delete env[name];
  const child = spawn(process.execPath, [command, ...args], { env });
  child.stdin.end();
  let [out, err] = ['', ''];
  child.stdout.on('data', (text) => {
    out += text;
  });
  child.stderr.on('data', (text) => {
    err += text;
  });
  return { child, ended: new Promise((resolve) => child.on('close', (status) => resolve({ status, out, err }))) };
}

const run = (args: string[], more?: Record<string, string>) => start(args, more).ended;

test('pull, list, run, inspect and rm', async () => {
  const dry = await run(['pull', 'hf:org/tales', '--dry-run']);
  expect([dry.status, dry.out]).toEqual([
    0,
    expect.stringMatching(/tales-Q8_0\.gguf .*\nhf:org\/tales, commit 0123.*MiB of .*MiB to download/),
  ]);
  expect(existsSync(cache)).toBe(false);
  const none = await run(['list']);
  expect([none.status, none.out, none.err]).toEqual([0, '', expect.stringContaining('candle pull')]);

  const pulled = await run(['pull', 'hf:org/tales:q8_0']);
  expect([pulled.status, pulled.err]).toEqual([
    0,
    expect.stringMatching(/hf:org\/tales:q8_0: [\d.]+ MiB, [\d.]+ MiB downloaded\n/),
  ]);
  expect(readFileSync(pulled.out.trim()).equals(TINY)).toBe(true);
  expect((await run(['pull', 'hf:org/tales'])).err).toContain('was here');

  const json = JSON.parse((await run(['list', '--json'])).out);
  expect(json.models).toMatchObject([{ name: 'hf:org/tales:Q8_0', bytes: TINY.length, kind: 'gguf', refs: ['main'] }]);
  expect((await run(['list'])).out).toMatch(
    /^name +size .*\nhf:org\/tales:Q8_0 +[\d.]+ MiB +\d{4}-\d\d-\d\d +01234567 +main\n$/,
  );

  hub.asked.length = 0;
  const greedy = ['--device', 'cpu', '-t', '0', '-n', '2', '--json'];
  const text = JSON.parse((await run(['run', 'hf:org/tales', ...greedy])).out);
  expect(text).toMatchObject({ model: pulled.out.trim(), text: ' there lived' });
  expect(JSON.parse((await run(['run', 'hf.co/org/tales:Q8_0', ...greedy], { HF_HUB_OFFLINE: '1' })).out).text).toBe(
    text.text,
  );
  expect(JSON.parse((await run(['inspect', 'hf:org/tales', '--json'])).out).file).toBe(pulled.out.trim());
  expect(hub.asked).toEqual([]);
  // What is not here comes first.
  const other = await run(['quantize', 'hf:org/tales:F16', join(root, 'out.gguf'), '--type', 'q4_0']);
  expect([other.status, other.err]).toEqual([1, expect.stringContaining('GGUF_BAD_MAGIC')]);

  const removed = await run(['rm', 'hf:org/tales:Q8_0', 'hf:org/tales', '--json']);
  expect(JSON.parse(removed.out)).toMatchObject({ models: ['hf:org/tales:Q8_0', 'hf:org/tales:F16'] });
  expect((await run(['list', '--json'])).out).toBe('{"models":[]}\n');
}, 120_000);

test('what goes wrong is one line that names what to do', async () => {
  hub.add('org/two', { 'a-Q4_K_M.gguf': noise(10), 'b-Q4_K_M.gguf': noise(10) });
  const cases: [args: string[], status: number, message: RegExp, env?: Record<string, string>][] = [
    [['pull', 'org/tales'], 1, /INVALID_NAME: "org\/tales".*hf:org\/repo/],
    [['pull', 'hf:org/none'], 1, /NOT_FOUND: hf:org\/none: .*HF_TOKEN/],
    [['pull', 'hf:org/tales:Q2_K'], 1, /NOT_FOUND: .*hf:org\/tales:F16 .*hf:org\/tales:Q8_0/],
    [['pull', 'hf:org/two'], 1, /AMBIGUOUS: .*hf:org\/two:a-Q4_K_M\.gguf/],
    [['run', 'hf:org/tales'], 1, /OFFLINE: .*HF_HUB_OFFLINE/, { HF_HUB_OFFLINE: '1' }],
    [['rm', 'hf:org/none'], 1, /NOT_FOUND/],
    [['pull', 'hf:org/tales'], 1, /INVALID_OPTION: .*HF_ENDPOINT/, { HF_ENDPOINT: 'nowhere' }],
    [['pull', 'hf:org/tales'], 1, /CACHE_UNWRITABLE: .*HF_HUB_CACHE/, { HF_HUB_CACHE: '/dev/null/cache' }],
    [['pull', 'hf:org/tales', '--connections', '0'], 2, /USAGE/],
  ];
  for (const [args, status, message, env] of cases) {
    const ended = await run(args, env);
    expect([args, ended.status, ended.out]).toEqual([args, status, '']);
    expect(ended.err).toMatch(oneLine);
    expect(ended.err).toMatch(message);
  }
  const json = await run(['pull', 'hf:org/none', '--json']);
  expect([json.err, JSON.parse(json.out).error.code]).toEqual(['', 'NOT_FOUND']);
}, 120_000);

test('Ctrl-C ends a download; the next one goes on', async () => {
  hub.add('org/slow', { 'm.gguf': noise(2_000_000) });
  hub.fault = (_, count) => (count === 0 ? { hangAfter: 1_000_000 } : undefined);
  const { child, ended } = start(['pull', 'hf:org/slow']);
  const blobs = join(cache, 'models--org--slow/blobs');
  const here = () => (existsSync(blobs) ? readdirSync(blobs).map((name) => statSync(join(blobs, name)).size) : []);
  for (let turn = 0; turn < 500 && !(here()[0] > 500_000); turn++) await pause(20);
  child.kill('SIGINT');
  const { status, err, out } = await ended;
  expect([status, out]).toEqual([130, '']);
  expect(err).toMatch(/error INTERRUPTED/);
  const next = JSON.parse((await run(['pull', 'hf:org/slow', '--json'])).out);
  expect(next.downloadedBytes).toBeLessThan(1_600_000);
}, 60_000);

test('progress in words', () => {
  const text = new ProgressText('hf:o/r');
  const at = (bytes: number, time: number, phase: 'downloading' | 'waiting' | 'verifying' = 'downloading') =>
    text.at({ phase, file: 'm.gguf', fileBytes: bytes, fileTotalBytes: 2 ** 31, bytes, totalBytes: 2 ** 31 }, time);
  expect(at(0, 0)).toBe('hf:o/r: 0 B of 2.00 GiB, 0 %');
  expect(at(2 ** 20, 1000)).toBe('hf:o/r: 1.00 MiB of 2.00 GiB, 0 %, 1.00 MiB/s, 34:07 min left');
  expect(at(2 ** 30, 2000)).toMatch(/50 %, 512\.00 MiB\/s, 2 s left/);
  // It began again.
  expect(at(0, 2500)).toBe('hf:o/r: 0 B of 2.00 GiB, 0 %');
  expect(at(1000, 12_500)).toMatch(/100 B\/s, 5965:13 h left$/);
  expect(at(0, 13_000, 'waiting')).toContain('another process');
  expect(at(0, 13_000, 'verifying')).toContain('checking');
});
