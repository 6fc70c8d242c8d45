/**
 * Files that are read into device memory: on the host, directly, and on the stand-in for libamdhip64, through page-locked memory.
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import type { Platform } from '../src/index';
import { buildFakeHip, runIsolated } from './fake-hip';

const SIZE = 9_000_001;
const path = join(mkdtempSync(join(tmpdir(), 'x-hip-file-')), 'file');
const content = new Uint8Array(SIZE).map((_, i) => (i * 2654435761) >>> 13);
writeFileSync(path, content);

/** Runs with an open `device` whose driver fails on request, `memory` for the file, and its descriptor `fd`. */
function run<T>(platform: Platform, body: string, environment: Record<string, string>): T {
  return runIsolated<T>(
    `const { openSync, closeSync, readFileSync } = await import('node:fs');
    const number = hip.PLATFORMS.indexOf('${platform}');
    const native = addon.addon();
    const plan = (entry = '', nth = 0, status = 0, reach = 0) => native.planFault(number, entry, nth, status, reach);
    plan();
    const device = hip.openDevice('${platform}');
    const memory = device.alloc(${SIZE});
    const fd = openSync(${JSON.stringify(path)}, 'r');
    const content = readFileSync(${JSON.stringify(path)});
    const live = () => native.faultState(number).live;
    const held = async () => {
      const bytes = new Uint8Array(${SIZE});
      await device.memcpyDtoH(bytes, memory);
      return Buffer.compare(bytes, content) === 0;
    };
    const coded = (error) => [error.code, error instanceof hip.HipError];
    ${body}`,
    environment,
  );
}

describe.each(['host', 'rocm'] as const)('on %s', (platform) => {
  let environment = {};
  beforeAll(() => {
    if (platform === 'rocm') environment = { X_HIP_LIBRARY: buildFakeHip(['-DFAKE_R0600']) };
  });
  const on = <T>(body: string) => run<T>(platform, body, environment);

  test('arrive in order of the stream, from whichever thread', () => {
    const body = `
      using reader = device.openFileReader();
      const got = [await reader.read(fd, 0, memory, ${SIZE}), await held()];
      device.memset(memory, 0, ${SIZE});
      const part = 100_000;
      const parts = [];
      for (let at = 0; at < ${SIZE}; at += part) parts.push(reader.read(fd, at, memory + at, Math.min(part, ${SIZE} - at)));
      closeSync(fd);
      const sum = (await Promise.all(parts)).reduce((a, b) => a + b);
      return [...got, sum, await held()];`;
    expect(on(body)).toEqual([SIZE, true, SIZE, true]);
  });

  test('say where they end, and what the system does', () => {
    const body = `
      using reader = device.openFileReader();
      const short = [await reader.read(fd, ${SIZE} - 10, memory, 1000), await reader.read(fd, 2 ** 40, memory, 1000)];
      const failures = await Promise.all([
        reader.read(9999, 0, memory, 10), reader.read(openSync('/', 'r'), 0, memory, 10),
        reader.read(-1, 0, memory, 10), reader.read(fd, 0, memory + 10, ${SIZE}), reader.read(fd, 0, 1, 1),
      ].map((read) => read.catch(coded)));
      reader.dispose();
      reader.dispose();
      return [short, failures, await reader.read(fd, 0, memory, 1).catch(coded)];`;
    expect(on(body)).toEqual([
      [10, 0],
      [
        ['EBADF', false],
        ['EISDIR', false],
        ['INVALID_ARGUMENT', true],
        ['INVALID_ARGUMENT', true],
        ['INVALID_ARGUMENT', true],
      ],
      ['DISPOSED', true],
    ]);
  });

  test('leave nothing, whatever is given back while they are read', () => {
    const body = `
      const at = live();
      const reader = device.openFileReader();
      const reading = [reader.read(fd, 0, memory, ${SIZE}), reader.read(fd, 0, memory, 1000)];
      reader.dispose();
      const given = [await Promise.all(reading), await held()];
      await device.synchronize();
      const left = { ...live(), events: 0, pinned: 0 };
      const second = device.openFileReader();
      const freed = Array.from({ length: 8 }, () => second.read(fd, 0, memory, ${SIZE}).catch(({ code }) => code));
      device.free(memory);
      const ended = (await Promise.all(freed)).every((value) => value === 'ECANCELED' || value === ${SIZE});
      const other = device.alloc(${SIZE});
      const last = second.read(fd, 0, other, ${SIZE});
      device.dispose();
      return [given, left.streams === at.streams, ended, await last, live()];`;
    expect(on(body)).toEqual([[[SIZE, 1000], true], true, true, SIZE, {}]);
  });

  test('need no page-locked memory, and keep what they lock until they are given back', () => {
    const body = `
      const reader = device.openFileReader();
      plan('hostMalloc', 1, 2, 1);
      const without = await reader.read(fd, 0, memory, ${SIZE});
      plan();
      const right = await held();
      reader.dispose();
      const before = live().pinned ?? 0;
      const other = device.openFileReader();
      await Promise.all(Array.from({ length: 64 }, () => other.read(fd, 0, memory, ${SIZE})));
      const locked = (live().pinned ?? 0) - before;
      other.dispose();
      return [without, right, locked, (live().pinned ?? 0) - before];`;
    const [without, right, locked, left] = on<[number, boolean, number, number]>(body);
    expect([without, right, left]).toEqual([SIZE, true, 0]);
    expect(locked).toBeGreaterThanOrEqual(platform === 'host' ? 0 : 2);
    expect(locked).toBeLessThanOrEqual(platform === 'host' ? 0 : 16);
  });

  test('fail with the error of the call that failed', () => {
    const site = platform === 'host' ? 'eventSynchronize' : 'memcpyHtoDAsync';
    const body = `
      using reader = device.openFileReader();
      plan('${site}', 1, 999, 0);
      const error = await reader.read(fd, 0, memory, ${SIZE}).catch((error) => [error.code, error.call]);
      plan();
      return [error, await reader.read(fd, 0, memory, ${SIZE}), await held()];`;
    const call = platform === 'host' ? 'eventSynchronize' : 'hipMemcpyHtoDAsync';
    expect(on(body)).toEqual([['DRIVER_ERROR', call], SIZE, true]);
  });
});
