/**
 * Convolutions of the plain backend, all dtypes, any strides: images to columns, then the batched product of matmul.ts, so
 * floats accumulate in f64 and integers wrap. Direct and transposed, 1-D and 2-D convolutions differ only in which input
 * position an output reads through a tap of the kernel, which is a table per axis here; candle has a loop nest for each.
 */
import type { Conv1dParams, Conv2dParams, ConvTranspose1dParams, ConvTranspose2dParams } from '../backend';
import { allocRaw } from '../host-array';
import { Layout } from '../layout';
import { denseRaw } from './copy';
import { matmul } from './matmul';
import type { JsStorage } from './storage';

/** Input positions of one axis: `at[output * k + tap]`, -1 where the tap lies on padding or between inputs. */
interface Axis {
  out: number;
  k: number;
  at: Int32Array;
}

interface Steps {
  padding: number;
  stride: number;
  dilation: number;
}

/** Each output reads a window of the input. */
function direct(size: number, out: number, k: number, { padding, stride, dilation }: Steps): Axis {
  return axis(out, k, (output, tap) => {
    const position = output * stride + tap * dilation - padding;
    return position < size ? position : -1;
  });
}

/** Each input is spread over a window of the output: inputs lie `stride` apart and the window is read backwards. */
function transposed(size: number, out: number, k: number, { padding, stride, dilation }: Steps): Axis {
  return axis(out, k, (output, tap) => {
    const position = output + padding - tap * dilation;
    return position % stride === 0 && position < size * stride ? position / stride : -1;
  });
}

function axis(out: number, k: number, position: (output: number, tap: number) => number): Axis {
  const at = new Int32Array(out * k);
  for (let i = 0; i < at.length; i++) at[i] = Math.max(-1, position(Math.floor(i / k), i % k));
  return { out, k, at };
}

/** The axis that a 1-D convolution does not have. */
const SINGLE: Axis = { out: 1, k: 1, at: Int32Array.of(0) };

export function conv1d(
  src: JsStorage,
  layout: Layout,
  kernel: JsStorage,
  kernelLayout: Layout,
  p: Conv1dParams,
): JsStorage {
  return convolve(src, layout.unsqueeze(2), kernel, kernelLayout.unsqueeze(2), SINGLE, direct(p.lIn, p.lOut, p.k, p));
}

export function convTranspose1d(
  src: JsStorage,
  layout: Layout,
  kernel: JsStorage,
  kernelLayout: Layout,
  p: ConvTranspose1dParams,
): JsStorage {
  const outFirst = kernelLayout.transpose(0, 1).unsqueeze(2);
  return convolve(src, layout.unsqueeze(2), kernel, outFirst, SINGLE, transposed(p.lIn, p.lOut, p.k, p));
}

export function conv2d(
  src: JsStorage,
  layout: Layout,
  kernel: JsStorage,
  kernelLayout: Layout,
  p: Conv2dParams,
): JsStorage {
  return convolve(src, layout, kernel, kernelLayout, direct(p.hIn, p.hOut, p.kH, p), direct(p.wIn, p.wOut, p.kW, p));
}

export function convTranspose2d(
  src: JsStorage,
  layout: Layout,
  kernel: JsStorage,
  kernelLayout: Layout,
  p: ConvTranspose2dParams,
): JsStorage {
  const outFirst = kernelLayout.transpose(0, 1);
  return convolve(
    src,
    layout,
    kernel,
    outFirst,
    transposed(p.hIn, p.hOut, p.kH, p),
    transposed(p.wIn, p.wOut, p.kW, p),
  );
}

/** Input [b, cIn, h, w], kernel [cOut, cIn, kH, kW]; the result is [b, cOut, rows.out, columns.out]. */
function convolve(
  src: JsStorage,
  layout: Layout,
  kernel: JsStorage,
  kernelLayout: Layout,
  rows: Axis,
  columns: Axis,
): JsStorage {
  const [b, cIn] = layout.shape;
  const [cOut] = kernelLayout.shape;
  const k = cIn * rows.k * columns.k;
  const n = rows.out * columns.out;
  const windows = src.make(src.dtype, unfold(src, layout, rows, columns));
  const weights = src.make(src.dtype, denseRaw(kernel, kernelLayout));
  try {
    const left = Layout.contiguous([1, cOut, k]).broadcastAs([b, cOut, k]);
    return matmul(weights, windows, { b, m: cOut, n, k }, left, Layout.contiguous([b, k, n]));
  } finally {
    windows.dispose();
    weights.dispose();
  }
}

/** [b, cIn, rows.k, columns.k, rows.out, columns.out] in storage form, zeros where a tap reads nothing. */
function unfold(src: JsStorage, layout: Layout, rows: Axis, columns: Axis): ReturnType<typeof allocRaw> {
  const [b, cIn, h, w] = layout.shape;
  const x = denseRaw(src, layout);
  const out = allocRaw(src.dtype, b * cIn * rows.at.length * columns.at.length);
  let to = 0;
  for (let plane = 0; plane < b * cIn; plane++) {
    for (let tapH = 0; tapH < rows.k; tapH++) {
      for (let tapW = 0; tapW < columns.k; tapW++) {
        for (let i = 0; i < rows.out; i++, to += columns.out) {
          const row = rows.at[i * rows.k + tapH];
          if (row < 0) continue;
          const from = (plane * h + row) * w;
          for (let j = 0; j < columns.out; j++) {
            const column = columns.at[j * columns.k + tapW];
            if (column >= 0) out[to + j] = x[from + column];
          }
        }
      }
    }
  }
  return out;
}
