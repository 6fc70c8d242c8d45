import { JsDevice } from '@x/core';
import { describe, expect, it } from 'vitest';
import { makeTarget } from '../kernels/targets';
import { camelCase, candleFunctions, candleKernels, candleTensorMethods, candleTests, parseTsv } from './candle';
import { functionRows, has } from './functions';
import { type BuiltTarget, describeTargets, kernelRows } from './kernels';
import { parseTestReport, readTestReport, type TestCase, testsNaming, testsOf, where } from './report';
import { asMarkdown, asText, isIncomplete, type Row, type Section, summary } from './table';
import { devicesOf, testRows } from './tests';

describe("candle's lists", () => {
  it('have the inventory’s counts, each name once', () => {
    const kernels = candleKernels();
    expect(kernels).toHaveLength(748);
    expect(new Set(kernels.map(({ name }) => name)).size).toBe(748);
    expect(candleFunctions('storage')).toHaveLength(31);
    expect(candleFunctions('device')).toHaveLength(13);
    expect(new Set(candleTensorMethods().map(({ name }) => name)).size).toBe(210);
    const tests = candleTests();
    expect(tests.filter(({ perDevice }) => perDevice)).toHaveLength(116);
    expect(tests.filter(({ perDevice, file }) => !perDevice && file.startsWith('candle-core/'))).toHaveLength(64);
    expect(tests.filter(({ perDevice, file }) => !perDevice && file.startsWith('candle-nn/'))).toHaveLength(48);
  });

  it('are read without comments, and renamed to camelCase', () => {
    expect(parseTsv('# a\tb\n\nx\ty z\n')).toEqual([['x', 'y z']]);
    expect(camelCase('conv1d_with_algo')).toBe('conv1dWithAlgo');
    expect(camelCase('upsample_nearest1d')).toBe('upsampleNearest1d');
    expect(candleFunctions('storage').find(({ name }) => name === 'reduce_op')?.ours).toBe('reduce');
  });
});

describe('kernelRows', () => {
  const wanted = [{ module: 'affine', name: 'affine_f32', params: ['u64', 'ptr', 'f32'] }];
  const target = (name: string, kernels: BuiltTarget['modules'][string], module = 'affine'): BuiltTarget => ({
    target: name,
    kind: makeTarget(name).kind,
    modules: { [module]: kernels },
  });
  const good = { affine_f32: { params: ['u64' as const, 'ptr' as const, 'f32' as const] } };

  it('is ok when every target has the kernel with the same types', () => {
    const targets = [target('x86-64-v3', good), target('gfx1100', good)];
    expect(kernelRows(wanted, targets, [])).toEqual([
      { item: 'affine affine_f32', ours: 'host amdgcn', status: 'ok', tested: '-' },
    ]);
    expect(describeTargets(targets)).toBe('host: x86-64-v3; amdgcn: gfx1100; nvptx: not built');
  });

  it('is asked of no target that has some modules only', () => {
    const [row] = kernelRows(wanted, [target('x86-64-v3', good), target('x86-64-v3-vnni', {}, 'quantized')], []);
    expect(row).toMatchObject({ status: 'ok', ours: 'host' });
  });

  it('is missing when a target lacks it, has it in another module, or nothing is built', () => {
    const lacking = kernelRows(wanted, [target('gfx1100', good), target('gfx90a', {}), target('nvptx64', good)], []);
    expect(lacking[0]).toMatchObject({ status: 'missing', ours: 'nvptx; not in gfx90a' });
    expect(kernelRows(wanted, [target('gfx1100', good, 'unary')], [])[0]!.status).toBe('missing');
    expect(kernelRows(wanted, [], [])[0]).toMatchObject({ status: 'missing', ours: 'nothing built' });
  });

  it('differs when a type or the order is another', () => {
    const swapped = { affine_f32: { params: ['ptr' as const, 'u64' as const, 'f32' as const] } };
    const row = kernelRows(wanted, [target('gfx1100', swapped)], [])[0]!;
    expect(row.status).toBe('differs');
    expect(row.ours).toContain('gfx1100 (ptr u64 f32), candle: u64 ptr f32');
  });
});

