// Which clang++ is taken among several, with stand-ins that only answer --version.
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { searchClang, toolOf } from '../src/clang.mjs';
import { compilers } from '../src/index';
import { runIsolated } from './fake-hip';

let root = '';
const saved = { PATH: process.env.PATH, X_CLANG: process.env.X_CLANG, ROCM_PATH: process.env.ROCM_PATH };

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'x-clang-'));
  vi.stubEnv('X_CLANG', undefined);
  vi.stubEnv('PATH', '');
  vi.stubEnv('ROCM_PATH', join(root, 'no-rocm'));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(root, { recursive: true, force: true });
});

/** An executable that answers --version with this line and fails at all else. */
function fake(path: string, says: string, status = 0): string {
  const file = join(root, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `#!/bin/sh\n[ "$1" = --version ] || exit 9\necho '${says}'\nexit ${status}\n`);
  chmodSync(file, 0o755);
  return file;
}

function onPath(...directories: string[]): void {
  vi.stubEnv('PATH', directories.map((name) => join(root, name)).join(delimiter));
}

function reasons(): Record<string, string | undefined> {
  const { candidates } = searchClang();
  return Object.fromEntries(candidates.map(({ path, reason }) => [path.slice(root.length + 1), reason]));
}

// ROCm in its usual place would be among those found.
describe.skipIf(existsSync('/opt/rocm'))('the search for clang++', () => {
  test('takes the newest, not the first', () => {
    fake('a/clang++', 'Debian clang version 14.0.6');
    fake('a/clang++-20', 'Debian clang version 20.1.2');
    const best = fake('b/clang++-101', 'clang version 101.0.0git (somewhere)');
    fake('b/clang++-19', 'clang version 19.1.7');
    onPath('missing', 'a', 'b');
    expect(searchClang()).toMatchObject({ path: best, major: 101, version: 'clang version 101.0.0git (somewhere)' });
    expect(reasons()).toEqual({
      'a/clang++': 'version 14.0.6 is older than 19',
      'a/clang++-20': `${best} is newer`,
      'b/clang++-101': undefined,
      'b/clang++-19': `${best} is newer`,
    });
  });

  test('compares versions as numbers, and takes the first of equals', () => {
    const first = fake('a/clang++', 'clang version 22.1.10');
    fake('a/clang++-22', 'clang version 22.1.9');
    fake('b/clang++', 'clang version 22.1.10');
    onPath('a', 'b');
    expect(searchClang().path).toBe(first);
    expect(reasons()['b/clang++']).toBe(`${first} has the same version and comes first`);
  });

  test("looks at ROCm's, which comes first for AMD's GPUs if it is new enough", () => {
    const rocm = fake('rocm/llvm/bin/clang++', 'AMD clang version 20.0.0git (roc-7.0.1)');
    const newer = fake('a/clang++', 'clang version 22.1.8');
    vi.stubEnv('ROCM_PATH', join(root, 'rocm'));
    expect(searchClang().path).toBe(rocm);
    // ROCm has one directory under two names.
    mkdirSync(join(root, 'rocm/lib'));
    symlinkSync('../llvm', join(root, 'rocm/lib/llvm'));
    expect(Object.keys(reasons())).toEqual(['rocm/llvm/bin/clang++']);
    onPath('a');
    expect(searchClang().path).toBe(newer);
    expect(searchClang({ rocmFirst: true }).path).toBe(rocm);
    fake('rocm/llvm/bin/clang++', 'AMD clang version 17.0.0 (roc-6.0.0)');
    expect(searchClang({ rocmFirst: true }).path).toBe(newer);
  });

  test('refuses what cannot run, fails, or is no clang, and says why', () => {
    fake('a/clang++', 'clang version 30.0.0', 3);
    fake('b/clang++', 'g++ (Debian) 12.2.0');
    chmodSync(fake('c/clang++', 'clang version 30.0.0'), 0o644);
    mkdirSync(join(root, 'd/clang++-25'), { recursive: true });
    fake('e/clang++-15.bak', 'clang version 30.0.0');
    fake('f/clang++-18', 'clang version 18.1.8');
    onPath('a', 'b', 'c', 'd', 'e', 'f');
    const { path, reason } = searchClang();
    expect(path).toBeUndefined();
    expect(reasons()).toEqual({
      'a/clang++': '`--version` ended with exit status 3',
      'b/clang++': "it is no clang: `--version` says 'g++ (Debian) 12.2.0'",
      'c/clang++': 'it cannot be run (EACCES)',
      'd/clang++-25': 'it cannot be run (EACCES)',
      'f/clang++-18': 'version 18.1.8 is older than 19',
    });
    expect(reason).toContain(`${join(root, 'f/clang++-18')}: version 18.1.8 is older than 19`);
    expect(reason).toContain('Install one');
    onPath('missing');
    expect(searchClang().reason).toMatch(/no clang\+\+ of version 19 or later was found \(looked for .*on PATH/);
  });

  test('lists a directory with two names once, and follows PATH only', () => {
    fake('a/clang++', 'clang version 22.1.8');
    symlinkSync(join(root, 'a'), join(root, 'same'));
    onPath('a', 'same');
    vi.stubEnv('PATH', `${process.env.PATH}${delimiter}${delimiter}.`);
    expect(Object.keys(reasons())).toEqual(['a/clang++']);
  });

  test('X_CLANG is the only one, or an error that says what is wrong with it', () => {
    fake('a/clang++', 'clang version 22.1.8');
    onPath('a');
    vi.stubEnv('X_CLANG', fake('mine', 'clang version 19.1.0'));
    expect(searchClang().path).toBe(join(root, 'mine'));
    vi.stubEnv('X_CLANG', fake('old', 'clang version 14.0.6'));
    expect(searchClang()).toEqual({
      candidates: [expect.objectContaining({ reason: 'version 14.0.6 is older than 19' })],
      searched: [join(root, 'old')],
      reason: expect.stringMatching(
        /^X_CLANG=.*old cannot be used: version 14.0.6 is older than 19\. Set it .*unset it/,
      ),
    });
    vi.stubEnv('X_CLANG', join(root, 'nowhere'));
    expect(searchClang().reason).toContain('it cannot be run (ENOENT)');
  });

  test('is in the report', () => {
    fake('a/clang++', 'clang version 14.0.6');
    const best = fake('a/clang++-19', 'clang version 19.1.7');
    onPath('a');
    expect(compilers()[2]).toEqual({
      platform: 'host',
      available: true,
      library: best,
      version: 'clang version 19.1.7',
      searched: expect.any(Array),
      candidates: [
        expect.objectContaining({ path: join(root, 'a/clang++'), reason: 'version 14.0.6 is older than 19' }),
        expect.objectContaining({ path: best }),
      ],
    });
  });
});

test('tools of an older LLVM are refused', () => {
  const objdump = fake('bin/llvm-objdump', 'Debian LLVM version 14.0.6');
  const path = join(root, 'bin/clang++');
  writeFileSync(path, `#!/bin/sh\necho ${objdump}\n`);
  chmodSync(path, 0o755);
  const clang = { path, version: 'clang version 22.1.8', release: '22.1.8', major: 22 };
  expect(toolOf(clang, 'llvm-objdump')).toBeUndefined();
  fake('bin/llvm-objdump', 'Debian LLVM version 22.1.8');
  expect(toolOf(clang, 'llvm-objdump')).toBe(objdump);
});

test('an old clang++ that is first on the path does not compile', () => {
  fake('old/clang++', 'Debian clang version 14.0.6');
  const [head, again] = runIsolated<string[]>(
    `const compile = () => Buffer.from(hip.compileProgram('host', 'extern "C" void k() {}', { arch: 'x86-64' }));
    return [compile().toString('latin1', 1, 4), compile().toString('latin1', 1, 4)];`,
    { ...saved, PATH: `${join(root, 'old')}${delimiter}${saved.PATH}` },
  );
  expect([head, again]).toEqual(['ELF', 'ELF']);
});
