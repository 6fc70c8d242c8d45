/**
 * The switches of tests and fuzzers, each with its type and default; docs/switches.md says the same. Those of the packages
 * are in their own settings. A value that is none is an error: tests that silently do something else prove nothing.
 */
export const testSettings = {
  /** Devices that the tests run on, by name; undefined for every one that is present. */
  devices: process.env.X_TEST_DEVICES?.split(','),
  /** Below 1, tests of devices that a program computes, and of slow checkers of memory accesses, do less. */
  scale: number('X_TEST_SCALE', 1),
  /** Whether tests with tensors of more than 4 GiB run. */
  huge: process.env.X_TEST_HUGE === '1',
  /** How long the fuzzer of the file parsers goes on. */
  fuzzSeconds: number('X_FUZZ_SECONDS', 2),
  /** Where it starts. */
  fuzzSeed: number('X_FUZZ_SEED', 1),
  /** Directory that tests of pages write screenshots to; undefined for none. */
  screenshots: process.env.X_TEST_SCREENSHOTS,
} as const;

function number(variable: string, byDefault: number): number {
  const value = Number(process.env[variable] || byDefault);
  if (value > 0 && Number.isFinite(value)) return value;
  throw new Error(`${variable}=${process.env[variable]}: give a number above 0`);
}
