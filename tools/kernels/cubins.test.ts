/**
 * Machine code of PTX, made by a stand-in for ptxas and loaded by a stand-in for libcuda: what is made, and which of the two a
 * device of compute capability 9.0 takes.
 */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bundled } from '@x/testing/bundle';
import { textKernels } from '@x/testing/text-kernels';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { buildFakeDriver, runOnFakes } from '../../packages/hip/test/fake-libraries';
import { buildCubins, cubinsOf, findPtxas, type Ptxas } from './cubins';
import { readManifest } from './manifest';

/** An ELF file for NVIDIA's GPUs without sections, and the text behind it; one module it does not take. */
const PTXAS = `#!/usr/bin/env node
const { readFileSync, writeFileSync } = require('node:fs');
const [first, ...rest] = process.argv.slice(2);
if (first === '--version') console.log('ptxas: a stand-in\\nCuda compilation tools, release 12.4, V12.4.131');
else if (first === '--help') console.log("Allowed values: 'sm_75','sm_80','sm_86','sm_90','sm_90a'.");
else {
  const text = readFileSync(rest[1], 'utf8');
  if (text.includes('.entry uexp_f32(')) { console.error('ptxas fatal: unhappy'); process.exit(255); }
  const header = Buffer.alloc(64);
  header.write('\\x7fELF\\x02\\x01\\x01', 'latin1');
  header.writeUInt16LE(190, 18);
  writeFileSync(rest[3], Buffer.concat([header, Buffer.from('machine code ' + first + rest[0] + '\\n' + text)]));
}
`;

const place = mkdtempSync(join(tmpdir(), 'x-cubins-'));
const out = textKernels();
const objects = (target: string) => join(out, 'objects', target);
const options = { jobs: 2, force: false };
let ptxas: Ptxas;

beforeAll(() => {
  mkdirSync(join(place, 'bin'));
  writeFileSync(join(place, 'bin/ptxas'), PTXAS);
  chmodSync(join(place, 'bin/ptxas'), 0o755);
  vi.stubEnv('CUDA_PATH', place);
  vi.spyOn(console, 'log').mockImplementation(() => {});
  vi.spyOn(console, 'error').mockImplementation(() => {});
  ptxas = findPtxas()!;
});
afterAll(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  for (const directory of [place, out]) rmSync(directory, { recursive: true });
});

describe('ptxas', () => {
  it('is found, with the targets that it knows', () => {
    expect(ptxas).toEqual({
      path: join(place, 'bin/ptxas'),
      version: 'Cuda compilation tools, release 12.4, V12.4.131',
      targets: ['sm_80-cubin', 'sm_86-cubin', 'sm_90a-cubin'],
    });
  });

  it('adds to a release what it makes, and is missed where a target is named', () => {
    expect(cubinsOf('release', ptxas)).toEqual(ptxas.targets);
    expect(cubinsOf('release', undefined)).toEqual([]);
    expect(cubinsOf('all,host,gfx1100', ptxas)).toEqual([]);
    expect(cubinsOf('host,sm_86-cubin', ptxas)).toEqual(['sm_86-cubin']);
    expect(() => cubinsOf('sm_120-cubin', ptxas)).toThrow(/^sm_120-cubin: .*does not know sm_120. Install/);
    expect(() => cubinsOf('sm_80-cubin', undefined)).toThrow('sm_80-cubin: there is no ptxas.');
    expect(() => cubinsOf('cubins', undefined)).toThrow('cubins: there is no ptxas.');
  });
});

describe('building', () => {
  it('describes the kernels as the PTX does, and makes again what changed', async () => {
    const targets = ['sm_80-cubin', 'sm_90a-cubin'];
    expect(await buildCubins(ptxas, targets, ['fill', 'decode'], out, options)).toBe(0);
    for (const target of targets) {
      const { modules, compiler } = readManifest(objects(target))!;
      expect(compiler).toBe(ptxas.version);
      expect(Object.keys(modules)).toEqual(['decode', 'fill']);
      expect(modules.fill!.kernels).toEqual(readManifest(objects('nvptx64'))!.modules.fill!.kernels);
      expect(readFileSync(join(objects(target), 'fill.cubin'), 'latin1')).toContain(`-arch=${target.slice(0, -6)}-O3`);
    }
    const lines = vi.mocked(console.log);
    lines.mockClear();
    const newer = { ...ptxas, version: 'release 12.5' };
    expect(await buildCubins(ptxas, targets, ['fill'], out, options)).toBe(0);
    expect(lines.mock.calls.flat()).toEqual(['0 cubins built, 2 up to date, 0 failed']);
    expect(await buildCubins(newer, ['sm_80-cubin'], ['fill'], out, options)).toBe(0);
    expect(lines.mock.calls.flat().at(-1)).toBe('1 cubins built, 0 up to date, 0 failed');
  });

  it('says what ptxas says, and leaves nothing of that module', async () => {
    expect(await buildCubins(ptxas, ['sm_86-cubin'], ['unary', 'affine'], out, options)).toBe(1);
    expect(vi.mocked(console.error).mock.calls.flat()).toContain('ptxas fatal: unhappy');
    expect(Object.keys(readManifest(objects('sm_86-cubin'))!.modules)).toEqual(['affine']);
    expect(existsSync(join(objects('sm_86-cubin'), 'unary.cubin'))).toBe(false);
  });
});

describe('on a device', () => {
  const driver = buildFakeDriver();
  const source = bundled({ kernels: join(import.meta.dirname, '../../packages/kernels/src/index.ts') }).kernels;
  const run = (environment: Record<string, string> = {}) =>
    runOnFakes<{ names: string[]; compiled: number }>(
      undefined,
      `
      const device = backend.RocmDevice.open('cuda', 0);
      let compiled = 0;
      device.onCompiled = (count) => {
        compiled = count;
      };
      const kernels = await import(${JSON.stringify(source)});
      const names = [['fill_f32', kernels.FILL], ['fill_u8', kernels.FILL], ['affine_f32', kernels.AFFINE]]
        .map(([name, module]) => device.getOrLoadFunc(name, module).name);
      device.dispose();
      return { names, compiled };`,
      { ...driver, FAKE_CUDA_COMPILE_MS: '40', FAKE_CUDA_SILENT: '1', X_KERNEL_DIR: out, ...environment },
    );
  const NAMES = ['fill_f32', 'fill_u8', 'affine_f32'];

  it('a module in machine code is loaded whole, another one by kernels', () => {
    const { value, log } = run();
    expect(value).toEqual({ names: NAMES, compiled: 1 });
    const loaded = log.filter((line) => line.startsWith('loaded '));
    // FILL, and AFFINE's kernel.
    expect(loaded).toHaveLength(2);
    expect(loaded[0]).toContain('fill_f32+');
    expect(loaded[1]).toBe('loaded affine_f32');
  });

  it('machine code that the driver refuses makes place for PTX', () => {
    const { value, log } = run({ FAKE_CUDA_REFUSE: 'machine code' });
    expect(value).toEqual({ names: NAMES, compiled: 3 });
    expect(log.filter((line) => line.startsWith('refused '))).toHaveLength(1);
    const loaded = log.filter((line) => line.startsWith('loaded '));
    expect(loaded.map((line) => line.split(' ')[1])).toEqual(NAMES);
  });
});
