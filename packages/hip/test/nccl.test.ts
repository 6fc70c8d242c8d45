// Collectives through a stand-in that has NCCL's and RCCL's C interface: what the addon passes for every call, dtype and
// reduction, and what it makes of a library that is slow, whose ranks do not come, or that says that one is gone.
import { beforeAll, describe, expect, test } from 'vitest';
import type { LibraryReport } from '../src';
import { runIsolated } from './fake-hip';
import { buildFakeNccl, buildFakes, runOnFakes } from './fake-libraries';

const preludeOn = (platform: 'rocm' | 'cuda') => `
  const [a, b] = [0, 1].map((ordinal) => hip.openDevice('${platform}', ordinal));
  const id = a.groupId();
  const join = (timeoutMs = 5000) => Promise.all([a, b].map((device, rank) => device.joinGroup({ id, rank, size: 2, timeoutMs })));
  const put = (device, values) => { const at = device.alloc(256); device.memcpyHtoD(at, values); return at; };
  const get = (device, at, values) => { device.memcpyDtoHSync(values, at); return Array.from(values, Number); };
  const caught = async (run) => { try { await run(); return 'nothing'; } catch (e) { return { code: e.code, message: e.message, call: e.call }; } };
`;
const PRELUDE = preludeOn('rocm');
const DEVICES = { FAKE_HIP_DEVICES: '2', FAKE_CUDA_DEVICES: '2' };

/** After a prelude: every call of both ranks, and what it gave. */
const EVERY_CALL = `
  const [x, y] = await join();
  const both = (call) => { call(x, 0); call(y, 1); };
  const out = {};
  const at = [put(a, Float32Array.of(1, 2, 3, 4)), put(b, Float32Array.of(10, 20, 30, 40))];
  const to = [put(a, new Float32Array(8)), put(b, new Float32Array(8))];
  const read = (name, count = 4) => { out[name] = [...get(a, to[0], new Float32Array(count)), ...get(b, to[1], new Float32Array(count))]; };
  for (const reduction of ['sum', 'prod', 'min', 'max', 'avg']) {
    both((c, r) => c.allReduce({ type: 'f32', source: at[r], target: to[r], count: 4 }, reduction));
    read(reduction);
  }
  both((c, r) => c.allGather({ type: 'u8', source: at[r], target: to[r], count: 8 }));
  read('gather');
  both((c, r) => c.reduceScatter({ type: 'f32', source: at[r], target: to[r], count: 2 }, 'sum'));
  read('scatter', 2);
  both((c, r) => c.broadcast({ type: 'u8', source: at[r], target: at[r], count: 16 }, 1));
  out.broadcast = get(a, at[0], new Float32Array(4));
  both((c, r) => c.grouped(() => { c.send({ type: 'u8', source: at[r], count: 4 }, 1 - r); c.recv({ type: 'u8', target: to[r], count: 4 }, 1 - r); }));
  read('exchange', 1);
  for (const [type, array] of [['i32', Int32Array], ['u32', Uint32Array], ['f64', Float64Array], ['u8', Uint8Array], ['i64', BigInt64Array], ['f16', Uint16Array], ['bf16', Uint16Array]]) {
    const one = { i64: 1n, f16: 0x3c00, bf16: 0x3f80 }[type] ?? 1;
    const in_ = [put(a, array.of(one)), put(b, array.of(one))];
    both((c, r) => c.allReduce({ type, source: in_[r], target: in_[r], count: 1 }, 'sum'));
    out[type] = get(a, in_[0], new array(1));
  }
  x.dispose(); y.dispose();
  a.dispose(); b.dispose();
  return out;`;
const EVERY_RESULT = {
  sum: [11, 22, 33, 44, 11, 22, 33, 44],
  prod: [10, 40, 90, 160, 10, 40, 90, 160],
  min: [1, 2, 3, 4, 1, 2, 3, 4],
  max: [10, 20, 30, 40, 10, 20, 30, 40],
  avg: [5.5, 11, 16.5, 22, 5.5, 11, 16.5, 22],
  gather: [1, 2, 10, 20, 1, 2, 10, 20],
  scatter: [11, 22, 33, 44],
  broadcast: [10, 20, 30, 40],
  exchange: [10, 10],
  i32: [2],
  u32: [2],
  f64: [2],
  u8: [2],
  i64: [2],
  f16: [0x4000],
  bf16: [0x4000],
};

