/**
 * Convolutions of the plain backend, all dtypes, any strides: images to columns, then the batched product of matmul.ts, so
 * floats accumulate in f64 and integers wrap. Direct and transposed, 1-D and 2-D convolutions differ only in which input
 * position an output reads through a tap of the kernel, which is a table per axis here; candle has a loop nest for each.
 */
import type { Conv1dParams, Conv2dParams, ConvTranspose1dParams, ConvTranspose2dParams } from '../backend';
import { allocRaw } from '../host-array';
import { Layout } from '../layout';
import { type Axis, direct, SINGLE, transposed } from '../windows';
import { denseRaw } from './copy';
import { matmul } from './matmul';
import type { JsOperand, JsStorage } from './storage';

export function conv1d(src: JsOperand, kernel: JsOperand, p: Conv1dParams): JsStorage {
  return convolve(as2d(src), grouped(as2d(kernel), p), SINGLE, direct(p.lIn, p.lOut, p.k, p));
}

export function convTranspose1d(src: JsOperand, kernel: JsOperand, p: ConvTranspose1dParams): JsStorage {
  return convolve(as2d(src), outFirst(as2d(kernel), p), SINGLE, transposed(p.lIn, p.lOut, p.k, p));
}

export function conv2d(src: JsOperand, kernel: JsOperand, p: Conv2dParams): JsStorage {
  return convolve(src, grouped(kernel, p), direct(p.hIn, p.hOut, p.kH, p), direct(p.wIn, p.wOut, p.kW, p));
}

export function convTranspose2d(src: JsOperand, kernel: JsOperand, p: ConvTranspose2dParams): JsStorage {
  const [rows, columns] = [transposed(p.hIn, p.hOut, p.kH, p), transposed(p.wIn, p.wOut, p.kW, p)];
  return convolve(src, outFirst(kernel, p), rows, columns);
}

function as2d({ storage, layout }: JsOperand): JsOperand {
  return { storage, layout: layout.unsqueeze(2) };
}

/** A kernel [cOut, ..] as [groups, cOut / groups, ..]. */
function grouped({ storage, layout }: JsOperand, { groups }: { groups: number }): JsOperand {
  const { shape, strides, startOffset } = layout;
  const each = shape[0] / groups;
  return {
    storage,
    layout: new Layout([groups, each, ...shape.slice(1)], [each * strides[0], ...strides], startOffset),
  };
}

/** The kernel of a transposed convolution, [cIn, cOut / groups, ..], as [groups, cOut / groups, cIn / groups, ..]. */
function outFirst(kernel: JsOperand, p: { groups: number }): JsOperand {
  const { storage, layout } = grouped(kernel, p);
  return { storage, layout: layout.transpose(1, 2) };
}

/** Input [b, groups * cIn, h, w], kernel [groups, cOut, cIn, kH, kW]; the result is [b, groups * cOut, rows.out, columns.out]. */
function convolve(src: JsOperand, kernel: JsOperand, rows: Axis, columns: Axis): JsStorage {
  const { storage } = src;
  const [b] = src.layout.shape;
  const [groups, cOut, cIn] = kernel.layout.shape;
  const k = cIn * rows.k * columns.k;
  const n = rows.out * columns.out;
  const windows = storage.make(storage.dtype, unfold(src, rows, columns));
  const weights = storage.make(storage.dtype, denseRaw(kernel));
  try {
    const left = Layout.contiguous([1, groups, cOut, k]).broadcastAs([b, groups, cOut, k]);
    const right = Layout.contiguous([b, groups, k, n]);
    const size = { b: b * groups, m: cOut, n, k };
    return matmul({ storage: weights, layout: left }, { storage: windows, layout: right }, size);
  } finally {
    windows.dispose();
    weights.dispose();
  }
}

/** [b, cIn, rows.k, columns.k, rows.out, columns.out] in storage form, zeros where a tap reads nothing. */
function unfold(src: JsOperand, rows: Axis, columns: Axis): ReturnType<typeof allocRaw> {
  const [b, cIn, h, w] = src.layout.shape;
  const x = denseRaw(src);
  const out = allocRaw(src.storage.dtype, b * cIn * rows.at.length * columns.at.length);
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
