/** Communicators of cpu devices, a rank a thread: every call in every dtype, what a group does when ranks fail, and graphs. */
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CollectiveError, Communicator, Device, Tensor } from '@x/core';
import { inBundle, ranks } from '@x/testing/ranks';
import { describe, expect, test } from 'vitest';
import '../src';

const values = (outcomes: readonly { value?: unknown; error?: unknown }[]) =>
  outcomes.map(({ value, error }) => error ?? value);

describe('collectives of cpu devices', () => {
  test('reduce, gather, scatter and broadcast what each rank has, in every dtype', async () => {
    const body = `
      const { Tensor } = core;
      const out = {};
      for (const dtype of ['u8', 'u32', 'i32', 'i64', 'f16', 'bf16', 'f32', 'f64']) {
        const row = [1 + rank, 2, 6 - rank, 4, 5, 3 * rank];
        const x = Tensor.from(dtype === 'i64' ? row.map(BigInt) : row, { dtype, device });
        const read = async (tensor) => { const list = Array.from(await tensor.toArray(), Number); tensor.dispose(); return list; };
        out[dtype] = {
          sum: await read(communicator.allReduce(x)),
          prod: await read(communicator.allReduce(x, 'prod')),
          min: await read(communicator.allReduce(x, 'min')),
          max: await read(communicator.allReduce(x, 'max')),
          gathered: await read(core.scope(() => communicator.allGather(x.narrow(0, 0, 2)))),
          part: await read(communicator.reduceScatter(x)),
        };
        communicator.broadcast(x, 1);
        out[dtype].sent = Array.from(await x.toArray(), Number);
        x.dispose();
      }
      return out;`;
    const outcomes = await ranks(3, body);
    const x = (rank: number) => [1 + rank, 2, 6 - rank, 4, 5, 3 * rank];
    const all = [x(0), x(1), x(2)];
    const each = (fold: (a: number, b: number) => number) =>
      all[0].map((_, i) => all.map((row) => row[i]).reduce(fold));
    const sum = each((a, b) => a + b);
    outcomes.forEach(({ value, error }, rank) => {
      expect(error).toBeUndefined();
      for (const got of Object.values(value as Record<string, unknown>)) {
        expect(got).toEqual({
          sum,
          prod: each((a, b) => a * b),
          min: each((a, b) => Math.min(a, b)),
          max: each((a, b) => Math.max(a, b)),
          gathered: all.flatMap((row) => row.slice(0, 2)),
          part: sum.slice(2 * rank, 2 * rank + 2),
          sent: x(1),
        });
      }
    });
    expect(Object.keys(outcomes[0].value as object)).toHaveLength(8);
    expect(outcomes.map(({ live }) => live)).toEqual([0, 0, 0]);
  });

  test('sums that are asked for later are sums, and what is none is refused', async () => {
    const body = `
      const { Tensor } = core;
      const make = () => Tensor.full(rank + 1, [3, 2], { dtype: 'f32', device }).contiguous();
      const [later, product] = [make(), communicator.sumOfProduct(make)];
      communicator.sumLater(later);
      const refused = [];
      for (const bad of [() => communicator.sumLater(3), () => communicator.sumOfProduct(later), () => communicator.sumOfProduct(() => 3), () => communicator.sumLater(later.t())])
        try { bad(); refused.push('nothing'); } catch (error) { refused.push(error.code); }
      const sums = [later, product].map((x) => Array.from(x.toArraySync()));
      return { sums, refused, joins: communicator.joinsSums };`;
    for (const value of values(await ranks(2, body)))
      expect(value).toEqual({
        sums: [new Array(6).fill(3), new Array(6).fill(3)],
        refused: ['INVALID_ARGUMENT', 'INVALID_ARGUMENT', 'INVALID_ARGUMENT', 'INVALID_SHAPE'],
        joins: false,
      });
  });

  test('gives all ranks the same bits of large tensors, and of views', async () => {
    const body = `
      const { Tensor } = core;
      device.setSeed(rank + 1);
      const x = Tensor.randn(0, 1, [301, 97], { device });
      const sum = communicator.allReduce(x.transpose(0, 1));
      const joined = communicator.allGather(x, 1);
      communicator.allReduceInPlace(x, 'avg');
      return { shape: joined.shape, sum: Array.from(await sum.toArray()), avg: Array.from(await x.toArray()), joined: Array.from(await joined.toArray()) };`;
    const outcomes = await ranks(2, body);
    const [a, b] = values(outcomes) as { shape: number[]; sum: number[]; avg: number[]; joined: number[] }[];
    expect(a).toEqual(b);
    expect(a.shape).toEqual([301, 194]);
    const device = Device.cpu();
    const parts = [0, 1].map((rank) => {
      device.setSeed(rank + 1);
      return Tensor.randn(0, 1, [301, 97], { device });
    });
    const sum = parts[0].add(parts[1]);
    expect(a.sum).toEqual(Array.from(await sum.transpose(0, 1).contiguous().toArray<Float32Array>()));
    expect(a.avg).toEqual(Array.from(await sum.div(2).toArray<Float32Array>()));
    expect(a.joined).toEqual(Array.from(await Tensor.cat(parts, 1).toArray<Float32Array>()));
  });

  test('runs large sums beside other work, behind which whatever touches them is put', async () => {
    const body = `
      const { Tensor, scope } = core;
      const count = 2 ** 20;
      const full = (value) => Tensor.full(value, [count], { dtype: 'f32', device });
      const ends = async (tensor) => { const all = await tensor.toArray(); return [all[0], all[count - 1]]; };
      const seen = {};
      const [a, b, c] = [full(rank + 1), full(10 * rank), full(5)];
      // Two at once, and what does not need them in between.
      communicator.allReduceInPlace(a);
      communicator.allReduceInPlace(b);
      seen.beside = await ends(scope(() => c.add(rank)));
      seen.read = await ends(a);
      seen.view = (await b.narrow(0, count - 3, 2).toArray())[1];
      // Written over, added to, gathered and given back before anyone has read it.
      communicator.allReduceInPlace(a);
      a.write(new Float32Array(count).fill(7 + rank));
      seen.written = await ends(a);
      communicator.allReduceInPlace(a);
      seen.sum = await ends(scope(() => a.add(a)));
      communicator.allReduceInPlace(b);
      // The library's calls stay in the order in which all ranks make them.
      seen.unrelated = Array.from(await communicator.allGather(c.narrow(0, 0, 2)).toArray());
      seen.gathered = (await communicator.allGather(b).toArray())[count];
      communicator.allReduceInPlace(c);
      c.dispose();
      const over = full(rank);
      const kept = communicator.allReduce(over);
      over.dispose();
      const other = full(9);
      seen.kept = await ends(kept);
      // A graph that reads it.
      const given = full(rank);
      communicator.allReduceInPlace(given);
      const graph = device.capture(() => given.add(1));
      seen.replayed = await ends(graph.replay());
      communicator.allReduceInPlace(given);
      seen.again = await ends(graph.replay());
      graph.dispose();
      // Left under way when the group is left.
      communicator.allReduceInPlace(other);
      return seen;`;
    const outcomes = await ranks(2, body);
    outcomes.forEach(({ value, error }, rank) => {
      expect(error).toBeUndefined();
      expect(value).toEqual({
        beside: [5 + rank, 5 + rank],
        read: [3, 3],
        view: 10,
        written: [7 + rank, 7 + rank],
        sum: [30, 30],
        unrelated: [5, 5, 5, 5],
        gathered: 20,
        kept: [1, 1],
        replayed: [2, 2],
        again: [3, 3],
      });
    });
  });

  test('sends to another rank, and exchanges without a circle', async () => {
    const body = `
      const { Tensor } = core;
      const x = Tensor.full(rank, [70000], { dtype: 'f32', device });
      const next = (rank + 1) % communicator.size, before = (rank + communicator.size - 1) % communicator.size;
      const got = communicator.grouped(() => { communicator.send(x, next); return communicator.recv([70000], 'f32', before); });
      if (rank === 0) { communicator.send(got, 2); return (await got.toArray())[69999]; }
      if (rank === 2) { const more = communicator.recv([70000], 'f32', 0); return [(await got.toArray())[0], (await more.toArray())[1]]; }
      return (await got.toArray())[0];`;
    expect(values(await ranks(3, body))).toEqual([2, 0, [1, 2]]);
  });

  test('are part of a captured graph', async () => {
    const body = `
      const { Tensor } = core;
      const x = Tensor.full(rank + 1, [40000], { dtype: 'f32', device });
      const graph = device.capture(() => communicator.allReduce(x.mul(2)).add(rank));
      const seen = [];
      for (let i = 0; i < 3; i++) {
        x.write(new Float32Array(40000).fill(i + rank));
        const out = graph.replay();
        seen.push((await out.toArray())[39999]);
      }
      const { isCaptured } = graph;
      graph.dispose();
      x.dispose();
      return { isCaptured, seen };`;
    expect(values(await ranks(2, body))).toEqual([
      { isCaptured: true, seen: [2, 6, 10] },
      { isCaptured: true, seen: [3, 7, 11] },
    ]);
  });

  test('a rank alone computes with itself', async () => {
    const body = `
      const x = core.Tensor.from([1, 2], { dtype: 'f32', device });
      return [communicator.allReduce(x), communicator.allGather(x), communicator.reduceScatter(x)].map((t) => Array.from(t.toArraySync()));`;
    expect(values(await ranks(1, body))).toEqual([
      [
        [1, 2],
        [1, 2],
        [1, 2],
      ],
    ]);
  });
});

