/**
 * The operations that `tools/bench/ops.ts` times: names, shapes and dtypes are those of `torch_ops.py` beside it, line by
 * line. Bytes count every input read once and every output written once.
 */
import { type Device, type DType, noGrad, scope, Tensor, Var } from '../../packages/core/src';
import { lstm, sdpa, VarBuilder, VarMap } from '../../packages/nn/src';
import { RocmDevice } from '../../packages/rocm-backend/src';

export interface BenchOp {
  name: string;
  /** Bytes that must move at least, for GB/s. */
  bytes?: number;
  /** Floating-point operations, for TFLOP/s. */
  flop?: number;
  /** Runs once and gives its outputs back to the allocator. */
  run: () => void;
}

const SIZES = { f32: 4, f16: 2, bf16: 2 } as const;
type BenchDType = keyof typeof SIZES;

/** A group shares its inputs, which live while it is timed. */
export interface BenchGroup {
  names: string[];
  open: (device: Device) => { ops: BenchOp[]; close: () => void };
}

/** @param scale divides the large element counts, for devices with little memory; 1 for the published shapes */
export function benchGroups(scale: number): BenchGroup[] {
  const dtypes = Object.keys(SIZES) as BenchDType[];
  return [
    ...dtypes.map((dtype) => elementGroup(dtype, 2 ** 28 / scale)),
    castGroup(2 ** 28 / scale),
    ...dtypes.map(vocabularyGroup),
    ...dtypes.map((dtype) => productGroup(dtype, scale)),
    ...dtypes.map(layerGroup),
    launchGroup(),
  ];
}

function elementGroup(dtype: BenchDType, n: number): BenchGroup {
  const list = [
    'copy',
    'exp',
    'gelu',
    'silu',
    'affine',
    'add',
    'add_rowbcast',
    'transpose_contig',
    'sum_last',
    'sum_first',
    'max_last',
    'argmax_last',
    'softmax_last',
    'rmsnorm',
    'layernorm',
    'where',
    'cmp_lt',
    'index_select',
    'sort_1024',
  ];
  return {
    names: list.map((op) => `${op}_${dtype}`),
    open: (device) => {
      const size = SIZES[dtype];
      const held = new Inputs(device);
      const a = held.randn([n], dtype);
      const b = held.randn([n], dtype);
      const rows = n / 4096;
      const A = held.keep(a.reshape([rows, 4096]));
      const B = held.keep(b.reshape([rows, 4096]));
      const row = held.keep(b.narrow(0, 0, 4096));
      const weight = held.randn([4096], dtype);
      const mask = held.keep(A.gt(0));
      const picked = rows / 2;
      const indices = held.keep(
        Tensor.from(
          Uint32Array.from({ length: picked }, (_, i) => (i * 40503) % rows),
          { device },
        ),
      );
      const sortable = held.keep(a.narrow(0, 0, n / 4).reshape([n / 4096, 1024]));
      const bodies: [bytes: number, run: () => Tensor | readonly Tensor[]][] = [
        [2 * n * size, () => a.copy()],
        [2 * n * size, () => a.exp()],
        [2 * n * size, () => a.gelu()],
        [2 * n * size, () => a.silu()],
        [2 * n * size, () => a.affine(2, 1)],
        [3 * n * size, () => a.add(b)],
        [2 * n * size, () => A.broadcastAdd(row)],
        [2 * n * size, () => A.t().contiguous()],
        [n * size, () => A.sum(-1)],
        [n * size, () => A.sum(0)],
        [n * size, () => A.max(-1)],
        [n * size, () => A.argmax(-1)],
        [2 * n * size, () => A.softmaxLastDim()],
        [2 * n * size, () => A.rmsNorm(weight, 1e-5)],
        [2 * n * size, () => A.layerNorm(weight, weight, 1e-5)],
        [n * (3 * size + 1), () => mask.whereCond(A, B)],
        [n * (2 * size + 1), () => A.lt(B)],
        [2 * picked * 4096 * size, () => A.indexSelect(indices, 0)],
        [(n / 4) * (2 * size + 8), () => sortable.sortLastDim(true)],
      ];
      const made = bodies.map(([bytes, run], i) => op(`${list[i]}_${dtype}`, { bytes }, run));
      return { ops: made, close: () => held.close() };
    },
  };
}

