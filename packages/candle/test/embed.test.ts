/** `candle embed` as a shell sees it. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { bundleCommand } from './command';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const BERT = join(root, 'models/encoders/bert');
const RERANKER = join(root, 'models/encoders/bert_rerank');
const folder = mkdtempSync(join(tmpdir(), 'candle-embed-'));
const command = bundleCommand();
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

function run(args: string[], input = ''): Promise<{ status: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, [command, 'embed', ...args, '--device', 'js'], { cwd: root });
  child.stdin.on('error', () => {}).end(input);
  const parts = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    parts.out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    parts.err += text;
  });
  return new Promise((resolve) => child.on('close', (status) => resolve({ status, ...parts })));
}

test('lines of files become lines of JSON, blank ones left out', async () => {
  const file = join(folder, 'texts.txt');
  writeFileSync(file, 'the king\n\nthe wolf\r\nan end without a line end');
  const { status, out, err } = await run([BERT, file, '--dimensions', '4']);
  expect(status).toBe(0);
  const lines = out.trim().split('\n').map((line) => JSON.parse(line)); // biome-ignore format: one step a line
  expect(lines.map(({ file: from, line, dropped }) => [from, line, dropped])).toEqual(
    [1, 3, 4].map((n) => [file, n, 0]),
  );
  for (const { embedding } of lines) expect(Math.hypot(...embedding)).toBeCloseTo(1, 6);
  expect(err).toContain('3 texts');
});

test('standard input, one JSON object, and a warning for what does not fit', async () => {
  const { status, out, err } = await run([BERT, '--json', '--max-tokens', '8'], `${'king '.repeat(20)}\nshort\n`);
  expect(status).toBe(0);
  const { texts, dropped, results } = JSON.parse(out);
  expect([texts, dropped]).toEqual([2, 1]);
  expect(results[0].tokens).toBe(8);
  expect(results[0].dropped).toBeGreaterThan(0);
  expect(err).toContain('1 of 2 texts are longer than 8 tokens');
});

test.each([['--devices', 'js,js'], ['--tensor-parallel', '2'], ['--pipeline']])(
  'the flags %s are refused: one device computes the vectors',
  async (...flags) => {
    const { status, out, err } = await run([BERT, ...flags], 'king\n');
    expect([status, out]).toEqual([2, '']);
    expect(err).toContain(`USAGE: ${flags[0]} is for models that make texts`);
  },
);

test('its help has no flags that it does not take', async () => {
  const { out } = await run(['--help'], '');
  expect(out).toContain('--device <name>');
  expect(out).not.toMatch(/--devices|--tensor-parallel|--pipeline|--no-graphs|--no-fused|--experts|--hot-experts/);
  expect((await run([BERT, '--experts', 'host'], 'king\n')).err).toContain("unknown option '--experts'");
});

test('a query ranks the texts', async () => {
  const { status, out } = await run([RERANKER, '--query', 'who', '--top', '2'], 'one\ntwo\nthree\n');
  expect(status).toBe(0);
  const [first, second, none] = out.split('\n');
  expect(JSON.parse(first).score).toBeGreaterThanOrEqual(JSON.parse(second).score);
  expect(none).toBe('');
});

test.each([
  [[BERT, '--top', '2'], 'a', 2, 'USAGE: --top is for --query'],
  [[RERANKER, '--query', 'x', '--dimensions', '2'], 'a', 2, 'USAGE: --dimensions is for vectors'],
  [[BERT, '--dimensions', '65'], 'a', 1, 'INVALID_OPTION: embed: dimensions is 65'],
  [[BERT, '--prompt-name', 'nothing'], 'a', 1, 'INVALID_OPTION: embed: there is no prompt "nothing"'],
  [[BERT, '--query', 'x'], 'a', 1, 'UNSUPPORTED_MODEL: rerank'],
  [[BERT, '--no-truncate', '--max-tokens', '4'], 'one two three four', 1, 'CONTEXT_EXCEEDED: embed: text 0'],
  [[BERT, join(folder, 'missing')], '', 1, 'FILE_NOT_FOUND'],
])('%j is refused with one line', async (args, input, status, message) => {
  const result = await run(args, input);
  expect([result.status, result.out]).toEqual([status, '']);
  expect(result.err.trim().split('\n')).toEqual([expect.stringContaining(`error ${message}`)]);
});
