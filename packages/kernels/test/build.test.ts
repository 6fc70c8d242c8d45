/** The build tool, the code objects it writes and what the package says about them, in a directory of its own. */
import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AFFINE, ALL_MODULES, FILL, KernelError, listTargets, parseCodeObject, readManifest } from '../src/index';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const tsx = join(root, 'node_modules/.bin/tsx');
const tool = join(root, 'tools/kernels/build.ts');
const out = mkdtempSync(join(tmpdir(), 'x-kernels-'));
const before = process.env.X_KERNEL_DIR;

const build = (...options: string[]) =>
  execFileSync(tsx, [tool, '--out', out, '--jobs', '1', ...options], { encoding: 'utf8' });

beforeAll(() => {
  process.env.X_KERNEL_DIR = out;
  build('--targets', 'x86-64-v2,gfx90a,gfx11-generic', '--modules', 'fill');
}, 120_000);

afterAll(() => {
  if (before === undefined) delete process.env.X_KERNEL_DIR;
  else process.env.X_KERNEL_DIR = before;
  rmSync(out, { recursive: true, force: true });
});

const codeOf = (action: () => unknown): string | undefined => {
  try {
    action();
  } catch (error) {
    return error instanceof KernelError ? error.code : String(error);
  }
  return undefined;
};

describe('what was built', () => {
  it('is listed, and nothing else', () => {
    expect(listTargets()).toEqual(['gfx11-generic', 'gfx90a', 'x86-64-v2']);
    expect(Object.keys(readManifest('gfx90a')!.modules)).toEqual(['fill']);
    expect(readManifest('gfx90a')!.codeObjectVersion).toBe(4);
    expect(readManifest('gfx11-generic')!.codeObjectVersion).toBe(6);
  });

  it.each([
    ['x86-64-v2', 'host', null, 1],
    ['gfx90a', 'hsaco', 'gfx90a', 64],
    ['gfx11-generic', 'hsaco', 'gfx11-generic', 32],
  ] as const)('%s describes its kernels as the manifest does', (target, format, arch, warpSize) => {
    const object = FILL.codeObject(target)!;
    const parsed = parseCodeObject(object.bytes);
    expect(parsed).toMatchObject({ format, arch });
    expect(parsed.kernels).toEqual(object.kernels);
    expect(Object.keys(object.kernels)).toHaveLength(39);
    expect(object.kernels.fill_f8e4m3).toMatchObject({ params: ['ptr', 'f8e4m3', 'u64'], warpSize });
    expect(object.kernels.const_set_i16!.params).toEqual(['u64', 'u64', 'ptr', 'i16', 'ptr']);
    expect(object.kernels.copy2d_bf16!.params).toEqual(['ptr', 'ptr', 'u32', 'u32', 'u32', 'u32']);
  });

  it('states registers and spills on AMD', () => {
    for (const kernel of Object.values(FILL.codeObject('gfx90a')!.kernels)) {
      expect(kernel).toMatchObject({ vgprSpills: 0, scratchBytes: 0 });
      expect(kernel.vgprs).toBeGreaterThan(0);
    }
    expect(FILL.codeObject('gfx90a')!.kernels.fill_f32).toMatchObject({ ldsBytes: 0, maxThreads: 1024 });
    // 64 rows of 64 elements and a gap of 4 bytes, and 4 more for every 32 rows.
    expect(FILL.codeObject('gfx90a')!.kernels.transpose_b16).toMatchObject({ ldsBytes: 64 * 132 + 8, maxThreads: 256 });
  });

  it('is parsed or refused, never worse, wherever a file is cut', () => {
    const { bytes } = FILL.codeObject('gfx90a')!;
    for (let length = 0; length < bytes.length; length += 997) {
      expect([undefined, 'KERNEL_OBJECT_INVALID']).toContain(codeOf(() => parseCodeObject(bytes.slice(0, length))));
    }
  });
});

