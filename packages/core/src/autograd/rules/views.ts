/** Gradients of the operations that only change how a storage is looked at. */
import type { Tensor } from '../../tensor';
import { idsOn, zerosBy } from '../../tensor/base';
import type { Rule } from '../record';
import { sumTo } from './shared';

/** `args` are the two dimensions. */
export const transpose: Rule<readonly [number, number]> = {
  backward: ({ grad, args: [a, b] }) => [grad.transpose(a, b)],
};

/** `args` are the dimensions in their new order. */
export const permute: Rule<readonly number[]> = {
  backward({ grad, args }) {
    const back = new Array<number>(args.length);
    args.forEach((from, to) => {
      back[from < 0 ? from + args.length : from] = to;
    });
    return [grad.permute(back)];
  },
};

export const broadcast: Rule = { backward: (call) => [sumTo(call.grad, call.shape(0))] };

/** narrow, get: the part [start, start + len) of one dimension, which may have been dropped then. */
export const narrow: Rule<readonly [dim: number, start: number, len: number]> = {
  backward(call) {
    const [dim, start, len] = call.args;
    const shape = call.shape(0);
    const kept = call.grad.reshape(shape.map((size, d) => (d === dim ? len : size)));
    return [kept.padWithZeros(dim, start, shape[dim] - start - len)];
  },
};

/** The part of a tensor that starts at `starts[d]` of each dimension and has `sizes[d]` elements of it. */
export interface Part {
  starts: readonly number[];
  sizes: readonly number[];
}

/** i: a part, of which dimensions of size 1 may have been dropped or added. */
export const slice: Rule<Part> = {
  backward(call) {
    const { starts, sizes } = call.args;
    const shape = call.shape(0);
    let gradient = call.grad.reshape(sizes);
    shape.forEach((size, d) => {
      if (size === sizes[d]) return;
      gradient = gradient.padWithZeros(d, starts[d], size - starts[d] - sizes[d]);
    });
    return [gradient];
  },
};

/** Windows of `size` elements along a dimension, `step` apart. */
export interface Windows {
  dim: number;
  size: number;
  step: number;
}

export const unfold: Rule<Windows> = {
  backward: (call) => [fold(call.grad, call.args, call.shape(0)[call.args.dim])],
};

/**
 * The reverse of `unfold`: windows in the last dimension put back into dimension `dim` of `length` elements, adding where
 * they overlap.
 */
export function fold(windows: Tensor, { dim, size, step }: Windows, length: number): Tensor {
  const count = windows.dim(dim);
  const last = windows.rank - 1;
  // [.., count, .., size] to [.., count, size, ..], the two being one dimension then.
  const order = windows.shape.map((_, d) => d).filter((d) => d !== last);
  order.splice(dim + 1, 0, last);
  const placed = windows.permute(order);
  const merged = (width: number) =>
    placed.shape.flatMap((n, d) => (d === dim ? [count * width] : d === dim + 1 ? [] : [n]));
  if (size <= step) {
    const spaced = size < step ? placed.padWithZeros(dim + 1, 0, step - size) : placed;
    const joined = spaced.reshape(merged(step));
    const missing = length - count * step;
    return missing >= 0 ? joined.padWithZeros(dim, 0, missing) : joined.narrow(dim, 0, length);
  }
  const ids = Uint32Array.from({ length: count * size }, (_, i) => Math.floor(i / size) * step + (i % size));
  const shape = merged(size);
  const zeros = zerosBy(
    windows,
    shape.map((n, d) => (d === dim ? length : n)),
  );
  return zeros.indexAdd(idsOn(windows, ids), placed.reshape(shape), dim);
}
