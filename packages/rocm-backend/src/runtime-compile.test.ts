/** The disk cache of run-time compilation: what it counts, damaged files, several processes, a directory that is closed. */
import { spawn } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { compilers } from '@x/hip';
import { parseCodeObject } from '@x/kernels';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type CompileCacheStats, clearCompiledSources, compileCached, compileCacheStats } from './runtime-compile';

const hasClang = compilers().find(({ platform }) => platform === 'host')?.available;

const source = (name: string) => `
  #include "x.h"
  KERNEL(${name}, (u64 n, float* y)) {
    X_FOR_EACH(i, n) y[i] = (float)i;
  }`;

const compile = (name: string, flags: readonly string[] = []) =>
  compileCached({ source: source(name), options: { flags }, platform: 'host', arch: 'x86-64-v2' });

describe.runIf(hasClang)('the cache of compiled kernels', () => {
  let directory: string;
  let previous: string | undefined;
  let before: CompileCacheStats;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'candle-cache-'));
    previous = process.env.X_CACHE_DIR;
    process.env.X_CACHE_DIR = directory;
    clearCompiledSources();
    before = compileCacheStats();
  });
  afterEach(() => {
    if (previous === undefined) delete process.env.X_CACHE_DIR;
    else process.env.X_CACHE_DIR = previous;
    rmSync(directory, { recursive: true, force: true });
  });

  /** The counters that have changed since the test began. */
  const changes = () =>
    Object.fromEntries(
      Object.entries(compileCacheStats())
        .map(([name, count]) => [name, count - before[name as keyof CompileCacheStats]])
        .filter(([, count]) => count !== 0),
    );
  const files = () => readdirSync(directory).sort();

  test('counts hits and misses', () => {
    const first = compile('counted');
    expect(changes()).toEqual({ diskMisses: 1, compiled: 1 });
    expect(compile('counted')).toBe(first);
    expect(changes()).toEqual({ diskMisses: 1, compiled: 1, memoryHits: 1 });
    clearCompiledSources();
    expect(compile('counted').bytes).toEqual(first.bytes);
    expect(changes()).toEqual({ diskMisses: 1, compiled: 1, memoryHits: 1, diskHits: 1 });
    expect(files()).toEqual([`${first.key}.bin`]);
  });

  test('source, options and target each make another object', () => {
    const keys = [
      compile('one'),
      compile('two'),
      compile('one', ['-DTILE=4']),
      compileCached({ source: source('one'), options: {}, platform: 'host', arch: 'x86-64-v3' }),
    ].map(({ key }) => key);
    expect(new Set(keys).size).toBe(4);
    expect(files()).toEqual(keys.map((key) => `${key}.bin`).sort());
  });

  test('what does not compile is counted as a miss and leaves no file', () => {
    expect(() => compileCached({ source: 'KERNEL(', options: {}, platform: 'host', arch: 'x86-64-v2' })).toThrow(
      expect.objectContaining({ code: 'COMPILE_FAILED' }),
    );
    expect(changes()).toEqual({ diskMisses: 1 });
    expect(files()).toEqual([]);
  });

  const damages: [string, (path: string) => void][] = [
    ['cut in the middle', (path) => truncateSync(path, readFileSync(path).length >> 1)],
    ['cut after its hash', (path) => truncateSync(path, 64)],
    ['emptied', (path) => truncateSync(path, 0)],
    ['replaced by text', (path) => writeFileSync(path, 'not an object')],
    [
      'changed in one bit',
      (path) => {
        const bytes = readFileSync(path);
        bytes[bytes.length - 100] ^= 4;
        writeFileSync(path, bytes);
      },
    ],
  ];
  test.each(damages)('a file %s is compiled again and replaced', (_, damage) => {
    const { key } = compile('mended');
    damage(join(directory, `${key}.bin`));
    clearCompiledSources();
    expect(Object.keys(parseCodeObject(compile('mended').bytes).kernels)).toEqual(['mended']);
    expect(changes()).toEqual({ diskMisses: 1, compiled: 2, damaged: 1 });
    clearCompiledSources();
    compile('mended');
    expect(changes()).toEqual({ diskMisses: 1, compiled: 2, damaged: 1, diskHits: 1 });
    expect(files()).toEqual([`${key}.bin`]);
  });

  test.runIf(process.geteuid)('a file that others could have written is compiled again and replaced', () => {
    const { key } = compile('planted');
    chmodSync(join(directory, `${key}.bin`), 0o666);
    clearCompiledSources();
    expect(Object.keys(parseCodeObject(compile('planted').bytes).kernels)).toEqual(['planted']);
    expect(changes()).toEqual({ diskMisses: 1, compiled: 2, refused: 1 });
    clearCompiledSources();
    compile('planted');
    expect(changes()).toEqual({ diskMisses: 1, compiled: 2, refused: 1, diskHits: 1 });
  });

  test.runIf(process.geteuid)('a directory that others can write is not used, and results stay right', () => {
    compile('open');
    chmodSync(directory, 0o777);
    clearCompiledSources();
    expect(Object.keys(parseCodeObject(compile('open').bytes).kernels)).toEqual(['open']);
    expect(changes()).toEqual({ diskMisses: 1, compiled: 2, refused: 1, writeFailures: 1 });
  });

  test('a directory that cannot be written costs a warning', async () => {
    const warnings: (Error & { code?: string })[] = [];
    const listen = (warning: Error) => warnings.push(warning);
    process.on('warning', listen);
    try {
      const file = join(directory, 'file');
      writeFileSync(file, '');
      process.env.X_CACHE_DIR = join(file, 'cache');
      expect(Object.keys(parseCodeObject(compile('homeless').bytes).kernels)).toEqual(['homeless']);
      compile('homeless_too');
      expect(changes()).toEqual({ diskMisses: 2, compiled: 2, writeFailures: 2 });
      await new Promise((resolve) => setImmediate(resolve));
      const ours = warnings.filter(({ code }) => code === 'KERNEL_CACHE_UNWRITABLE');
      expect(ours).toHaveLength(1);
      expect(ours[0].message).toContain(join(file, 'cache'));
      expect(ours[0].message).toMatch(/set X_CACHE_DIR/);
    } finally {
      process.off('warning', listen);
    }
  });

  test('what a dead writer left is removed, what a living one writes is not', () => {
    const half = `${'0'.repeat(64)}.`;
    const hoursAgo = new Date(Date.now() - 2 * 60 * 60 * 1000);
    for (const name of [`${half}abandoned.tmp`, `${half}current.tmp`, "somebody's own.tmp"]) {
      writeFileSync(join(directory, name), 'half');
      if (!name.includes('current')) utimesSync(join(directory, name), hoursAgo, hoursAgo);
    }
    const { key } = compile('tidy');
    expect(files()).toEqual([`${half}current.tmp`, "somebody's own.tmp", `${key}.bin`].sort());
  });

  test('three processes that compile one source at once leave one file, and all are right', async () => {
    const script = join(directory, 'run.mts');
    const index = fileURLToPath(new URL('./index.ts', import.meta.url));
    // Each announces itself and waits for the others; then all compile, load and run the kernel.
    writeFileSync(
      script,
      `import { readdirSync, writeFileSync } from 'node:fs';
       import { KernelDevice, compileCacheStats } from ${JSON.stringify(index)};
       const device = KernelDevice.open('cpu', 0);
       const y = device.zeros(4, 'f32');
       writeFileSync(process.env.MEETING + '/' + process.pid, '');
       const pause = new Int32Array(new SharedArrayBuffer(4));
       while (readdirSync(process.env.MEETING).length < 3) Atomics.wait(pause, 0, 0, 2);
       const count = device.getOrLoadFuncRaw('count', ${JSON.stringify(source('count'))});
       count.launch(1, 1, 0, [4, y.ptr]);
       console.log('RESULT' + JSON.stringify([[...new Float32Array(await y.toHost())], compileCacheStats().compiled]));`,
    );
    const cache = join(directory, 'shared');
    const meeting = join(directory, 'meeting');
    mkdirSync(meeting);
    const env = { ...process.env, X_CACHE_DIR: cache, MEETING: meeting };
    const results = await Promise.all([1, 2, 3].map(() => runChild(script, env)));
    for (const [values] of results) expect(values).toEqual([0, 1, 2, 3]);
    // At least two were at it together; a third may have come late enough to find the file.
    expect(results.filter(([, compiled]) => compiled === 1).length).toBeGreaterThanOrEqual(2);
    const left = readdirSync(cache);
    expect(left).toHaveLength(1);
    expect(left[0]).toMatch(/^[0-9a-f]{64}\.bin$/);
    expect(await runChild(script, env)).toEqual([[0, 1, 2, 3], 0]);
    expect(readdirSync(cache)).toEqual(left);
  });
});

/** Runs a TypeScript file in a process of its own and gives the value behind RESULT. */
function runChild(script: string, env: NodeJS.ProcessEnv): Promise<[values: number[], compiled: number]> {
  const root = fileURLToPath(new URL('../../..', import.meta.url));
  const tsx = join(root, 'node_modules/tsx/dist/cli.mjs');
  const child = spawn(process.execPath, [tsx, '--tsconfig', join(root, 'tsconfig.json'), script], { env, cwd: root });
  let output = '';
  let errors = '';
  child.stdout.on('data', (text) => {
    output += text;
  });
  child.stderr.on('data', (text) => {
    errors += text;
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (status) => {
      const line = output.split('\n').find((text) => text.startsWith('RESULT'));
      if (status === 0 && line) resolve(JSON.parse(line.slice('RESULT'.length)));
      else reject(new Error(`child ended with ${status}\n${output}\n${errors}`));
    });
  });
}
