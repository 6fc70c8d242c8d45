/** candle's test functions against the test run's report. */
import type { CandleTest } from './candle';
import { type TestCase, testsOf, where } from './report';
import type { Row } from './table';

/** A row is ok when a test that carries candle's name passed and none failed; without a report all are unknown. */
export function testRows(wanted: CandleTest[], tests: TestCase[] | undefined): Row[] {
  return wanted.map(({ file, perDevice, name }) => {
    const found = tests === undefined ? [] : testsOf(tests, file, name);
    const failing = found.filter(({ passed }) => !passed);
    const status =
      tests === undefined ? 'unknown' : found.length === 0 ? 'missing' : failing.length > 0 ? 'failing' : 'ok';
    const ours = found.length === 0 ? '-' : `${found.length} tests`;
    return { item: `${file}::${name}${perDevice ? ' (each device)' : ''}`, ours, status, tested: where(found) };
  });
}
