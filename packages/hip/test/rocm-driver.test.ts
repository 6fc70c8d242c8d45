// The ROCm table against a stand-in library: what the binding really passes to HIP, without an AMD GPU.
import { beforeAll, describe, expect, test } from 'vitest';
import { buildFakeHip, runIsolated } from './fake-hip';

let rocm5: string;
let rocm6: string;

beforeAll(() => {
  rocm5 = buildFakeHip();
  rocm6 = buildFakeHip(['-DFAKE_R0600']);
});

// The smallest thing that passes the structure check: an ELF header for an AMD GPU with no sections.
const ELF = `const elf = new Uint8Array(64);
elf.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 64, 2]);
new DataView(elf.buffer).setUint16(18, 224, true);`;

interface Properties {
  arch: string;
  archFull: string;
  warpSize: number;
  name: string;
  pciBusId: string;
  multiprocessorCount: number;
  sharedMemoryPerBlock: number;
  totalMemory: number;
}

describe('properties', () => {
  test.each(['ROCm 5', 'ROCm 6'])('come from attributes, and the arch from the struct of %s', (version) => {
    const library = version === 'ROCm 5' ? rocm5 : rocm6;
    const properties = runIsolated<Properties>("return hip.openDevice('rocm').properties;", { X_HIP_LIBRARY: library });
    expect(properties).toMatchObject({
      arch: 'gfx90a',
      archFull: 'gfx90a:sramecc+:xnack-',
      name: 'Fake Instinct',
      pciBusId: '0000:c3:00.0',
      warpSize: 64,
      multiprocessorCount: 104,
      sharedMemoryPerBlock: 65536,
      totalMemory: 2 ** 30,
    });
  });
});

test('copies between devices speak HIP, where the driver allows them', () => {
  const body = `const [a, b] = [hip.openDevice('rocm', 0), hip.openDevice('rocm', 1)];
    const reached = [b.reaches(a), b.reaches(a), a.reaches(a)];
    const [src, dst] = [a.alloc(4096), b.alloc(4096)];
    a.memcpyHtoD(src, new Uint8Array(4096).fill(7));
    const outcome = (run) => { try { run(); return 'done'; } catch (error) { return error.code; } };
    const back = new Uint8Array(4096);
    const results = [
      outcome(() => b.memcpyFrom(a, dst + 4, src + 8, 100)),
      outcome(() => b.memcpyFrom(a, dst, src, 5000)),
      outcome(() => { const s = b.createStream(); s.beginCapture(); try { b.memcpyFrom(a, dst, src, 8, s); } finally { s.endCapture(); } }),
    ];
    b.memcpyDtoHSync(back, dst);
    a.dispose();
    results.push(outcome(() => b.memcpyFrom(a, dst, src, 8)));
    return { reached, results, sum: back.subarray(4, 104).reduce((x, y) => x + y) };`;
  const run = (environment: Record<string, string>) =>
    runIsolated<{ reached: boolean[]; results: string[]; sum: number }>(body, {
      X_HIP_LIBRARY: rocm6,
      FAKE_HIP_DEVICES: '2',
      ...environment,
    });
  expect(run({})).toEqual({
    reached: [true, true, false],
    results: ['done', 'INVALID_ARGUMENT', 'INVALID_ARGUMENT', 'DISPOSED'],
    sum: 700,
  });
  const none = run({ FAKE_HIP_PEER: 'none' });
  expect([none.reached, none.results[0]]).toEqual([[false, false, false], 'DRIVER_ERROR']);
});

test('launches, copies, events and graphs speak HIP', () => {
  const result = runIsolated<{ words: number[]; pointer: boolean; value: number; copied: boolean; updated: boolean }>(
    `${ELF}
    using device = hip.openDevice('rocm');
    const kernel = device.loadModule(elf).getFunction('record', ['ptr', 'u8', 'f64']);
    const out = device.alloc(4096);
    kernel.launch([7, 5, 3], [64, 2, 1], 1024, [out, 9, 2.25]);
    const view = new DataView(new ArrayBuffer(64));
    await device.memcpyDtoH(view, out);
    const words = Array.from({ length: 8 }, (_, i) => view.getUint32(i * 4, true));
    // 200 small uploads go round the staging ring more often than it has chunks; a large one bypasses it.
    const small = device.alloc(200 * 4);
    for (let i = 0; i < 200; i++) device.memcpyHtoD(small + i * 4, Uint32Array.of(i * 3));
    const back = new Uint32Array(200);
    device.memcpyDtoHSync(back, small);
    const large = new Uint8Array(3 << 20).map((_, i) => i * 7);
    const big = device.alloc(large.length);
    device.memcpyHtoD(big, large);
    const again = new Uint8Array(large.length);
    await device.memcpyDtoH(again, big);
    const stream = device.createStream();
    stream.beginCapture();
    kernel.launch(1, 1, 0, [out, 1, 1], stream);
    const graph = stream.endCapture();
    const exec = graph.instantiate();
    const updated = exec.update(graph);
    exec.launch(stream);
    await device.synchronize();
    return { words, pointer: Number(view.getBigUint64(32, true)) === out, value: view.getFloat64(48, true), updated,
      copied: back.every((v, i) => v === i * 3) && Buffer.compare(large, again) === 0 };`,
    { X_HIP_LIBRARY: rocm6 },
  );
  expect(result.words).toEqual([7, 5, 3, 64, 2, 1, 1024, 24]);
  expect(result).toMatchObject({ pointer: true, value: 2.25, copied: true, updated: false });
});

