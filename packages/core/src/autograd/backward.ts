/**
 * Reverse-mode differentiation, after candle's `Tensor::backward` and `sorted_nodes` (candle-core/src/backprop.rs).
 *
 * Records are visited from the newest to the oldest, which is an order in which every record comes after all that were
 * computed from it. Each one's rule runs in a scope; its gradients are added up in the operand's dtype.
 *
 * Differs from candle: gradients are computed only for what leads to a variable, and a derivative of any order can be
 * taken (`createGraph`), because rules are made of tensor operations that are recorded like any others.
 */
import { isFloat } from '../dtype';
import { CandleError, DTypeError, ShapeError } from '../errors';
import { scope } from '../scope';
import { formatShape, sameShape } from '../shape';
import type { Tensor } from '../tensor';
import { aliasOf, storageOf } from '../tensor/base';
import { GradStore } from './grad-store';
import { enableGrad, isGradEnabled, noGrad } from './mode';
import type { Call, Gradients, GradRecord, SavedTensor } from './record';

export interface BackwardOptions {
  /** The gradient to start from, of the tensor's shape and dtype. Default: ones. */
  gradient?: Tensor;
  /** Records the computation of the gradients, so that they can be differentiated in turn. Default: false. */
  createGraph?: boolean;
}

/**
 * The gradients of all variables that `root` was computed from.
 * @throws CandleError `NO_GRADIENT` when it depends on no variable, `BACKWARD_NOT_SUPPORTED` for an operation without a
 *   rule, `CHANGED_IN_PLACE` when a value that is needed was overwritten
 */
export function backward(root: Tensor, options: BackwardOptions = {}): GradStore {
  storageOf('backward', root);
  const { record } = root.handle;
  if (record === null) throw untracked(root);
  const store = new GradStore();
  const { gradient, createGraph = false } = options;
  if (gradient) requireLike('backward', gradient, root);
  try {
    const recording = createGraph ? enableGrad : noGrad;
    recording(() =>
      scope(() => {
        const start = createGraph ? aliasOf : (tensor: Tensor) => tensor.detach();
        propagate(record, gradient ? start(gradient) : root.onesLike(), store);
      }),
    );
  } catch (error) {
    store.dispose();
    throw error;
  }
  return store;
}

function untracked(root: Tensor): Error {
  if (!isFloat(root.dtype)) {
    return new DTypeError(
      'DTYPE_MISMATCH',
      `backward: gradients are of floats and the tensor is ${root.dtype} (shape ${formatShape(root.shape)}); start from a float tensor.`,
    );
  }
  return new CandleError(
    'NO_GRADIENT',
    `backward: this tensor of shape ${formatShape(root.shape)} was computed from no variable, or detached, or made inside of noGrad; make the parameters with Var and compute the loss from them.`,
  );
}

/** The records that lead to `root`, itself first, each before its operands. Records in `stops` are not looked behind. */
export function sortedRecords(root: GradRecord, stops?: ReadonlyMap<GradRecord, unknown>): GradRecord[] {
  const seen = new Set<GradRecord>([root]);
  for (const record of seen) {
    if (stops?.has(record)) continue;
    for (const operand of record.operands) if (operand.record) seen.add(operand.record);
  }
  return [...seen].sort((a, b) => b.order - a.order);
}

/**
 * Brings `seed`, the gradient of `root`, which it disposes, down to the variables and into `store`.
 * @param stops records to go no further than; their gradients are put into the map
 */
export function propagate(
  root: GradRecord,
  seed: Tensor,
  store: GradStore,
  stops?: Map<GradRecord, Tensor | null>,
): void {
  const pending = new Map<GradRecord, Tensor>([[root, seed]]);
  for (const record of sortedRecords(root, stops)) {
    const grad = pending.get(record);
    if (!grad) continue;
    pending.delete(record);
    if (stops?.has(record)) stops.set(record, grad);
    else if (record.isVariable) store.accumulateId(record.id, settled(grad));
    else {
      const gradients = scope(() => operandGradients(record, grad, store));
      grad.dispose();
      gradients.forEach((gradient, i) => {
        const owner = record.operands[i].record;
        if (gradient && owner) add(pending, owner, gradient);
      });
    }
  }
}

