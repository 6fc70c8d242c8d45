/**
 * Norms of sums over GPUs in one kernel, of many rows and of few, a rank a thread: two GPUs and all of them, or the emulator with
 * `--devices 3`. What comes out is, bit for bit, what the library's sum and the norm behind it give; of more than two ranks, whose sums the library takes in an order
 * of its own, numbers are such that no sum is rounded.
 */
import { kernelDevices } from '@x/testing/devices';
import { ends, OTHERS, type Outcome, ranks } from '@x/testing/ranks';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

const gpus = kernelDevices().filter(({ kind }) => kind !== 'cpu');
const most = gpus.filter(({ kind }) => kind === gpus[0].kind);
const groups = [2, most.length]
  .filter((size, i) => size <= most.length && size > i + 1)
  .map((size) => ({ size, device: most.slice(0, size).map(String) }));
const isEmulated = process.env.FAKE_HIP_KERNELS !== undefined;
/** Lanes of an emulated device are fibers. */
const SLOW = isEmulated ? 300_000 : 60_000;

/** What bodies begin with: how many sums went through the library, values, norms of storages, and the bits of them. */
const PRELUDE = `
  const { Tensor } = core;
  const { hip, decode } = device.backend;
  const calls = () => hip.counters().library;
  const values = (rows, n, seed) => {
    const numbers = new Float32Array(rows * n).map((_, i) => (((i * 37 + seed * 101) % 1009) - 500) / 64);
    return core.scope(() => Tensor.from(numbers, { device }).reshape(rows === 1 ? [n] : [rows, n]));
  };
  const tensor = (storage, shape) => Tensor.fromStorage(storage, shape, device);
  const norm = (x, delta, weights, as) => {
    const [rows, n] = x.shape;
    const parts = Object.fromEntries(Object.entries(weights).map(([name, one]) => [name, one instanceof Tensor ? one.storagePart() : one]));
    const made = decode.norm({ rows, n, eps: 1e-5, x: x.storagePart(), ...(delta && { delta: delta.storagePart() }), ...parts }, as);
    return { normed: tensor(made.normed, x.shape), ...(made.sum && { sum: tensor(made.sum, x.shape) }) };
  };
  const hash = async (x) => {
    const wide = x.toDtype('f32');
    const bytes = new Uint8Array((await wide.toArray()).buffer);
    if (wide !== x) wide.dispose();
    let sum = 2166136261;
    for (let i = 0; i < bytes.length; i++) sum = Math.imul(sum ^ bytes[i], 16777619);
    return sum;
  };
`;

const valuesOf = (outcomes: readonly Outcome[]) =>
  outcomes.map(({ value, error, live }) => {
    expect(error).toBeUndefined();
    expect(live).toBe(0);
    return value as { bits: number[]; calls: number[]; norms: [string, number[]][] };
  });

/** What all ranks give, with sums in norms, as `setting` says ('' is by default), and without. */
async function both(device: readonly string[], body: string, input?: unknown, setting = '1') {
  vi.stubEnv('X_PEER_NORMS', setting || undefined);
  const joined = valuesOf(await ranks(device.length, PRELUDE + body, { device, input }));
  vi.stubEnv('X_PEER_NORMS', '0');
  const [library] = valuesOf(await ranks(device.length, PRELUDE + body, { device, input }));
  for (const { bits, calls } of joined) {
    expect(bits).toEqual(library.bits);
    expect(calls).toEqual(joined[0].calls);
  }
  return { joined: joined[0], library };
}

/** Values of f32 up to their rounding; of the others nearly all are the same, and so are bytes of blocks. */
function expectClose(norm: readonly number[], wanted: readonly number[], as: string): void {
  expect(norm).toHaveLength(wanted.length);
  const largest = Math.max(...wanted.map(Math.abs));
  const errors = norm.map((value, i) => Math.abs(value - wanted[i]) / largest);
  if (as === 'f32') expect(Math.max(...errors)).toBeLessThan(1e-6);
  else expect(errors.filter((error) => error > 0).length / errors.length).toBeLessThan(0.02);
}

