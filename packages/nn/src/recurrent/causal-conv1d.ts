/** A short convolution along each sequence of a batch: `causal_conv1d` of Mamba and of flash-linear-attention. */
import { ShapeError, scope, Tensor } from '@x/core';
import { checkObjects, checkTensors } from '../check';
import { checkSpans, composed, forKernels, rowsPart, type SequenceSpans } from './spans';

export interface CausalConv1dOptions {
  /** [channels] */
  bias?: Tensor;
  /** Of the result. Default: none. */
  activation?: 'silu';
  /** Multiplies x: [rows, channels], f32; views too. */
  inGate?: Tensor;
  /** Multiplies the result, behind the activation: [rows, channels], f32; views too. */
  outGate?: Tensor;
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
  const { bias, activation, inGate, outGate } = options;
  const gates = { ...(inGate && { inGate }), ...(outGate && { outGate }) };
  checkTensors(op, { x, weight, ...(bias && { bias }), ...gates });
  const [channels, taps] = weight.shape;
  const fits = weight.rank === 2 && taps >= 2 && x.dim(-1) === channels;
  if (!fits || (bias && (bias.rank !== 1 || bias.dim(0) !== channels))) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: rows of [${x.shape}], weights [${weight.shape}]${bias ? `, bias [${bias.shape}]` : ''}; give [rows, channels], [channels, taps] of 2 or more and [channels].`,
    );
  }
  const given = Object.values(gates);
  if (given.some((gate) => gate.rank !== 2 || gate.dim(1) !== channels)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: gates of ${given.map(({ shape }) => `[${shape}]`).join(' and ')} for ${channels} channels; give [rows, channels].`,
    );
  }
  checkSpans(op, spans, states, [taps - 1, channels], { x, ...gates });
  const kernels = forKernels(spans, states, [x, ...given], [weight, bias]);
  if (kernels) {
    const run = (rows: Tensor, inGate: Tensor | undefined, outGate: Tensor | undefined) =>
      kernels.ops.causalConv1d(
        {
          ...{ channels, taps, silu: activation === 'silu' },
          x: rowsPart(rows),
          weight: weight.storagePart(),
          ...(bias && { bias: bias.storagePart() }),
          ...(inGate && { inGate: inGate.storagePart() }),
          ...(outGate && { outGate: outGate.storagePart() }),
        },
        kernels.at,
        kernels.states,
      );
    const isAlike = given.every((gate) => rowsPart(gate).row === rowsPart(x).row);
    const made = isAlike
      ? run(x, inGate, outGate)
      : scope(() => run(x.contiguous(), inGate?.contiguous(), outGate?.contiguous()));
    return Tensor.fromStorage(made, x.shape, x.device);
  }
  return composed(spans, states, channels, (start, count, state) => {
    const own = (rows: Tensor) => rows.narrow(0, start, count);
    const whole = Tensor.cat([state, inGate ? own(inGate).mul(own(x)) : own(x)], 0);
    let sum: Tensor | undefined;
    for (let tap = 0; tap < taps; tap++) {
      const part = whole.narrow(0, tap, count).mul(weight.narrow(1, tap, 1).squeeze(1));
      sum = sum ? sum.add(part) : part;
    }
    const biased = bias ? sum!.add(bias) : sum!;
    const rows = activation === 'silu' ? biased.silu() : biased;
    return { rows: outGate ? own(outGate).mul(rows) : rows, state: whole.narrow(0, count, taps - 1) };
  });
}
