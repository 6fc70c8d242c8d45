/**
 * Attention over a cache in blocks whose keys are cut into parts: the block that ends last merges them, into what one part
 * gives, and leaves the counters as it found them. On every device with kernels.
 */
import type { StoragePart } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';
import { type AttentionPagedArguments, launchAttentionPaged } from '../src/launchers/attention';
import type { KernelStorage } from '../src/storage';

/** Behind the values of a part. */
const TAIL = 4;
const BLOCK_SHIFT = 4;
const [KV_HEADS, HEADS_AT_ONCE] = [2, 4];

interface Case {
  /** Of each token. */
  lengths: number[];
  heads: number;
  d: number;
  dv: number;
  window?: number;
  sinks?: boolean;
}

const CASES: Case[] = [
  // Below, at and above what is one part in any case; nothing; more than a part may have in shared memory at once.
  { lengths: [63, 64, 65, 0, 700], heads: 8, d: 64, dv: 64 },
  // Two tiles of a head's queries, the second one not full; two steps of a warp in a row.
  { lengths: [300, 129], heads: 10, d: 24, dv: 288, window: 200, sinks: true },
];

describe.each(kernelDevices())('attention in parts on %s', (device) => {
  const backend = device.backend as RocmDevice;

  it.each(CASES)('gives the rows of one part: %j', ({ lengths, heads, d, dv, window = 0, sinks }) => {
    const tokens = lengths.length;
    const maxBlocks = Math.ceil(Math.max(...lengths) / 2 ** BLOCK_SHIFT);
    const blocks = 2 * maxBlocks;
    const made: KernelStorage[] = [];
    const put = (values: Float32Array | Uint32Array) => {
      const storage = backend.fromHost(values, values instanceof Float32Array ? 'f32' : 'u32');
      made.push(storage);
      return backend.address([storage, 0] satisfies StoragePart);
    };
    const room = (count: number, dtype: 'f32' | 'u8' | 'u32') => {
      const storage = backend.zeros(count, dtype);
      made.push(storage);
      return storage;
    };
    const tiles = tokens * KV_HEADS * Math.ceil(heads / KV_HEADS / HEADS_AT_ONCE);
    const width = heads * dv;
    const padded = Math.ceil(width / 512) * 512;
    const shared = {
      heads,
      kvHeads: KV_HEADS,
      d,
      dv,
      blockShift: BLOCK_SHIFT,
      maxBlocks,
      sequences: tokens,
      blocks,
      window,
      scale: 0.3,
      softcap: 0,
      q: put(noise(tokens * heads * d, 1)),
      qRow: heads * d,
      qHead: d,
      k: put(noise(blocks * 2 ** BLOCK_SHIFT * KV_HEADS * d, 2)),
      v: put(noise(blocks * 2 ** BLOCK_SHIFT * KV_HEADS * dv, 3)),
      vRow: dv,
      sinks: sinks ? put(noise(heads, 4)) : 0,
      tables: put(new Uint32Array(tokens * maxBlocks).map((_, i) => (i * 7) % blocks)),
      rows: 0,
      lengths: put(Uint32Array.from(lengths)),
    };
    const counters = room(tiles, 'u32');
    const stripes = backend.shapes.isHost ? 1 : Math.floor(128 / (dv / 8));
    const sharedBytes = 4 * (HEADS_AT_ONCE * (d + 128 + 4 + stripes * dv) + 256);
    const run = (parts: number, inBlocks: boolean) => {
      const partial = room(tokens * heads * parts * (dv + TAIL), 'f32');
      const result = inBlocks ? room((tokens * padded * 36) / 32, 'u8') : room(tokens * width, 'f32');
      const args: AttentionPagedArguments = {
        items: tiles * parts,
        parts,
        ...shared,
        partial: partial.ptr,
        counters: counters.ptr,
        out: inBlocks ? 0 : result.ptr,
        quantized: inBlocks ? result.ptr : 0,
        padded,
      };
      const shape = { grid: tiles * parts, block: backend.shapes.isHost ? 1 : 128, sharedBytes };
      launchAttentionPaged(backend, `attention_paged_${HEADS_AT_ONCE}_f32_f32`, shape, args);
      return result.toHostSync();
    };
    const whole = new Float32Array(run(1, false));
    expect(whole.some((value) => Math.abs(value) > 0.1)).toBe(true);
    const wholeBlocks = new Uint8Array(run(1, true));
    for (const parts of [2, 7, 64]) {
      const once = new Float32Array(run(parts, false));
      const worst = once.reduce((most, value, i) => Math.max(most, Math.abs(value - whole[i])), 0);
      expect(worst, `${parts} parts`).toBeLessThan(2e-6);
      // The same counters again, and the same bits whoever is last.
      expect(new Float32Array(run(parts, false))).toEqual(once);
      expect(new Uint32Array(counters.toHostSync()).every((count) => count === 0)).toBe(true);
      const inBlocks = new Uint8Array(run(parts, true));
      const off = inBlocks.filter((byte, i) => i % 36 >= 4 && Math.abs(signed(byte) - signed(wholeBlocks[i])) > 1);
      expect(off.length, `${parts} parts in blocks`).toBe(0);
    }
    for (const storage of made) storage.dispose();
  });
});

function noise(count: number, seed: number): Float32Array {
  return Float32Array.from(
    { length: count },
    (_, i) => ((Math.sin(i * 12.9898 + seed * 78.233) * 43758.5453) % 1) * 1.5,
  );
}

function signed(byte: number): number {
  return byte < 128 ? byte : byte - 256;
}
