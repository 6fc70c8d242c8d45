/** Numbers that documents repeat are those of the sources: what changes there must be changed here too. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SUPPORTED_ARCHITECTURES } from '@x/transformers';
import { expect, test } from 'vitest';
import { ROOT } from '../../docs/site/links';
import { KERNEL_PACKAGES } from '../../packages/kernels/src/packages';
import { ALL_TARGETS } from '../kernels/targets';

const read = (document: string) => readFileSync(join(ROOT, document), 'utf8');

test.each(['README.md', 'docs/index.md', 'docs/guide/faq.md'])('%s counts the architectures', (document) => {
  expect(read(document)).toContain(`${SUPPORTED_ARCHITECTURES.length} architectures`);
});

test('the front page counts the targets and the methods', () => {
  const front = read('docs/index.md');
  expect(front).toContain(`${ALL_TARGETS.filter((name) => name.startsWith('gfx')).length} AMD targets`);
  const [, methods] = /^(\d+) of \1 public methods/m.exec(read('docs/api-parity.md'))!;
  expect(front).toContain(`All ${methods} methods`);
});

test('docs/kernels.md lists the targets', () => {
  const [, section] = /^## Targets\n([\s\S]*?)^## /m.exec(read('docs/kernels.md'))!;
  expect(ALL_TARGETS.filter((name) => !section.includes(name))).toEqual([]);
});

test('the install guide has every package of kernels', () => {
  const guide = read('docs/guide/install.md');
  expect(Object.keys(KERNEL_PACKAGES).filter((name) => !guide.includes(`\`${name}\``))).toEqual([]);
});

test('the FAQ repeats what is measured', () => {
  const [, count, mean] = /geometric mean over these (\d+) is ([\d.]+)/.exec(read('docs/benchmarks.md'))!;
  expect(read('docs/guide/faq.md')).toContain(`geometric mean of ${count} tensor operations is ${mean} times`);
});

test('the guide to ROCm has every finding of doctor', () => {
  const source = read('packages/candle/src/doctor/findings.ts');
  const [, union] = /code:\n([\s\S]*?);/.exec(source)!;
  const guide = read('docs/guide/troubleshooting-rocm.md');
  const codes = [...union.matchAll(/'(\w+)'/g)].map(([, code]) => code);
  expect(codes.length).toBeGreaterThan(10);
  expect(codes.filter((code) => !guide.includes(`\`${code}\``))).toEqual([]);
});
