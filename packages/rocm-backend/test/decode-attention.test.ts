/** Attention of a decode step, in blocks and from what a product gives, on every device with kernels. */
import { type HeadsProblem, Layout, type PagedPool } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { describe, expect, it } from 'vitest';
import type { RocmDevice } from '../src/index';
import { EPS, expectBlocks, memory, noise } from './decode-operands';

describe.each(kernelDevices())('attention of a decode step on %s', (device) => {
  const backend = device.backend as RocmDevice;
  const { decode } = backend;
  const { part, numbers, disposeAll } = memory(device);

  it.each([
    { tokens: 1, heads: 4, kvHeads: 1, d: 64, dv: 64 },
    { tokens: 1, heads: 4, kvHeads: 1, d: 64, dv: 64, sink: 2 },
    { tokens: 3, heads: 6, kvHeads: 3, d: 80, dv: 96 },
    { tokens: 9, heads: 8, kvHeads: 2, d: 128, dv: 128 },
    { tokens: 2, heads: 3, kvHeads: 1, d: 576, dv: 512 },
  ])('attention of %j in blocks', ({ tokens, heads, kvHeads, d, dv, sink }) => {
    const { pagedAttention } = backend;
    const [blocks, blockSize] = [24, 16];
    const pool = {
      keys: part(noise(blocks * blockSize * kvHeads * d, 1, 0.4)),
      values: part(noise(blocks * blockSize * kvHeads * dv, 2)),
      valueRow: dv,
      blocks,
      blockSize,
      kvHeads,
      d,
      dv,
    };
    // Nothing to see, a few keys, and as many as several parts have.
    const lengths = new Uint32Array(tokens).map((_, i) => [300, 0, 7][i % 3] + i);
    const at = {
      tables: part(new Uint32Array(tokens * 20).map((_, i) => (i * 7) % blocks)),
      sequences: tokens,
      maxBlocks: 20,
      lengths: part(lengths),
    };
    const [storage] = part(noise(tokens * heads * d, 3));
    const q = { storage, layout: Layout.contiguous([tokens, heads, d]) };
    const sinks = sink !== undefined && { sinks: part(new Float32Array(heads).fill(sink)) };
    const problem = { tokens, heads, scale: 0.2, window: 0, softcap: 0, ...sinks };
    const inNumbers = pagedAttention.attend(problem, q, pool, at);
    const inBlocks = pagedAttention.attendInBlocks(problem, q, pool, at);
    const expected = Float64Array.from(numbers(inNumbers));
    expect(expected.some((value) => Math.abs(value) > 0.1)).toBe(true);
    expectBlocks(inBlocks, tokens, heads * dv, expected, 'attention');
    inNumbers.dispose();
    inBlocks.dispose();
    disposeAll();
  });

  it.each([
    // One part, and the slot of its last position; several parts, of which only the last has the new key.
    { lengths: [7], heads: 1, kvHeads: 1, d: 64, dv: 64 },
    { lengths: [300], heads: 8, kvHeads: 2, d: 128, dv: 128 },
    {
      lengths: [1, 200, 129],
      heads: 10,
      kvHeads: 2,
      d: 48,
      dv: 96,
      norms: true,
      interleaved: true,
      window: 150,
      sinks: true,
    },
    { lengths: [65, 0], heads: 4, kvHeads: 2, d: 256, dv: 32, norms: true, rotated: 64 },
  ])('steps of tokens as heads and attention apart: %j', (sizes) => {
    const { lengths, heads, kvHeads, d, dv, norms, interleaved = false, rotated = d, window = 0, sinks } = sizes;
    const { pagedAttention } = backend;
    const [blockSize, maxBlocks, length] = [16, 20, 400];
    const tokens = lengths.length;
    const blocks = tokens * maxBlocks;
    // Blocks of the sequences lie across each other.
    const block = (token: number, i: number) => i * tokens + token;
    const slotOf = (token: number, at: number) =>
      block(token, Math.floor(at / blockSize)) * blockSize + (at % blockSize);
    const row = (heads + kvHeads) * d;
    const qk = part(noise(tokens * row, 6));
    const table = part(noise(length * rotated, 8));
    const problem: HeadsProblem = {
      tokens,
      heads,
      q: qk,
      qRow: row,
      k: [qk[0], heads * d],
      kRow: row,
      v: part(noise(tokens * kvHeads * dv, 7)),
      vRow: kvHeads * dv,
      eps: EPS,
      rotated,
      interleaved,
      cos: table,
      sin: [table[0], rotated / 2],
      tableRow: rotated,
      tableLength: length,
      positions: part(Uint32Array.from(lengths, (count) => Math.max(0, count - 1))),
      // Of what sees nothing, the slot is left out.
      slots: part(Uint32Array.from(lengths, (count, i) => (count === 0 ? 2 ** 31 : slotOf(i, count - 1)))),
      scale: 0.02,
      ...(norms && { qNorm: part(noise(d, 9)), kNorm: part(noise(d, 10)) }),
    };
    const at = {
      tables: part(new Uint32Array(blocks).map((_, i) => block(Math.floor(i / maxBlocks), i % maxBlocks))),
      sequences: tokens,
      maxBlocks,
      lengths: part(Uint32Array.from(lengths)),
    };
    const options = { tokens, heads, window, softcap: 0, ...(sinks && { sinks: part(noise(heads, 11)) }) };
    for (const dtype of ['f32', 'f16', 'bf16'] as const) {
      const pools = () => {
        const [keys, values] = [d, dv].map((width, i) => {
          const [wide] = part(noise(blocks * blockSize * kvHeads * width, i + 1));
          return backend.ops.toDtype({ storage: wide, layout: Layout.contiguous([wide.elemCount]) }, dtype);
        });
        return { keys, values };
      };
      const sizesOf = { valueRow: dv, blocks, blockSize, kvHeads, d, dv };
      const [apart, together] = [pools(), pools()];
      const poolOf = ({ keys, values }: typeof apart) =>
        ({ keys: [keys, 0], values: [values, 0], ...sizesOf }) satisfies PagedPool;
      const q = decode.heads(problem, poolOf(apart));
      const layout = Layout.contiguous([tokens, heads, d]);
      const wanted = pagedAttention.attend({ ...options, scale: 1 }, { storage: q, layout }, poolOf(apart), at);
      const made = pagedAttention.step(problem, { ...options, scale: 0.02 }, poolOf(together), at);
      const expected = Float64Array.from(numbers(wanted));
      expect(expected.some((value) => Math.abs(value) > 0.01)).toBe(true);
      expectBlocks(made, tokens, heads * dv, expected, `a step with ${dtype}`);
      for (const name of ['keys', 'values'] as const) {
        const [got, put] = [together, apart].map((both) => Buffer.from(both[name].toHostSync()));
        expect(got.equals(put), `${name} in ${dtype}`).toBe(true);
      }
      for (const storage of [q, wanted, made, ...Object.values(apart), ...Object.values(together)]) storage.dispose();
    }
    disposeAll();
  });

  it('says which steps it has kernels for', () => {
    const { pagedAttention } = backend;
    expect(pagedAttention.supportsStep('f16', 128, 128)).toBe(true);
    expect(pagedAttention.supportsStep('f16', 264, 128)).toBe(false);
    expect(pagedAttention.supportsStep('f16', 128, 80)).toBe(false);
    expect(pagedAttention.supportsStep('u8', 128, 128)).toBe(false);
    expect(pagedAttention.supportsStep('q8_0', 128, 128)).toBe(false);
  });

  it('has attention in blocks of 32 values of f32', () => {
    const { pagedAttention } = backend;
    expect(pagedAttention.supportsBlocks('f32', 'f16', 80, 96)).toBe(true);
    expect(pagedAttention.supportsBlocks('f32', 'f16', 96, 80)).toBe(false);
    expect(pagedAttention.supportsBlocks('f16', 'f16', 64, 64)).toBe(false);
    expect(pagedAttention.supportsBlocks('f32', 'q8_0', 576, 512)).toBe(true);
    expect(pagedAttention.supportsBlocks('f32', 'q8_0', 80, 96)).toBe(false);
    expect(pagedAttention.supportsBlocks('f16', 'q8_0', 64, 64)).toBe(false);
  });
});
