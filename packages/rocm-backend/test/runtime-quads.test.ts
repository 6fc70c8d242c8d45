/**
 * How GPUs unpack block formats, four values at a time, checked on every device with kernels: on the cpu, whose own
 * kernels unpack 32 at a time, kernels compiled here call what the GPUs' kernels are made of.
 */
import type { Device } from '@x/core';
import { compilers } from '@x/hip';
import { QUANTIZED } from '@x/kernels';
import { kernelDevices } from '@x/testing/devices';
import { BLOCK_TYPES, randomBlocks } from '@x/testing/quantized/random-blocks';
import { describe, expect, it } from 'vitest';
import { blockFormat, type QuantType } from '../../quantized/src';
import type { RocmDevice, RocmStorage } from '../src/index';

const BLOCKS = 9;
const structOf = (type: QuantType) => (type === 'q8_1' ? 'Q8_1_Weight' : type.toUpperCase());

/** The module's headers, without its kernels, and two small ones for every type. */
const source = [
  QUANTIZED.source.slice(0, QUANTIZED.source.indexOf('using namespace quant;')),
  'using namespace quant;',
  ...BLOCK_TYPES.flatMap((type) => {
    const q = structOf(type);
    return [
      `KERNEL(quads_${type}, (u64 quads, const u8* x, float* y)) {`,
      `  X_FOR_EACH(i, quads) dequantizeQuad<${q}>(x + i / (${q}::SIZE / 4) * ${q}::BYTES, (u32)(i % (${q}::SIZE / 4)), y + 4 * i);`,
      '}',
      `KERNEL(run_${type}, (u64 n, u32* out)) { X_FOR_EACH(i, n) out[i] = ${q}::RUN; }`,
      `KERNEL(runs_${type}, (u64 runs, u32* out)) {`,
      `  X_FOR_EACH(i, runs) out[i] = ${q}::first((u32)i / (8 / ${q}::RUN), (u32)i % (8 / ${q}::RUN));`,
      `  if (blockX() == 0 && threadIndex() == 0) out[runs] = ${q}::HALVES ? 4 : 8;`,
      '}',
    ];
  }),
].join('\n');

function compiles({ location: { kind } }: Device): boolean {
  const platform = kind === 'cpu' ? 'host' : kind;
  return compilers().some((compiler) => compiler.platform === platform && compiler.available);
}

for (const device of kernelDevices())
  describe.runIf(compiles(device))(`quads on ${device}`, () => {
    /** Runs a kernel whose first argument is a count and whose last is its result. */
    function launch(kernel: string, count: number, operands: Uint8Array[], resultBytes: number): ArrayBuffer {
      const backend = device.backend as RocmDevice;
      const inputs = operands.map((bytes) => backend.fromHost(bytes, 'u8') as RocmStorage);
      const result = backend.zeros(resultBytes, 'u8') as RocmStorage;
      try {
        const { grid, block } = backend.shapes.elementwise(count);
        const args = [count, ...inputs.map(({ ptr }) => ptr), result.ptr];
        backend.getOrLoadFuncRaw(kernel, source).launch(grid, block, 0, args);
        return result.toHostSync();
      } finally {
        for (const storage of [...inputs, result]) storage.dispose();
      }
    }

    it.each(BLOCK_TYPES)(
      '%s',
      (type) => {
        const { blockSize, dequantize } = blockFormat(type);
        const bytes = randomBlocks(type, BLOCKS, 3);
        const expected = new Float32Array(BLOCKS * blockSize);
        dequantize(bytes, 0, expected, 0, BLOCKS);
        const got = launch(`quads_${type}`, expected.length / 4, [bytes], expected.byteLength);
        expect(new Float32Array(got)).toEqual(expected);

        // The runs of all threads are every quad once, and the quads of a run share a scale and 32 activations.
        const quads = blockSize / 4;
        const [length] = new Uint32Array(launch(`run_${type}`, 1, [], 4));
        const runs = quads / length;
        const out = new Uint32Array(launch(`runs_${type}`, runs, [], (runs + 1) * 4));
        const first = [...out.subarray(0, runs)];
        const covered = first.flatMap((start) => Array.from({ length }, (_, i) => start + i));
        expect(covered.sort((x, y) => x - y)).toEqual(Array.from({ length: quads }, (_, i) => i));
        for (const start of first)
          expect(Math.floor((start + length - 1) / out[runs])).toBe(Math.floor(start / out[runs]));
      },
      120_000,
    );
  });
