/**
 * Sums through the memory of two devices of one kind, a rank a thread, where there are two: two GPUs, or the emulator with
 * `--devices 2`. What each rank gets is compared with the sum in order of the ranks, and with the library's (`X_PEER=0`).
 */
import { kernelDevices } from '@x/testing/devices';
import { ends, OTHERS, type Outcome, ranks } from '@x/testing/ranks';
import { afterEach, describe, expect, it, vi } from 'vitest';

const gpus = kernelDevices().filter(({ kind }) => kind !== 'cpu');
const most = gpus.filter(({ kind }) => kind === gpus[0].kind).slice(0, 8);
const pairs = most.length > 1 ? [[`${most[0]}`, `${most[1]}`] as const] : [];
const isEmulated = process.env.FAKE_HIP_KERNELS !== undefined;
/** Lanes of an emulated device are fibers. */
const SLOW = isEmulated ? 300_000 : 60_000;

/** What bodies begin with: how many sums went through the library, and the bits of a tensor. */
const PRELUDE = `
  const { Tensor } = core;
  const { hip } = device.backend;
  const calls = () => hip.counters().library;
  const bits = async (x) => { const { buffer } = await x.toDtype('f32').toArray(); return Array.from(new Uint32Array(buffer)); };
  const numbers = (count, seed) => new Float32Array(count).map((_, i) => (((i * 37 + seed * 101 + rank * 53) % 509) - 250) / 16);
`;

const valuesOf = (outcomes: readonly Outcome[]) =>
  outcomes.map(({ value, error }) => {
    expect(error).toBeUndefined();
    return value as Record<string, unknown>;
  });

if (pairs.length === 0) it.skip('there are no two GPUs of one kind', () => {});

