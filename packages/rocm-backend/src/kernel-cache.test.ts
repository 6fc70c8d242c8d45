/** Where the cache is, and what of it is trusted. */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { cacheDirectory, readCache, writeCache } from './kernel-cache';

const KEY = 'ab'.repeat(32);
const BYTES = new Uint8Array([1, 2, 3]);
const NOBODY = 65534;
const posix = process.geteuid !== undefined;
const root = process.geteuid?.() === 0;
const mode = (path: string) => (statSync(path).mode & 0o777).toString(8);

let directory: string;
let file: string;
let warnings: (Error & { code?: string })[];
const listen = (warning: Error) => warnings.push(warning);

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'candle-cache-'));
  file = join(directory, `${KEY}.bin`);
  vi.stubEnv('X_CACHE_DIR', directory);
  warnings = [];
  process.on('warning', listen);
});
afterEach(() => {
  process.off('warning', listen);
  vi.unstubAllEnvs();
  rmSync(directory, { recursive: true, force: true });
});

/** Codes and messages of the warnings so far. */
async function warned(): Promise<string[]> {
  await new Promise((resolve) => setImmediate(resolve));
  return warnings.map(({ name, code, message }) => `${name} ${code} ${message}`);
}

describe('the place of the cache', () => {
  const place = (environment: Record<string, string>) => {
    const values = { X_CACHE_DIR: '', XDG_CACHE_HOME: '', HOME: '/people/x', ...environment };
    for (const [name, value] of Object.entries(values)) vi.stubEnv(name, value);
    return cacheDirectory();
  };

  test('is X_CACHE_DIR, else below XDG_CACHE_HOME, else below the home directory', () => {
    expect(place({ X_CACHE_DIR: '/kernels', XDG_CACHE_HOME: '/shared' })).toBe('/kernels');
    expect(place({ XDG_CACHE_HOME: '/shared' })).toBe('/shared/x-candle');
    expect(place({})).toBe('/people/x/.cache/x-candle');
  });

  test.runIf(posix)('is never relative to the working directory', () => {
    const home = join(userInfo().homedir, '.cache/x-candle');
    for (const HOME of ['', '.', 'x']) expect(place({ HOME })).toBe(home);
    for (const XDG_CACHE_HOME of ['.', 'cache', '../x'])
      expect(place({ XDG_CACHE_HOME })).toBe('/people/x/.cache/x-candle');
    expect(place({ X_CACHE_DIR: 'kernels' })).toBeUndefined();
  });

  test('that is relative is a warning and no cache', async () => {
    vi.stubEnv('X_CACHE_DIR', 'x-candle-relative');
    expect(readCache(KEY)).toEqual({ state: 'refused' });
    expect(writeCache(KEY, BYTES)).toBe(false);
    expect(existsSync('x-candle-relative')).toBe(false);
    expect(await warned()).toEqual([
      expect.stringMatching(/^CandleWarning KERNEL_CACHE_REFUSED .*x-candle-relative is relative.*absolute path$/),
    ]);
  });
});

describe.runIf(posix)('what is written', () => {
  test.each([0o000, 0o002, 0o022, 0o077, 0o777])('is for this user alone with umask %i', (mask) => {
    vi.stubEnv('X_CACHE_DIR', join(directory, 'a/b'));
    const previous = process.umask(mask);
    try {
      expect(writeCache(KEY, BYTES)).toBe(true);
    } finally {
      process.umask(previous);
    }
    expect(['a', 'a/b', `a/b/${KEY}.bin`].map((path) => mode(join(directory, path)))).toEqual(['700', '700', '600']);
    expect(readCache(KEY)).toEqual({ state: 'hit', bytes: BYTES });
  });

  test('leaves nothing but the file, and replaces one that is there', () => {
    expect(readCache(KEY)).toEqual({ state: 'miss' });
    for (const bytes of [BYTES, new Uint8Array([4])]) {
      expect(writeCache(KEY, bytes)).toBe(true);
      expect(readCache(KEY)).toEqual({ state: 'hit', bytes });
    }
    expect(readdirSync(directory)).toEqual([`${KEY}.bin`]);
  });
});

