/**
 * Every differentiable operation as a function of its operands, for the gradient properties: a case draws shapes and
 * parameters from a generator. `kinked` marks slopes that jump, whose operands get values well apart from each other and
 * from 0, so that a small step crosses no edge.
 */
import {
  BINARY_NAMES,
  binaryRow,
  type Device,
  type Shape,
  Tensor,
  UNARY_NAMES,
  type UnaryRow,
  unaryRow,
} from '@x/core';
import { generator } from '@x/testing/operands';

export interface GradCase {
  shapes: Shape[];
  /** Operands in (0.2, 2.2) instead of both signs. */
  positive?: boolean;
  kinked?: boolean;
  /** The slope is constant: nothing to differentiate a second time. */
  linear?: boolean;
  run(...operands: Tensor[]): Tensor;
}

export class Draw {
  readonly next: () => number;
  readonly #drawn = new Set<number>();
  constructor(
    seed: number,
    readonly device: Device,
  ) {
    this.next = generator(seed);
  }
  int(min: number, max: number): number {
    return min + Math.floor(this.next() * (max - min + 1));
  }
  /** A whole number that was not drawn by this before. */
  fresh(min: number, max: number): number {
    let value = this.int(min, max);
    while (this.#drawn.has(value)) value = this.int(min, max);
    this.#drawn.add(value);
    return value;
  }
  pick<T>(...options: T[]): T {
    return options[this.int(0, options.length - 1)];
  }
  shape(minRank: number, maxRank: number, max = 4): number[] {
    return Array.from({ length: this.int(minRank, maxRank) }, () => this.int(1, max));
  }
  /** Two shapes that broadcast to one. */
  broadcast(): [number[], number[]] {
    const full = this.shape(1, 3);
    const shrink = () => {
      const own = full.map((size) => (this.next() < 0.3 ? 1 : size));
      return this.next() < 0.3 ? own.slice(1) : own;
    };
    return [full, shrink()].sort(() => this.next() - 0.5) as [number[], number[]];
  }
  ids(count: number, size: number): Tensor {
    const values = new Uint32Array(count).map(() => this.int(0, size - 1));
    return Tensor.from(values, { device: this.device });
  }
  /** `count` ids of which none comes twice. */
  distinctIds(count: number, size: number): Tensor {
    const all = Array.from({ length: size }, (_, i) => i).sort(() => this.next() - 0.5);
    return Tensor.from(Uint32Array.from(all.slice(0, count)), { device: this.device });
  }
}

type Cases = Record<string, (draw: Draw) => GradCase>;

const unary = (op: (x: Tensor) => Tensor, options: Partial<GradCase> = {}): ((draw: Draw) => GradCase) => {
  return (draw) => ({ shapes: [draw.shape(0, 3)], run: op, ...options });
};

const binary = (op: (a: Tensor, b: Tensor) => Tensor, options: Partial<GradCase> = {}): ((draw: Draw) => GradCase) => {
  return (draw) => ({ shapes: draw.broadcast(), run: op, ...options });
};

const kinked = { kinked: true };
const positive = { positive: true };
const linear = { linear: true };

/** What the table of an operation says of its slope. */
const traits = (row: Pick<UnaryRow, 'domain' | 'kinked' | 'linear'>): Partial<GradCase> => ({
  positive: row.domain === 'positive',
  kinked: row.kinked,
  linear: row.linear,
});
const DIFFERENTIABLE = UNARY_NAMES.filter((op) => unaryRow(op).gradient !== null);

export const ELEMENTWISE: Cases = {
  ...Object.fromEntries(DIFFERENTIABLE.map((op) => [op, unary((x) => x[op](), traits(unaryRow(op)))])),
  elu: unary((x) => x.elu(1.5), kinked),
  affine: unary((x) => x.affine(-1.5, 2), linear),
  powf: (draw) => ({
    shapes: [draw.shape(0, 3)],
    positive: true,
    run: (
      (e) => (x) =>
        x.powf(e)
    )(draw.pick(-1, 2, 2.5)),
  }),
  'powf 0': unary((x) => x.powf(0), linear),
  'arithmetic with a number': unary((x) => x.add(2).mul(3).sub(1).div(4), linear),
  'maximum with a number': unary((x) => x.maximum(0.1), { ...kinked, ...linear }),
  'minimum with a number': unary((x) => x.minimum(0.1), { ...kinked, ...linear }),
  clamp: unary((x) => x.clamp(-0.5, 0.5), { ...kinked, ...linear }),
  'floor has no slope': unary((x) => x.sub(x.floor()).mul(x), kinked),
  'round has no slope': unary((x) => x.mul(x.roundTo(0)), kinked),
  ...Object.fromEntries(BINARY_NAMES.map((op) => [op, binary((a, b) => a[op](b), traits(binaryRow(op)))])),
  'an operand twice': unary((x) => x.mul(x).add(x)),
  whereCond: (draw) => {
    const shape = draw.shape(1, 3);
    return { shapes: [shape, shape], kinked: true, run: (a, b) => a.gt(b).whereCond(a.sqr(), b.exp()) };
  },
  toDtype: unary((x) => x.toDtype('f64').sqr()),
};

export const REDUCING: Cases = {
  sum: (draw) => reduction(draw, (x, dims) => x.sum(dims), linear),
  sumKeepdim: (draw) => reduction(draw, (x, dims) => x.sumKeepdim(dims), linear),
  mean: (draw) => reduction(draw, (x, dims) => x.mean(dims), linear),
  max: (draw) => reduction(draw, (x, dims) => x.max(dims), { ...kinked, ...linear }),
  minKeepdim: (draw) => reduction(draw, (x, dims) => x.minKeepdim(dims), { ...kinked, ...linear }),
  logSumExp: (draw) => reduction(draw, (x, dims) => x.logSumExp(dims)),
  var: (draw) => {
    const shape = [draw.int(1, 3), draw.int(2, 5)];
    return { shapes: [shape], run: (x) => x.var(1) };
  },
  norm: unary((x) => x.norm(), positive),
  maxAll: unary((x) => x.maxAll(), { ...kinked, ...linear }),
  cumsum: (draw) => {
    const shape = draw.shape(1, 3, 6);
    const dim = draw.int(0, shape.length - 1);
    return { shapes: [shape], ...linear, run: (x) => x.cumsum(dim) };
  },
};

function reduction(draw: Draw, op: (x: Tensor, dims: number[]) => Tensor, options: Partial<GradCase> = {}): GradCase {
  const shape = draw.shape(1, 3);
  const dims = shape.map((_, d) => d).filter(() => draw.next() < 0.5);
  return { shapes: [shape], ...options, run: (x) => op(x, dims.length > 0 ? dims : [0]) };
}

export const VIEWS: Cases = {
  narrow: (draw) => {
    const shape = [draw.int(1, 4), draw.int(3, 6)];
    const start = draw.int(0, 2);
    return { shapes: [shape], ...linear, run: (x) => x.narrow(1, start, shape[1] - 2) };
  },
  get: unary((x) => x.unsqueeze(0).get(0), linear),
  i: (draw) => ({
    shapes: [[draw.int(2, 4), draw.int(3, 5), draw.int(2, 4)]],
    ...linear,
    run: (x) => x.i(-1, [1, 3], null, ':').mul(2),
  }),
  'i with ids': (draw) => {
    const ids = draw.ids(3, 2);
    return { shapes: [[2, 2, 3]], ...linear, run: (x) => x.i(':', ids, [0, 2]) };
  },
  transpose: (draw) => ({ shapes: [draw.shape(2, 4)], ...linear, run: (x) => x.transpose(0, -1) }),
  permute: (draw) => ({ shapes: [draw.shape(3, 3)], ...linear, run: (x) => x.permute([2, 0, 1]) }),
  reshape: (draw) => ({ shapes: [draw.shape(2, 3)], ...linear, run: (x) => x.t().reshape([x.elemCount]) }),
  broadcastAs: (draw) => {
    const shape = [draw.int(1, 3), 1, draw.int(1, 3)];
    return { shapes: [shape], ...linear, run: (x) => x.broadcastAs([2, shape[0], 3, shape[2]]) };
  },
  squeeze: (draw) => ({ shapes: [[draw.int(1, 3), 1]], ...linear, run: (x) => x.squeeze(1).unsqueeze(0) }),
  unfold: (draw) => {
    const [size, step] = [draw.int(1, 4), draw.int(1, 5)];
    return { shapes: [[2, draw.int(4, 9), 2]], ...linear, run: (x) => x.unfold(1, size, step) };
  },
  flip: (draw) => ({ shapes: [draw.shape(2, 3)], ...linear, run: (x) => x.flip([0, 1]) }),
  roll: (draw) => ({ shapes: [draw.shape(2, 3)], ...linear, run: (x) => x.roll(2, 1) }),
  repeat: (draw) => ({ shapes: [draw.shape(2, 2)], ...linear, run: (x) => x.repeat([2, 1, 3]) }),
  padWithZeros: (draw) => ({ shapes: [draw.shape(2, 3)], ...linear, run: (x) => x.padWithZeros(1, 2, 1) }),
  padWithSame: (draw) => ({ shapes: [draw.shape(2, 3)], ...linear, run: (x) => x.padWithSame(1, 2, 1) }),
  copy: (draw) => ({ shapes: [draw.shape(2, 3)], ...linear, run: (x) => x.t().contiguous().copy() }),
  cat: (draw) => {
    const [rows, a, b] = [draw.int(1, 3), draw.int(1, 3), draw.int(1, 3)];
    const shapes = [
      [rows, a],
      [rows, b],
    ];
    return { shapes, run: (x, y) => Tensor.cat([x, y, x.sqr()], 1) };
  },
  stack: (draw) => {
    const shape = draw.shape(1, 2);
    return { shapes: [shape, shape], ...linear, run: (x, y) => Tensor.stack([x, y], -1) };
  },
};

export const INDEXING: Cases = {
  indexSelect: (draw) => {
    const shape = draw.shape(2, 3);
    const ids = draw.ids(draw.int(1, 6), shape[1]);
    return { shapes: [shape], ...linear, run: (x) => x.indexSelect(ids, 1) };
  },
  embedding: (draw) => {
    const shape = draw.shape(2, 2);
    const ids = draw.ids(6, shape[0]).reshape([2, 3]);
    return { shapes: [shape], ...linear, run: (x) => x.embedding(ids) };
  },
  gather: (draw) => {
    const shape = [draw.int(2, 4), draw.int(1, 4)];
    // Fewer rows of ids than the tensor has.
    const rows = draw.int(1, shape[0]);
    const ids = draw.ids(rows * 3, shape[1]).reshape([rows, 3]);
    return { shapes: [shape], ...linear, run: (x) => x.gather(ids, 1) };
  },
  scatter: (draw) => {
    const width = draw.int(2, 5);
    const ids = draw.distinctIds(2, width).unsqueeze(0).repeat([3, 1]);
    const shapes = [
      [3, width],
      [3, 2],
    ];
    return { shapes, ...linear, run: (x, src) => x.scatter(ids, src, 1) };
  },
  scatterAdd: (draw) => {
    const width = draw.int(1, 4);
    const ids = draw.ids(15, width).reshape([3, 5]);
    const shapes = [
      [3, width],
      [3, 5],
    ];
    return { shapes, ...linear, run: (x, src) => x.scatterAdd(ids, src, 1) };
  },
  indexAdd: (draw) => {
    const width = draw.int(1, 4);
    const ids = draw.ids(5, width);
    const shapes = [
      [2, width, 2],
      [2, 5, 2],
    ];
    return { shapes, ...linear, run: (x, src) => x.indexAdd(ids, src, 1) };
  },
  sliceScatter: (draw) => {
    const start = draw.int(0, 2);
    const shapes = [
      [2, 5],
      [2, 3],
    ];
    return { shapes, ...linear, run: (x, src) => x.sliceScatter(src, 1, start) };
  },
  sliceSet: (draw) => {
    const [first, second] = [draw.int(0, 2), draw.int(0, 3)];
    const shapes = [
      [2, 5],
      [2, 3],
      [2, 2],
    ];
    return {
      shapes,
      ...linear,
      run: (x, src, other) => {
        const target = x.copy();
        target.sliceSet(src, 1, first);
        target.sliceSet(other, 1, second);
        return target;
      },
    };
  },
  sliceSetIntoPlain: (draw) => {
    const start = draw.int(0, 2);
    return {
      shapes: [[3, 2]],
      ...linear,
      run: (src) => {
        const target = src.detach().zerosLike().repeat([2, 1]);
        target.sliceSet(src, 0, start);
        return target;
      },
    };
  },
  scatterSet: (draw) => {
    const width = draw.int(2, 5);
    const ids = draw.distinctIds(2, width).unsqueeze(0).repeat([3, 1]);
    const shapes = [
      [3, width],
      [3, 2],
    ];
    return {
      shapes,
      ...linear,
      run: (x, src) => {
        const target = x.copy();
        target.scatterSet(ids, src, 1);
        return target;
      },
    };
  },
  scatterAddSet: (draw) => {
    const width = draw.int(1, 4);
    const ids = draw.ids(15, width).reshape([3, 5]);
    const shapes = [
      [3, width],
      [3, 5],
    ];
    return {
      shapes,
      ...linear,
      run: (x, src) => {
        const target = x.copy();
        target.scatterAddSet(ids, src, 1);
        return target;
      },
    };
  },
  sortLastDim: (draw) => ({ shapes: [draw.shape(1, 2, 6)], ...kinked, ...linear, run: (x) => x.sortLastDim(false)[0] }),
  topk: () => ({ shapes: [[3, 5]], ...kinked, ...linear, run: (x) => x.topk(2)[0] }),
};

export const PRODUCTS: Cases = {
  matmul: (draw) => {
    const batch = draw.shape(0, 2, 3);
    const [m, k, n] = [draw.int(1, 4), draw.int(1, 4), draw.int(1, 4)];
    const shapes = [
      [...batch, m, k],
      [...batch, k, n],
    ];
    return { shapes, run: (a, b) => a.matmul(b) };
  },
  broadcastMatmul: (draw) => {
    const [m, k, n] = [draw.int(1, 3), draw.int(1, 3), draw.int(1, 3)];
    const [left, right] = draw.broadcast();
    return {
      shapes: [
        [...left, m, k],
        [...right, k, n],
      ],
      run: (a, b) => a.broadcastMatmul(b),
    };
  },
  'one weight for a batch': (draw) => ({
    shapes: [draw.shape(3, 4), [2, 3]],
    run: (a, w) =>
      a
        .sum(-1)
        .unsqueeze(-1)
        .repeat([...a.shape.slice(0, -2).map(() => 1), 1, 2])
        .broadcastMatmul(w),
  }),
  mv: (draw) => ({ shapes: [[3, draw.int(1, 4)]], run: (a) => a.mv(a.get(0)) }),
  dot: (draw) => ({ shapes: [[draw.int(1, 5)]], run: (a) => a.dot(a.exp()) }),
};

export const FUSED: Cases = {
  softmaxLastDim: (draw) => ({ shapes: [draw.shape(1, 3)], run: (x) => x.softmaxLastDim() }),
  rmsNorm: (draw) => {
    const shape = draw.shape(1, 3);
    return { shapes: [shape, shape.slice(-1)], run: (x, alpha) => x.rmsNorm(alpha, 1e-2) };
  },
  layerNorm: (draw) => {
    const shape = [...draw.shape(0, 2), draw.int(2, 5)];
    const row = shape.slice(-1);
    return { shapes: [shape, row, row], run: (x, alpha, beta) => x.layerNorm(alpha, beta, 1e-2) };
  },
  rope: (draw) => {
    const kind = draw.pick('half', 'interleaved', 'thd');
    const [b, h, t, half] = [draw.int(1, 2), draw.int(1, 3), draw.int(1, 3), draw.int(1, 2)];
    const angles = draw.pick([t, half], [b, t, half]);
    const shape = kind === 'thd' ? [b, t, h, 2 * half] : [b, h, t, 2 * half];
    return { shapes: [shape, angles, angles], run: (x, cos, sin) => x.rope(cos, sin, kind as 'half') };
  },
};

export const CONVOLUTION: Cases = {
  conv1d: (draw) => {
    const { groups, cIn, cOut, options } = conv(draw);
    const shapes = [
      [draw.int(1, 2), cIn * groups, draw.int(5, 9)],
      [cOut * groups, cIn, draw.int(1, 3)],
    ];
    return { shapes, run: (x, w) => x.conv1d(w, options) };
  },
  conv2d: (draw) => {
    const { groups, cIn, cOut, options } = conv(draw);
    const shapes = [
      [draw.int(1, 2), cIn * groups, draw.int(5, 8), draw.int(5, 8)],
      [cOut * groups, cIn, draw.int(1, 3), draw.int(1, 3)],
    ];
    return { shapes, run: (x, w) => x.conv2d(w, options) };
  },
  convTranspose1d: (draw) => {
    const { groups, cIn, cOut, options } = conv(draw);
    const shapes = [
      [draw.int(1, 2), cIn * groups, draw.int(3, 6)],
      [cIn * groups, cOut, draw.int(2, 3)],
    ];
    const outputPadding = draw.int(0, 2);
    return { shapes, run: (x, w) => x.convTranspose1d(w, { ...options, outputPadding }) };
  },
  convTranspose2d: (draw) => {
    const { groups, cIn, cOut, options } = conv(draw);
    const shapes = [
      [1, cIn * groups, draw.int(3, 5), draw.int(3, 5)],
      [cIn * groups, cOut, draw.int(2, 3), draw.int(2, 3)],
    ];
    const outputPadding = draw.int(0, 2);
    return { shapes, run: (x, w) => x.convTranspose2d(w, { ...options, outputPadding }) };
  },
};

function conv(draw: Draw) {
  const groups = draw.int(1, 2);
  const options = { padding: draw.int(0, 1), stride: draw.int(1, 3), dilation: draw.int(1, 2), groups };
  return { groups, cIn: draw.int(1, 2), cOut: draw.int(1, 3), options };
}

export const RESAMPLING: Cases = {
  avgPool2d: (draw) => pool(draw, (x, k, s) => x.avgPool2d(k, s), linear),
  maxPool2d: (draw) => pool(draw, (x, k, s) => x.maxPool2d(k, s), { ...kinked, ...linear }),
  upsampleNearest1d: (draw) => {
    const size = draw.int(1, 9);
    return { shapes: [[2, 2, draw.int(1, 5)]], ...linear, run: (x) => x.upsampleNearest1d(size) };
  },
  upsampleNearest2d: (draw) => {
    const [height, width] = [draw.int(1, 9), draw.int(1, 9)];
    return {
      shapes: [[1, 2, draw.int(1, 4), draw.int(1, 4)]],
      ...linear,
      run: (x) => x.upsampleNearest2d(height, width),
    };
  },
  upsampleBilinear2d: (draw) => {
    const [height, width, corners] = [draw.int(1, 7), draw.int(1, 7), draw.pick(true, false)];
    const shapes = [[1, 2, draw.int(1, 4), draw.int(1, 4)]];
    return { shapes, ...linear, run: (x) => x.upsampleBilinear2d(height, width, corners) };
  },
  upsampleBilinear2dWithScale: (draw) => ({
    shapes: [[1, 2, draw.int(2, 4), draw.int(2, 4)]],
    ...linear,
    run: (x) => x.upsampleBilinear2dWithScale(1.7, 0.6, false),
  }),
};

function pool(
  draw: Draw,
  op: (x: Tensor, kernel: [number, number], stride: [number, number]) => Tensor,
  options: Partial<GradCase>,
): GradCase {
  const kernel: [number, number] = [draw.int(1, 3), draw.int(1, 3)];
  const stride: [number, number] = [draw.int(1, 4), draw.int(1, 4)];
  return {
    shapes: [[draw.int(1, 2), 2, draw.int(3, 6), draw.int(3, 6)]],
    ...options,
    run: (x) => op(x, kernel, stride),
  };
}