if (groups.length === 0) it.skip('there are no two GPUs of one kind', () => {});

describe.each(groups)('norms of sums over $device', ({ device, size }) => {
  beforeEach(() => vi.stubEnv('X_GRAPHS', '1'));
  afterEach(() => void vi.unstubAllEnvs());

  it.each([
    ['f16', 520, 1024, []],
    ['bf16', 521, 1020, ['deltaScale']],
    ['f32', 130, 4096, ['beta', 'centred']],
    ['f16', 1031, 512, ['deltaAlpha']],
    ['f32', 65, 8188, ['deltaAlpha', 'beta']],
  ] as [string, number, number, string[]][])(
    'are what the library and a norm give: %s of %d x %d, %j',
    async (as, rows, n, options) => {
      const body = `
        const { as, rows, n, options } = input;
        const all = { deltaAlpha: () => values(1, n, 11), beta: () => values(1, n, 12), deltaScale: () => 0.375, centred: () => true };
        const weights = { alpha: values(1, n, 10), ...Object.fromEntries(options.map((name) => [name, all[name]()])) };
        const bits = [], counts = [];
        let x = values(rows, n, 1);
        const made = [x];
        const begin = calls();
        // Of each norm the next one reads the sum, of which a rank has made its rows.
        for (let i = 0; i < 4; i++) {
          const delta = values(rows, n, 20 + i + 7 * rank);
          communicator.sumLater(delta);
          const { sum, normed } = norm(x, delta, weights, as);
          made.push(delta, sum, normed);
          x = sum;
          bits.push(await hash(normed));
        }
        counts.push(calls() - begin, communicator.joinsSums);
        // What is asked for afterwards is whole.
        for (const one of [x, made[4], made[1]]) bits.push(await hash(one));
        counts.push(calls() - begin);
        for (const one of [...made, ...Object.values(weights)]) one.dispose?.();
        return { bits, calls: counts };`;
      const { joined, library } = await both(device, body, { as, rows, n, options });
      // Two sums, and both ways of an exchange with each other rank.
      expect(joined.calls).toEqual([0, true, 2 + 2 * (size - 1)]);
      expect(library.calls).toEqual([4, false, 4]);
    },
    SLOW,
  );

  it.each([
    ['f16', 192, isEmulated ? 128 : 1024, 1024],
    ['bf16', isEmulated ? 192 : 768, 96, 2048],
  ] as [string, number, number, number][])(
    'of products whose rows go where they are added up, or none does: %s, %d rows of %d to %d',
    async (type, rows, k, n) => {
      const body = `
        const { type, rows, k, n } = input;
        const { size } = communicator;
        const bits = [];
        // Of more than two ranks whole numbers, whose products and their sums are exact.
        const whole = (rows, n, seed) => {
          const numbers = new Float32Array(rows * n).map((_, i) => ((i * 37 + seed * 11) % 9) - 4);
          return Tensor.from(numbers, { device }).reshape([rows, n]);
        };
        const small = (rows, n, seed) =>
          core.scope(() => (size > 2 ? whole(rows, n, seed) : values(rows, n, seed).mul(0.01)).toDtype(type));
        const [weight, a, b] = [small(n, k, 4 + rank), small(rows, k, 5), small(rows + 32, k, 6)];
        const alpha = values(1, n, 3), x = values(rows, n, 1), wide = values(rows + 32, n, 2);
        const { linear } = device.backend;
        const product = (x) => communicator.sumOfProduct(() =>
          tensor(linear.matmul(weight.storagePart(), x.storageAndLayout(), { m: x.dim(0), n, k }), [x.dim(0), n]));
        const made = [];
        const keep = (...all) => { made.push(...all); return all[0]; };
        for (let i = 0; i < 3; i++) {
          const { sum, normed } = norm(x, keep(product(a)), { alpha }, type);
          keep(sum, normed);
          bits.push(await hash(normed), await hash(sum));
        }
        // Rows that do not part, and a sum that something else reads; two at once, of which the inbox has room for one.
        const odd = norm(wide, keep(product(b)), { alpha }, type);
        keep(odd.sum, odd.normed);
        const [first, second] = [keep(product(a)), keep(product(a))];
        bits.push(await hash(odd.normed), await hash(first), await hash(first), await hash(second));
        // One that nobody reads, and the next one.
        product(a).dispose();
        const last = norm(x, keep(product(a)), { alpha }, 'f32');
        keep(last.sum, last.normed);
        bits.push(await hash(last.normed), await hash(made[0]));
        for (const one of [weight, a, b, alpha, x, wide, ...made]) one.dispose();
        return { bits, calls: [] };`;
      await both(device, body, { type, rows, k, n });
    },
    SLOW,
  );

  it(
    'are left to the library where something else reads the sum, and so are sums behind it',
    async () => {
      const body = `
        const bits = [], counts = [];
        const alpha = values(1, 1024, 3);
        const x = values(600, 1024, 1);
        const begin = calls();
        const sums = [0, 1, 2].map((i) => { const one = values(600, 1024, i + 5 * rank); communicator.sumLater(one); return one; });
        // A graph that is captured meanwhile has none of them in it.
        const graph = device.capture(() => core.scope(() => sums[0].mul(2)));
        counts.push(calls() - begin);
        bits.push(await hash(graph.replay()), await hash(graph.replay()), await hash(sums[1]));
        // One that a graph reads is added up at once.
        communicator.sumLater(sums[0]);
        counts.push(calls() - begin, communicator.joinsSums);
        bits.push(await hash(graph.replay()));
        // One that nobody reads is forgotten.
        const unread = values(600, 1024, 9);
        communicator.sumLater(unread);
        unread.dispose();
        const { sum, normed } = norm(x, sums[2], { alpha }, 'f16');
        bits.push(await hash(normed), await hash(sum));
        graph.dispose();
        for (const one of [alpha, x, sum, normed, ...sums]) one.dispose();
        return { bits, calls: counts };`;
      const { joined } = await both(device, body);
      expect(joined.calls).toEqual([3, 4, false]);
    },
    SLOW,
  );

  it(
    'of few rows, of views and of one rank that is told not to go another way',
    async () => {
      const body = `
        const bits = [];
        const alpha = values(1, 1024, 3);
        const x = values(600, 1024, 1);
        const before = calls();
        const whole = values(1200, 1024, 2 + rank);
        const view = whole.narrow(0, 600, 600);
        communicator.sumLater(view);
        const few = values(4, 1024, 5 + rank);
        communicator.sumLater(few);
        const count = calls() - before;
        // A norm of x and a sum that is x.
        const same = values(600, 1024, 8 + rank);
        const rowsOfX = x.narrow(0, 8, 4);
        communicator.sumLater(same);
        const made = [norm(x, view, { alpha }, 'f16'), norm(rowsOfX, few, { alpha }, 'f16'), norm(same, same, { alpha }, 'f16')];
        for (const { sum, normed } of made) bits.push(await hash(sum), await hash(normed));
        for (const one of [alpha, x, rowsOfX, whole, view, few, same, ...made.flatMap(({ sum, normed }) => [sum, normed])]) one.dispose();
        return { bits, calls: [count] };`;
      const { joined } = await both(device, body);
      expect(joined.calls).toEqual([1]);
      vi.stubEnv('X_PEER_NORMS', '1');
      const told = { device, environment: device.map((_, rank) => (rank === 1 ? { X_PEER_NORMS: '0' } : {})) };
      const outcomes = await ranks(size, `return { bits: [], calls: [Number(communicator.joinsSums)] };`, told);
      for (const { calls } of valuesOf(outcomes)) expect(calls).toEqual([0]);
    },
    SLOW,
  );
});

