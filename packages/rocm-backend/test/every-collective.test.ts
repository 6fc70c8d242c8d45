/** Every kernel of COLLECTIVES once, on one device, as every-kernel.test.ts: what another rank says is in its place before. */
import type { DType } from '@x/core';
import { valuesOf } from '@x/testing/compare';
import { kernelDevices } from '@x/testing/devices';
import { randomBytes } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';
import type { RocmDevice, RocmStorage } from '../src/index';
import { launchAllReducePeers, launchNormOfRanks, launchSummedNorm } from '../src/launchers/collectives';
import { launchedOn } from './launched';

const COUNT = 37;

describe.each(kernelDevices())('every kernel of COLLECTIVES on %s', (device) => {
  const backend = device.backend as RocmDevice;
  const launched = launchedOn(backend);

  it.each([
    ['f32', ''],
    ['f16', ''],
    ['bf16', ''],
    ['f32', 'parts_'],
    ['f16', 'parts_'],
    ['bf16', 'parts_'],
  ] as const)('a sum of %s over one rank %s', (dtype, parts) => {
    const x = backend.fromHost(randomBytes(dtype, COUNT, 4, true), dtype);
    const stage = backend.zeros(256, 'u32');
    const one = { count: COUNT, rank: 0, ranks: 1, turns: 1, patience: 0, control: 0, source: x.ptr, stage: stage.ptr };
    const sum = launched(dtype, COUNT, (out) =>
      launchAllReducePeers(
        backend,
        `all_reduce_peers_${parts}${dtype}`,
        { grid: 1, block: 64 },
        { ...one, target: out.ptr },
      ),
    );
    expect(valuesOf(sum, dtype)).toEqual(valuesOf(x.toHostSync(), dtype));
    // The block has counted its call.
    expect(new Uint32Array(stage.toHostSync())[0]).toBe(1);
    x.dispose();
    stage.dispose();
  });

  it.runIf(backend.hip.platform !== 'host').each(['f32', 'f16', 'bf16'] as const)(
    'a norm in %s of a sum over two ranks, of which the other one has said all that it says',
    (dtype) => {
      const [rows, n] = [3, 96];
      const [CALL, ENDED, ADDRESSES_AT, ENDED_AT, SAID_AT] = [144, 148, 512, 592, 640];
      const { values, stored, sum } = partsOfNorm(rows, n);
      const theirY = backend.zeros(rows * n, dtype);
      const [stage, theirStage] = [backend.zeros(512, 'u32'), backend.zeros(512, 'u32')];
      backend.write(stage, ADDRESSES_AT, BigUint64Array.of(BigInt(stage.ptr), BigInt(theirStage.ptr)));
      // Each word has the number of the call, 1, above half an address.
      const halves = [stored[2].ptr, theirY.ptr].flatMap((ptr) => [BigInt(ptr) & 0xffffffffn, BigInt(ptr) >> 32n]);
      const said = (by: number) => SAID_AT + (8 + by) * 32;
      backend.write(
        stage,
        said(1),
        BigUint64Array.from(halves, (half) => (1n << 32n) | half),
      );
      backend.write(stage, ENDED_AT + 4, Uint32Array.of(1));
      const normed = launched(dtype, rows * n, (y) => {
        const pointers = {
          x: stored[0].ptr,
          delta: stored[1].ptr,
          alpha: stored[3].ptr,
          sum: sum.ptr,
          y: y.ptr,
          stage: stage.ptr,
        };
        const none = { deltaAlpha: 0, beta: 0, deltaHere: 0, patience: 0, control: 0, centred: false };
        const size = { rows, first: 0, n, eps: 1e-5, deltaScale: 0.5, rank: 0, ranks: 2 };
        launchNormOfRanks(backend, `norm_of_ranks_${dtype}`, { grid: 2, block: 64 }, { ...size, ...none, ...pointers });
      });
      // The call was counted, and no block is under way; the other rank was told, first and last.
      expect([...new Uint32Array(stage.toHostSync())].slice(CALL, CALL + 2)).toEqual([1, 0]);
      const told = new Uint32Array(theirStage.toHostSync());
      expect(told[ENDED]).toBe(1);
      const words = new BigUint64Array(told.buffer, said(0), 4);
      expect([...words].map((word) => word >> 32n)).toEqual([1n, 1n, 1n, 1n]);
      expect((words[0] & 0xffffffffn) | ((words[1] & 0xffffffffn) << 32n)).toBe(BigInt(stored[1].ptr));
      expect(theirY.toHostSync()).toEqual(normed);
      expectNorm({ normed, dtype, sum }, values, n);
      for (const storage of [...stored, sum, theirY, stage, theirStage]) storage.dispose();
    },
  );

  it.runIf(backend.hip.platform !== 'host').each(['f32', 'f16', 'bf16'] as const)(
    'a norm in %s of a sum of few rows over two ranks, of which the other one has sent its part',
    (dtype) => {
      const [rows, n, INBOX_AT, ADDRESSES_AT, CALL] = [2, 96, 2048, 512, 320];
      const [ROWS, PLANE] = [32, 2048 * 16];
      const { values, stored, sum } = partsOfNorm(rows, n);
      const [stage, theirStage] = [0, 1].map(() => backend.zeros(INBOX_AT + 4 * ROWS * 2 * PLANE, 'u8'));
      backend.write(stage, ADDRESSES_AT, BigUint64Array.of(BigInt(stage.ptr), BigInt(theirStage.ptr)));
      // Each word has the number of the call, 1, above a value. A row's place in the second half of an inbox; two planes of pairs.
      const at = (sender: number, row: number) => INBOX_AT + ((2 + sender) * ROWS + row) * 2 * PLANE;
      const words = (part: Float32Array, row: number, plane: number) => {
        const bits = new Uint32Array(part.slice(row * n, (row + 1) * n).buffer);
        return BigUint64Array.from({ length: n / 2 }, (_, i) => {
          const value = Math.floor(i / 2) * 4 + plane * 2 + (i % 2);
          return (1n << 32n) | BigInt(bits[value]);
        });
      };
      const [, delta, theirs] = values;
      for (let row = 0; row < rows; row++)
        for (const plane of [0, 1]) backend.write(stage, at(1, row) + plane * PLANE, words(theirs, row, plane));
      const normed = launched(dtype, rows * n, (y) => {
        const [x, own, , alpha] = stored.map(({ ptr }) => ptr);
        const none = { deltaAlpha: 0, beta: 0, blocks: 0, patience: 0, control: 0, centred: false };
        const args = { rows, n, padded: n, eps: 1e-5, deltaScale: 0.5, x, delta: own, alpha, sum: sum.ptr, y: y.ptr };
        const ranks = { inboxAt: INBOX_AT, rank: 0, ranks: 2, stage: stage.ptr };
        launchSummedNorm(backend, `summed_norm_${dtype}`, { grid: rows, block: 64 }, { ...args, ...none, ...ranks });
      });
      expect([...new Uint32Array(stage.toHostSync()).slice(CALL, CALL + rows)]).toEqual([1, 1]);
      const told = theirStage.toHostSync();
      for (let row = 0; row < rows; row++)
        for (const plane of [0, 1])
          expect(new BigUint64Array(told, at(0, row) + plane * PLANE, n / 2)).toEqual(words(delta, row, plane));
      expectNorm({ normed, dtype, sum }, values, n);
      for (const storage of [...stored, sum, stage, theirStage]) storage.dispose();
    },
  );

  /** x, a rank's part, the other's, and the weights of a norm. */
  function partsOfNorm(rows: number, n: number) {
    const numbers = (count: number, seed: number) => new Float32Array(count).map((_, i) => ((i * seed) % 41) / 16 - 1);
    const values = [numbers(rows * n, 7), numbers(rows * n, 11), numbers(rows * n, 17), numbers(n, 13)];
    return {
      values,
      stored: values.map((each) => backend.fromHost(each, 'f32')),
      sum: backend.zeros(rows * n, 'f32'),
    };
  }

  /** The sum of x and half of what both ranks have, and its norm. */
  function expectNorm(
    { normed, dtype, sum }: { normed: ArrayBuffer; dtype: DType; sum: RocmStorage },
    [x, delta, theirs, alpha]: Float32Array[],
    n: number,
  ): void {
    const got = Array.from(valuesOf(normed, dtype), Number);
    const relative = dtype === 'bf16' ? 2 ** -8 : 2 ** -10;
    const wanted = x.map((value, i) => value + 0.5 * (delta[i] + theirs[i]));
    expect(new Float32Array(sum.toHostSync())).toEqual(wanted);
    for (const [i, value] of got.entries()) {
      const row = wanted.subarray(Math.floor(i / n) * n, (Math.floor(i / n) + 1) * n);
      const scale = 1 / Math.sqrt(row.reduce((all, each) => all + each * each, 0) / n + 1e-5);
      const exact = wanted[i] * scale * alpha[i % n];
      expect(Math.abs(value - exact)).toBeLessThanOrEqual(Math.abs(exact) * relative + 1e-5);
    }
  }
});
