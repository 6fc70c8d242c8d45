/** `candle serve` as a shell sees it: it listens, answers, ends with a signal, and says what is wrong. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { bundleCommand } from './command';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const TINY = join(root, 'models/tiny/llama/model-f16.gguf');
const folder = mkdtempSync(join(tmpdir(), 'candle-serve-'));
writeFileSync(join(folder, 'broken.jinja'), '{% for m in messages %}{{ m.content');
const command = bundleCommand();
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

function start(...args: string[]) {
  const child = spawn(process.execPath, [command, 'serve', '--device', 'cpu', ...args], { cwd: root });
  let [out, err] = ['', ''];
  const line = new Promise<string>((resolve) => {
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
      if (out.includes('\n')) resolve(out);
    });
    child.on('close', () => resolve(out));
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text;
  });
  const ended = once(child, 'close').then(([status]) => ({ status: status as number, out, err }));
  return { child: child as ChildProcess, line, ended };
}

const post = (url: string, body: object, headers = {}) =>
  fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
const long = { prompt: 'a', max_tokens: 200, ignore_eos: true };

test('listens, answers, lets what runs end, and exits as the signal says', async () => {
  const keys = join(folder, 'keys');
  writeFileSync(keys, 'one\ntwo\n');
  const first = start(
    `small=${TINY}`,
    '--port',
    '0',
    '--json',
    '--api-key-file',
    keys,
    '--log',
    '--max-sequences',
    '2',
  );
  const told = JSON.parse(await first.line);
  expect(told).toMatchObject({ host: '127.0.0.1', device: 'cpu', models: ['small'] });
  const headers = { authorization: 'Bearer two' };
  expect((await post(told.url, long)).status).toBe(401);
  expect((await post(told.url, { ...long, max_tokens: 2 }, headers)).status).toBe(200);
  const second = start(TINY, '--port', String(told.port));
  expect(await second.ended).toMatchObject({
    status: 1,
    err: expect.stringMatching(`^error PORT_IN_USE: .*port ${told.port}`),
  });
  const stream = await post(told.url, { ...long, stream: true }, headers);
  first.child.kill('SIGTERM');
  expect(await stream.text()).toMatch(/data: \[DONE\]\n\n$/);
  const { status, err } = await first.ended;
  expect(status).toBe(143);
  expect(err).toMatch(/401 POST \/v1\/completions \d+ ms req_/);
  expect(err).toMatch(/200 POST \/v1\/completions \d+ ms req_/);
});

test.each([
  [[], 2, 'USAGE: there is no model'],
  [['nowhere.gguf'], 1, 'FILE_NOT_FOUND: nowhere.gguf'],
  [[TINY, TINY], 2, 'USAGE: two models are called model-f16'],
  [[TINY, '--host', '0.0.0.0'], 1, 'INVALID_OPTION: .*--api-key'],
  [['--port', '70000', TINY], 2, 'Give a whole number from 0 to 65535'],
  [[TINY, '--model-memory', '0.00001'], 1, 'INVALID_OPTION: .*maxModelBytes'],
  [[TINY, '--device', 'auto', '--devices', 'cpu,js'], 1, 'INVALID_OPTION: .*devices of one kind'],
  [[TINY, '--device', 'auto', '--devices', 'cpu,zzz'], 1, 'zzz'],
  [[TINY, '--device', 'cpu', '--tensor-parallel', '3'], 1, 'DEVICE_UNAVAILABLE: .*at most 1'],
  [[TINY, '--device', 'cpu', '--pipeline'], 1, 'INVALID_OPTION: .*pipeline is for several devices'],
  [[TINY, '--chat-template', join(folder, 'broken.jinja')], 1, 'BAD_CHAT_TEMPLATE'],
  [[TINY, '--api-key-file', join(folder, 'none')], 1, 'cannot be read'],
])('%j is refused', async (args, status, message) => {
  const ended = await start(...args, '--port', '0').ended;
  expect(ended).toMatchObject({ status, out: '', err: expect.stringMatching(message) });
  expect(ended.err.trimEnd()).not.toMatch('\n');
});
