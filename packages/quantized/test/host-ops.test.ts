/** Products with quantized weights on `js`, against doubles: sizes around the pairs of rows and the fours that are taken at a time. */
import { BLOCK_TYPES, type BlockType, Device } from '@x/core';
import { randomBlocks } from '@x/testing/quantized/random-blocks';
import { random } from '@x/testing/random';
import { expect, it } from 'vitest';
import { blockFormat } from '../src/blocks';
import { matmulRows } from '../src/host-ops';

const TYPES = Object.keys(BLOCK_TYPES) as BlockType[];

it.each(TYPES)('rows of %s are multiplied as their values are', (type) => {
  const format = blockFormat(type);
  const k = 3 * Math.max(64, format.blockSize);
  const all = 9;
  const bytes = randomBlocks(type, (all * k) / format.blockSize, 7);
  const values = new Float32Array(all * k);
  format.dequantize(bytes, 0, values, 0, values.length / format.blockSize);
  const weight = Device.js().backend.fromHost(bytes, 'u8');
  const next = random(11);
  for (const m of [1, 2, 3, 4, 5, 8, 11]) {
    const x = Float32Array.from({ length: m * k }, () => next() - 0.4);
    for (const [firstRow, n] of [
      [0, all],
      [1, 1],
      [2, 4],
      [all - 1, 1],
    ]) {
      const product = matmulRows(weight, format, { m, n, k, firstRow }, x);
      expect(product).toHaveLength(m * n);
      for (let i = 0; i < m; i++) {
        for (let j = 0; j < n; j++) {
          let [sum, magnitude] = [0, 0];
          for (let l = 0; l < k; l++) {
            const term = x[i * k + l] * values[(firstRow + j) * k + l];
            sum += term;
            magnitude += Math.abs(term);
          }
          // Values that are rounded to f32 when a row is read, and the result.
          expect(Math.abs(product[i * n + j] - sum), `${m} x ${n}, ${i} ${j}`).toBeLessThanOrEqual(
            2 ** -22 * magnitude,
          );
        }
      }
    }
  }
  weight.dispose();
});
