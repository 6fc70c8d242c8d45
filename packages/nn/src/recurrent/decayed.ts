/**
 * Heads whose states are matrices that decay by one number a row: the state space dual form of Mamba 2 (Dao and Gu 2024,
 * arXiv:2405.21060) and the gated delta rule (Yang et al. 2024, arXiv:2412.06464), of which the first writes what comes and
 * the second what differs from what it has. Names as in flash-linear-attention; the first is its `simple_gla`.
 */
import { CandleError, kinds, ShapeError, Tensor } from '@x/core';
import { checkNumbers, checkObjects, checkTensors } from '../check';
import { checkSpans, composed, forKernels, rowsPart, type SequenceSpans } from './spans';

/** f32; matrices may be views. With Δ = softplus(dt + dtBias), a state is multiplied by exp(Δ · a) at each row. */
export interface DecayedInputs {
  /** What states are read by: [rows, keyHeads · keyDim]; C of Mamba 2. */
  q: Tensor;
  /** What they are written by, of the same shape; B of Mamba 2. */
  k: Tensor;
  /** [rows, heads · valueDim]; x of Mamba 2. */
  v: Tensor;
  /** [rows, heads] */
  dt: Tensor;
  /** [heads] */
  dtBias: Tensor;
  /** [heads], below 0. */
  a: Tensor;
}

export interface DecayedOptions {
  /** Heads that `k` has, which divide those of `v`. */
  keyHeads: number;
  /**
   * Which heads share keys: neighbours (`grouped`, the default), or those that lie keyHeads apart (`tiled`), as in llama.cpp's
   * files.
   */
  sharing?: 'grouped' | 'tiled';
}

export interface SsdInputs extends DecayedInputs {
  /** [heads], times v is added to what is read. */
  d: Tensor;
}

export interface SsdOptions extends DecayedOptions {
  /** Δ is cut to this range. Default: 0 to Infinity. */
  dtLimit?: readonly [min: number, max: number];
}

export interface GatedDeltaInputs extends DecayedInputs {
  /** Its sigmoid is the share of the difference that is written: [rows, heads]. */
  beta: Tensor;
}

export interface GatedDeltaOptions extends DecayedOptions {
  /** Multiplies the queries. Default 1 / sqrt(keyDim). */
  scale?: number;
  /** Added to the sums of squares by which queries and keys are divided. Default 1e-6. */
  eps?: number;
}

/**
 * Row by row of each sequence: S = exp(Δ · a) · S + Δ · v kᵀ; the row is S · q + d · v. The scan of Mamba 2.
 * @param states [slots, heads, valueDim, keyDim], f32: S
 * @returns [rows, heads · valueDim]
 * @throws ShapeError SHAPE_MISMATCH, CandleError INVALID_ARGUMENT
 */
export function ssd(inputs: SsdInputs, options: SsdOptions, states: Tensor, spans: SequenceSpans): Tensor {
  const op = 'ssd';
  checkObjects(op, { inputs, options });
  const { d, v, q, k, dt } = inputs;
  const { dtLimit: [dtMin, dtMax] = [0, Number.POSITIVE_INFINITY] } = options;
  if (!(dtMin <= dtMax)) {
    throw new CandleError('INVALID_ARGUMENT', `${op}: dtLimit is ${kinds.show(options.dtLimit)}; give [min, max].`);
  }
  const sizes = check(op, inputs, { d }, {}, options, states, spans);
  const kernels = forKernels(spans, states, [q, k, v, dt], [inputs.dtBias, inputs.a, d]);
  if (kernels?.ops.supportsKeys(sizes.keyDim)) {
    const problem = { ...problemOf(inputs, sizes), d: d.storagePart(), dtMin, dtMax };
    return Tensor.fromStorage(kernels.ops.ssd(problem, kernels.at, kernels.states), v.shape, v.device);
  }
  return steps(inputs, sizes, [dtMin, dtMax], states, spans, (state, { q, k, v, step }) => {
    const next = state.add(v.mul(step).mul(k));
    return {
      state: next,
      row: next
        .mul(q)
        .sumKeepdim(2)
        .add(v.mul(d.reshape([sizes.heads, 1, 1]))),
    };
  });
}

/**
 * Row by row of each sequence, with q and k of each head divided by their norms, and q scaled: S = exp(Δ · a) · S;
 * S = S + sigmoid(beta) · (v - S · k) kᵀ; the row is S · q. The recurrence of Gated DeltaNet.
 * @param states [slots, heads, valueDim, keyDim], f32: S
 * @returns [rows, heads · valueDim]
 * @throws ShapeError SHAPE_MISMATCH, CandleError INVALID_ARGUMENT
 */
