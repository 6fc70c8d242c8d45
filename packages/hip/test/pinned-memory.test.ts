/** Memory of the host that is page-locked where it lies, on the stand-in for libamdhip64. */
import { beforeAll, describe, expect, test } from 'vitest';
import { openDevice } from '../src';
import { buildFakeHip, runIsolated } from './fake-hip';

const PRELUDE = `
  const device = hip.openDevice('rocm', 0);
  const caught = (run) => { try { run(); return 'nothing'; } catch (e) { return { code: e.code, message: e.message }; } };
  const read = (at, bytes) => { const back = new Uint8Array(bytes); device.memcpyDtoHSync(back, at); return [...back]; };
`;

describe('page-locked memory', () => {
  let library: string;
  beforeAll(() => {
    library = buildFakeHip(['-DFAKE_R0600']);
  });
  const run = <T>(body: string, environment: Record<string, string> = {}) =>
    runIsolated<T>(`${PRELUDE}${body}`, { X_HIP_LIBRARY: library, ...environment });

  test('is copied from as it is when the copy is made, and is the caller’s again afterwards', () => {
    const value = run<Record<string, unknown>>(`
      const bytes = Uint8Array.from({ length: 64 }, (_, i) => i);
      const pinned = device.pin(bytes.subarray(8));
      const at = device.alloc(64);
      pinned.copyTo(at, 2, 3);
      const first = read(at, 3);
      bytes.fill(7);
      pinned.copyTo(at + 1, 55, 1);
      const out = { length: pinned.byteLength, first, second: read(at, 3), again: device.pin(bytes.subarray(8)) === undefined };
      pinned.dispose();
      pinned.dispose();
      out.after = caught(() => pinned.copyTo(at, 0, 1)).code;
      const other = device.pin(bytes.subarray(8));
      out.isPinnedAnew = other !== undefined;
      device.dispose();
      out.disposed = caught(() => other.copyTo(at, 0, 1)).code;
      other.dispose();
      return out;`);
    expect(value).toEqual({
      length: 56,
      first: [10, 11, 12],
      second: [10, 7, 12],
      again: true,
      after: 'DISPOSED',
      isPinnedAnew: true,
      disposed: 'DISPOSED',
    });
  });

  test('refuses copies past its end, to nowhere, and of a buffer that was given away', () => {
    const value = run<{ code: string; message: string }[]>(`
      const bytes = new Uint8Array(64);
      const pinned = device.pin(bytes);
      const at = device.alloc(64);
      const out = [
        caught(() => pinned.copyTo(at, 60, 5)),
        caught(() => pinned.copyTo(at, 65, 0 + 1)),
        caught(() => pinned.copyTo(at + 32, 0, 33)),
        caught(() => pinned.copyTo(at, -1, 1)),
        caught(() => pinned.copyTo(at, 0, 1.5)),
      ];
      structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
      out.push(caught(() => pinned.copyTo(at, 0, 1)));
      pinned.dispose();
      return out;`);
    expect(value.map(({ code }) => code)).toEqual(new Array(6).fill('INVALID_ARGUMENT'));
    expect(value[0].message).toContain('5 bytes at 60 from 64 bytes of page-locked memory');
    expect(value[2].message).toContain('are not inside one live allocation');
    expect(value[5].message).toContain('was transferred or resized');
  });

  test('is not there where the platform refuses, for nothing, and on the host', () => {
    expect(run<boolean>('return device.pin(new Uint8Array(8)) === undefined;', { FAKE_HIP_PINNING: 'none' })).toBe(
      true,
    );
    expect(run<boolean>('return device.pin(new Uint8Array(0)) === undefined;')).toBe(true);
    using host = openDevice('host');
    expect(host.pin(new Uint8Array(8))).toBeUndefined();
  });
});
