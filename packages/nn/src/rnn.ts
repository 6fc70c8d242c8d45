/**
 * Recurrent layers: candle-nn's `RNN`, `LSTM` and `GRU` (rnn.rs), one layer in one direction each.
 *
 * Different from candle: a `backward` layer reads a sequence from its end (candle's differs in the names of its weights
 * only), the GRU has the direction and layer options too, and both stack their states to [b, seq, hidden] (candle's GRU
 * joins them to [b, seq * hidden]).
 */
import { type DType, isGradEnabled, kinds, ShapeError, scope, Tensor } from '@x/core';
import { checkConfig, checkLayer } from './check';
import { DEFAULT_KAIMING_UNIFORM, type Init, ZERO } from './init';
import { lstmSteps } from './lstm-steps';
import { OwningModule } from './module';
import type { VarBuilder } from './var-builder';

/** What all states have: the output of the layer. */
export interface RnnState {
  /** [b, hidden] */
  h: Tensor;
}

export interface LSTMState extends RnnState {
  /** The cell, [b, hidden]. */
  c: Tensor;
}

export type GRUState = RnnState;

export type Direction = 'forward' | 'backward';

export interface RnnConfig {
  /** Default: Kaiming uniform. */
  wIhInit?: Init;
  wHhInit?: Init;
  /** null: no such bias. Default: zeros. */
  bIhInit?: Init | null;
  bHhInit?: Init | null;
  /** Number in the names of the weights, `weight_ih_l0`. Default 0. */
  layerIdx?: number;
  /** `backward` adds `_reverse` to the names and reads sequences from the end. Default `forward`. */
  direction?: Direction;
}

export type LSTMConfig = RnnConfig;
export type GRUConfig = RnnConfig;

/** A layer that goes over a sequence step by step. */
export abstract class RNN<State extends RnnState> extends OwningModule {
  /** [gates · hidden, in] */
  readonly wIh: Tensor;
  /** [gates · hidden, hidden] */
  readonly wHh: Tensor;
  /** [gates · hidden], if there is one. */
  readonly bIh: Tensor | undefined;
  /** [gates · hidden], if there is one. */
  readonly bHh: Tensor | undefined;

  /** @param gates blocks of `hiddenDim` rows in the weights */
  constructor(
    readonly inDim: number,
    readonly hiddenDim: number,
    readonly config: RnnConfig,
    gates: number,
    vb: VarBuilder,
  ) {
    super();
    checkLayer(new.target.name, { inDim, hiddenDim }, vb);
    checkConfig(new.target.name, config);
    const { wIhInit, wHhInit, bIhInit, bHhInit, layerIdx = 0, direction = 'forward' } = config;
    const rows = gates * hiddenDim;
    const suffix = `l${layerIdx}${direction === 'backward' ? '_reverse' : ''}`;
    const get = (shape: number[], name: string, init: Init) =>
      this.own(vb.getWithHintsSync(shape, `${name}_${suffix}`, init));
    this.wIh = get([rows, inDim], 'weight_ih', wIhInit ?? DEFAULT_KAIMING_UNIFORM);
    this.wHh = get([rows, hiddenDim], 'weight_hh', wHhInit ?? DEFAULT_KAIMING_UNIFORM);
    this.bIh = bIhInit === null ? undefined : get([rows], 'bias_ih', bIhInit ?? ZERO);
    this.bHh = bHhInit === null ? undefined : get([rows], 'bias_hh', bHhInit ?? ZERO);
  }

  /** The state before a sequence. */
  abstract zeroState(batchDim: number): State;

  /** One step: input [b, features]. The state that is given stays the caller's. */
  abstract step(input: Tensor, state: State): State;

  /** All steps of [b, seq, features], in the order of the sequence whatever the direction. */
  seq(input: Tensor): State[] {
    return scope(() => this.seqInit(input, this.zeroState(input.dim(0))));
  }

  /** As {@link seq}, from a state. */
  seqInit(input: Tensor, initState: State): State[] {
    checkSequence(this, input);
    const steps = Array.from({ length: input.dim(1) }, (_, i) => i);
    if (this.config.direction === 'backward') steps.reverse();
    return scope(() => {
      const states: State[] = [];
      let state = initState;
      for (const position of steps) {
        const at = input.narrow(1, position, 1).squeeze(1);
        state = this.step(at, state);
        states[position] = state;
      }
      return states;
    });
  }

  /** The outputs of all steps, [b, seq, hidden]. */
  statesToTensor(states: readonly State[]): Tensor {
    return Tensor.stack(
      states.map((state) => state.h),
      1,
    );
  }

  /** [b, seq, features] to [b, seq, hidden]. */
  forward(xs: Tensor): Tensor {
    return scope(() => this.statesToTensor(this.seq(xs)));
  }

