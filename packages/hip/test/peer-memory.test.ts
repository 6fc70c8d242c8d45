/** Memory for the kernels of other devices, on the stand-in for libamdhip64: names of it, and who is refused. */
import { beforeAll, describe, expect, test } from 'vitest';
import { buildFakeHip, runIsolated } from './fake-hip';

const PRELUDE = `
  const [a, b] = [0, 1].map((ordinal) => hip.openDevice('rocm', ordinal));
  const caught = (run) => { try { run(); return 'nothing'; } catch (e) { return { code: e.code, status: e.status ?? 0, message: e.message }; } };
`;
const DEVICES = { FAKE_HIP_DEVICES: '2' };

describe('memory of peers', () => {
  let library: string;
  beforeAll(() => {
    library = buildFakeHip(['-DFAKE_R0600']);
  });
  const run = <T>(body: string, environment: Record<string, string> = {}) =>
    runIsolated<T>(`${PRELUDE}${body}`, { X_HIP_LIBRARY: library, ...DEVICES, ...environment });

  test('is zeros, is found by its name, and outlives its rank where another one has found it', () => {
    const value = run<Record<string, unknown>>(`
      const [x, y] = [a.peerMemory(4096), b.peerMemory(4096)];
      const found = [x.reach(y.name), y.reach(x.name)];
      const free = () => a.memoryInfo().free;
      const before = free();
      const out = {
        isFound: [found[0] === y.address, found[1] === x.address],
        isElsewhere: x.control !== x.address && x.control > 0,
        missing: x.missing ?? null,
      };
      y.abort();
      y.dispose();
      y.dispose();
      out.isKept = free() === before;
      out.after = caught(() => y.reach(x.name)).code;
      b.dispose();
      out.isKeptWithoutDevice = free() === before;
      x.dispose();
      out.givenBack = free() - before;
      // The device's own calls go where they belong.
      const at = a.alloc(64);
      a.memcpyHtoD(at, Uint8Array.of(7));
      const back = new Uint8Array(1);
      a.memcpyDtoHSync(back, at);
      out.back = back[0];
      a.dispose();
      return out;`);
    expect(value).toEqual({
      isFound: [true, true],
      isElsewhere: true,
      missing: null,
      isKept: true,
      after: 'DISPOSED',
      isKeptWithoutDevice: true,
      givenBack: 8192,
      back: 7,
    });
  });

  test('is given back with its device', () => {
    const value = run<number>(`
      const before = a.memoryInfo().free;
      const [x, y] = [a.peerMemory(4096), b.peerMemory(4096)];
      x.reach(y.name);
      y.reach(x.name);
      b.dispose();
      a.dispose();
      return hip.openDevice('rocm', 0).memoryInfo().free - before;`);
    expect(value).toBe(0);
  });

  test('of one device, of another machine, of a process that is not there is refused', () => {
    const value = run<{ message: string }[]>(`
      const [x, y, z] = [a.peerMemory(64), a.peerMemory(64), b.peerMemory(64)];
      const changed = (at) => { const name = z.name.slice(); name[at] ^= 1; return name; };
      const stranger = changed(0);
      const abroad = changed(0);
      abroad[16] ^= 1;
      return [y.name, stranger, abroad, z.name.slice(1)].map((name) => caught(() => x.reach(name)));`);
    expect(value.map(({ message }) => message.split(/[;(]/)[0].trim())).toEqual([
      'two ranks are on one device',
      'hipIpcOpenMemHandle failed with hipErrorInvalidValue',
      'a rank is on another machine',
      "the name of a rank's memory has another length",
    ]);
  });

  test('is not there without access, on the host, and without its entry point', () => {
    const value = run<{ message: string; status: number }[]>(
      `const [x, y] = [a.peerMemory(64), b.peerMemory(64)];
      return [caught(() => x.reach(y.name)), caught(() => hip.openDevice('host').peerMemory(64))];`,
      { FAKE_HIP_PEER: 'none' },
    );
    expect(value[0].message).toContain('no access to the memory of device 1');
    expect(value[1]).toMatchObject({ status: 801 });
    const without = buildFakeHip(['-DFAKE_R0600', '-DhipExtMallocWithFlags=hipSomethingElse']);
    const absent = run<{ status: number }>('return caught(() => a.peerMemory(64));', { X_HIP_LIBRARY: without });
    expect(absent).toMatchObject({ code: 'DRIVER_ERROR', status: 801 });
  });
});
