/** All steps of a long short-term memory as one operation whose gradient is one too (backpropagation through time). */
import {
  type BackendStorage,
  type CustomOp3,
  type CustomResult,
  type Device,
  isGradEnabled,
  type Layout,
  type RecurrentOps,
  scope,
  Tensor,
} from '@x/core';

/**
 * The outputs of all steps, [rows, steps, hidden], from a state of zeros, by the device's kernels.
 * @param gates [rows, steps, 4 · hidden] f32, what inputs and biases give to the input, forget, cell and output gate
 * @param weight [4 · hidden, hidden] f32, for what the state adds to them
 * @param reversed from the last step to the first
 */
export function lstmSteps(gates: Tensor, weight: Tensor, reversed: boolean): Tensor {
  const { device, elemCount } = gates;
  // Filled by the forward pass, and held as long as the history is.
  const kept = Tensor.empty([5, elemCount / 4], 'f32', device);
  return gates.contiguous().applyOp3(weight.contiguous(), kept, new LstmOp(reversed, device));
}

class LstmOp implements CustomOp3 {
  readonly name = 'lstm';

  constructor(
    private readonly reversed: boolean,
    private readonly device: Device,
  ) {}

  fwd(
    ...[gates, at, weight, weightAt, kept, keptAt]: [
      BackendStorage,
      Layout,
      BackendStorage,
      Layout,
      BackendStorage,
      Layout,
    ]
  ): CustomResult {
    const [rows, steps, width] = at.shape;
    using zeros = this.#zeros(rows, width / 4);
    const [h, c] = [zeros.storagePart(), zeros.storagePart()];
    const own = { rows, steps, hidden: width / 4, reversed: this.reversed, h, c };
    const problem = { ...own, gates: [gates, at.startOffset], weight: [weight, weightAt.startOffset] } as const;
    return [this.#ops.lstmKept(problem, [kept, keptAt.startOffset]), [rows, steps, width / 4]];
  }

  bwd(gates: Tensor, weight: Tensor, kept: Tensor, outputs: Tensor, grad: Tensor): [Tensor, Tensor, null] {
    return scope(() => {
      const before = this.#before(outputs);
      const [rows, steps, hidden] = outputs.shape;
      const flat = before.reshape([rows * steps, hidden]);
      let ofGates: Tensor;
      if (isGradEnabled()) {
        const given = gates.add(flat.matmul(weight.t()).reshape(gates.shape));
        ofGates = this.#byTensors(given, weight, grad);
      } else {
        const [weights, gradient] = [weight.storagePart(), grad.contiguous().storagePart()];
        const own = { rows, steps, hidden, reversed: this.reversed, c: this.#zeros(rows, hidden).storagePart() };
        const made = this.#ops.lstmBackward({ ...own, kept: kept.storagePart(), weight: weights, grad: gradient });
        ofGates = Tensor.fromStorage(made, gates.shape, this.device);
      }
      return [
        ofGates,
        ofGates
          .reshape([rows * steps, 4 * hidden])
          .t()
          .matmul(flat),
        null,
      ];
    });
  }

  get #ops(): RecurrentOps {
    return this.device.backend.recurrent!;
  }

  /** What each step had as its state: the outputs moved by one. */
  #before(outputs: Tensor): Tensor {
    const { reversed } = this;
    const first = this.#zeros(outputs.dim(0), outputs.dim(2)).unsqueeze(1);
    const others = outputs.narrow(1, reversed ? 1 : 0, outputs.dim(1) - 1);
    return Tensor.cat(reversed ? [others, first] : [first, others], 1);
  }

  #zeros(rows: number, hidden: number): Tensor {
    return Tensor.zeros([rows, hidden], 'f32', this.device);
  }

  /** The gradients of all that the gates were given, of operations that have gradients themselves. */
  #byTensors(given: Tensor, weight: Tensor, grad: Tensor): Tensor {
    const steps = Array.from({ length: grad.dim(1) }, (_, step) => step);
    if (this.reversed) steps.reverse();
    const at = (x: Tensor, step: number) => x.narrow(1, step, 1).squeeze(1);
    let c = this.#zeros(grad.dim(0), grad.dim(2));
    const kept = steps.map((step) => {
      const [input, forget, fresh, output] = at(given, step).chunk(4, 1);
      const open = { in: input.sigmoid(), forget: forget.sigmoid(), fresh: fresh.tanh(), out: output.sigmoid() };
      const before = c;
      c = open.forget.mul(before).add(open.in.mul(open.fresh));
      return { ...open, before, state: c.tanh() };
    });
    const slope = (gate: Tensor) => gate.mul(gate.affine(-1, 1));
    const ofGates: Tensor[] = [];
    let change: Tensor | undefined;
    for (const [i, step] of [...steps.entries()].reverse()) {
      const { in: input, forget, fresh, out, before, state } = kept[i];
      const behind = i + 1 < steps.length ? ofGates[steps[i + 1]].matmul(weight) : undefined;
      const output = behind ? at(grad, step).add(behind) : at(grad, step);
      const own = output.mul(out).mul(state.sqr().affine(-1, 1));
      const cell: Tensor = change ? own.add(change) : own;
      const parts = [
        cell.mul(fresh).mul(slope(input)),
        cell.mul(before).mul(slope(forget)),
        cell.mul(input).mul(fresh.sqr().affine(-1, 1)),
        output.mul(state).mul(slope(out)),
      ];
      ofGates[step] = Tensor.cat(parts, 1);
      change = cell.mul(forget);
    }
    return Tensor.stack(ofGates, 1);
  }
}
