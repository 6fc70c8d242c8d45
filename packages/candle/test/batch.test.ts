/** `candle batch` as a shell sees it: results, refusals, and what is left of it when it is killed. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { bundleCommand } from './command';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const TINY = join(root, 'models/tiny/llama/model-f16.gguf');
const folder = mkdtempSync(join(tmpdir(), 'candle-batch-'));
const file = (name: string) => join(folder, name);
const command = bundleCommand();
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const start = (...args: string[]) => startWith({}, '--device', 'cpu', ...args);

function startWith(env: Record<string, string>, ...args: string[]) {
  const options = { cwd: root, env: { ...process.env, ...env } };
  const child = spawn(process.execPath, [command, 'batch', ...args], options);
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

const line = (custom_id: string, body: object, url = '/v1/completions') =>
  `${JSON.stringify({ custom_id, method: 'POST', url, body })}\n`;
const wholeLines = (path: string) => (existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : []);
const idsOf = (path: string) => wholeLines(path).map((text) => JSON.parse(text).custom_id as string);

test('killed again and again, it goes on where it was: nothing is lost and nothing done twice', async () => {
  const [input, output] = [file('in.jsonl'), file('out.jsonl')];
  const ids = Array.from({ length: 60 }, (_, i) => `request ${i}`);
  const body = (i: number) => ({ prompt: `a ${i}`, max_tokens: 60, ignore_eos: true, temperature: 0 });
  writeFileSync(input, ids.map((id, i) => line(id, body(i))).join(''));
  const args = [input, output, '--model', `tiny=${TINY}`, '--max-sequences', '2', '--json'];
  let before: string[] = [];
  for (const count of [3, 9]) {
    const { child, ended } = start(...args);
    while (wholeLines(output).length < count && child.exitCode === null) await sleep(5);
    child.kill('SIGKILL');
    expect(await ended).toMatchObject({ signal: 'SIGKILL' });
    const now = wholeLines(output);
    expect(now.length).toBeLessThan(ids.length);
    expect(now.slice(0, before.length)).toEqual(before);
    before = now;
    // What a write that did not come to its end leaves.
    appendFileSync(output, `${now[0].slice(0, 100 + count)}`);
  }
  const { status, out } = await start(...args).ended;
  expect(status).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ answered: ids.length, failed: 0, before: before.length });
  expect(wholeLines(output).slice(0, before.length)).toEqual(before);
  expect(idsOf(output).toSorted()).toEqual(ids.toSorted());
  const bytes = readFileSync(output);
  // All is done: nothing is loaded and nothing written.
  expect(JSON.parse((await start(...args).ended).out)).toMatchObject({ answered: ids.length, before: ids.length });
  expect(readFileSync(output)).toEqual(bytes);
  // The same in one go.
  await start(input, file('once.jsonl'), '--model', `tiny=${TINY}`, '--json').ended;
  const texts = (path: string) =>
    wholeLines(path).map((text) => {
      const { id, custom_id, response, error } = JSON.parse(text);
      return [custom_id, id, response.body.choices[0].text, error].join();
    });
  expect(texts(output).toSorted()).toEqual(texts(file('once.jsonl')).toSorted());
});

test('answers and refusals go to their files; Ctrl-C ends it, and the same command goes on', async () => {
  const [input, output, errors] = ['mixed.jsonl', 'mixed.out.jsonl', 'mixed.out.errors.jsonl'].map(file);
  const chat = { model: 'tiny', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 3 };
  const long = { prompt: 'a', max_tokens: 200, ignore_eos: true };
  const longs = Array.from({ length: 20 }, (_, i) => `long ${i}`);
  const lines = [
    line('chat', chat, '/v1/chat/completions'),
    line('wrong', { prompt: 'a', max_tokens: -1 }),
    line('no vectors', { input: 'a' }, '/v1/embeddings'),
    ...longs.map((id) => line(id, long)),
  ];
  writeFileSync(input, lines.join(''));
  const args = [input, output, '-m', `tiny=${TINY}`, '--chat-template', 'chatml', '--max-sequences', '1'];
  const { child, ended } = start(...args);
  while (wholeLines(output).length < 2 && child.exitCode === null) await sleep(5);
  child.kill('SIGINT');
  const { status, err } = await ended;
  expect(status).toBe(130);
  expect(err).toMatch(/^\d+ of 23 requests have their results; the same command goes on$/m);
  expect(err).toMatch(/INTERRUPTED/);
  const second = await start(...args).ended;
  expect(second.err).toMatch(/21 requests answered, 2 failed \(.*mixed\.out\.errors\.jsonl\), \d+ of them before/);
  expect(second.status).toBe(1);
  expect(idsOf(output).toSorted()).toEqual(['chat', ...longs].toSorted());
  const refused = wholeLines(errors).map((text) => JSON.parse(text));
  expect(refused).toMatchObject([
    { custom_id: 'wrong', response: { status_code: 400, body: { error: { param: 'max_tokens' } } }, error: null },
    { custom_id: 'no vectors', response: { status_code: 400, body: { error: { code: 'wrong_model' } } }, error: null },
  ]);
  const answer = JSON.parse(wholeLines(output).find((text) => text.includes('"chat"'))!);
  expect(answer.response).toMatchObject({
    status_code: 200,
    request_id: expect.stringMatching(/^req_/),
    body: { object: 'chat.completion', model: 'tiny', choices: [{ message: { role: 'assistant' } }] },
  });
});

test('one model on several devices, of this process or of several, gives the same', async () => {
  const input = file('several.jsonl');
  const ids = Array.from({ length: 6 }, (_, i) => `${i}`);
  const body = (i: string) => ({ prompt: `a ${i}`, max_tokens: 20, temperature: 0 });
  writeFileSync(input, ids.map((id) => line(id, body(id))).join(''));
  const model = ['--model', `tiny=${TINY}`, '--json'];
  const textsOf = (name: string) =>
    wholeLines(file(name))
      .map((text) => JSON.parse(text))
      .map(({ custom_id, response }) => [custom_id, response.body.choices[0].text])
      .toSorted();
  const done = { status: 0, out: expect.stringContaining('"answered":6') };
  expect(await start(input, file('one.jsonl'), ...model).ended).toMatchObject(done);
  for (const flags of [
    ['--devices', 'cpu,cpu'],
    ['--devices', 'cpu,cpu', '--pipeline'],
  ]) {
    const name = `${flags.length}.jsonl`;
    expect(await startWith({}, input, file(name), ...flags, ...model).ended).toMatchObject(done);
    expect(textsOf(name)).toEqual(textsOf('one.jsonl'));
  }
  const MASTER_PORT = `${20_000 + (process.pid % 20_000)}`;
  const ranks = [0, 1].map((rank) => {
    const env = { RANK: `${rank}`, WORLD_SIZE: '2', LOCAL_RANK: `${rank}`, MASTER_ADDR: '127.0.0.1', MASTER_PORT };
    return startWith(env, input, file('ranks.jsonl'), '--device', 'cpu', ...model);
  });
  const [first, second] = await Promise.all(ranks.map(({ ended }) => ended));
  expect(first).toMatchObject(done);
  expect(second).toMatchObject({ status: 0, out: '', err: expect.stringContaining('process 1 of 2') });
  expect(textsOf('ranks.jsonl')).toEqual(textsOf('one.jsonl'));
});

test('a process of several that is gone ends the batch, which goes on later', async () => {
  const [input, output] = [file('gone.jsonl'), file('gone.out.jsonl')];
  const ids = Array.from({ length: 20 }, (_, i) => `${i}`);
  const body = { prompt: 'a', max_tokens: 200, ignore_eos: true, temperature: 0 };
  writeFileSync(input, ids.map((id) => line(id, body)).join(''));
  const args = [input, output, '--device', 'cpu', '--model', `tiny=${TINY}`, '--max-sequences', '1', '--json'];
  const MASTER_PORT = `${20_000 + ((process.pid + 1) % 20_000)}`;
  const ranks = [0, 1].map((rank) =>
    startWith({ RANK: `${rank}`, WORLD_SIZE: '2', MASTER_ADDR: '127.0.0.1', MASTER_PORT }, ...args),
  );
  while (wholeLines(output).length < 2 && ranks[0].child.exitCode === null) await sleep(5);
  ranks[1].child.kill('SIGKILL');
  const { status, out, err } = await ranks[0].ended;
  expect(JSON.parse(out), err).toMatchObject({
    error: { code: 'RANK_LOST', message: expect.stringContaining('rank 1 of 2') },
  });
  expect(status).toBe(1);
  const before = wholeLines(output);
  expect(before.length).toBeLessThan(ids.length);
  expect(wholeLines(file('gone.out.errors.jsonl'))).toEqual([]);
  const rest = await startWith({}, ...args).ended;
  expect(JSON.parse(rest.out)).toMatchObject({ answered: ids.length, failed: 0, before: before.length });
});

const good = line('a', { prompt: 'a' });
test.each([
  [['in', 'out'], 2, 'USAGE: there is no model'],
  [['in', '-m', TINY], 2, 'USAGE: there are 1 files. Give in.jsonl out.jsonl'],
  [['in', 'in', '-m', TINY], 2, 'is the file of the requests'],
  [['in', 'out', '-m', TINY, '--devices', 'cpu,cpu'], 2, '--device and --devices are two answers'],
  [['in', 'out', '-m', TINY, '--until-empty'], 2, '--until-empty is for --queue'],
  [['in', 'out', '-m', TINY, '--queue', 'redis://localhost'], 2, 'there are 2 files'],
  [['-m', TINY, '--queue', 'http://localhost'], 2, 'Give an address such as redis://'],
  [
    ['-m', TINY, '--queue', 'redis://:secret@127.0.0.1:1'],
    1,
    'NO_QUEUE: redis://127.0.0.1:1 cannot be used: .*ECONNREFUSED',
  ],
  [['none', 'out', '-m', TINY], 1, 'FILE_UNUSABLE: .*none cannot be read.*Give one that can be read'],
  [['in', 'out', '-m', 'nowhere.gguf'], 1, 'FILE_NOT_FOUND: nowhere.gguf'],
  [['twice', 'out', '-m', TINY], 1, 'BAD_REQUEST: .*two requests have the custom_id "a"'],
  [['in', 'notes', '-m', TINY], 1, 'BAD_RESULTS: .*line 1 is no result'],
  [['in', '/dev/null', '-m', TINY], 1, 'FILE_UNUSABLE: /dev/null is no file'],
])('%j is refused, and writes nothing', async (args, status, message) => {
  writeFileSync(file('in'), good);
  writeFileSync(file('twice'), good + good);
  writeFileSync(file('notes'), 'buy milk\n');
  const paths = args.map((arg) => (['in', 'out', 'none', 'twice', 'notes'].includes(arg) ? file(arg) : arg));
  const { err, ...rest } = await start(...paths).ended;
  expect(err).toMatch(new RegExp(message));
  expect(err).not.toContain('secret');
  expect(err.trimEnd()).not.toMatch('\n');
  expect(rest).toMatchObject({ status, out: '' });
  expect(wholeLines(file('out'))).toEqual([]);
  expect(readFileSync(file('notes'), 'utf8')).toBe('buy milk\n');
});
