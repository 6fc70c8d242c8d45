/** The list of tensors that were not disposed, which `X_DEBUG=1` writes when a process ends. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';

const core = new URL('../src/index.ts', import.meta.url).href;
const loader = new URL('../../../node_modules/tsx/dist/loader.mjs', import.meta.url).href;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'core-leaks-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** What a program writes to stderr. */
function run(body: string, debug: string | undefined): string {
  const file = join(folder, 'program.mjs');
  writeFileSync(file, `import { Tensor, scope } from ${JSON.stringify(core)};\n${body}`);
  const env = { ...process.env, X_DEBUG: debug };
  const { stderr, status } = spawnSync(process.execPath, ['--import', loader, pathToFileURL(file).pathname], {
    env,
    encoding: 'utf8',
    timeout: 50_000,
  });
  expect(status, stderr).toBe(0);
  return stderr;
}

const LEAKY = `
const kept = (globalThis.kept = []); // what is collected before the end is not listed
const keep = (tensor) => (kept.push(tensor), tensor);
function leak() {
  return keep(keep(Tensor.ones([2, 3])).add(1));
}
leak();
leak();
keep(keep(Tensor.zeros([100], 'u8')).narrow(0, 0, 5));
Tensor.ones([4]).dispose();
scope(() => void Tensor.ones([5]));
`;

test('lists places and bytes, the largest first, only with the switch', () => {
  const report = run(LEAKY, '1');
  expect(report).toMatch(/^\[x1\] 6 tensors of 196 bytes not disposed at exit; use dispose\(\), using or scope\(\):$/m);
  const lines = report.split('\n').filter((line) => line.includes(', made at '));
  expect(lines[0]).toMatch(/1 tensor \(u8 on cpu\), 100 bytes, made at .*program\.mjs:\d+:\d+/);
  expect(
    lines.filter((line) => /2 tensors \(f32 on cpu\), 48 bytes, made at leak .*program\.mjs:6/.test(line)),
  ).toHaveLength(2);
  expect(lines.at(-1)).toMatch(/1 tensor \(u8 on cpu\), 0 bytes/);
  expect(run(LEAKY, undefined)).not.toContain('not disposed');
});

test('says nothing when all is given back', () => {
  expect(run('scope(() => void Tensor.ones([3]).add(1));', '1')).not.toContain('not disposed');
});
