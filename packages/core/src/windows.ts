/** Which input positions the windows of a convolution read, and those of a resized image. */
import { allocRaw } from './host-array';

/** Input positions of one axis: `at[output * k + tap]`, -1 where the tap lies on padding or between inputs. */
export interface Axis {
  out: number;
  k: number;
  at: Int32Array;
}

export interface Steps {
  padding: number;
  stride: number;
  dilation: number;
}

/** Each output reads a window of the input. */
export function direct(size: number, out: number, k: number, { padding, stride, dilation }: Steps): Axis {
  return axis(out, k, (output, tap) => {
    const position = output * stride + tap * dilation - padding;
    return position < size ? position : -1;
  });
}

/** Each input is spread over a window of the output: inputs lie `stride` apart and the window is read backwards. */
export function transposed(size: number, out: number, k: number, { padding, stride, dilation }: Steps): Axis {
  return axis(out, k, (output, tap) => {
    const position = output + padding - tap * dilation;
    return position % stride === 0 && position < size * stride ? position / stride : -1;
  });
}

function axis(out: number, k: number, position: (output: number, tap: number) => number): Axis {
  const at = allocRaw('i32', out * k) as Int32Array;
  for (let i = 0; i < at.length; i++) at[i] = Math.max(-1, position(Math.floor(i / k), i % k));
  return { out, k, at };
}

/** The axis that a 1-D convolution does not have. */
export const SINGLE: Axis = { out: 1, k: 1, at: Int32Array.of(0) };

/** The input position that each output position of a resized axis shows. */
export function nearest(size: number, out: number): Uint32Array {
  const scale = size / out;
  return (allocRaw('u32', out) as Uint32Array).map((_, i) => Math.min(size - 1, Math.floor(i * scale)));
}

/** Where an output position of an axis lies between two inputs, and the weight of the second. */
export interface Between {
  low: number;
  high: number;
  weight: number;
}

/** For each output position of a linearly resized axis; `factor` replaces the ratio of the sizes. */
export function between(size: number, out: number, alignCorners: boolean, factor: number | undefined): Between[] {
  const ratio = factor === undefined ? size / out : 1 / factor;
  const spread = out > 1 ? (size - 1) / (out - 1) : 0;
  return Array.from(allocRaw('f64', out) as Float64Array, (_, i) => {
    const position = Math.max(0, alignCorners ? spread * i : ratio * (i + 0.5) - 0.5);
    const low = Math.min(Math.floor(position), size - 1);
    return { low, high: Math.min(low + 1, size - 1), weight: Math.min(1, position - low) };
  });
}
