// Files of results as crashes, full disks and mistakes leave them.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { LineFile } from './line-file';
import { type BatchRequest, checkRequests, readRequest } from './requests';
import { Results, resultOf } from './results';

const folder = mkdtempSync(join(tmpdir(), 'candle-results-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const [input, output, errors] = ['in.jsonl', 'out.jsonl', 'out.errors.jsonl'].map((name) => join(folder, name));
beforeEach(() => {
  for (const path of [input, output, errors]) rmSync(path, { force: true });
});

const MODELS = ['tales'];
const line = (custom_id: unknown, parts: object = {}) => ({
  custom_id,
  method: 'POST',
  url: '/v1/completions',
  body: { prompt: 'Zwölf 🦊' },
  ...parts,
});
const request = (customId: string, parts = {}): BatchRequest => readRequest(line(customId, parts), 'here', MODELS);
const result = (one: BatchRequest, status = 200) => resultOf(one, { status, requestId: 'r', body: { text: 'é' } });
const open = (options = {}) => Results.open(output, errors, options);

test('a file that was cut anywhere goes on behind its last whole line', async () => {
  const all = ['a', 'b', 'c'].map((id) => request(id));
  const first = await open();
  await Promise.all(all.map((one) => first.add(one, result(one))));
  await first.close();
  const whole = readFileSync(output);
  const ends = [...whole.keys()].filter((i) => whole[i] === 0x0a).map((i) => i + 1);
  expect(ends).toHaveLength(3);
  const lengths = [...Array(40).keys(), ...ends, ...ends.map((end) => end - 1), ends[1] + 100, ends[1] + 20];
  for (const length of lengths) {
    writeFileSync(output, whole.subarray(0, length));
    const results = await open();
    const kept = ends.filter((end) => end <= length).length;
    expect(results.size).toBe(kept);
    for (const [i, one] of all.entries()) {
      expect(results.has(one)).toBe(i < kept ? 'answered' : undefined);
      if (i >= kept) await results.add(one, result(one));
      expect(await results.read(one)).toEqual(result(one));
    }
    await results.close();
    expect(readFileSync(output)).toEqual(whole);
  }
});

test('what is no file of results, or one of another batch, is left as it is', async () => {
  for (const text of [
    'my notes',
    '{"a":1}\n',
    '[]\n',
    '{"id":"batch_req_1","custom_id":"a"}\n',
    'x\n{"id":"batch_req_',
  ]) {
    writeFileSync(output, text);
    await expect(open()).rejects.toMatchObject({ code: 'BAD_RESULTS' });
    expect(readFileSync(output, 'utf8')).toBe(text);
  }
  rmSync(output);
  const [mine, other] = [request('a'), request('a', { body: { prompt: 'other' } })];
  const results = await open();
  await results.add(mine, result(mine));
  expect(() => results.has(other)).toThrow(expect.objectContaining({ code: 'BAD_RESULTS' }));
  await results.close();
  writeFileSync(errors, readFileSync(output));
  await expect(open()).rejects.toThrow(/there is another result of "a"/);
  await expect(Results.open(output, output)).rejects.toThrow(/Give two files/);
  await expect(Results.open(folder, errors)).rejects.toMatchObject({ code: 'FILE_UNUSABLE' });
});

test('one process writes at a time', async () => {
  const results = await open();
  await expect(open({ signal: AbortSignal.timeout(30_000) })).rejects.toMatchObject({ code: 'RESULTS_IN_USE' });
  await results.close();
  await (await open()).close();
});

test('failures of the server are computed again where that is asked for, others are not', async () => {
  const [ok, bad, failed] = ['ok', 'bad', 'failed'].map((id) => request(id));
  const results = await open();
  for (const [one, status] of [
    [ok, 200],
    [bad, 400],
    [failed, 500],
  ] as const)
    await results.add(one, result(one, status));
  expect([ok, bad, failed].map((one) => results.has(one))).toEqual(['answered', 'failed', 'failed']);
  await results.close();
  const again = await open({ retryFailed: true });
  expect([ok, bad, failed].map((one) => again.has(one))).toEqual(['answered', 'failed', undefined]);
  await again.close();
  expect(readFileSync(errors, 'utf8')).toBe(`${JSON.stringify(result(bad, 400))}\n`);
});

test('after a write that failed nothing more is written', async () => {
  const file = new LineFile('/dev/full', 0);
  await expect(Promise.all([file.append('a'), file.append('b')])).rejects.toThrow(/cannot be written.*ENOSPC/);
  await expect(file.append('c')).rejects.toMatchObject({ code: 'FILE_UNUSABLE' });
  await file.close();
});

test.each([
  [null, 'this is no object'],
  [line(undefined), 'custom_id is missing'],
  [line(''), 'custom_id is ""'],
  [line('a'.repeat(513)), 'custom_id is a long text'],
  [line(7), 'custom_id is 7'],
  [line('a', { method: 'GET' }), 'method is "GET"'],
  [line('a', { url: '/v1/models' }), 'url is "/v1/models"'],
  [line('a', { body: [] }), 'body is a list'],
  [line('a', { body: { stream: true } }), 'stream'],
  [line('a', { body: { model: 'gpt' } }), 'body.model is "gpt". Give tales'],
  [line('a', { body: { model: 1 } }), 'body.model is 1'],
])('%j is no request', (value, message) => {
  expect(() => readRequest(value, 'in.jsonl, line 3', MODELS)).toThrow(
    expect.objectContaining({ code: 'BAD_REQUEST', message: expect.stringContaining(message) }),
  );
});

test('requests are read to their end before any is computed', async () => {
  const check = (text: string | Buffer) => {
    writeFileSync(input, text);
    return checkRequests(input, MODELS);
  };
  const good = JSON.stringify(line('a'));
  expect([...(await check(`\uFEFF${good}\r\n\n  \n${JSON.stringify(line('b'))}`)).keys()]).toEqual(['a', 'b']);
  await expect(check('')).rejects.toThrow(/holds no request/);
  await expect(check(`${good}\n{"custom_id":`)).rejects.toThrow(/line 2 is not JSON/);
  await expect(check(`${good}\n${good}\n`)).rejects.toThrow(/two requests have the custom_id "a"/);
  for (const end of ['\n', ''])
    await expect(check(Buffer.from(good.replace('Z', '\xff') + end, 'latin1'))).rejects.toThrow(/line 1 is not UTF-8/);
  const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`;
  await expect(check(good.replace('"Zwölf 🦊"', deep))).rejects.toThrow(/too many objects and lists/);
  await expect(checkRequests(join(folder, 'none'), MODELS)).rejects.toMatchObject({ code: 'FILE_UNUSABLE' });
  await expect(checkRequests(folder, MODELS)).rejects.toThrow(/is no file/);
  await expect(checkRequests(input, MODELS, AbortSignal.abort(new Error('stop')))).rejects.toThrow('stop');
});