describe('a group of which a rank', () => {
  const waits = `
    const x = core.Tensor.full(1, [10], { dtype: 'f32', device });
    const sum = communicator.allReduce(x);
    await sum.toArray();`;

  test('dies says which', async () => {
    const outcomes = await ranks(3, `if (rank === 2) process.exit(); ${waits}`);
    expect(outcomes[2]).toEqual({});
    for (const { error } of outcomes.slice(0, 2)) expect(error).toMatchObject({ code: 'RANK_LOST', rank: 2 });
  });

  test.runIf(!inBundle)(
    'dies leaves no values to be read, of whatever was computed with the sum, until the communicator is gone',
    async () => {
      const body = `
      if (rank === 1) process.exit();
      const weights = core.Tensor.full(5, [3], { dtype: 'f32', device });
      weights.sliceSet(communicator.allReduce(core.Tensor.full(1, [3], { dtype: 'f32', device })).neg(), 0, 0);
      const codeOf = async (read) => { try { return await read(); } catch (error) { return [error.code, error.rank, error.message]; } };
      const refused = [await codeOf(() => weights.toArray()), await codeOf(() => weights.sumAll().toScalarSync())];
      const path = input + rank + '.safetensors';
      const { saveSafetensors } = modules.files;
      refused.push(await codeOf(() => saveSafetensors(path, { weights })));
      communicator.dispose();
      return [...refused, (await weights.toArray()).length];`;
      const files = new URL('../../core/src/files/index.ts', import.meta.url).href;
      const [{ value, error }] = await ranks(2, body, { input: join(tmpdir(), 'x-group-'), modules: { files } });
      expect(error).toBeUndefined();
      const [read, scalar, saved, length] = value as [unknown[], unknown[], unknown[], number];
      for (const refused of [read, scalar, saved]) {
        expect(refused.slice(0, 2)).toEqual(['RANK_LOST', 1]);
        expect(refused[2]).toMatch(
          /What cpu:?0? computed since then may lack other ranks' parts; dispose of the communicator/,
        );
      }
      expect(length).toBe(3);
    },
  );

  test('hangs says which, within the time', async () => {
    const start = performance.now();
    const hangs = 'if (rank === 0) { await new Promise((done) => setTimeout(done, 2500)); return; }';
    const outcomes = await ranks(2, `${hangs} ${waits}`, { timeoutMs: 1000 });
    expect(outcomes[1].error).toMatchObject({ code: 'RANK_TIMEOUT', rank: 0 });
    expect(outcomes[1].error?.message).toMatch(/rank 0 did not come within 1000 ms/);
    expect(performance.now() - start).toBeLessThan(8000);
  });

  test('makes another call says so on all', async () => {
    const body = `
      const x = core.Tensor.full(1, [rank === 1 ? 11 : 10], { dtype: 'f32', device });
      await communicator.allReduce(x).toArray();`;
    const outcomes = await ranks(2, body);
    expect(outcomes.map(({ error }) => error?.code).sort()).toContain('RANKS_DIFFER');
    for (const { error } of outcomes) expect(['RANKS_DIFFER', 'RANK_LOST']).toContain(error?.code);
  });

  test('does not come ends for the others', async () => {
    const outcomes = await ranks(1, 'return 1', { size: 2, timeoutMs: 500 });
    expect(outcomes[0].error).toMatchObject({ code: 'RANK_TIMEOUT' });
    expect(outcomes[0].error?.message).toMatch(/rank 1 of 2 ranks did not come within 500 ms/);
  });

  test('aborts lets the others go, and refuses what follows', async () => {
    const body = `
      if (rank === 0) {
        communicator.abort();
        try { communicator.allReduce(core.Tensor.zeros([1], { device })); } catch (error) { return error.code; }
      } else { ${waits} }`;
    const [first, second] = await ranks(2, body);
    expect(first.value).toBe('GROUP_FAILED');
    expect(second.error).toMatchObject({ code: 'RANK_LOST', rank: 0 });
  });
});