describe.runIf(posix)('a file that others may have written', () => {
  const elsewhere = () => join(directory, 'elsewhere');
  const cases: [string, boolean, () => void, RegExp][] = [
    ['writable by the group', true, () => chmodSync(file, 0o660), /mode 660/],
    ['writable by all', true, () => chmodSync(file, 0o602), /mode 602/],
    ["another user's", root, () => chownSync(file, NOBODY, NOBODY), /belongs to user 65534/],
    [
      'behind a link',
      true,
      () => {
        renameSync(file, elsewhere());
        symlinkSync(elsewhere(), file);
      },
      /it is a link/,
    ],
  ];
  for (const [name, possible, spoil, why] of cases) {
    test.runIf(possible)(`${name} is not loaded, and is replaced`, async () => {
      writeCache(KEY, BYTES);
      spoil();
      expect(readCache(KEY)).toEqual({ state: 'refused' });
      expect(readCache(KEY)).toEqual({ state: 'refused' });
      const said = await warned();
      expect(said).toHaveLength(1);
      expect(said[0]).toMatch(why);
      expect(said[0]).toContain(`KERNEL_CACHE_REFUSED ${file}`);
      expect(writeCache(KEY, BYTES)).toBe(true);
      expect(lstatSync(file).isFile()).toBe(true);
      expect(mode(file)).toBe('600');
      expect(readCache(KEY)).toEqual({ state: 'hit', bytes: BYTES });
    });
  }

  test('that is a directory or a pipe is refused without waiting for a writer', async () => {
    mkdirSync(file);
    expect(readCache(KEY)).toEqual({ state: 'refused' });
    rmSync(file, { recursive: true });
    execFileSync('mkfifo', [file]);
    expect(readCache(KEY)).toEqual({ state: 'refused' });
    expect((await warned())[0]).toContain('it is no file');
  });
});

describe.runIf(posix)('a directory that others may have written', () => {
  const cases: [string, boolean, () => void, RegExp][] = [
    ['writable by the group', true, () => chmodSync(directory, 0o770), /mode 770/],
    ['writable by all, sticky or not', true, () => chmodSync(directory, 0o1777), /mode 777/],
    ["another user's", root, () => chownSync(directory, NOBODY, NOBODY), /belongs to user 65534/],
    [
      "behind another user's link",
      root,
      () => {
        const link = `${directory}.link`;
        symlinkSync(directory, link);
        lchownSync(link, NOBODY, NOBODY);
        vi.stubEnv('X_CACHE_DIR', link);
      },
      /link is a link, and it belongs to user 65534/,
    ],
    [
      "below another user's link",
      root,
      () => {
        const link = `${directory}.link`;
        symlinkSync(dirname(directory), link);
        lchownSync(link, NOBODY, NOBODY);
        vi.stubEnv('X_CACHE_DIR', join(link, basename(directory)));
      },
      /link is a link, and it belongs to user 65534/,
    ],
  ];
  for (const [name, possible, spoil, why] of cases) {
    test.runIf(possible)(`${name} is neither read nor written`, async () => {
      writeCache(KEY, BYTES);
      const before = readFileSync(file);
      spoil();
      try {
        expect(readCache(KEY)).toEqual({ state: 'refused' });
        expect(writeCache(KEY, new Uint8Array([9]))).toBe(false);
        expect(readFileSync(file)).toEqual(before);
        expect(readdirSync(directory)).toHaveLength(1);
        const said = await warned();
        expect(said).toHaveLength(1);
        expect(said[0]).toMatch(why);
        expect(said[0]).toMatch(/KERNEL_CACHE_REFUSED .*set X_CACHE_DIR/);
      } finally {
        rmSync(`${directory}.link`, { force: true });
      }
    });
  }

  test('of its own user is followed through a link', () => {
    const link = join(directory, 'link');
    mkdirSync(join(directory, 'real'), { mode: 0o700 });
    symlinkSync(join(directory, 'real'), link);
    vi.stubEnv('X_CACHE_DIR', link);
    expect(writeCache(KEY, BYTES)).toBe(true);
    expect(readCache(KEY)).toEqual({ state: 'hit', bytes: BYTES });
  });
});
