/**
 * What the device tests use of vitest, over `node:test` and vitest's own matchers, so that a bundle of them runs on a
 * machine that has only a Node binary.
 */
import { after, afterEach, before, beforeEach, describe as nodeDescribe, it as nodeIt } from 'node:test';
import { format } from 'node:util';
import {
  ASYMMETRIC_MATCHERS_OBJECT,
  addCustomEqualityTesters,
  GLOBAL_EXPECT,
  type getState,
  JestAsymmetricMatchers,
  JestChaiExpect,
  JestExtend,
  setState,
} from '@vitest/expect';
import { spyOn as spy } from '@vitest/spy';
import * as chai from 'chai';

chai.use(JestExtend);
chai.use(JestChaiExpect);
chai.use(JestAsymmetricMatchers);

type Expect = Parameters<typeof getState>[0];
const expectValue = ((value: unknown, message?: string) => chai.expect(value, message)) as unknown as Expect;
const globals = globalThis as unknown as Record<PropertyKey, object>;
Object.assign(expectValue, chai.expect, globals[ASYMMETRIC_MATCHERS_OBJECT as unknown as PropertyKey]);
setState(
  {
    assertionCalls: 0,
    isExpectingAssertions: false,
    isExpectingAssertionsError: null,
    expectedAssertionsNumber: null,
    expectedAssertionsNumberErrorGen: null,
  },
  expectValue,
);
Object.defineProperty(globalThis, GLOBAL_EXPECT, { value: expectValue, writable: true, configurable: true });

type Body = () => void | Promise<void>;
type Options = number | { timeout?: number; interval?: number };

function timeoutOf(options?: Options): { timeout?: number } {
  return typeof options === 'number' ? { timeout: options } : (options ?? {});
}

/** `each(list)(name, body)`: one suite or test an entry, array entries spread as arguments. */
function withEach<T extends (name: string, body: never, options?: Options) => void>(run: T) {
  return Object.assign(run, {
    each:
      (list: readonly unknown[]) =>
      (name: string, body: (...args: never[]) => void | Promise<void>, options?: Options) => {
        for (const entry of list) {
          const args = Array.isArray(entry) ? entry : [entry];
          const title = name.replaceAll('$name', String((entry as { name?: unknown }).name));
          run(
            format(title, ...(title.includes('%') ? args.map(String) : [])),
            (() => body(...(args as never[]))) as never,
            options,
          );
        }
      },
  });
}

const skip = withEach((name: string) => void nodeIt(name, { skip: true }));
const runSuite = withEach((name: string, body: Body) => void nodeDescribe(name, body));
export const describe = Object.assign(runSuite, {
  skipIf: (condition: unknown) => (condition ? skip : runSuite),
  runIf: (condition: unknown) => (condition ? runSuite : skip),
});
const runIt = withEach(
  (name: string, body: Body, options?: Options) => void nodeIt(name, timeoutOf(options), async () => body()),
);
export const it = Object.assign(runIt, {
  skip,
  skipIf: (condition: unknown) => (condition ? skip : runIt),
  runIf: (condition: unknown) => (condition ? runIt : skip),
});
export const test = it;
export const beforeAll = (body: Body) => before(body);
export const afterAll = (body: Body) => after(body);
export { addCustomEqualityTesters, afterEach, beforeEach, expectValue as expect };

/** Types are checked where tests are compiled: any chain of calls, which do nothing. */
export const expectTypeOf = (): unknown => {
  const nothing: unknown = new Proxy(() => {}, { get: () => nothing, apply: () => nothing });
  return nothing;
};

const stubbed = new Map<string, string | undefined>();
const spies: { mockRestore(): void }[] = [];

const spyOn = new Proxy(spy, {
  apply(target, self, of) {
    const made = Reflect.apply(target, self, of) as { mockRestore(): void };
    spies.push(made);
    return made;
  },
});

/** Environment variables for a test's time, calls of methods, and waiting for what is to be. */
export const vi = {
  spyOn,
  restoreAllMocks(): void {
    for (const made of spies.splice(0)) made.mockRestore();
  },
  async waitFor<T>(body: () => T | Promise<T>, options: Options = {}): Promise<T> {
    const { timeout = 1000, interval = 50 } = typeof options === 'number' ? { timeout: options } : options;
    for (const end = performance.now() + timeout; ; ) {
      try {
        return await body();
      } catch (error) {
        if (performance.now() >= end) throw error;
        await new Promise((resolve) => setTimeout(resolve, interval));
      }
    }
  },
  stubEnv(name: string, value: string | undefined): void {
    if (!stubbed.has(name)) stubbed.set(name, process.env[name]);
    setEnv(name, value);
  },
  unstubAllEnvs(): void {
    for (const [name, value] of stubbed) setEnv(name, value);
    stubbed.clear();
  },
};

function setEnv(name: string, value: string | undefined): void {
  if (value === undefined) delete process.env[name];
  else process.env[name] = value;
}
