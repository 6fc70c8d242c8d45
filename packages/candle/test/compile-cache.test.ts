/** Where the command keeps its JavaScript compiled: in a folder of the user's alone, or nowhere, and never with a word. */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import module from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';

const folder = mkdtempSync(join(tmpdir(), 'compile-cache-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const source = new URL('../bin/compile-cache.js', import.meta.url);
const program = join(folder, 'program.mjs');
writeFileSync(
  program,
  `import { keepCompiled } from ${JSON.stringify(source.href)}; keepCompiled(); await import('./part.mjs');`,
);
writeFileSync(join(folder, 'part.mjs'), "console.log('done');");

function run(environment: Record<string, string>, nodeArgs: string[] = []): void {
  const { NODE_COMPILE_CACHE, XDG_CACHE_HOME, ...env } = process.env;
  const { stdout, stderr } = spawnSync(process.execPath, [...nodeArgs, program], {
    encoding: 'utf8',
    env: { ...env, ...environment },
  });
  expect([stdout, stderr]).toEqual(['done\n', '']);
}

/** A home, and what the command makes in it. */
function home(name: string): [string, string] {
  const path = join(folder, name);
  mkdirSync(path);
  return [path, join(path, '.cache', 'x-candle-compiled')];
}

describe.skipIf(!('enableCompileCache' in module))('compiled JavaScript', () => {
  test("is kept in the user's cache directory", () => {
    const [HOME, kept] = home('own');
    run({ HOME });
    expect(readdirSync(kept)).toHaveLength(1);
    const [XDG_CACHE_HOME] = home('moved');
    run({ HOME, XDG_CACHE_HOME });
    expect(readdirSync(join(XDG_CACHE_HOME, 'x-candle-compiled'))).toHaveLength(1);
  });

  test('is kept where NODE_COMPILE_CACHE says, and nowhere with NODE_DISABLE_COMPILE_CACHE', () => {
    const [HOME, kept] = home('settings');
    const [NODE_COMPILE_CACHE] = home('named');
    run({ HOME, NODE_COMPILE_CACHE });
    expect(readdirSync(NODE_COMPILE_CACHE)).toHaveLength(1);
    run({ HOME, NODE_DISABLE_COMPILE_CACHE: '1' });
    expect(existsSync(kept)).toBe(false);
  });

  test('is not kept where others can write', () => {
    const [HOME, kept] = home('shared');
    mkdirSync(kept, { recursive: true });
    chmodSync(kept, 0o777);
    run({ HOME });
    expect(readdirSync(kept)).toEqual([]);
  });

  test('is not kept where nothing can be written', () => {
    run({ HOME: '/dev/null' });
    const [HOME, kept] = home('forbidden');
    const flag = ['--permission', '--experimental-permission'].find((name) =>
      process.allowedNodeEnvironmentFlags.has(name),
    )!;
    run({ HOME }, [flag, '--allow-fs-read=*', '--disable-warning=ExperimentalWarning']);
    mkdirSync(kept, { recursive: true });
    run({ HOME }, [flag, '--allow-fs-read=*', '--disable-warning=ExperimentalWarning']);
    expect(readdirSync(kept)).toEqual([]);
  });
});
