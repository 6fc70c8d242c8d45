/**
 * The record of one operation: what `backward` walks. candle keeps the operation and its arguments in the tensor
 * (`BackpropOp`); here a record is an object of its own that the result's handle owns, because JavaScript tensors are
 * disposed by hand and a record must outlive them.
 *
 * A record has its own shares of the storages that its rule reads again, outside every scope, so disposing a tensor never
 * breaks a later `backward`. It is counted by its owners, the live tensors with this history and the records built on
 * it, and gives its shares back with the last one: on `dispose()`, at the end of a scope, or on collection.
 */

import type { Device } from '../device';
import type { DType } from '../dtype';
import { isFloat } from '../dtype';
import { CandleError } from '../errors';
import type { Layout } from '../layout';
import { shared } from '../one-core';
import { formatShape, type Shape } from '../shape';
import type { StorageRef } from '../storage-ref';
import type { Tensor } from '../tensor';
import type { TensorBase } from '../tensor/base';
import { isGradEnabled } from './mode';

/** The gradients of the operands, in their order; null where there is none or none is asked for. */
export type Gradients = readonly (Tensor | null)[];

/** How an operation is differentiated. Rules are constants: what varies from call to call is `args`. */
export interface Rule<A = void> {
  /**
   * The operands whose values {@link backward} reads: their positions, all of them, or `others`, which keeps an operand
   * only if another one is tracked (a product). Default: none.
   */
  readonly inputs?: readonly number[] | 'all' | 'others';
  /** Whether {@link backward} reads the result. Default: no. */
  readonly output?: boolean;
  /**
   * Gradients from the gradient of the result, in the operands' shapes and dtypes. Runs in a scope of its own, so nothing
   * needs disposing, and is made of tensor operations, so that it can be differentiated itself.
   */
  backward(call: Call<A>): Gradients;
}

/** One recorded operation, as its rule sees it. */
export interface Call<A> {
  readonly op: string;
  /** The gradient of the result. */
  readonly grad: Tensor;
  /** The result; only for rules that keep it. */
  readonly output: Tensor;
  readonly args: A;
  /** How many operands there are. */
  readonly count: number;
  /** Whether operand `i` is tracked; a gradient for another one is work for nothing. */
  needs(i: number): boolean;
  /** Operand `i`; only for rules that keep it. */
  input(i: number): Tensor;
  shape(i: number): Shape;
  dtype(i: number): DType;
  device(i: number): Device;
  /** Adds to a variable's gradient directly: for a rule that finds variables which are no operands (checkpoints). */
  accumulate(id: number, gradient: Tensor): void;
}

/** A share of a tensor's storage that no scope knows. */
export class SavedTensor {
  readonly ref: StorageRef;
  readonly layout: Layout;
  readonly #version: number;

  constructor(tensor: TensorBase) {
    const { ref } = tensor.handle;
    if (ref === null) throw new Error('internal: a disposed tensor cannot be saved');
    this.ref = ref;
    this.layout = tensor.layout;
    this.#version = ref.version;
    ref.share();
  }

  /** The tensor again, with `record` as its history. */
  open(op: string, like: TensorBase, record: GradRecord | null): Tensor {
    if (this.ref.version !== this.#version) {
      throw new CandleError(
        'CHANGED_IN_PLACE',
        `backward: the gradient of ${op} needs a tensor of shape ${formatShape(this.layout.shape)} that was written in place after ${op} read it; call backward before writing, or write to a copy.`,
      );
    }
    const tensor = like.make(this.ref, this.layout);
    if (record) tensor.handle.attach(record);
    return tensor;
  }

  release(): void {
    this.ref.unshare();
  }
}

/** What is known of an operand without its values. */
export interface Operand {
  /** Null when it is not tracked. */
  readonly record: GradRecord | null;
  readonly shape: Shape;
  readonly dtype: DType;
  readonly device: Device;
}

const last = shared('records', () => ({ order: 0 }));

/** The history of one tensor: its operation, the operands' histories, and the values that the gradient's rule needs. */
export class GradRecord {
  /** Rises with creation, so operands have lower numbers than what is computed from them. */
  readonly order = ++last.order;
  /** The tensor that this is the history of; gradients of variables are found by it. */
  readonly id: number;
  readonly op: string;
  readonly shape: Shape;
  readonly dtype: DType;
  /** Undefined for a variable, and for an operation that cannot be differentiated. */
  readonly rule: Rule<unknown> | undefined;
  readonly args: unknown;
  readonly operands: readonly Operand[];
  readonly saved: readonly (SavedTensor | null)[];
  readonly savedOutput: SavedTensor | null;
  /** Not `#owners`: records of other copies of this package are dropped too. */
  private owners = 0;

  constructor(op: string, inputs: readonly TensorBase[], output: TensorBase, rule?: Rule<unknown>, args?: unknown) {
    this.op = op;
    this.id = output.id;
    this.shape = output.shape;
    this.dtype = output.dtype;
    this.rule = rule;
    this.args = args;
    this.operands = inputs.map(({ handle, layout, dtype, device }) => {
      handle.record?.hold();
      return { record: handle.record, shape: layout.shape, dtype, device };
    });
    this.saved = rule?.inputs ? inputs.map((input, i) => (this.#keeps(i) ? new SavedTensor(input) : null)) : [];
    this.savedOutput = rule?.output ? new SavedTensor(output) : null;
  }

  /** Whether a history ends here, at a variable. */
  get isVariable(): boolean {
    return this.rule === undefined && this.operands.length === 0;
  }

  /** One owner more, until {@link drop}. */
  hold(): void {
    this.owners++;
  }

  /** One owner less. Histories are long: what goes with the last owner is found by a loop, not by recursion. */
  drop(): void {
    const dropped: GradRecord[] = [this];
    for (let record = dropped.pop(); record; record = dropped.pop()) {
      if (--record.owners > 0) continue;
      for (const saved of record.saved) saved?.release();
      record.savedOutput?.release();
      for (const operand of record.operands) if (operand.record) dropped.push(operand.record);
    }
  }

  #keeps(i: number): boolean {
    const which = this.rule?.inputs;
    if (which === 'all') return true;
    if (which === 'others') return this.operands.some(({ record }, other) => other !== i && record !== null);
    return which?.includes(i) ?? false;
  }
}

/** Makes `tensor` a variable: the end of every history that leads to it. */
export function markVariable(tensor: TensorBase): void {
  tensor.handle.attach(new GradRecord('variable', [], tensor));
}

/**
 * Gives `output` a history if it has one to have: some operand is tracked, recording is on, and the dtype is a float. `rule`
 * null says that the gradient is zero everywhere (floor, detach); a missing rule, that `backward` must raise an error.
 */
export function record<A>(
  op: string,
  inputs: readonly TensorBase[],
  output: TensorBase,
  rule: Rule<A> | null | undefined,
  args: A | undefined,
): void {
  if (rule === null || !isFloat(output.dtype) || !isGradEnabled()) return;
  output.handle.attach(new GradRecord(op, inputs, output, rule as Rule<unknown> | undefined, args));
}