describe.each(pairs)('sums of %s and %s', (...device) => {
  afterEach(() => void vi.unstubAllEnvs());

  it(
    'are what the library gives, of every size and dtype, in place or not',
    async () => {
      const COUNTS = [1, 3, 7, 1024, 4099, 16384];
      const body = `${PRELUDE}
      const sums = {};
      const before = calls();
      for (const dtype of ['f32', 'f16', 'bf16']) for (const count of input.counts) {
        const x = Tensor.from(numbers(count, count), { dtype, device });
        const sum = communicator.allReduce(x);
        // What does not begin at 16 bytes.
        const odd = count > 1 ? communicator.allReduce(x.narrow(0, 1, count - 1)) : undefined;
        communicator.allReduceInPlace(x);
        sums[dtype + count] = [await bits(sum), await bits(x), odd ? await bits(odd) : []];
        for (const one of [x, sum, odd]) one?.dispose();
      }
      return { sums, calls: calls() - before };`;
      const input = { counts: COUNTS };
      const [a, b] = valuesOf(await ranks(2, body, { device, input }));
      vi.stubEnv('X_PEER', '0');
      const [library] = valuesOf(await ranks(2, body, { device, input }));
      expect(a.calls).toBe(0);
      expect(library.calls).toBeGreaterThan(0);
      expect(b).toEqual(a);
      expect(a.sums).toEqual(library.sums);
      for (const [sum, inPlace, odd] of Object.values(a.sums as Record<string, number[][]>)) {
        expect(inPlace).toEqual(sum);
        if (odd.length > 0) expect(odd).toEqual(sum.slice(1));
      }
    },
    SLOW,
  );

  it(
    'are right a hundred times one after the other, with sizes that change',
    async () => {
      const body = `${PRELUDE}
      let wrong = 0;
      const before = calls();
      for (let i = 0; i < 100; i++) {
        const count = [5, 3000, 64, 9001][i % 4];
        const x = Tensor.full(i + rank, [count], { dtype: 'f32', device });
        const sum = await communicator.allReduce(x).toArray();
        wrong += sum.filter((value) => value !== 2 * i + 1).length + Number(sum.length !== count);
        x.dispose();
      }
      return { wrong, calls: calls() - before };`;
      for (const value of valuesOf(await ranks(2, body, { device }))) expect(value).toEqual({ wrong: 0, calls: 0 });
    },
    SLOW,
  );

  it(
    'are part of a captured graph, and leave nothing',
    async () => {
      const body = `${PRELUDE}
      const x = Tensor.full(0, [4000], { dtype: 'f32', device });
      const graph = device.capture(() => core.scope(() => {
        let y = communicator.allReduce(x.mul(2));
        for (let i = 0; i < 4; i++) y = communicator.allReduce(y.add(rank));
        return y;
      }));
      const seen = [];
      for (let i = 0; i < 20; i++) {
        x.write(new Float32Array(4000).fill(i + rank));
        // Between replays, so that numbers of calls go on.
        if (i % 3 === 0) communicator.allReduce(x).dispose();
        const out = await graph.replay().toArray();
        seen.push(out[0], out[3999]);
      }
      const { isCaptured } = graph;
      graph.dispose();
      x.dispose();
      return { isCaptured, seen };`;
      const outcomes = await ranks(2, body, { device });
      const seen = Array.from({ length: 20 }, (_, i) => {
        let y = 2 * (2 * i + 1);
        for (let k = 0; k < 4; k++) y = 2 * y + 1;
        return [y, y];
      }).flat();
      for (const value of valuesOf(outcomes)) expect(value).toEqual({ isCaptured: true, seen });
      expect(outcomes.map(({ live }) => live)).toEqual([0, 0]);
    },
    SLOW,
  );

  it(
    'are part of a captured graph beside calls of the library',
    async () => {
      const body = `${PRELUDE}
      const x = Tensor.full(0, [40], { dtype: 'f32', device });
      const graph = device.capture(() => core.scope(() => {
        const first = x.copy();
        communicator.broadcast(first);
        return communicator.allReduce(first.add(rank));
      }));
      const seen = [];
      for (let i = 0; i < 5; i++) {
        x.write(new Float32Array(40).fill(10 * i + 100 * rank));
        const out = await graph.replay().toArray();
        seen.push(out[0], out[39]);
      }
      graph.dispose();
      x.dispose();
      return { seen };`;
      const outcomes = await ranks(2, body, { device });
      // Of what the first rank has, on both, and the numbers of the ranks.
      const seen = Array.from({ length: 5 }, (_, i) => [20 * i + 1, 20 * i + 1]).flat();
      for (const value of valuesOf(outcomes)) expect(value).toEqual({ seen });
      expect(outcomes.map(({ live }) => live)).toEqual([0, 0]);
    },
    SLOW,
  );

  it(
    "of more than the bound, and other reductions, are the library's",
    async () => {
      const body = `${PRELUDE}
      const used = [];
      const count = async (reduce) => { const before = calls(); const y = reduce(); const first = (await y.toArray())[0]; y.dispose(); used.push([calls() - before, Number(first)]); };
      const large = Tensor.full(rank + 1, [2 ** 14 + 1], { dtype: 'f32', device });
      await count(() => communicator.allReduce(large));
      await count(() => communicator.allReduce(large.narrow(0, 0, 8), 'max'));
      await count(() => communicator.allReduce(large.narrow(0, 0, 8).toDtype('i64')));
      await count(() => communicator.allReduce(large.narrow(0, 0, 8)));
      large.dispose();
      return { used };`;
      const used = [
        [1, 3],
        [1, 2],
        [1, 3],
        [0, 3],
      ];
      for (const value of valuesOf(await ranks(2, body, { device }))) expect(value).toEqual({ used });
    },
    SLOW,
  );

  it(
    'end with one error when a rank does not come',
    async () => {
      const body = `${PRELUDE}
      const x = Tensor.full(1, [3000], { dtype: 'f32', device });
      await communicator.allReduce(x).toArray();
      // As long as a rank is there, it only does not call.
      if (rank === 1) { await othersEnd(input); communicator.abort(); return 'late'; }
      try {
        for (let i = 0; i < 50; i++) await communicator.allReduce(x).toArray().catch(() => {});
      } finally {
        end(input);
      }
      return 'nothing happened';`;
      const begun = performance.now();
      const [first, second] = await ranks(2, OTHERS + body, { device, timeoutMs: 3000, input: ends(2) });
      expect(first.error).toMatchObject({ code: 'RANK_TIMEOUT', rank: 1 });
      expect(first.error?.message).toContain('rank 1 did not come within 3000 ms');
      expect(second.value).toBe('late');
      expect(performance.now() - begun).toBeLessThan(isEmulated ? 60_000 : 10_000);
    },
    SLOW,
  );

  it(
    'end when a rank is ended in between',
    async () => {
      const body = `${PRELUDE}
      const x = Tensor.full(1, [3000], { dtype: 'f32', device });
      for (let i = 0; ; i++) {
        if (rank === 1 && i === 5) process.exit();
        await communicator.allReduce(x).toArray();
      }`;
      const [first, second] = await ranks(2, body, { device, timeoutMs: 3000 });
      expect(second).toEqual({});
      expect(first.error).toMatchObject({ code: 'RANK_TIMEOUT', rank: 1 });
      // The device is as good as new.
      const [again] = await ranks(
        2,
        `return communicator.allReduce(core.Tensor.ones([4], 'f32', device)).toArraySync();`,
        { device },
      );
      expect(again).toMatchObject({ value: new Float32Array(4).fill(2) });
    },
    SLOW,
  );
});

