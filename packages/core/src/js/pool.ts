/**
 * Pooling of the plain backend. Windows lie wholly inside the image, as candle's do. Averages of floats add in f64;
 * integers are added exactly and the mean truncated (candle's CPU multiplies integers by a reciprocal that rounds to 0).
 */
import type { Pool2dParams } from '../backend';
import { allocValues, type NumberArray } from '../host-array';
import type { Layout } from '../layout';
import { denseValues } from './copy';
import { fromValues } from './elementwise';
import type { JsOperand, JsStorage } from './storage';

export function avgPool2d(src: JsOperand, params: Pool2dParams): JsStorage {
  const count = params.kH * params.kW;
  return pool(src, params, {
    // Stored into an integer array the quotient is truncated.
    numbers: (window) => window.reduce((sum, value) => sum + value, 0) / count,
    bigints: (window) => window.reduce((sum, value) => sum + value, 0n) / BigInt(count),
  });
}

export function maxPool2d(src: JsOperand, params: Pool2dParams): JsStorage {
  return pool(src, params, {
    numbers: (window) => window.reduce((top, value) => Math.max(top, value), -Infinity),
    // biome-ignore lint/complexity/useMathMinMax: Math.max takes no bigints
    bigints: (window) => window.reduce((top, value) => (value > top ? value : top), window[0]),
  });
}

interface Summary {
  numbers(window: readonly number[]): number;
  bigints(window: readonly bigint[]): bigint;
}

function pool(src: JsOperand, params: Pool2dParams, summary: Summary): JsStorage {
  const { storage, layout } = src;
  const values = denseValues(src);
  const [b, c] = layout.shape;
  const out = allocValues(storage.dtype, b * c * params.hOut * params.wOut);
  if (values instanceof BigInt64Array) {
    eachWindow(values, layout, params, (window: bigint[], i) => {
      (out as BigInt64Array)[i] = summary.bigints(window);
    });
  } else {
    eachWindow(values, layout, params, (window: number[], i) => {
      (out as NumberArray)[i] = summary.numbers(window);
    });
  }
  return fromValues(storage, storage.dtype, out);
}

/** Calls `use(window, i)` for the i-th window in row-major order; the array is reused. */
function eachWindow<T>(
  values: ArrayLike<T>,
  layout: Layout,
  params: Pool2dParams,
  use: (window: T[], i: number) => void,
): void {
  const [b, c, h, w] = layout.shape;
  const { kH, kW, strideH, strideW, hOut, wOut } = params;
  const window = new Array<T>(kH * kW);
  let i = 0;
  for (let plane = 0; plane < b * c; plane++) {
    for (let y = 0; y < hOut; y++) {
      for (let x = 0; x < wOut; x++) {
        const corner = (plane * h + y * strideH) * w + x * strideW;
        for (let tap = 0; tap < window.length; tap++) {
          window[tap] = values[corner + Math.floor(tap / kW) * w + (tap % kW)];
        }
        use(window, i++);
      }
    }
  }
}
