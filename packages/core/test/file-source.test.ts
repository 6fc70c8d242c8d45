/** Bytes of open files: parts of system calls, disks that fail, files that nobody closes. */
import { mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, afterEach, expect, test, vi } from 'vitest';
import { FileFormatError } from '../src';
import { openSource } from '../src/files';
import { thrown } from './hostile';

/** The object that core asks Node for. */
const fs = process.getBuiltinModule('node:fs');
const folder = mkdtempSync(join(tmpdir(), 'file-source-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(() => vi.restoreAllMocks());

function file(name: string): string {
  const path = join(folder, name);
  writeFileSync(path, Uint8Array.of(1, 2, 3, 4));
  return path;
}

type Read = (fd: number, target: Uint8Array, at: number, length: number, offset: number) => number;

/** Both ways to read, by `read` in place of the system. */
function reads(path: string, read: Read) {
  vi.spyOn(fs, 'readSync').mockImplementation(read as typeof fs.readSync);
  vi.spyOn(fs, 'read').mockImplementation(((...args: unknown[]) => {
    const done = args.pop() as (error: unknown, count?: number) => void;
    try {
      done(null, read(...(args as Parameters<Read>)));
    } catch (error) {
      done(error);
    }
  }) as typeof fs.read);
  const source = openSource(path);
  return {
    source,
    each: [
      async (target: Uint8Array, offset: number) => source.readSync(target, offset),
      (target: Uint8Array, offset: number) => source.read(target, offset),
    ],
  };
}

test('a call of the system reads 1 GiB at most', async () => {
  const calls: number[][] = [];
  const { source, each } = reads(file('large'), (_fd, _target, at, length, offset) => {
    calls.push([at, length, offset]);
    return length;
  });
  // Nothing touches its pages.
  const target = new Uint8Array(2 ** 31 + 8);
  for (const read of each) {
    await read(target, 5);
    expect(calls.splice(0)).toEqual([
      [0, 2 ** 30, 5],
      [2 ** 30, 2 ** 30, 2 ** 30 + 5],
      [2 ** 31, 8, 2 ** 31 + 5],
    ]);
  }
  source.close();
});

test('a disk that fails is a FileFormatError with the path', async () => {
  const path = file('bad');
  const cause = Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO' });
  const { source, each } = reads(path, (_fd, _target, at) => {
    if (at > 0) throw cause;
    return 2;
  });
  for (const read of each) {
    const error = await read(new Uint8Array(4), 0).catch((error) => error);
    expect(error).toBeInstanceOf(FileFormatError);
    expect(error).toMatchObject({ code: 'FILE_UNREADABLE', path, offset: 0, cause });
    expect(error.message).toBe(
      `${path}: reading 4 bytes at byte 0 failed (EIO: i/o error, read); check the disk or the mount.`,
    );
  }
  source.close();
});

test('a format says in its own words that a file is missing or ended', async () => {
  const errors = {
    missing: (path: string) => new FileFormatError('OWN_MISSING', path),
    truncated: (...args: unknown[]) => new FileFormatError('OWN_TRUNCATED', args.join(' ')),
  };
  expect(thrown(() => openSource(join(folder, 'none'), { errors }))).toMatchObject({ code: 'OWN_MISSING' });
  const path = file('short');
  for (const source of [
    openSource(path, { errors }),
    openSource(Uint8Array.of(1, 2, 3, 4), { name: 'short', errors }),
  ]) {
    const expected = { code: 'OWN_TRUNCATED', message: `${source.path} 1 9 3` };
    expect(thrown(() => source.readSync(new Uint8Array(9), 1))).toMatchObject(expected);
    await expect(source.read(new Uint8Array(9), 1)).rejects.toMatchObject(expected);
    source.close();
  }
});

test('a file that is forgotten is closed when it is collected', async () => {
  const path = file('forgotten');
  const isOpen = () => readdirSync('/proc/self/fd').some((fd) => target(fd) === path);
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  (() => openSource(path))();
  expect(isOpen()).toBe(true);
  for (let turn = 0; turn < 100 && isOpen(); turn++) {
    collect();
    await pause(5);
  }
  expect(isOpen()).toBe(false);
});

function target(fd: string): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return undefined;
  }
}
