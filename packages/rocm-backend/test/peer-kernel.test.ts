/**
 * The kernel of sums through peers' memory on `cpu` ranks, each a thread with a pool of its own, so that their blocks run at the same
 * time: what they write to is memory of the process. Ranks of a group do not use it there (ops/peer-all-reduce.ts); devices that
 * reach each other are in peer-all-reduce.test.ts.
 */
import type { DType } from '@x/core';
import { inBundle, type Outcome, ranks } from '@x/testing/ranks';
import { describe, expect, it } from 'vitest';
import '../src';
import { PEER_ADDRESSES_AT, PEER_BLOCKS, PEER_INBOX_AT, PEER_PACKS } from '../src/launchers/constants';

const modules = { kernels: new URL('../../kernels/src/index.ts', import.meta.url).href };

/** Stages that know each other, and a launch. */
const PRELUDE = `
  const { Tensor } = core;
  const { backend } = device;
  const [BLOCKS, PACKS, ADDRESSES_AT, INBOX_AT] = [${[PEER_BLOCKS, PEER_PACKS, PEER_ADDRESSES_AT, PEER_INBOX_AT]}];
  const turns = 2, { size } = communicator;
  const stage = backend.zeros((INBOX_AT + 2 * size * BLOCKS * turns * PACKS * 32) / 4, 'u32');
  const control = backend.zeros(16, 'u32');
  device.synchronizeSync();
  const name = Tensor.from([BigInt(stage.ptr)], { dtype: 'i64', device });
  const all = communicator.allGather(name);
  backend.write(stage, ADDRESSES_AT, BigUint64Array.from(await all.toArray()));
  const meet = async () => (await communicator.allReduce(name).toArray());
  const launch = (x, out, patience, kernel = 'all_reduce_peers_') => {
    const [[source, from], [target, to]] = [x.storagePart(), out.storagePart()];
    const count = x.elemCount, width = x.dtype === 'f32' ? 4 : 2;
    const grid = Math.min(BLOCKS, Math.ceil((count * width) / 16 / PACKS));
    const args = [count, rank, size, turns, patience, source.ptr + from * width, target.ptr + to * width, control.ptr, stage.ptr];
    backend.launch(modules.kernels.COLLECTIVES, kernel + x.dtype, { grid, block: 1 }, args);
  };
  const end = () => { for (const one of [name, all, stage, control]) one.dispose(); };
`;

const valuesOf = (outcomes: readonly Outcome[]) =>
  outcomes.map(({ value, error }) => {
    expect(error).toBeUndefined();
    return value;
  });

// A bundle has no modules beside core and the backend.
describe.skipIf(inBundle)('on cpu ranks', () => {
  it.each([
    ['f32', 2, [1, 5, 1024, 1025, 70_000]],
    ['f16', 3, [1, 9, 4096, 33_333]],
    ['bf16', 2, [7, 2048, 300_001]],
  ] as [DType, number, number[]][])(
    'sums of %s over %d ranks are those of the sockets',
    async (dtype, count, counts) => {
      // Each size twice, so that both halves of the inboxes are used, and old messages lie where new ones come.
      const body = `${PRELUDE}
      const wrong = [];
      for (const count of [...input.counts, ...input.counts]) for (const inPlace of [false, true]) for (const kernel of ['all_reduce_peers_', 'all_reduce_peers_parts_']) {
        const values = new Float32Array(count + 1).map((_, i) => (((i * 37 + rank * 53) % 509) - 250) / 16);
        const whole = Tensor.from(values, { dtype: input.dtype, device });
        // In place of what does not begin at 16 bytes.
        const x = whole.narrow(0, inPlace ? 1 : 0, count);
        const wanted = communicator.allReduce(x);
        const out = inPlace ? x : Tensor.zeros([count], { dtype: input.dtype, device });
        await meet();
        launch(x, out, 1e6, kernel);
        const differs = out.contiguous().ne(wanted).toDtype('f32').sumAll().toScalarSync();
        if (differs > 0) wrong.push([kernel, count, inPlace, differs]);
        for (const one of [whole, x, wanted, out]) one.dispose();
      }
      end();
      return wrong;`;
      const outcomes = await ranks(count, body, { modules, input: { dtype, counts } });
      expect(valuesOf(outcomes)).toEqual(outcomes.map(() => []));
    },
  );

  it('a rank that does not come is named, and nothing waits for it any more', async () => {
    const body = `${PRELUDE}
      const x = Tensor.zeros([3000], { dtype: 'f32', device });
      if (rank === 0) for (let i = 0; i < 20; i++) launch(x, x, 50);
      device.synchronizeSync();
      const told = Array.from(new Uint32Array(control.toHostSync())).slice(0, 2);
      // Until then the other one's memory is written to.
      await meet();
      x.dispose();
      end();
      return told;`;
    const begun = performance.now();
    expect(valuesOf(await ranks(2, body, { modules }))).toEqual([
      [1, 2],
      [0, 0],
    ]);
    expect(performance.now() - begun).toBeLessThan(10_000);
  });
});