describe('a communicator refuses', () => {
  test('what is no group', async () => {
    const device = Device.cpu();
    const id = Communicator.uniqueId(device);
    await expect(Communicator.join(device, { id, rank: 2, size: 2 })).rejects.toThrow(CollectiveError);
    await expect(Communicator.join(device, { id, rank: -1, size: 2 })).rejects.toThrow(/rank is -1 of 2 ranks/);
    await expect(Communicator.join(device, { id, rank: 0, size: 0 })).rejects.toThrow(/size is 0/);
    for (const size of [2 ** 31, 1e9, Number.NaN, 1.5])
      await expect(Communicator.join(device, { id, rank: 0, size })).rejects.toThrow(/a whole number from 1 to 65536/);
    for (const timeoutMs of [2 ** 32, Number.POSITIVE_INFINITY])
      await expect(Communicator.join(device, { id, rank: 0, size: 1, timeoutMs })).rejects.toThrow(/timeoutMs is/);
    await expect(Communicator.join(device, { id: id.subarray(1), rank: 0, size: 1 })).rejects.toThrow(
      /128 bytes, not 127/,
    );
    const garbage = new Uint8Array(128).fill(7);
    await expect(Communicator.join(device, { id: garbage, rank: 0, size: 1 })).rejects.toThrow(/names no group/);
    await expect(Communicator.join('js', { id, rank: 0, size: 1 })).rejects.toMatchObject({ code: 'UNSUPPORTED' });
    // biome-ignore lint/suspicious/noExplicitAny: what JavaScript may give
    await expect(Communicator.join(device, { id, rank: 0, size: 1, timeoutMs: 0 } as any)).rejects.toThrow(
      /timeoutMs is 0/,
    );
  });

  test('tensors of other devices, views to write to, and dtypes that are not added up', async () => {
    const device = Device.cpu();
    const communicator = await Communicator.join(device, { id: Communicator.uniqueId(device), rank: 0, size: 1 });
    const x = Tensor.zeros([4, 2], { device });
    expect(() => communicator.allReduce(Tensor.zeros([2], { device: 'js' }))).toThrow(/on js, the communicator on cpu/);
    expect(() => communicator.allReduceInPlace(x.transpose(0, 1))).toThrow(/elements do not lie together/);
    expect(() => communicator.allReduce(x.toDtype('f8e4m3'))).toThrow(/no kernel for f8e4m3/);
    expect(() => communicator.broadcast(x, 1)).toThrow(/root is 1 of 1 ranks/);
    // biome-ignore lint/suspicious/noExplicitAny: what JavaScript may give
    expect(() => communicator.allReduce(x, 'mean' as any)).toThrow(/use one of sum, prod/);
    // biome-ignore lint/suspicious/noExplicitAny: what JavaScript may give
    expect(() => communicator.allReduce([1] as any)).toThrow(/give a tensor/);
    expect(communicator.allReduce(Tensor.zeros([0, 3], { device })).shape).toEqual([0, 3]);
    expect(() => communicator.reduceScatter(Tensor.zeros([], { device }))).toThrow(/no whole part/);
    communicator.dispose();
    communicator.dispose();
    expect(() => communicator.allReduce(x)).toThrow(/was disposed/);
  });
});
