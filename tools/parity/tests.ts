/** candle's test functions against the test run's report. */
import type { CandleTest } from './candle';
import { type TestCase, testsOf, where } from './report';
import type { Row } from './table';

/** Devices that every machine has: what candle runs once a backend must have run on these at least. */
const EVERYWHERE = ['js', 'cpu'];

/** The devices that a row for each device must have run on: those, and every other on which any such row did. */
export function devicesOf(wanted: CandleTest[], tests: TestCase[]): string[] {
  const found = wanted.filter(({ perDevice }) => perDevice).flatMap(({ file, name }) => testsOf(tests, file, name));
  const others = ranOn(found).filter((device) => !EVERYWHERE.includes(device));
  return [...EVERYWHERE, ...others.sort()];
}

/**
 * A row is ok when a test that carries candle's name passed and none failed, for candle's tests of each backend on every
 * device of {@link devicesOf}; without a report all are unknown.
 */
export function testRows(wanted: CandleTest[], tests: TestCase[] | undefined): Row[] {
  const needed = devicesOf(wanted, tests ?? []);
  return wanted.map(({ file, perDevice, name }) => {
    const found = tests === undefined ? [] : testsOf(tests, file, name);
    const lacking = perDevice ? needed.filter((device) => !ranOn(found).includes(device)) : [];
    const status =
      tests === undefined
        ? 'unknown'
        : found.some(({ passed }) => !passed)
          ? 'failing'
          : found.length === 0 || lacking.length > 0
            ? 'missing'
            : 'ok';
    const item = `${file}::${name}${perDevice ? ' (each device)' : ''}`;
    return { item, ours: describe(found, lacking), status, tested: where(found) };
  });
}

/** `4 tests on 2 devices: js cpu; not on cuda:0`. */
function describe(found: TestCase[], lacking: string[]): string {
  if (found.length === 0) return '-';
  const devices = ranOn(found);
  const count = `${found.length} ${found.length === 1 ? 'test' : 'tests'}`;
  const on =
    devices.length === 0
      ? ''
      : ` on ${devices.length} ${devices.length === 1 ? 'device' : 'devices'}: ${devices.join(' ')}`;
  return `${count}${on}${lacking.length === 0 ? '' : `; not on ${lacking.join(' ')}`}`;
}

function ranOn(tests: TestCase[]): string[] {
  return [...new Set(tests.flatMap(({ device }) => device ?? []))];
}