function add(pending: Map<GradRecord, Tensor>, owner: GradRecord, gradient: Tensor): void {
  const known = pending.get(owner);
  if (!known) {
    pending.set(owner, gradient);
    return;
  }
  pending.set(owner, known.add(gradient));
  known.dispose();
  gradient.dispose();
}

/** What a rule returns, checked, and each gradient a tensor of its own. */
function operandGradients(record: GradRecord, grad: Tensor, store: GradStore): Gradients {
  const { op, rule, operands } = record;
  if (!rule) {
    throw new CandleError(
      'BACKWARD_NOT_SUPPORTED',
      `backward: ${op} (result of shape ${formatShape(record.shape)}) has no gradient; compute it inside of noGrad, detach its operands, or use another operation.`,
    );
  }
  const taken = new Set<Tensor>([grad]);
  return rule.backward(new RecordedCall(record, grad, store)).map((gradient, i) => {
    if (!gradient || !operands[i]?.record) return null;
    requireLike(op, gradient, operands[i]);
    // A rule may hand its own gradient on, or one gradient to several operands.
    if (taken.has(gradient)) return aliasOf(gradient);
    taken.add(gradient);
    return gradient;
  });
}

function requireLike(op: string, gradient: Tensor, tensor: Pick<Tensor, 'shape' | 'dtype'>): void {
  if (!sameShape(gradient.shape, tensor.shape)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `backward: ${op} gives a gradient of shape ${formatShape(gradient.shape)} for a tensor of shape ${formatShape(tensor.shape)}; they must be equal.`,
    );
  }
  if (gradient.dtype !== tensor.dtype) {
    throw new DTypeError(
      'DTYPE_MISMATCH',
      `backward: ${op} gives a gradient of dtype ${gradient.dtype} for a tensor of dtype ${tensor.dtype}; they must be equal.`,
    );
  }
}

/** A variable's gradient as its owner expects one: contiguous, and in memory that nothing else sees. */
function settled(grad: Tensor): Tensor {
  const ref = grad.handle.ref;
  const alone = ref !== null && ref.shares === 1 && ref.storage.elemCount === grad.elemCount;
  if (alone && grad.isContiguous()) return grad;
  const copy = grad.copy();
  grad.dispose();
  return copy;
}

class RecordedCall implements Call<unknown> {
  readonly #record: GradRecord;
  readonly #store: GradStore;
  readonly grad: Tensor;

  constructor(record: GradRecord, grad: Tensor, store: GradStore) {
    this.#record = record;
    this.#store = store;
    this.grad = grad;
  }

  get op(): string {
    return this.#record.op;
  }

  get args(): unknown {
    return this.#record.args;
  }

  get count(): number {
    return this.#record.operands.length;
  }

  get output(): Tensor {
    return this.#open(this.#record.savedOutput, this.#record);
  }

  input(i: number): Tensor {
    return this.#open(this.#record.saved[i], this.#record.operands[i].record);
  }

  needs(i: number): boolean {
    return this.#record.operands[i].record !== null;
  }

  shape(i: number) {
    return this.#record.operands[i].shape;
  }

  dtype(i: number) {
    return this.#record.operands[i].dtype;
  }

  device(i: number) {
    return this.#record.operands[i].device;
  }

  accumulate(id: number, gradient: Tensor): void {
    this.#store.accumulateId(id, gradient);
  }

  #open(saved: SavedTensor | null, record: GradRecord | null): Tensor {
    if (!saved) throw new Error(`internal: the rule of ${this.#record.op} reads a value that it does not keep`);
    return saved.open(this.op, this.grad, isGradEnabled() ? record : null);
  }
}
