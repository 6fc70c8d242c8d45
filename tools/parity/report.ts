/**
 * What a vitest JSON report (`--reporter=json`) says about names. A test speaks for an item when its full title has the
 * item's name as a whole word; for one of candle's test functions, when it has `file::name` or the two next to each other.
 * The device that it ran on is in the title too: `pooling on cuda:0 pool_tests::max_pool2d`.
 */
import { existsSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';

export interface TestCase {
  title: string;
  passed: boolean;
  /** Relative to the repository. */
  file: string;
  /** js, cpu, rocm:0, cuda:1; undefined when the title names none. */
  device?: string;
}

/** Tests that ran; a skipped one says nothing. Throws when the file is no vitest report. */
export function readTestReport(path: string, root: string): TestCase[] {
  if (!existsSync(path)) throw new Error(`there is no ${path}. Write it with vitest --reporter=json.`);
  return parseTestReport(readFileSync(path, 'utf8'), path, root);
}

export function parseTestReport(text: string, path: string, root: string): TestCase[] {
  let report: unknown;
  try {
    report = JSON.parse(text);
  } catch (error) {
    throw new Error(`${path} is not JSON (${(error as Error).message}). Write it with vitest --reporter=json.`);
  }
  const files = (report as { testResults?: unknown } | null)?.testResults;
  if (!Array.isArray(files)) throw new Error(`${path} has no testResults. Write it with vitest --reporter=json.`);
  return files.flatMap((file: { name: string; assertionResults?: { fullName: string; status: string }[] }) =>
    (file.assertionResults ?? [])
      .filter(({ status }) => status === 'passed' || status === 'failed')
      .map(({ fullName, status }) => ({
        title: fullName,
        passed: status === 'passed',
        file: relative(root, file.name),
        device: deviceOf(fullName),
      })),
  );
}

/** The device in a title: after `on`, else the first whole word that is one. */
function deviceOf(title: string): string | undefined {
  const device = '(js|cpu|(?:rocm|cuda):\\d+)(?![\\w:])';
  return [`(?<!\\w)on ${device}`, `(?<![\\w:])${device}`]
    .map((form) => new RegExp(form).exec(title)?.[1])
    .find(Boolean);
}

/** Tests whose title has one of the names as a whole word; `Tensor.from` only in full, for `from` alone is prose. */
export function testsNaming(tests: readonly TestCase[], ...names: string[]): TestCase[] {
  const pattern = new RegExp(`(?<![\\w.])(?:${names.map(escaped).join('|')})(?!\\w)`);
  return tests.filter(({ title }) => pattern.test(title));
}

/** Tests that carry candle's test function `name` of `file` (candle-core/tensor_tests). */
export function testsOf(tests: readonly TestCase[], file: string, name: string): TestCase[] {
  const stem = file.slice(file.lastIndexOf('/') + 1);
  const pattern = new RegExp(`(?<!\\w)${escaped(stem)}(?:::| > | )${escaped(name)}(?!\\w)`);
  return tests.filter(({ title }) => pattern.test(title));
}

/** The files of the passing tests: `a.test.ts (4), b.test.ts (1)`, or `-`. */
export function where(tests: readonly TestCase[]): string {
  const counts = new Map<string, number>();
  for (const { file, passed } of tests) if (passed) counts.set(file, (counts.get(file) ?? 0) + 1);
  return counts.size === 0 ? '-' : [...counts].map(([file, count]) => `${file} (${count})`).join(', ');
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