/** Rows as wide as a vocabulary, as sampling sorts them. */
const VOCABULARY = { rows: 16, cols: 152064, k: 50 };

function vocabularyGroup(dtype: BenchDType): BenchGroup {
  const { rows, cols, k } = VOCABULARY;
  const list = [`sort_${cols}_${dtype}`, `argsort_${cols}_${dtype}`, `topk${k}_${cols}_${dtype}`];
  return {
    names: list,
    open: (device) => {
      const held = new Inputs(device);
      const logits = held.randn([rows, cols], dtype);
      const read = rows * cols * SIZES[dtype];
      const bodies: [bytes: number, run: () => Tensor | readonly Tensor[]][] = [
        [2 * read + rows * cols * 4, () => logits.sortLastDim(true)],
        [read + rows * cols * 4, () => logits.argSortLastDim(true)],
        [read + rows * k * (SIZES[dtype] + 4), () => logits.topk(k)],
      ];
      return { ops: bodies.map(([bytes, run], i) => op(list[i], { bytes }, run)), close: () => held.close() };
    },
  };
}

function castGroup(n: number): BenchGroup {
  const targets: DType[] = ['f16', 'bf16'];
  return {
    names: targets.map((to) => `cast_f32_${to}`),
    open: (device) => {
      const held = new Inputs(device);
      const a = held.randn([n], 'f32');
      return {
        ops: targets.map((to) => op(`cast_f32_${to}`, { bytes: n * 6 }, () => a.toDtype(to))),
        close: () => held.close(),
      };
    },
  };
}

function productGroup(dtype: BenchDType, scale: number): BenchGroup {
  const sizes = [4096, 8192];
  const names = [...sizes.map((m) => `matmul_${m}`), 'matvec_14336x4096', 'conv2d', 'sdpa_causal_1k'];
  return {
    names: names.map((name) => `${name}_${dtype}`),
    open: (device) => {
      const held = new Inputs(device);
      const made = sizes.map((size) => {
        const m = Math.round(size / Math.cbrt(scale) / 32) * 32;
        const x = held.randn([m, m], dtype);
        const y = held.randn([m, m], dtype);
        return op(`matmul_${size}_${dtype}`, { flop: 2 * m ** 3 }, () => x.matmul(y));
      });
      const vector = held.randn([1, 4096], dtype);
      const weights = held.randn([14336, 4096], dtype);
      const bytes = 14336 * 4096 * SIZES[dtype];
      made.push(op(`matvec_14336x4096_${dtype}`, { bytes }, () => vector.matmul(weights.t())));
      const batch = Math.max(1, Math.round(32 / scale));
      const image = held.randn([batch, 128, 56, 56], dtype);
      const kernel = held.randn([256, 128, 3, 3], dtype);
      const flop = 2 * batch * 56 * 56 * 256 * 128 * 9;
      // PyTorch's convolutions of f32 multiply in TF32 unless told otherwise, its products do not: so do ours here.
      made.push(op(`conv2d_${dtype}`, { flop }, () => inTf32(device, () => image.conv2d(kernel, { padding: 1 }))));
      const q = held.randn([1, 32, 1024, 128], dtype);
      made.push(op(`sdpa_causal_1k_${dtype}`, {}, () => sdpa(q, q, q, { causal: true })));
      return { ops: made, close: () => held.close() };
    },
  };
}

