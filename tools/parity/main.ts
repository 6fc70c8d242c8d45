/**
 * `pnpm parity`: what candle has beside what is here, one table a section. Kernels come from the symbols of the code
 * objects on disk, functions from the prototypes of running backends, tests from a vitest report: nothing is listed by
 * hand as done.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { apiDocument, readTorchNames, torchRows } from './api';
import { candleFunctions, candleKernels, candleTensorMethods, candleTests, torchNamesText } from './candle';
import { closeBackends, functionRows, openBackends, tensorRows } from './functions';
import { describeTargets, kernelRows, readTargets } from './kernels';
import { readTestReport, type TestCase } from './report';
import { asMarkdown, asText, isIncomplete, type Row, type Section, summary } from './table';
import { devicesOf, testRows } from './tests';

const USAGE = `usage: pnpm parity [options]
  --section NAME   kernels, storage, device, tensor, torch or tests (default: all; may be repeated)
  --tests FILE     vitest's JSON report, for the columns and the section that speak of tests
  --strict         exit 1 when an item of a section that is not informational is not ok
  --quiet          print only items that are not ok
  --json           print one JSON array of sections
  --write          write docs/parity.md and docs/api-parity.md in place of printing`;

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SECTIONS: Record<string, (tests: TestCase[] | undefined) => Omit<Section, 'name'>> = {
  kernels: (tests) => {
    const targets = readTargets();
    return {
      title: 'Kernels',
      source: `Code objects, ${describeTargets(targets)}.`,
      informational: false,
      rows: kernelRows(candleKernels(), targets, tests ?? []),
    };
  },
  storage: (tests) => backendSection('storage', 'Storage functions (BackendStorage)', tests),
  device: (tests) => backendSection('device', 'Device functions (BackendDevice)', tests),
  tensor: (tests) => ({
    title: 'Tensor methods',
    source: 'Methods and fields of a Tensor, and static methods of its class, under the camelCase of candle’s name.',
    informational: false,
    rows: tensorRows(candleTensorMethods(), tests ?? []),
  }),
  torch: () => ({
    title: 'PyTorch’s common names',
    source: 'Members of Tensor and Device, exports, and expressions that were run; the last column is a note.',
    informational: true,
    rows: torchRows(readTorchNames(torchNamesText())),
  }),
  tests: (tests) => ({
    title: "Tests (candle's test functions)",
    source:
      tests === undefined
        ? 'No report given: run vitest with --reporter=json and pass --tests FILE.'
        : `A test here carries \`file::name\` of candle’s test in its title. Each device: ${devicesOf(candleTests(), tests).join(' ')}.`,
    informational: tests === undefined,
    rows: testRows(candleTests(), tests),
  }),
};

function backendSection(of: 'storage' | 'device', title: string, tests: TestCase[] | undefined): Omit<Section, 'name'> {
  const backends = openBackends();
  try {
    const objects = backends.map((backend) => ({ name: backend.name, object: backend[of] }));
    return {
      title,
      source: `Objects at run time, ${backends.map(({ note }) => note).join('; ')}.`,
      informational: false,
      rows: functionRows(candleFunctions(of), objects, tests ?? []),
    };
  } finally {
    closeBackends(backends);
  }
}

// Groups of docs/parity.md: kernels by module, tests by file, the others as one.
function groupOf(section: Section): (row: Row) => string {
  if (section.name === 'kernels') return ({ item }) => item.split(' ')[0]!;
  if (section.name === 'tests') return ({ item }) => item.split('::')[0]!;
  return () => section.name;
}

function document(sections: Section[]): string {
  const lines = [
    '# Parity with candle',
    '',
    'Written by `pnpm parity --write` from code objects, running backends and the test report: do not edit.',
    'Long sections list the items that are not ok; `pnpm parity` prints all. “Where tested” names the files with a passing test',
    'whose title has the name of ours (for kernels: the kernel’s name) as a whole word.',
    '',
    ...sections.flatMap((section) => asMarkdown(section, groupOf(section))),
  ];
  return `${lines.join('\n').trimEnd()}\n`;
}

function main(): number {
  const { values } = parseArgs({
    options: {
      section: { type: 'string', multiple: true },
      tests: { type: 'string' },
      strict: { type: 'boolean', default: false },
      quiet: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      write: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const names = values.section ?? Object.keys(SECTIONS);
  const stranger = names.find((name) => !Object.hasOwn(SECTIONS, name));
  if (stranger !== undefined) {
    throw new Error(`unknown section "${stranger}"; choose from ${Object.keys(SECTIONS).join(', ')}.`);
  }
  if (values.write && values.section !== undefined)
    throw new Error('--write takes every section: leave --section out.');
  if (values.strict && values.section?.includes('tests') && values.tests === undefined)
    throw new Error('--strict judges the tests by a report: give one with --tests FILE.');
  const tests = values.tests === undefined ? undefined : readTestReport(values.tests, ROOT);
  const sections = names.map((name): Section => ({ name, ...SECTIONS[name]!(tests) }));
  if (values.write) {
    writeFileSync(join(ROOT, 'docs/parity.md'), document(sections));
    const api = apiDocument(candleTensorMethods(), readTorchNames(torchNamesText()));
    writeFileSync(join(ROOT, 'docs/api-parity.md'), api);
  }
  if (values.json) console.log(JSON.stringify(sections, null, 1));
  else {
    if (!values.write) console.log(sections.flatMap((section) => asText(section, values.quiet)).join('\n'));
    for (const section of sections) console.log(`${section.name}: ${summary(section)}`);
  }
  return values.strict && sections.some(isIncomplete) ? 1 : 0;
}

try {
  process.exitCode = main();
} catch (error) {
  console.error(`parity: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 2;
}
