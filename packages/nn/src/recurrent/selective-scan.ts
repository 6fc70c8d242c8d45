/** The selective scan of Mamba (Gu and Dao 2023, arXiv:2312.00752): a state of n values for each channel. */
import { ShapeError, Tensor } from '@x/core';
import { checkObjects, checkTensors } from '../check';
import { checkSpans, composed, forKernels, rowsPart, type SequenceSpans } from './spans';

/** Names as in the paper. f32; matrices may be views. */
export interface SelectiveScanInputs {
  /** [rows, channels] */
  x: Tensor;
  /** Sizes of the steps before bias and softplus: [rows, channels]. */
  dt: Tensor;
  /** [channels] */
  dtBias: Tensor;
  /** [channels, n], below 0. */
  a: Tensor;
  /** [rows, n] */
  b: Tensor;
  /** [rows, n] */
  c: Tensor;
  /** [channels] */
  d: Tensor;
}

/**
 * Row by row of each sequence, with Δ = softplus(dt + dtBias): h = exp(Δ · a) · h + Δ · b · x; y = h · c + d · x.
 * @param states [slots, channels, n], f32: h
 * @returns y [rows, channels]
 * @throws ShapeError SHAPE_MISMATCH, CandleError INVALID_ARGUMENT
 */
export function selectiveScan(inputs: SelectiveScanInputs, states: Tensor, spans: SequenceSpans): Tensor {
  const op = 'selectiveScan';
  checkObjects(op, { inputs });
  const { x, dt, dtBias, a, b, c, d } = inputs;
  checkTensors(op, { x, dt, dtBias, a, b, c, d });
  const [channels, n] = a.shape;
  const wide = [x, dt].every((rows) => rows.dim(-1) === channels) && [b, c].every((rows) => rows.dim(-1) === n);
  const whole = a.rank === 2 && [dtBias, d].every((weight) => weight.rank === 1 && weight.dim(0) === channels);
  if (!wide || !whole) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: x [${x.shape}], dt [${dt.shape}], dtBias [${dtBias.shape}], a [${a.shape}], b [${b.shape}], c [${c.shape}], d [${d.shape}]; ` +
        'give [rows, channels] twice, [channels], [channels, n], [rows, n] twice and [channels].',
    );
  }
  checkSpans(op, spans, states, [channels, n], { x, dt, b, c });
  const kernels = forKernels(spans, states, [x, dt, b, c], [dtBias, a, d]);
  if (kernels?.ops.supportsScan(n)) {
    const problem = {
      channels,
      n,
      x: rowsPart(x),
      dt: rowsPart(dt),
      dtBias: dtBias.storagePart(),
      a: a.storagePart(),
      b: rowsPart(b),
      c: rowsPart(c),
      d: d.storagePart(),
    };
    return Tensor.fromStorage(kernels.ops.selectiveScan(problem, kernels.at, kernels.states), x.shape, x.device);
  }
  return composed(spans, states, channels, (start, count, first) => {
    const step = dt.add(dtBias).softplus().unsqueeze(2);
    let state = first;
    const rows: Tensor[] = [];
    for (let row = start; row < start + count; row++) {
      const [xs, delta] = [x.narrow(0, row, 1).transpose(0, 1), step.narrow(0, row, 1).squeeze(0)];
      state = state.mul(delta.mul(a).exp()).add(delta.mul(xs).mul(b.narrow(0, row, 1)));
      const read = state
        .mul(c.narrow(0, row, 1))
        .sumKeepdim(1)
        .transpose(0, 1);
      rows.push(read.add(x.narrow(0, row, 1).mul(d)));
    }
    return { rows: Tensor.cat(rows, 0), state };
  });
}