describe('functionRows', () => {
  it('finds methods, accessors and fields on a running object, and nothing else', () => {
    const device = new JsDevice();
    expect(has(device, 'zeros')).toBe(true);
    expect(has(device, 'location')).toBe(true);
    expect(has(device, 'teleport')).toBe(false);
    expect(has(undefined, 'zeros')).toBe(false);
  });

  it('is ok only when every backend has it', () => {
    const objects = [
      { name: 'js', object: { gather: () => 0, zeros: () => 0 } },
      { name: 'cpu', object: { gather: () => 0 } },
    ];
    const wanted = ['gather', 'zeros', 'teleport'].map((name) => ({ name, ours: name }));
    const rows = functionRows(
      [...wanted, { name: 'new', ours: 'Device.at' }, { name: 'x', ours: 'Device.no' }],
      objects,
      [],
    );
    expect(rows.map(({ status }) => status)).toEqual(['ok', 'missing', 'missing', 'ok', 'missing']);
    expect(rows[1]!.ours).toBe('zeros: js');
    const absent = [...objects, { name: 'cuda', object: undefined }];
    expect(functionRows([{ name: 'new', ours: 'Device.at' }], absent, [])[0]!.status).toBe('missing');
  });
});

describe('the test report', () => {
  const assertion = (fullName: string, status: string) => ({ fullName, status });
  const text = JSON.stringify({
    testResults: [
      {
        name: '/repo/a.test.ts',
        assertionResults: [
          assertion('cpu tensor_tests::narrow keeps strides', 'passed'),
          assertion('js tensor_tests narrow', 'passed'),
          assertion('views on cpu tensor_tests::cat', 'failed'),
          assertion('views on js tensor_tests::cat', 'passed'),
          assertion('tensor_tests::sum', 'skipped'),
          assertion('indexSelect of rows', 'passed'),
          assertion('cpu flash attention on js cpu_flash_attn::causal', 'passed'),
          assertion('views on js tensor_tests::max', 'passed'),
          assertion('nothing_cpu::x on cuda:12a or rocm', 'passed'),
        ],
      },
    ],
  });
  const tests = parseTestReport(text, 'report.json', '/repo');

  it('keeps what ran and refuses other files', () => {
    expect(tests).toHaveLength(8);
    const title = 'cpu tensor_tests::narrow keeps strides';
    expect(tests[0]).toEqual({ title, passed: true, file: 'a.test.ts', device: 'cpu' });
    expect(() => readTestReport('/nowhere/x.json', '/')).toThrow(/there is no \/nowhere\/x\.json/);
    expect(() => parseTestReport('{}', 'x.json', '/')).toThrow(/x\.json has no testResults/);
    expect(() => parseTestReport('<', 'x.json', '/')).toThrow(/x\.json is not JSON/);
  });

  it('matches whole words', () => {
    expect(testsNaming(tests, 'indexSelect')).toHaveLength(1);
    expect(testsNaming(tests, 'index', 'Select', 'a+b')).toHaveLength(0);
    expect(testsNaming(tests, 'Tensor.of')).toHaveLength(0);
    expect(testsOf(tests, 'candle-core/tensor_tests', 'narrow')).toHaveLength(2);
    expect(testsOf(tests, 'candle-core/tensor_tests', 'keeps')).toHaveLength(0);
    expect(where(testsOf(tests, 'candle-core/tensor_tests', 'narrow'))).toBe('a.test.ts (2)');
    expect(where(testsOf(tests, 'candle-core/tensor_tests', 'cat')), 'what failed is no place').toBe('a.test.ts (1)');
    expect(where(testsOf(tests, 'candle-core/tensor_tests', 'sum'))).toBe('-');
  });

  it('finds the device in the title', () => {
    const devices = [...['cpu', 'js', 'cpu', 'js'], undefined, 'js', 'js', undefined];
    expect(tests.map(({ device }) => device)).toEqual(devices);
  });

  const wanted = (names: string[], perDevice = true) =>
    names.map((name) => ({ file: 'candle-core/tensor_tests', perDevice, name }));
  const shown = (names: string[], perDevice = true, report: TestCase[] | undefined = tests) =>
    testRows(wanted(names, perDevice), report).map(({ status, ours }) => `${status}: ${ours}`);

  it('decides the status of candle’s tests', () => {
    expect(shown(['narrow', 'cat', 'sum'])).toEqual([
      'ok: 2 tests on 2 devices: cpu js',
      'failing: 2 tests on 2 devices: cpu js',
      'missing: -',
    ]);
    expect(testRows(wanted(['narrow']), undefined).map(({ status }) => status)).toEqual(['unknown']);
  });

  it('demands a test of each backend on every device of the report, others once', () => {
    expect(shown(['max'])).toEqual(['missing: 1 test on 1 device: js; not on cpu']);
    expect(shown(['max'], false)).toEqual(['ok: 1 test on 1 device: js']);
    expect(shown(['none'], false)).toEqual(['missing: -']);
    const gpu = { title: 'views on cuda:0 tensor_tests::max', passed: true, file: 'a.test.ts', device: 'cuda:0' };
    expect(devicesOf(wanted(['max', 'narrow']), [...tests, gpu])).toEqual(['js', 'cpu', 'cuda:0']);
    expect(shown(['max', 'narrow'], true, [...tests, gpu])).toEqual([
      'missing: 2 tests on 2 devices: js cuda:0; not on cpu',
      'missing: 2 tests on 2 devices: cpu js; not on cuda:0',
    ]);
    const plain = { title: 'tensor_tests::max', passed: true, file: 'a.test.ts' };
    expect(shown(['max'], false, [plain])).toEqual(['ok: 1 test']);
    expect(shown(['max'], true, [plain])).toEqual(['missing: 1 test; not on js cpu']);
  });
});

