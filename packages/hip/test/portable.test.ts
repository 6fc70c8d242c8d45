/** What a binary asks of the machine that runs it: the checker, and the addon that is built here. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, test } from 'vitest';
import { readElf } from '../scripts/elf.mjs';
import { portabilityProblems, writeOldLibraries } from '../scripts/portable.mjs';

const work = mkdtempSync(join(tmpdir(), 'x-portable-'));
const prebuilt = fileURLToPath(new URL(`../prebuilds/${process.platform}-${process.arch}/hip.node`, import.meta.url));
afterAll(() => rmSync(work, { recursive: true, force: true }));

/** A shared object from C, linked with what is given. */
function link(name: string, source: string, ...libraries: string[]): string {
  const path = join(work, `${name}.so`);
  writeFileSync(join(work, `${name}.c`), source);
  execFileSync('gcc', ['-shared', '-fPIC', join(work, `${name}.c`), '-o', path, ...libraries]);
  return path;
}

describe('the addon of this machine', () => {
  test('asks for glibc 2.28 at most, and for no C++ library', () => {
    expect(portabilityProblems(prebuilt, 'gnu')).toEqual([]);
    expect(readElf(prebuilt).needed).not.toContain('libstdc++.so.6');
  });

  test('is stripped and shows nothing of its C++ runtime', () => {
    const { stripped, symbols } = readElf(prebuilt);
    expect(stripped).toBe(true);
    const shown = symbols.filter(({ defined, type }) => defined && type === 'function').map(({ name }) => name);
    expect(shown.sort()).toEqual(['napi_register_module_v1', 'node_api_module_get_api_version_v1']);
  });
});

describe('the check', () => {
  const CREATE = `#include <pthread.h>
#include <dlfcn.h>
void* start(void* x) { return x; }
int go(void) { pthread_t t; return pthread_create(&t, 0, start, 0) + (dlopen("x", 1) != 0); }
`;

  test('names a symbol of a newer glibc, and a library that a machine need not have', () => {
    // Only where the machine's own glibc is newer does linking with it ask for more.
    const problems = portabilityProblems(link('new', CREATE), 'gnu');
    expect(problems.join('\n')).toMatch(
      /pthread_create has the version GLIBC_2\.34, and the newest allowed is GLIBC_2\.28/,
    );
    const library = link('library', 'int x;');
    expect(portabilityProblems(link('needs', 'int y;', '-Wl,--no-as-needed', library), 'gnu')).toEqual([
      expect.stringContaining('it needs'),
    ]);
  });

  test('passes what is linked with the old libraries, which name where a symbol was then', () => {
    const old = writeOldLibraries('g++', join(work, 'old'));
    expect(Array.isArray(old)).toBe(true);
    const path = link('old', CREATE, '-nodefaultlibs', ...(old as string[]));
    expect(portabilityProblems(path, 'gnu')).toEqual([]);
    expect(readElf(path).needed).toEqual(expect.arrayContaining(['libpthread.so.0', 'libdl.so.2']));
  });

  test('has nothing with versions on musl', () => {
    expect(portabilityProblems(prebuilt, 'musl').join('\n')).toMatch(/it needs libc\.so\.6/);
  });

  test('refuses what is no ELF file', () => {
    writeFileSync(join(work, 'text'), 'text');
    expect(() => readElf(join(work, 'text'))).toThrow('is no 64-bit little-endian ELF file');
    writeFileSync(join(work, 'cut'), Buffer.concat([Buffer.from('7f454c46020101', 'hex'), Buffer.alloc(60, 255)]));
    expect(() => readElf(join(work, 'cut'))).toThrow('is a damaged ELF file');
  });
});
