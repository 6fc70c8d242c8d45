/** A short convolution along each sequence of a batch: `causal_conv1d` of Mamba and of flash-linear-attention. */
import { ShapeError, Tensor } from '@x/core';
import { checkObjects, checkTensors } from '../check';
import { checkSpans, composed, forKernels, rowsPart, type SequenceSpans } from './spans';

export interface CausalConv1dOptions {
  /** [channels] */
  bias?: Tensor;
  /** Of the result. Default: none. */
  activation?: 'silu';
}

/**
 * Each channel of a row is a weighted sum of that channel in the last rows of its sequence, its own included; in front of a
 * sequence's rows lie those that its state holds.
 * @param x [rows, channels], f32; views too
 * @param weight [channels, taps], the last tap for the row itself
 * @param states [slots, taps - 1, channels], f32: the rows that came last
 * @returns [rows, channels]
 * @throws ShapeError SHAPE_MISMATCH, CandleError INVALID_ARGUMENT
 */
export function causalConv1d(
  x: Tensor,
  weight: Tensor,
  states: Tensor,
  spans: SequenceSpans,
  options: CausalConv1dOptions = {},
): Tensor {
  const op = 'causalConv1d';
  checkObjects(op, { options });
  const { bias, activation } = options;
  checkTensors(op, { x, weight, ...(bias && { bias }) });
  const [channels, taps] = weight.shape;
  const fits = weight.rank === 2 && taps >= 2 && x.dim(-1) === channels;
  if (!fits || (bias && (bias.rank !== 1 || bias.dim(0) !== channels))) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: rows of [${x.shape}], weights [${weight.shape}]${bias ? `, bias [${bias.shape}]` : ''}; give [rows, channels], [channels, taps] of 2 or more and [channels].`,
    );
  }
  checkSpans(op, spans, states, [taps - 1, channels], { x });
  const kernels = forKernels(spans, states, [x], [weight, bias]);
  if (kernels) {
    const problem = {
      channels,
      taps,
      silu: activation === 'silu',
      x: rowsPart(x),
      weight: weight.storagePart(),
      ...(bias && { bias: bias.storagePart() }),
    };
    return Tensor.fromStorage(kernels.ops.causalConv1d(problem, kernels.at, kernels.states), x.shape, x.device);
  }
  return composed(spans, states, channels, (start, count, state) => {
    const whole = Tensor.cat([state, x.narrow(0, start, count)], 0);
    let sum: Tensor | undefined;
    for (let tap = 0; tap < taps; tap++) {
      const part = whole.narrow(0, tap, count).mul(weight.narrow(1, tap, 1).squeeze(1));
      sum = sum ? sum.add(part) : part;
    }
    const rows = bias ? sum!.add(bias) : sum!;
    return { rows: activation === 'silu' ? rows.silu() : rows, state: whole.narrow(0, count, taps - 1) };
  });
}
