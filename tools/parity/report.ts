/**
 * What a vitest JSON report (`--reporter=json`) says about names. A test speaks for an item when its full title has the
 * item's name as a whole word; for one of candle's test functions, when it has `file::name` or the two next to each other.
 */
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';

export interface TestCase {
  title: string;
  passed: boolean;
  /** Relative to the repository. */
  file: string;
}

/** Tests that ran; a skipped one says nothing. Throws when the file is no vitest report. */
export function readTestReport(path: string, root: string): TestCase[] {
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
      })),
  );
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