/** What small networks and loaders of data are made of, at their sizes. */
function layerGroup(dtype: BenchDType): BenchGroup {
  const list = [
    'conv2d_small',
    'conv2d_backward',
    'conv2d_depthwise',
    'conv_transpose2d',
    'max_pool2d',
    'upsample_nearest2d',
    'cumsum',
    'flip',
    'gather',
    'scatter_add',
    'matmul_1024',
    'lstm_100_steps',
  ];
  return {
    names: list.map((op) => `${op}_${dtype}`),
    open: (device) => {
      const held = new Inputs(device);
      const image = held.randn([4, 32, 56, 56], dtype);
      const kernel = held.randn([32, 32, 3, 3], dtype);
      const depthwise = held.randn([32, 1, 3, 3], dtype);
      const flat = held.randn([2048, 2048], dtype);
      const zeros = held.keep(flat.zerosLike());
      const ids = Uint32Array.from({ length: 2048 * 2048 }, (_, i) => Math.imul(i, 40503) >>> 21);
      const places = held.keep(Tensor.from(ids, { device }).reshape([2048, 2048]));
      const x = held.randn([1024, 1024], dtype);
      const y = held.randn([1024, 1024], dtype);
      const learned = Var.fromTensor(image);
      const weight = Var.fromTensor(kernel);
      const weights = new VarMap();
      const cell = lstm(64, 128, {}, VarBuilder.fromVarMap(weights, { dtype, device }));
      const steps = held.randn([8, 100, 64], dtype);
      const backward = () => {
        const gradients = scope(() => learned.conv2d(weight, { padding: 1 }).sumAll().backward());
        gradients.dispose();
        return [];
      };
      const bodies: (() => Tensor | readonly Tensor[])[] = [
        () => image.conv2d(kernel, { padding: 1 }),
        backward,
        () => image.conv2d(depthwise, { padding: 1, groups: 32 }),
        () => image.convTranspose2d(kernel, { padding: 1 }),
        () => image.maxPool2d(2),
        () => image.upsampleNearest2d(112, 112),
        () => flat.cumsum(-1),
        () => flat.flip([0, 1]),
        () => flat.gather(places, 1),
        () => zeros.scatterAdd(places, flat, 1),
        () => x.matmul(y),
        () => noGrad(() => cell.forward(steps)),
      ];
      return {
        ops: bodies.map((run, i) => op(`${list[i]}_${dtype}`, {}, run)),
        close: () => {
          for (const tensor of [learned, weight]) tensor.dispose();
          held.close();
        },
      };
    },
  };
}

function launchGroup(): BenchGroup {
  return {
    names: ['launch_1000_small_adds'],
    open: (device) => {
      const x = Tensor.randn(0, 1, [1024], 'f32', device);
      const chain = () => {
        let y = x.add(1);
        for (let i = 1; i < 1000; i++) {
          const next = y.add(1);
          y.dispose();
          y = next;
        }
        return y;
      };
      return { ops: [op('launch_1000_small_adds', {}, chain)], close: () => x.dispose() };
    },
  };
}

function inTf32<T>({ backend }: Device, run: () => T): T {
  if (!(backend instanceof RocmDevice)) return run();
  backend.gemmReducedPrecisionF32 = true;
  try {
    return run();
  } finally {
    backend.gemmReducedPrecisionF32 = false;
  }
}

function op(name: string, cost: { bytes?: number; flop?: number }, body: () => Tensor | readonly Tensor[]): BenchOp {
  return {
    name,
    ...cost,
    run: () => {
      const made = body();
      if (made instanceof Tensor) made.dispose();
      else for (const tensor of made) tensor.dispose();
    },
  };
}

class Inputs {
  readonly #device: Device;
  readonly #tensors: Tensor[] = [];

  constructor(device: Device) {
    this.#device = device;
  }

  keep(tensor: Tensor): Tensor {
    this.#tensors.push(tensor);
    return tensor;
  }

  randn(shape: number[], dtype: DType): Tensor {
    return this.keep(Tensor.randn(0, 1, shape, dtype, this.#device));
  }

  close(): void {
    for (const tensor of this.#tensors) tensor.dispose();
  }
}