  protected zeros(batchDim: number): Tensor {
    return Tensor.zeros([batchDim, this.hiddenDim], this.wIh.dtype, this.wIh.device);
  }

  /** The two halves of all gates: from the input and from the state. */
  protected gates(input: Tensor, h: Tensor): [Tensor, Tensor] {
    const fromInput = input.matmul(this.wIh.t());
    const fromState = h.matmul(this.wHh.t());
    return [
      this.bIh ? fromInput.broadcastAdd(this.bIh) : fromInput,
      this.bHh ? fromState.broadcastAdd(this.bHh) : fromState,
    ];
  }
}

function checkSequence(layer: RNN<RnnState>, input: Tensor): void {
  if (input.rank === 3 && input.dim(2) === layer.inDim) return;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${layer.constructor.name}: input [${input.shape}]; give [b, seq, ${layer.inDim}].`,
  );
}

/** Dtypes of weights for which an {@link LSTM} uses its device's kernels. */
const IN_ONE_KERNEL: ReadonlySet<DType> = new Set(['f32', 'f16', 'bf16']);

/** Long short-term memory; weights as PyTorch's: input, forget, cell and output gate. */
export class LSTM extends RNN<LSTMState> {
  constructor(inDim: number, hiddenDim: number, config: LSTMConfig, vb: VarBuilder) {
    super(inDim, hiddenDim, config, 4, vb);
  }

  zeroState(batchDim: number): LSTMState {
    return { h: this.zeros(batchDim), c: this.zeros(batchDim) };
  }

  /** One kernel for all steps where the device has it, without gradients: sums and cells are f32, f16 is widened for it. */
  override seqInit(input: Tensor, initState: LSTMState): LSTMState[] {
    checkSequence(this, input);
    return scope(() => {
      const all = this.#allSteps(input, initState);
      if (!all) return super.seqInit(input, initState);
      const at = (x: Tensor, step: number) => x.narrow(1, step, 1).squeeze(1);
      return Array.from({ length: input.dim(1) }, (_, step) => ({ h: at(all.h, step), c: at(all.c, step) }));
    });
  }

  override forward(xs: Tensor): Tensor {
    checkSequence(this, xs);
    return scope(() => this.#allSteps(xs, this.zeroState(xs.dim(0)))?.h ?? this.#recorded(xs) ?? super.forward(xs));
  }

  /** As {@link forward} where gradients are followed, by the device's kernels; undefined where those are not for these. */
  #recorded(xs: Tensor): Tensor | undefined {
    const { hiddenDim, wIh, wHh, bIh, bHh, inDim } = this;
    const { device, dtype } = wIh;
    const operands = [xs, wIh, wHh, bIh, bHh].filter((x) => x !== undefined);
    const alike = operands.every((x) => x.dtype === dtype && x.device === device) && IN_ONE_KERNEL.has(dtype);
    if (!device.backend.recurrent?.supportsLstm(hiddenDim) || !alike || xs.elemCount === 0) return undefined;
    const [rows, steps] = xs.shape;
    const wide = (x: Tensor) => x.toDtype('f32');
    const bias = bIh && bHh ? wide(bIh).add(wide(bHh)) : (bIh ?? bHh);
    const products = wide(xs.reshape([rows * steps, inDim])).matmul(wide(wIh).t());
    const gates = (bias ? products.broadcastAdd(wide(bias)) : products).reshape([rows, steps, 4 * hiddenDim]);
    return lstmSteps(gates, wide(wHh), this.config.direction === 'backward').toDtype(dtype);
  }

  /** Outputs and cells of all steps, [b, seq, hidden], by the device's kernel; undefined where that is not for these. */
  #allSteps(input: Tensor, { h, c }: LSTMState): LSTMState | undefined {
    const { hiddenDim: hidden, wIh, wHh, bIh, bHh, inDim } = this;
    const [rows, steps] = input.shape;
    const operands = [input, h, c, wIh, wHh, bIh, bHh].filter((x) => x !== undefined);
    const { device, dtype } = wIh;
    const { recurrent } = device.backend;
    const recorded = isGradEnabled() && operands.some((x) => x.trackOp);
    const alike = operands.every((x) => x.dtype === dtype && x.device === device) && IN_ONE_KERNEL.has(dtype);
    const fits = [h, c].every((x) => x.rank === 2 && x.dim(0) === rows && x.dim(1) === hidden);
    if (!recurrent?.supportsLstm(hidden) || recorded || !alike || !fits || input.elemCount === 0) return undefined;
    const wide = (x: Tensor) => x.toDtype('f32');
    const gates = this.#products(input.reshape([rows * steps, inDim]));
    const bias = bIh && bHh ? wide(bIh).add(wide(bHh)) : (bIh ?? bHh);
    const part = (x: Tensor) => wide(x).contiguous().storagePart();
    const weight = dtype === 'bf16' ? wHh.contiguous().storagePart() : part(wHh);
    const made = recurrent.lstm({
      ...{ rows, steps, hidden, reversed: this.config.direction === 'backward' },
      ...{ gates: part(gates), bias: bias && part(bias), weight, h: part(h), c: part(c) },
    });
    const shape = [rows, steps, hidden];
    const narrow = (storage: typeof made.h) => Tensor.fromStorage(storage, shape, device).toDtype(dtype);
    return { h: narrow(made.h), c: narrow(made.c) };
  }

  /** What inputs [n, inDim] give to the gates, [n, 4 · hidden] f32: products of narrow dtypes are exact, their sums f32. */
  #products(input: Tensor): Tensor {
    const { wIh, inDim, hiddenDim } = this;
    const { device, dtype } = wIh;
    const { linear } = device.backend;
    if (!linear || dtype === 'f32') return input.toDtype('f32').matmul(wIh.toDtype('f32').t());
    const size = { m: input.dim(0), n: 4 * hiddenDim, k: inDim };
    const made = linear.matmul(wIh.contiguous().storagePart(), input.contiguous().storageAndLayout(), size);
    return Tensor.fromStorage(made, [size.m, size.n], device);
  }

  step(input: Tensor, state: LSTMState): LSTMState {
    return scope(() => {
      const [fromInput, fromState] = this.gates(input, state.h);
      const [inGate, forgetGate, cellGate, outGate] = fromInput.add(fromState).chunk(4, 1);
      const c = forgetGate.sigmoid().mul(state.c).add(inGate.sigmoid().mul(cellGate.tanh()));
      return { h: outGate.sigmoid().mul(c.tanh()), c };
    });
  }
}

/** Gated recurrent unit; weights as PyTorch's: reset, update and new gate. */
export class GRU extends RNN<GRUState> {
  constructor(inDim: number, hiddenDim: number, config: GRUConfig, vb: VarBuilder) {
    super(inDim, hiddenDim, config, 3, vb);
  }

  zeroState(batchDim: number): GRUState {
    return { h: this.zeros(batchDim) };
  }

  step(input: Tensor, state: GRUState): GRUState {
    return scope(() => {
      const [fromInput, fromState] = this.gates(input, state.h);
      const [resetI, updateI, newI] = fromInput.chunk(3, 1);
      const [resetH, updateH, newH] = fromState.chunk(3, 1);
      const reset = resetI.add(resetH).sigmoid();
      const update = updateI.add(updateH).sigmoid();
      const fresh = newI.add(reset.mul(newH)).tanh();
      // update · h + (1 - update) · fresh, with one product less.
      return { h: state.h.sub(fresh).mul(update).add(fresh) };
    });
  }
}

/**
 * An {@link LSTM} from `weight_ih_l0` [4 · hidden, in], `weight_hh_l0` [4 · hidden, hidden], `bias_ih_l0` and
 * `bias_hh_l0` [4 · hidden], as far as the configuration has biases.
 */
export function lstm(inDim: number, hiddenDim: number, config: LSTMConfig, vb: VarBuilder): LSTM {
  return new LSTM(inDim, hiddenDim, config, vb);
}

/** A {@link GRU} from weights and biases named as those of {@link lstm}, of 3 · hidden rows. */
export function gru(inDim: number, hiddenDim: number, config: GRUConfig, vb: VarBuilder): GRU {
  return new GRU(inDim, hiddenDim, config, vb);
}

const STATE = kinds.fields({ h: kinds.TENSOR });
const LSTM_STATE = kinds.fields({ h: kinds.TENSOR, c: kinds.TENSOR });
const STATES = kinds.kind((value) => Array.isArray(value) && value.every(STATE.test), 'give an array of states');

kinds.checkCalls(
  RNN.prototype,
  {
    seq: { input: kinds.TENSOR },
    seqInit: { input: kinds.TENSOR, initState: STATE },
    statesToTensor: { states: STATES },
    forward: { xs: kinds.TENSOR },
  },
  'RNN.',
);
kinds.checkCalls(
  LSTM.prototype,
  {
    zeroState: { batchDim: kinds.COUNT },
    step: { input: kinds.TENSOR, state: LSTM_STATE },
    seqInit: { input: kinds.TENSOR, initState: LSTM_STATE },
    forward: { xs: kinds.TENSOR },
  },
  'LSTM.',
);
kinds.checkCalls(
  GRU.prototype,
  { zeroState: { batchDim: kinds.COUNT }, step: { input: kinds.TENSOR, state: STATE } },
  'GRU.',
);