describe('finding a code object', () => {
  it('goes from the exact target to the family and down the host levels', () => {
    expect(FILL.codeObjectFor('gfx1103').target).toBe('gfx11-generic');
    expect(FILL.codeObjectFor('gfx90a:sramecc+:xnack-').target).toBe('gfx90a');
    expect(FILL.codeObjectFor('x86-64-v4').target).toBe('x86-64-v2');
  });

  it('names the target and the command when there is none', () => {
    expect(codeOf(() => FILL.codeObjectFor('gfx1030'))).toBe('KERNEL_TARGET_MISSING');
    expect(() => FILL.codeObjectFor('gfx1030')).toThrow(
      /Unset X_KERNEL_DIR .*in a checkout .*pnpm kernels --targets gfx1030/,
    );
    expect(codeOf(() => AFFINE.codeObjectFor('gfx90a'))).toBe('KERNEL_TARGET_MISSING');
    expect(codeOf(() => FILL.codeObjectFor('sm_70'))).toBe('KERNEL_TARGET_MISSING');
  });

  it('advises what works where the packages come from npm', () => {
    const named = process.env.X_KERNEL_DIR;
    delete process.env.X_KERNEL_DIR;
    try {
      expect(() => FILL.codeObjectFor('sparc')).toThrow(
        /No package has them; in a checkout .*pnpm kernels --targets sparc`\.$/,
      );
      expect(() => FILL.codeObjectFor('gfx1036')).toThrow(
        /`npm install @x\/kernels-gfx10-3@\d+\.\d+\.\d+`; in a checkout .*pnpm kernels --targets gfx1036,gfx10-3-generic`\.$/,
      );
    } finally {
      process.env.X_KERNEL_DIR = named;
    }
  });

  it('gives the whole source as one string', () => {
    expect(FILL.source).toContain('FILL(T)');
    expect(FILL.source).not.toMatch(/^\s*#\s*(include|pragma\s+once)/m);
    expect(codeOf(() => AFFINE.source)).toBe('KERNEL_SOURCE_MISSING');
  });

  it('has one module for each name', () => {
    expect(new Set(ALL_MODULES.map((module) => module.name)).size).toBe(ALL_MODULES.length);
    for (const module of ALL_MODULES) expect(module.name).toBe(module.id.toUpperCase());
  });
});

describe('the build tool', () => {
  it('leaves alone what is up to date, and rebuilds when told to', () => {
    expect(build('--targets', 'x86-64-v2', '--modules', 'fill')).toContain('0 built, 1 up to date, 0 failed');
    expect(build('--targets', 'x86-64-v2', '--modules', 'fill', '--force')).toContain(
      '1 built, 0 up to date, 0 failed',
    );
  });

  it('refuses unknown modules and targets with the known ones', () => {
    const modules = spawnSync(tsx, [tool, '--out', out, '--modules', 'nope'], { encoding: 'utf8' });
    expect(modules.status).toBe(1);
    expect(modules.stderr).toContain('unknown module "nope"; known: affine');
    const targets = spawnSync(tsx, [tool, '--out', out, '--targets', 'nope'], { encoding: 'utf8' });
    expect(targets.status).toBe(1);
    expect(targets.stderr).toContain('unknown target "nope"; known: gfx906');
  });

  it('finds a compiler that is too old or missing', () => {
    const { status, stderr } = spawnSync(tsx, [tool, '--out', out, '--targets', 'x86-64-v2', '--modules', 'fill'], {
      encoding: 'utf8',
      env: { ...process.env, X_CLANG: process.execPath },
    });
    expect(status).toBe(1);
    expect(stderr).toContain(`X_CLANG=${process.execPath} cannot be used: it is no clang`);
  });
});

describe('damaged files', () => {
  it('are refused with the command that rebuilds them', () => {
    const path = join(out, 'objects/x86-64-v2/fill.so');
    expect(readFileSync(path).length).toBe(readManifest('x86-64-v2')!.modules.fill!.size);
    appendFileSync(path, 'x');
    expect(codeOf(() => FILL.codeObject('x86-64-v2'))).toBe('KERNEL_OBJECT_CORRUPT');
    appendFileSync(join(out, 'objects/gfx90a/manifest.json'), 'x');
    expect(codeOf(() => readManifest('gfx90a'))).toBe('KERNEL_MANIFEST_INVALID');
  });
});