describe.each(groups)('norms of sums of few rows over $device', ({ device, size }) => {
  beforeEach(() => vi.stubEnv('X_GRAPHS', '1'));
  afterEach(() => void vi.unstubAllEnvs());

  /** As {@link both}, where sums of few rows are part of norms unless they are told not to be. */
  const few = (body: string, input?: unknown) => both(device, FEW + body, input, '');
  /** What bodies begin with: a norm behind a sum, in any form, of which the bits are kept, and how many kernels ran since. */
  const FEW = `
    const bytesOf = async (storage) => {
      let sum = 2166136261;
      for (const byte of new Uint8Array(await storage.toHost())) sum = Math.imul(sum ^ byte, 16777619);
      return sum;
    };
    const kernels = () => device.backend.kernelCount;
    // Numbers of few bits, whose sums no order rounds.
    const exact = (rows, n, seed) => core.scope(() =>
      Tensor.from(new Float32Array(rows * n).map((_, i) => (((i * 37 + seed * 101) % 61) - 30) / 8), { device }).reshape([rows, n]));
    const bits = [], counts = [], norms = [];
  `;

  it.each([
    ['f16', 1, 4096, []],
    ['bf16', 3, 1020, ['deltaScale']],
    ['f32', 2, 2880, ['beta', 'centred']],
    ['blocks', 2, 2048, []],
    ['both', 1, 4096, ['deltaAlpha']],
    ['blocks', 1, 8192, ['deltaAlpha', 'beta']],
  ] as [string, number, number, string[]][])(
    'are what a sum and a norm give, in a launch less: %s of %d x %d, %j',
    async (as, rows, n, options) => {
      const body = `
        const { as, rows, n, options } = input;
        const all = { deltaAlpha: () => values(1, n, 11), beta: () => values(1, n, 12), deltaScale: () => 0.375, centred: () => true };
        const weights = { alpha: values(1, n, 10), ...Object.fromEntries(options.map((name) => [name, all[name]()])) };
        const parts = Object.fromEntries(Object.entries(weights).map(([name, one]) => [name, one instanceof Tensor ? one.storagePart() : one]));
        const deltas = [0, 1, 2, 3, 4].map((i) => exact(rows, n, 20 + i + 7 * rank));
        let x = core.scope(() => values(rows, n, 1).reshape([rows, n]));
        const made = [...deltas, ...Object.values(weights)];
        for (const delta of deltas) {
          made.push(x);
          const begin = kernels();
          communicator.sumLater(delta);
          const { sum, normed, blocks } = decode.norm({ rows, n, eps: 1e-5, x: x.storagePart(), delta: delta.storagePart(), ...parts }, as);
          x = tensor(sum, [rows, n]);
          counts.push(kernels() - begin);
          bits.push(await bytesOf(sum));
          for (const one of [normed, blocks]) {
            if (!one) continue;
            const wide = one.dtype === 'u8' ? one : core.scope(() => tensor(one, [rows * n]).toDtype('f32'));
            norms.push([one.dtype === 'u8' ? 'blocks' : one.dtype, Array.from(one.dtype === 'u8' ? new Int8Array(await one.toHost()) : await wide.toArray())]);
            for (const each of new Set([one, wide])) each.dispose();
          }
        }
        // What is asked for afterwards is whole.
        bits.push(await hash(deltas[2]));
        for (const one of [x, ...made]) one.dispose?.();
        return { bits, norms, calls: counts };`;
      const { joined, library } = await few(body, { as, rows, n, options });
      // Squares are added up in another order.
      expect(joined.norms).toHaveLength(library.norms.length);
      for (const [i, [form, norm]] of joined.norms.entries()) expectClose(norm, library.norms[i][1], form);
      expect(joined.calls).toEqual([1, 1, 1, 1, 1]);
      expect(library.calls).toEqual([2, 2, 2, 2, 2]);
    },
    SLOW,
  );

  it(
    'are part of graphs, between other sums, and whole where something else reads them or nothing does',
    async () => {
      const body = `
        const n = 1536;
        const seen = exact(2, n, 3 + rank), alpha = values(1, n, 10), x = values(2, n, 1);
        const graph = device.capture(() => core.scope(() => {
          let y = x;
          for (let i = 0; i < 3; i++) {
            const delta = seen.mul(i + 1);
            communicator.sumLater(delta);
            const made = decode.norm({ rows: 2, n, eps: 1e-5, x: y.storagePart(), delta: delta.storagePart(), alpha: alpha.storagePart() }, 'f32');
            y = tensor(made.sum, [2, n]);
            if (i === 1) communicator.allReduceInPlace(y);
            made.normed.dispose();
          }
          const read = seen.mul(3), last = seen.mul(5), unread = seen.mul(7);
          for (const one of [read, last, unread]) communicator.sumLater(one);
          unread.dispose();
          return [y, read.add(1), last];
        }));
        for (let i = 0; i < 4; i++) {
          seen.write(new Float32Array(2 * n).map((_, at) => (((at * 11 + i * 7 + rank) % 61) - 30) / 8));
          if (i % 2 === 1) {
            const between = exact(1, n, i + rank);
            communicator.sumLater(between);
            const { sum, normed } = norm(between, between, { alpha }, 'f32');
            bits.push(await hash(normed));
            for (const one of [between, sum, normed]) one.dispose();
          }
          for (const one of graph.replay()) bits.push(await hash(one));
        }
        counts.push(Number(graph.isCaptured));
        graph.dispose();
        for (const one of [seen, alpha, x]) one.dispose();
        return { bits, calls: counts };`;
      await few(body);
    },
    SLOW,
  );

  it(
    'are by themselves where one rank is told so',
    async () => {
      const body = `${PRELUDE}${FEW}
        const alpha = values(1, 1024, 3), x = values(2, 1024, 1), delta = exact(2, 1024, 2 + rank);
        const begin = kernels();
        communicator.sumLater(delta);
        const { sum, normed } = norm(x, delta, { alpha }, 'f16');
        counts.push(kernels() - begin);
        await normed.toArray();
        for (const one of [alpha, x, delta, sum, normed]) one.dispose();
        return { bits, calls: counts };`;
      vi.stubEnv('X_PEER_NORMS', undefined);
      const told = { device, environment: device.map((_, rank) => (rank === 1 ? { X_PEER_NORMS: '0' } : {})) };
      for (const { calls } of valuesOf(await ranks(size, body, told))) expect(calls).toEqual([2]);
    },
    SLOW,
  );
});

describe.each(groups)('norms of sums of any rows over $device', ({ device, size }) => {
  afterEach(() => void vi.unstubAllEnvs());

  it.each([
    ['600 rows', '1', 600],
    ['two rows', undefined, 2],
  ] as const)(
    'end with one error when a rank does not come: %s',
    async (_, setting, rows) => {
      const body = `${PRELUDE}
        const x = values(${rows}, 1024, 1), alpha = Tensor.ones([1024], 'f32', device);
        if (rank === 1) { await othersEnd(input); communicator.abort(); return 'late'; }
        const delta = values(${rows}, 1024, 2);
        try {
          communicator.sumLater(delta);
          await norm(x, delta, { alpha }, 'f16').normed.toArray();
          communicator.sumLater(delta);
        } finally {
          end(input);
        }
        return 'nothing happened';`;
      vi.stubEnv('X_PEER_NORMS', setting);
      const input = ends(size);
      const [first, second, ...others] = await ranks(size, OTHERS + body, { device, timeoutMs: 3000, input });
      for (const { error } of [first, ...others]) expect(error).toMatchObject({ code: 'RANK_TIMEOUT', rank: 1 });
      expect(second.value).toBe('late');
    },
    SLOW,
  );
});