describe('RCCL', () => {
  let hip: string;
  beforeAll(() => {
    hip = buildFakes(['rccl']);
  });

  test('is found beside the HIP runtime, and its version said', () => {
    const { value } = runOnFakes<LibraryReport>(hip, "return hip.libraryReport('rccl');");
    expect(value).toMatchObject({ available: true, version: '2.27.3', purpose: 'collectives' });
    expect(value.library).toBe(hip.replace('libamdhip64', 'librccl'));
  });

  test('is given every call with its dtype, reduction and rank', () => {
    const { value, log } = runOnFakes<Record<string, number[]>>(hip, PRELUDE + EVERY_CALL, DEVICES);
    expect(value).toEqual(EVERY_RESULT);
    expect(log.slice(0, 2).sort()).toEqual(['join rank 0 of 2', 'join rank 1 of 2']);
    expect(log).toContain('broadcast rank 0 type 1 op 0 peer 1 count 16');
    expect(log).toContain('send rank 1 type 1 op 0 peer 0 count 4 grouped');
    expect(log.filter((line) => line === 'destroy')).toHaveLength(2);
  });

  test('may take its time with every call', () => {
    const { value } = runOnFakes<number[]>(
      hip,
      `${PRELUDE}
      const [x, y] = await join();
      const at = [put(a, Float32Array.of(1)), put(b, Float32Array.of(2))];
      [x, y].forEach((c, r) => c.allReduce({ type: 'f32', source: at[r], target: at[r], count: 1 }, 'sum'));
      return get(a, at[0], new Float32Array(1));`,
      { ...DEVICES, FAKE_NCCL: 'slow' },
    );
    expect(value).toEqual([3]);
  });

  test('whose ranks do not come within the time is aborted', () => {
    const { value, log } = runOnFakes<{ code: string; message: string }>(
      hip,
      `${PRELUDE} return caught(() => a.joinGroup({ id, rank: 0, size: 2, timeoutMs: 300 }));`,
      DEVICES,
    );
    expect(value).toMatchObject({ code: 'RANK_TIMEOUT', call: 'ncclCommInitRank' });
    expect(value.message).toContain('not all 2 ranks came within 300 ms');
    expect(log).toContain('abort');
  });

  test('that says a rank is gone is a failure in its words, and the rest ends', () => {
    const { value } = runOnFakes<{ failure: unknown; after: unknown }>(
      hip,
      `${PRELUDE}
      const [x, y] = await join();
      const at = [put(a, Float32Array.of(1)), put(b, Float32Array.of(2))];
      [x, y].forEach((c, r) => c.allReduce({ type: 'f32', source: at[r], target: at[r], count: 1 }, 'sum'));
      const failure = x.failure();
      x.abort();
      const after = await caught(() => x.allReduce({ type: 'f32', source: at[0], target: at[0], count: 1 }, 'sum'));
      x.dispose(); y.dispose(); a.dispose(); b.dispose();
      return { failure, after };`,
      { ...DEVICES, FAKE_NCCL: 'lost' },
    );
    expect(value.failure).toEqual({
      code: 'RANK_LOST',
      rank: -1,
      message: "RCCL: remote process exited: the stand-in's last words",
    });
    expect(value.after).toMatchObject({ code: 'GROUP_FAILED' });
  });

  test('is given memory of the device only', () => {
    const { value } = runOnFakes<{ code: string; message: string }[]>(
      hip,
      `${PRELUDE}
      const [x] = await join();
      const at = put(a, new Float32Array(4));
      return Promise.all([
        caught(() => x.allReduce({ type: 'f32', source: 4096, target: at, count: 1 }, 'sum')),
        caught(() => x.allGather({ type: 'f32', source: at, target: at, count: 64 })),
        caught(() => x.broadcast({ type: 'f32', source: at, target: at, count: 1 }, 2)),
        caught(() => x.allReduce({ type: 'f32', source: at, target: at, count: -1 }, 'sum')),
      ]);`,
      DEVICES,
    );
    for (const { code } of value) expect(code).toBe('INVALID_ARGUMENT');
  });

  test('missing is said with what to install, when a group is wanted', () => {
    const without = buildFakes([]);
    const { value } = runOnFakes<{ code: string; message: string }>(
      without,
      "try { hip.openDevice('rocm').groupId(); return {}; } catch (e) { return { code: e.code, message: e.message }; }",
    );
    expect(value.code).toBe('LIBRARY_NOT_FOUND');
    expect(value.message).toMatch(/RCCL was not found.*Install ROCm's rccl/);
  });
});

// From 2.23 on a call of a communicator that does not block starts a thread.
describe('NCCL', () => {
  const prelude = preludeOn('cuda');
  let environment: Record<string, string>;
  beforeAll(() => {
    environment = { ...buildFakeNccl(), ...DEVICES };
  });
  const isCall = (line: string) => / rank . type /.test(line);

  test('is the same interface under its own name', () => {
    const report = runIsolated<LibraryReport>("return hip.libraryReport('nccl');", environment);
    expect(report).toMatchObject({ available: true, platform: 'cuda', version: '2.27.3' });
  });

  test('is given every call on a communicator that blocks, split from one that does not', () => {
    const { value, log } = runOnFakes<Record<string, number[]>>(undefined, prelude + EVERY_CALL, environment);
    expect(value).toEqual(EVERY_RESULT);
    expect(log.slice(0, 4).sort()).toEqual(['join rank 0 of 2', 'join rank 1 of 2', 'split rank 0', 'split rank 1']);
    const calls = log.filter(isCall);
    expect(calls).toHaveLength(34);
    expect(calls.filter((line) => !line.endsWith(' blocking'))).toEqual([]);
    expect(log.slice(-4)).toEqual(['destroy', 'destroy', 'destroy', 'destroy']);
  });

  test('before 2.23 is called without blocking, and nothing is split', () => {
    const { value, log } = runOnFakes<Record<string, number[]>>(undefined, prelude + EVERY_CALL, {
      ...environment,
      FAKE_NCCL_VERSION: '22203',
    });
    expect(value).toEqual(EVERY_RESULT);
    expect(log.filter((line) => line.includes('split') || line.endsWith(' blocking'))).toEqual([]);
    expect(log.slice(-2)).toEqual(['destroy', 'destroy']);
  });

  test('whose ranks do not come to be split within the time is aborted', () => {
    const body = `${prelude} return caught(() => join(300));`;
    const { value, log } = runOnFakes<object>(undefined, body, { ...environment, FAKE_NCCL: 'whole' });
    expect(value).toMatchObject({ code: 'RANK_TIMEOUT', call: 'ncclCommSplit' });
    expect(log).toContain('abort');
  });

  test('that holds a call longer than it may is aborted, and the call is a failure', () => {
    const { value, log } = runOnFakes<{ missed: object; after: object; failure: object; ms: number }>(
      undefined,
      `${prelude}
      const [x, y] = await join(300);
      const at = put(a, Float32Array.of(1));
      const reduce = () => x.allReduce({ type: 'f32', source: at, target: at, count: 1 }, 'sum');
      const start = performance.now();
      const missed = await caught(reduce);
      const ms = performance.now() - start;
      const out = { missed, after: await caught(reduce), failure: x.failure(), ms };
      x.dispose(); y.dispose();
      return out;`,
      { ...environment, FAKE_NCCL: 'threads' },
    );
    expect(value.missed).toMatchObject({ code: 'RANK_TIMEOUT', call: 'ncclAllReduce' });
    expect(value.missed).toMatchObject({ message: expect.stringContaining('not all 2 ranks came within 300 ms') });
    expect(value.ms).toBeGreaterThanOrEqual(300);
    expect(value.ms).toBeLessThan(5000);
    expect(value.after).toMatchObject({ code: 'GROUP_FAILED' });
    expect(value.failure).toMatchObject({ code: 'GROUP_FAILED' });
    // The parent, which ends the call, and then what the call was made on.
    expect(log.filter((line) => line.startsWith('abort'))).toEqual(['abort', 'abort']);
    expect(log.filter((line) => line === 'destroy')).toHaveLength(2);
  });
});