export function gatedDeltaRule(
  inputs: GatedDeltaInputs,
  options: GatedDeltaOptions,
  states: Tensor,
  spans: SequenceSpans,
): Tensor {
  const op = 'gatedDeltaRule';
  checkObjects(op, { inputs, options });
  const { beta, q, k, v, dt } = inputs;
  const sizes = check(op, inputs, {}, { beta }, options, states, spans);
  const { scale = 1 / Math.sqrt(sizes.keyDim), eps = 1e-6 } = options;
  checkNumbers(op, { scale, eps });
  const kernels = forKernels(spans, states, [q, k, v, dt, beta], [inputs.dtBias, inputs.a]);
  if (kernels?.ops.supportsKeys(sizes.keyDim)) {
    const problem = { ...problemOf(inputs, sizes), beta: rowsPart(beta), scale, eps };
    return Tensor.fromStorage(kernels.ops.gatedDeltaRule(problem, kernels.at, kernels.states), v.shape, v.device);
  }
  const unit = (x: Tensor) => x.div(x.sqr().sumKeepdim(2).add(eps).sqrt());
  return steps(inputs, sizes, undefined, states, spans, (state, { q, k, v, row }) => {
    const key = unit(k);
    const share = beta.narrow(0, row, 1).sigmoid().reshape([sizes.heads, 1, 1]);
    const delta = v.sub(state.mul(key).sumKeepdim(2)).mul(share);
    const next = state.add(delta.mul(key));
    return { state: next, row: next.mul(unit(q).mul(scale)).sumKeepdim(2) };
  });
}

interface Sizes {
  heads: number;
  keyHeads: number;
  keyDim: number;
  valueDim: number;
  group: number;
}

function check(
  op: string,
  { q, k, v, dt, dtBias, a }: DecayedInputs,
  perHead: Readonly<Record<string, Tensor>>,
  perRow: Readonly<Record<string, Tensor>>,
  { keyHeads, sharing = 'grouped' }: DecayedOptions,
  states: Tensor,
  spans: SequenceSpans,
): Sizes {
  checkTensors(op, { q, k, v, dt, dtBias, a, states, ...perHead, ...perRow });
  const [, heads, valueDim, keyDim] = states.shape;
  const wide =
    states.rank === 4 &&
    [q, k].every((x) => x.dim(-1) === keyHeads * keyDim) &&
    v.dim(-1) === heads * valueDim &&
    [dt, ...Object.values(perRow)].every((x) => x.dim(-1) === heads);
  const whole = [dtBias, a, ...Object.values(perHead)].every((x) => x.rank === 1 && x.dim(0) === heads);
  if (!wide || !whole || !(keyHeads >= 1) || heads % keyHeads !== 0) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: q [${q.shape}], k [${k.shape}], v [${v.shape}], dt [${dt.shape}], dtBias [${dtBias.shape}], a [${a.shape}] and keyHeads ${keyHeads} ` +
        `for states [${states.shape}]; give [rows, keyHeads * keyDim] twice, [rows, heads * valueDim], [rows, heads], [heads] twice and ` +
        'keyHeads that divide heads for [slots, heads, valueDim, keyDim].',
    );
  }
  if (sharing !== 'grouped' && sharing !== 'tiled') {
    throw new CandleError('INVALID_ARGUMENT', `${op}: sharing is ${kinds.show(sharing)}; give 'grouped' or 'tiled'.`);
  }
  checkSpans(op, spans, states, [heads, valueDim, keyDim], { q, k, v, dt, ...perRow });
  return { heads, keyHeads, keyDim, valueDim, group: sharing === 'grouped' ? heads / keyHeads : 1 };
}

function problemOf({ q, k, v, dt, dtBias, a }: DecayedInputs, sizes: Sizes) {
  return {
    ...sizes,
    q: rowsPart(q),
    k: rowsPart(k),
    v: rowsPart(v),
    dt: rowsPart(dt),
    dtBias: dtBias.storagePart(),
    a: a.storagePart(),
  };
}

/** One row: q and k [heads, 1, keyDim], v [heads, valueDim, 1], step [heads, 1, 1]. */
interface Row {
  q: Tensor;
  k: Tensor;
  v: Tensor;
  step: Tensor;
  row: number;
}

/** @param next from a state that has decayed, [heads, valueDim, keyDim], to the next one and the row [heads, valueDim, 1] */
function steps(
  { q, k, v, dt, dtBias, a }: DecayedInputs,
  { heads, keyHeads, keyDim, valueDim, group }: Sizes,
  limit: readonly [number, number] | undefined,
  states: Tensor,
  spans: SequenceSpans,
  next: (state: Tensor, row: Row) => { state: Tensor; row: Tensor },
): Tensor {
  return composed(spans, states, heads * valueDim, (start, count, first) => {
    // Head h has the keys of head h / group % keyHeads.
    const shared = (x: Tensor) =>
      x
        .reshape([1, keyHeads, 1, keyDim])
        .broadcastAs([heads / (keyHeads * group), keyHeads, group, keyDim])
        .reshape([heads, 1, keyDim]);
    const free = dt.narrow(0, start, count).add(dtBias).softplus();
    const step = limit ? free.clamp(limit[0], limit[1]) : free;
    const decay = step.mul(a).exp();
    let state = first;
    const rows: Tensor[] = [];
    for (let i = 0; i < count; i++) {
      const each = (x: Tensor) => x.narrow(0, i, 1).reshape([heads, 1, 1]);
      const row = start + i;
      const { state: after, row: read } = next(state.mul(each(decay)), {
        q: shared(q.narrow(0, row, 1)),
        k: shared(k.narrow(0, row, 1)),
        v: v.narrow(0, row, 1).reshape([heads, valueDim, 1]),
        step: each(step),
        row,
      });
      state = after;
      rows.push(read.reshape([1, heads * valueDim]));
    }
    return { rows: Tensor.cat(rows, 0), state };
  });
}