describe.skipIf(most.length < 3)('sums of more than two GPUs', () => {
  it(
    'are the same on all ranks, and right',
    async () => {
      const body = `${PRELUDE}
      const before = calls();
      const wrong = [];
      for (let i = 0; i < 12; i++) for (const dtype of ['f32', 'f16']) {
        // The last one by parts.
        const count = [1, 900, 5003, 16_001][i % 4];
        const x = Tensor.from(new Float32Array(count).map((_, at) => (at % 61) + rank + i), { dtype, device });
        const sum = await communicator.allReduce(x).toDtype('f32').toArray();
        const { size } = communicator;
        const differ = sum.filter((value, at) => value !== size * ((at % 61) + i) + (size * (size - 1)) / 2).length;
        if (differ > 0) wrong.push([dtype, count, differ]);
        x.dispose();
      }
      return { wrong, calls: calls() - before };`;
      const outcomes = await ranks(most.length, body, { device: most.map(String) });
      for (const value of valuesOf(outcomes)) expect(value).toEqual({ wrong: [], calls: 0 });
    },
    SLOW,
  );
});

describe.skipIf(!isEmulated || pairs.length === 0)('devices that do not reach each other', () => {
  afterEach(() => void vi.unstubAllEnvs());

  it(
    'leave sums to the library, also where only one rank is told not to',
    async () => {
      const body = `${PRELUDE}
      const before = calls();
      const sum = await communicator.allReduce(Tensor.full(rank + 1, [9], { dtype: 'f32', device })).toArray();
      return { sum: Array.from(sum), calls: calls() - before };`;
      const through = { sum: new Array(9).fill(3), calls: 1 };
      vi.stubEnv('FAKE_HIP_PEER', 'none');
      for (const value of valuesOf(await ranks(2, body, { device: pairs[0] }))) expect(value).toEqual(through);
      vi.unstubAllEnvs();
      const told = { device: pairs[0], environment: [{}, { X_PEER: '0' }] };
      for (const value of valuesOf(await ranks(2, body, told))) expect(value).toEqual(through);
      for (const value of valuesOf(await ranks(2, body, { device: pairs[0] })))
        expect(value).toEqual({ ...through, calls: 0 });
    },
    SLOW,
  );
});