interface Failure {
  code: string;
  driverName?: string;
  call?: string;
  message: string;
  status?: number;
  requestedBytes?: number;
  freeBytes?: number;
  totalBytes?: number;
}

const CATCH =
  'const caught = (run) => { try { run(); } catch (e) { return { ...e, message: e.message }; } return { code: "none" }; };';

describe('errors', () => {
  test('out of memory carries requested, free and total', () => {
    const error = runIsolated<Failure>(
      `${CATCH} const device = hip.openDevice('rocm'); device.alloc(1 << 20); return caught(() => device.alloc(2 ** 40));`,
      { X_HIP_LIBRARY: rocm6 },
    );
    expect(error).toMatchObject({
      code: 'OUT_OF_MEMORY',
      call: 'hipMalloc',
      driverName: 'hipErrorOutOfMemory',
      status: 2,
      requestedBytes: 2 ** 40,
      freeBytes: 2 ** 30 - 2 ** 20,
      totalBytes: 2 ** 30,
    });
  });

  test('a missing kernel and a bad launch are named', () => {
    const [missing, launch] = runIsolated<Failure[]>(
      `${CATCH} ${ELF} const device = hip.openDevice('rocm'); const module = device.loadModule(elf);
      return [caught(() => module.getFunction('missing', [])), caught(() => module.getFunction('wide', []).launch(1, 2048, 0, []))];`,
      { X_HIP_LIBRARY: rocm6 },
    );
    expect(missing).toMatchObject({ code: 'FUNCTION_NOT_FOUND', call: 'hipModuleGetFunction' });
    expect(missing.message).toContain("'missing'");
    expect(launch).toMatchObject({ code: 'DRIVER_ERROR', driverName: 'hipErrorInvalidValue' });
    expect(launch.message).toContain("kernel 'wide' with grid [1, 1, 1], block [2048, 1, 1]");
  });

  test('damaged code objects never reach the runtime', () => {
    const messages = runIsolated<string[]>(
      `${CATCH} ${ELF} const device = hip.openDevice('rocm');
      const foreign = elf.slice(); new DataView(foreign.buffer).setUint16(18, 62, true);
      const cut = elf.slice(); new DataView(cut.buffer).setBigUint64(40, 1n << 40n, true); new DataView(cut.buffer).setUint16(58, 64, true); new DataView(cut.buffer).setUint16(60, 4, true);
      const bundle = new Uint8Array(40); bundle.set(Buffer.from('__CLANG_OFFLOAD_BUNDLE__')); bundle[24] = 3;
      return [foreign, cut, elf.subarray(0, 20), bundle, new Uint8Array(0), Buffer.from('text')].map((b) => caught(() => device.loadModule(b)).message);`,
      { X_HIP_LIBRARY: rocm6 },
    );
    expect(messages[0]).toContain('not for an AMD GPU (machine 62)');
    expect(messages[1]).toContain('truncated or damaged');
    expect(messages[2]).toContain('20 bytes cannot hold an ELF header');
    expect(messages[3]).toContain('offload bundle is truncated');
    expect(messages[4]).toContain('neither an ELF code object');
    expect(messages[5]).toContain('hipErrorInvalidImage');
  });

  test('X_LAUNCH_BLOCKING=1 names the kernel that faulted', () => {
    const body = `${CATCH} ${ELF} const device = hip.openDevice('rocm');
      const bad = device.loadModule(elf).getFunction('bad_kernel', []);
      return [caught(() => bad.launch(4, 64, 0, [])), caught(() => device.synchronizeSync())];`;
    const environment = { X_HIP_LIBRARY: rocm6, FAKE_HIP: 'faulty' };
    const [launch] = runIsolated<Failure[]>(body, { ...environment, X_LAUNCH_BLOCKING: '1' });
    expect(launch.driverName).toBe('hipErrorLaunchFailure');
    expect(launch.message).toContain("kernel 'bad_kernel'");
    expect(launch.message).toContain('this launch itself failed');
    const [quiet, later] = runIsolated<Failure[]>(body, { ...environment, X_LAUNCH_BLOCKING: undefined });
    expect(quiet.code).toBe('none');
    expect(later.call).toBe('hipDeviceSynchronize');
    expect(later.message).toContain('X_LAUNCH_BLOCKING=1');
  });

  test('a fault rejects a pending read', () => {
    const error = runIsolated<Failure>(
      `${ELF} const device = hip.openDevice('rocm'); const out = device.alloc(16);
      device.loadModule(elf).getFunction('bad_kernel', []).launch(1, 1, 0, []);
      return device.memcpyDtoH(new Uint8Array(16), out).then(() => ({ code: 'none' }), (e) => ({ ...e, message: e.message }));`,
      { X_HIP_LIBRARY: rocm6, FAKE_HIP: 'faulty' },
    );
    expect(error).toMatchObject({ code: 'DRIVER_ERROR', driverName: 'hipErrorLaunchFailure' });
  });
});