describe('tables', () => {
  const row = (item: string, status: Row['status']): Row => ({ item, ours: 'x', status, tested: '-' });
  const section: Section = {
    ...{ name: 'kernels', title: 'Kernels', source: 'Here.', informational: false },
    rows: [row('a one', 'ok'), row('a two', 'missing'), row('b one', 'ok')],
  };

  it('sum up, and an informational section fails nothing', () => {
    expect(summary(section)).toBe('2 of 3 ok, 1 missing');
    expect(isIncomplete(section)).toBe(true);
    expect(isIncomplete({ ...section, informational: true })).toBe(false);
    expect(isIncomplete({ ...section, rows: [row('a', 'ok')] })).toBe(false);
  });

  it('print every row, or only the open ones', () => {
    const lines = asText(section);
    expect(lines).toContain("candle's item  ours  status   where tested");
    expect(lines).toContain('a one          x     ok       -');
    expect(asText(section, true).join('\n')).not.toContain('a one');
    expect(asText({ ...section, rows: [row('a', 'ok')] }, true)).toEqual(['== Kernels: 1 of 1 ok', 'Here.', '']);
  });

  it('in Markdown count by group, and list a short section whole, of a long one what is open', () => {
    const groupOf = ({ item }: Row) => item.split(' ')[0]!;
    const lines = asMarkdown(section, groupOf);
    expect(lines).toContain('| a | 1 | 2 |');
    expect(lines.filter((line) => line.startsWith('| `'))).toHaveLength(3);
    const long = { ...section, rows: [...Array(50).fill(row('b many', 'ok')), row('a two', 'missing')] };
    const listed = asMarkdown(long, groupOf).filter((line) => line.startsWith('| `'));
    expect(listed).toEqual(['| `a two` | x | missing | - |']);
  });
});
