/**
 * Operations defined by the user, after candle's `CustomOp1`..`3` and `InplaceOp1`..`3` (candle-core/src/custom_op.rs).
 *
 * candle has `cpu_fwd`, `cuda_fwd` and `metal_fwd`; here there is one method a device kind, `jsFwd`, `cpuFwd`, `rocmFwd`,
 * `cudaFwd`, and `fwd` for all kinds without their own: one HIP source serves three of them (see `Device.compile`). A
 * method gets storages with their layouts, whose strides and offsets may be anything.
 */
import type { BackendStorage } from '../backend';
import { CandleError, ShapeError, UnsupportedError } from '../errors';
import { JsDevice } from '../js/device';
import { Layout } from '../layout';
import { elemCount, formatShape, type Shape, validateShape } from '../shape';
import { show } from '../show';
import { StorageRef } from '../storage-ref';
import type { Tensor } from '../tensor';
import { checkOperands, isTensor, markWritten, storageOf, track } from '../tensor/base';
import { checkWrite, recordWrite } from './in-place';
import type { Rule } from './record';

/** A new storage of its own, contiguous, and the shape of the result; the tensor will dispose the storage. */
export type CustomResult = readonly [storage: BackendStorage, shape: Shape];

/** The methods of which an operation has those of the devices that it runs on. */
interface PerDevice<A extends unknown[], R> {
  /** For messages. */
  readonly name: string;
  /** In plain TypeScript: the storages are `JsStorage`s. Also `cpu` when no package with kernels is imported. */
  jsFwd?(...operands: A): R;
  /** With the storages of the backend that a package registered for the kind; the next two likewise. */
  cpuFwd?(...operands: A): R;
  rocmFwd?(...operands: A): R;
  cudaFwd?(...operands: A): R;
  /** On every kind of device that has no method of its own above. */
  fwd?(...operands: A): R;
}

type S = BackendStorage;
type L = Layout;

/** candle's `CustomOp1`: an operation of one tensor, for `Tensor.applyOp1`. */
export interface CustomOp1 extends PerDevice<[s: S, l: L], CustomResult> {
  /** The gradient of the operand, or null; without this method `backward` raises an error. */
  bwd?(arg: Tensor, res: Tensor, gradRes: Tensor): Tensor | null;
}

/** As {@link CustomOp1}, of two tensors. */
export interface CustomOp2 extends PerDevice<[s1: S, l1: L, s2: S, l2: L], CustomResult> {
  /** The gradients of the operands in their order, null for none; without this method `backward` raises an error. */
  bwd?(arg1: Tensor, arg2: Tensor, res: Tensor, gradRes: Tensor): readonly [Tensor | null, Tensor | null];
}

/** As {@link CustomOp1}, of three tensors. */
export interface CustomOp3 extends PerDevice<[s1: S, l1: L, s2: S, l2: L, s3: S, l3: L], CustomResult> {
  /** As {@link CustomOp2.bwd}. */
  bwd?(
    arg1: Tensor,
    arg2: Tensor,
    arg3: Tensor,
    res: Tensor,
    gradRes: Tensor,
  ): readonly [Tensor | null, Tensor | null, Tensor | null];
}

/** Changes the first storage where its layout says. */
export interface InplaceOp1 extends PerDevice<[s: S, l: L], void> {}
/** As {@link InplaceOp1}, reading a second tensor. */
export interface InplaceOp2 extends PerDevice<[s1: S, l1: L, s2: S, l2: L], void> {}
/** As {@link InplaceOp1}, reading two other tensors. */
export interface InplaceOp3 extends PerDevice<[s1: S, l1: L, s2: S, l2: L, s3: S, l3: L], void> {}

/** Any of the above, for code that does not count operands. */
type AnyOp<R> = PerDevice<unknown[], R>;
type AnyCustomOp = AnyOp<CustomResult> & { bwd?(...tensors: Tensor[]): Tensor | null | readonly (Tensor | null)[] };

export function apply(op: CustomOp1 | CustomOp2 | CustomOp3, inputs: readonly Tensor[], recorded: boolean): Tensor {
  const custom = op as unknown as AnyCustomOp;
  const device = checkOperands(custom.name, inputs);
  const result: unknown = run(custom, inputs);
  if (!isResult(result)) {
    throw new CandleError(
      'INVALID_ARGUMENT',
      `${custom.name}: its forward returned ${show(result)}; return a new storage and a shape, [storage, shape].`,
    );
  }
  const [storage, given] = result;
  let shape: readonly number[];
  try {
    shape = validateShape(custom.name, given);
  } catch (error) {
    storage.dispose();
    throw error;
  }
  if (storage.elemCount !== elemCount(shape)) {
    const { elemCount: count } = storage;
    storage.dispose();
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${custom.name}: returned a storage of ${count} elements with shape ${formatShape(shape)}, which has ${elemCount(shape)}; return a shape that fits.`,
    );
  }
  const output = inputs[0].make(new StorageRef(storage, device), Layout.contiguous(shape));
  if (!recorded) return output;
  return track(custom.name, inputs, output, custom.bwd ? customRule : undefined, custom);
}

function isResult(value: unknown): value is CustomResult {
  if (!Array.isArray(value)) return false;
  const storage: Partial<BackendStorage> | null | undefined = value[0];
  return typeof storage?.dispose === 'function' && typeof storage.elemCount === 'number';
}

export function applyInPlace(op: InplaceOp1 | InplaceOp2 | InplaceOp3, tensors: readonly Tensor[]): void {
  const custom = op as unknown as AnyOp<void>;
  checkOperands(custom.name, tensors);
  const recorded = checkWrite(custom.name, tensors[0], tensors.slice(1));
  run(custom, tensors);
  markWritten(tensors[0]);
  if (recorded) recordWrite(custom.name, tensors);
}

const customRule: Rule<AnyCustomOp> = {
  inputs: 'all',
  output: true,
  backward(call) {
    const inputs = Array.from({ length: call.count }, (_, i) => call.input(i));
    const gradients = call.args.bwd?.(...inputs, call.output, call.grad) ?? null;
    const all: unknown[] = Array.isArray(gradients) ? gradients : [gradients];
    if (all.length <= call.count && all.every((gradient) => gradient === null || isTensor(gradient)))
      return all as (Tensor | null)[];
    throw new CandleError(
      'INVALID_ARGUMENT',
      `${call.args.name}: its bwd returned ${show(gradients)} for ${call.count} operands; return a gradient or null for each.`,
    );
  },
};

/** Literals: a name put together for a call would have to be hashed before the method is found. */
const OWN_FORWARD = { js: 'jsFwd', cpu: 'cpuFwd', rocm: 'rocmFwd', cuda: 'cudaFwd' } as const;

function run<R>(op: AnyOp<R>, tensors: readonly Tensor[]): R {
  const { device } = tensors[0];
  const own = OWN_FORWARD[device.backend instanceof JsDevice ? 'js' : device.kind];
  const operands: unknown[] = [];
  for (const tensor of tensors) operands.push(storageOf(op.name, tensor), tensor.layout);
  // Called on the operation, whose other methods and fields it may use.
  if (op[own]) return op[own](...operands);
  if (op.fwd) return op.fwd(...operands);
  throw new UnsupportedError(
    'UNSUPPORTED',
    `${op.name}: this custom operation has no forward for ${device}; give it ${own}, or fwd for all devices.`,
  );
}
