/** Builds stand-ins for rocBLAS, hipBLASLt and MIOpen (beside the fake HIP runtime) and OpenBLAS, and runs code on them. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildFakeHip, runIsolated } from '../fake-hip';
import { LIBRARY_SIGNATURES } from '../library-signatures';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

const FILES = { rocblas: 'librocblas.so', hipblaslt: 'libhipblaslt.so', miopen: 'libMIOpen.so' } as const;
export type FakeLibrary = keyof typeof FILES;

/** Prototypes of a library in C, made from the table; with them, a definition that differs does not compile. */
export function prototypesOf(library: FakeLibrary): string {
  const { functions, types, enums, structs } = LIBRARY_SIGNATURES[library];
  return [
    '#pragma once',
    '#include <cstddef>',
    '#include <cstdint>',
    structs ?? '',
    ...Object.entries(types).map(([name, what]) => `typedef ${what} ${name};`),
    `enum : int { ${Object.entries(enums)
      .map(([name, value]) => `${name} = ${value}`)
      .join(', ')} };`,
    ...functions.map(
      ({ name, returns, params }) =>
        `extern "C" __attribute__((visibility("default"))) ${returns} ${name}(${params.join(', ')});`,
    ),
  ].join('\n');
}

/** The fake HIP's path in a directory that has the wanted libraries beside it, where the addon looks first. */
export function buildFakes(libraries: readonly FakeLibrary[]): string {
  const hip = buildFakeHip(['-DFAKE_R0600']);
  for (const library of libraries) {
    const include = mkdtempSync(join(dirname(hip), `${library}-`));
    writeFileSync(join(include, 'signatures.h'), prototypesOf(library));
    const flags = ['-shared', '-fPIC', '-std=c++17', '-O1', '-Wall', '-Werror', `-I${include}`, `-I${here('.')}`];
    const source = here(`./fake_${library}.cc`);
    execFileSync(process.env.CXX ?? 'g++', [...flags, source, '-o', join(dirname(hip), FILES[library])]);
    rmSync(include, { recursive: true });
  }
  return hip;
}

/** The stand-in for OpenBLAS, whose interface is CBLAS. */
export function buildFakeOpenBlas(): string {
  const library = join(mkdtempSync(join(tmpdir(), 'x-fake-openblas-')), 'libopenblas.so');
  const flags = ['-shared', '-fPIC', '-std=c++17', '-O1', '-Wall', '-Werror'];
  execFileSync(process.env.CXX ?? 'g++', [...flags, here('./fake_openblas.cc'), '-o', library]);
  return library;
}

/** What a run against the stand-ins returned, and the calls that they noted. */
export interface FakeRun<T> {
  value: T;
  log: string[];
}

/** Runs the body in a process of its own with `hip`, if given, as its HIP runtime; `core` and `backend` are the packages. */
export function runOnFakes<T>(
  hip: string | undefined,
  body: string,
  environment: Record<string, string> = {},
): FakeRun<T> {
  const log = join(mkdtempSync(join(tmpdir(), 'x-fake-log-')), 'calls');
  const index = (name: string) => JSON.stringify(here(`../../../${name}/src/index.ts`));
  const value = runIsolated<T>(
    `const core = await import(${index('core')});
    const backend = await import(${index('rocm-backend')});
    ${body}`,
    { ...(hip && { X_HIP_LIBRARY: hip }), FAKE_LOG: log, X_GEMM: undefined, X_CONV: undefined, ...environment },
  );
  return { value, log: existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : [] };
}
