/** What is refused: compiled code that is missing, changed, or not portable; and what a package of kernels looks like. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CODE_OBJECT_FORMAT } from '../../packages/kernels/src/index';
import { listModules } from '../kernels/amalgamate';
import { differences, ROOT, version } from './prebuilt';
import { type Staged, stage } from './stage';

const work = mkdtempSync(join(tmpdir(), 'x-stage-'));
const objects = join(work, 'objects');
const addons = join(work, 'addons');
const modules = listModules(join(ROOT, 'kernels'));
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

beforeAll(() => {
  const folder = join(objects, 'gfx90a');
  mkdirSync(folder, { recursive: true });
  const entries = modules.map((module) => {
    const bytes = Buffer.from(`code of ${module}`.repeat(100));
    writeFileSync(join(folder, `${module}.hsaco`), bytes);
    return [module, { file: `${module}.hsaco`, size: bytes.length, sha256: sha256(bytes), key: '', kernels: [] }];
  });
  const manifest = {
    version: 1,
    target: 'gfx90a',
    compiler: '',
    codeObjectVersion: 4,
    modules: Object.fromEntries(entries),
  };
  writeFileSync(join(folder, 'manifest.json'), JSON.stringify(manifest));
});
afterAll(() => rmSync(work, { recursive: true, force: true }));

function staged(only: string, allowMissing = false): Promise<Staged> {
  const out = join(work, 'out');
  return stage({ out, quality: 1, only: [only], allowMissing, objects, addons, compiledOnly: true });
}

test('the folders in git are what the tables say', () => {
  expect(differences()).toEqual([]);
});

describe('a package of kernels', () => {
  test('has every module of its targets, compressed, with an index', async () => {
    const { packages, problems } = await staged('@x/kernels-gfx90a');
    expect(problems).toEqual([]);
    expect(packages).toMatchObject([{ name: '@x/kernels-gfx90a', version: version() }]);
    const folder = join(work, 'unpacked');
    mkdirSync(folder);
    execFileSync('tar', ['-xzf', join(work, 'out', packages[0].tarball), '-C', folder]);
    const index = JSON.parse(readFileSync(join(folder, 'package/index.json'), 'utf8'));
    expect(index).toMatchObject({ format: CODE_OBJECT_FORMAT, version: version() });
    expect(Object.keys(index.targets.gfx90a)).toHaveLength(modules.length + 1);
    for (const [name, { path, bytes, sha256: digest }] of Object.entries<{
      path: string;
      bytes: number;
      sha256: string;
    }>(index.targets.gfx90a)) {
      const contents = brotliDecompressSync(readFileSync(join(folder, 'package', path)));
      expect([name, contents.length, sha256(contents)]).toEqual([name, bytes, digest]);
    }
    const manifest = JSON.parse(readFileSync(join(folder, 'package/package.json'), 'utf8'));
    expect(manifest.scripts).toBeUndefined();
  });

  test('is the same bytes from the same files', async () => {
    const [first, second] = [await staged('@x/kernels-gfx90a'), await staged('@x/kernels-gfx90a')];
    expect(first.packages[0].integrity).toBe(second.packages[0].integrity);
  });

  test('is refused without a target, and left out where that is allowed', async () => {
    const { packages, problems } = await staged('@x/kernels-gfx950');
    expect([packages, problems]).toEqual([[], ['@x/kernels-gfx950: gfx950 is not built']]);
    const allowed = await staged('@x/kernels-gfx950', true);
    expect([allowed.problems, allowed.missing]).toEqual([[], ['@x/kernels-gfx950: gfx950 is not built']]);
  });

  test('is refused where a file is not what its manifest describes, or is missing, even then', async () => {
    const [changed, gone] = [
      join(objects, 'gfx90a', `${modules[0]}.hsaco`),
      join(objects, 'gfx90a', `${modules[1]}.hsaco`),
    ];
    writeFileSync(changed, 'other');
    rmSync(gone);
    const { packages, problems } = await staged('@x/kernels-gfx90a', true);
    expect(packages).toEqual([]);
    expect(problems).toEqual([
      `@x/kernels-gfx90a: ${changed} is not the file that its manifest describes`,
      `@x/kernels-gfx90a: gfx90a has no ${modules[1]}`,
    ]);
  });
});

describe('an addon', () => {
  test('is refused where it is missing, for another processor, or needs a newer glibc', async () => {
    expect((await staged('@x/hip-linux-x64-gnu')).problems).toEqual([expect.stringMatching(/hip\.node is not built$/)]);
    const folder = join(addons, 'linux-x64');
    mkdirSync(folder, { recursive: true });
    const source = join(work, 'a.c');
    writeFileSync(source, '#include <pthread.h>\nint go(void) { pthread_t t; return pthread_create(&t, 0, 0, 0); }\n');
    execFileSync('gcc', ['-shared', '-fPIC', source, '-o', join(folder, 'hip.node')]);
    const { packages, problems } = await staged('@x/hip-linux-x64-gnu');
    expect(packages).toEqual([]);
    expect(problems.join('\n')).toMatch(/is not stripped[\s\S]*pthread_create has the version GLIBC_2\.34/);
    writeFileSync(join(folder, 'hip.node'), 'text');
    expect((await staged('@x/hip-linux-x64-gnu')).problems).toEqual([
      expect.stringContaining('no 64-bit little-endian ELF file'),
    ]);
  });
});
