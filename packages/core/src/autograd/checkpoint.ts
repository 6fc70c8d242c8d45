/**
 * Gradient checkpointing: memory for time. A part of a model is computed without keeping what its gradient needs, and
 * computed again when `backward` reaches it. candle has nothing of the kind; PyTorch calls it `torch.utils.checkpoint`.
 *
 * Variables that `fn` uses without being given them get their gradients all the same, random numbers of the inputs' devices are
 * the same the second time, and derivatives of higher order work.
 */
import type { RandomOps } from '../backend';
import { check, FUNCTION } from '../check';
import { randomOf } from '../composed/random';
import type { Device } from '../device';
import { isFloat } from '../dtype';
import { scope } from '../scope';
import type { Tensor } from '../tensor';
import { aliasOf } from '../tensor/base';
import { TENSOR, TENSORS } from '../tensor/signatures';
import { propagate } from './backward';
import { GradStore } from './grad-store';
import { enableGrad, isGradEnabled, noGrad } from './mode';
import { GradRecord, type Rule, record } from './record';
import { identity } from './rules/shared';

interface Checkpoint {
  fn: (...inputs: Tensor[]) => Tensor;
  /** Where the random streams of the inputs' devices were. */
  random: Map<Device, { seed: number; calls: number }>;
}

/**
 * `fn(...inputs)`, of which only the inputs are kept for `backward`; all else is computed again then. `fn` must be
 * synchronous and give the same for the same inputs.
 *
 * ```ts
 * const w = Var.from([3]);
 * const y = checkpoint((x) => x.sqr().mul(w), [Tensor.from([2])]);
 * y.backward().get(w)?.toVecSync(); // => [4]
 * ```
 */
export function checkpoint(fn: (...inputs: Tensor[]) => Tensor, inputs: readonly Tensor[]): Tensor {
  check('checkpoint', 'fn', fn, FUNCTION);
  check('checkpoint', 'inputs', inputs, TENSORS);
  const random = randomStates(inputs);
  // A view of the result, because fn may return an input or a tensor of its own.
  const output = noGrad(() =>
    scope(() => {
      const made = fn(...inputs);
      check('checkpoint', 'what fn returns', made, TENSOR);
      return made.detach();
    }),
  );
  // Tracked even if no input is: only running fn shows which variables it uses.
  record('checkpoint', inputs, output, rule, { fn, random });
  return output;
}

const rule: Rule<Checkpoint> = {
  inputs: 'all',
  backward(call) {
    const { fn, random } = call.args;
    const createGraph = isGradEnabled();
    const given = Array.from({ length: call.count }, (_, i) => call.input(i));
    const stops = new Map<GradRecord, Tensor | null>();
    const inputs = given.map((tensor, i) => {
      if (!call.needs(i) || !isFloat(tensor.dtype)) return tensor;
      const input = tensor.make(tensor.handle.ref!, tensor.layout);
      // An operation between the two runs: what is outside is reached through it when the gradient is differentiated.
      const border = new GradRecord('checkpoint', createGraph ? [tensor] : [], input, identity as Rule<unknown>);
      input.handle.attach(border);
      stops.set(border, null);
      return input;
    });
    const output = withRandom(random, () => enableGrad(() => fn(...inputs)));
    const history = output.handle.record;
    if (history === null) return inputs.map(() => null);
    const found = new GradStore();
    propagate(history, aliasOf(call.grad), found, stops);
    for (const id of [...found.getIds()]) call.accumulate(id, found.removeId(id)!);
    return inputs.map((input) => (input.handle.record && stops.get(input.handle.record)) || null);
  },
};

function randomStates(tensors: readonly Tensor[]): Checkpoint['random'] {
  const states: Checkpoint['random'] = new Map();
  for (const { device } of tensors) {
    const { seed, calls } = randomOf(device.backend);
    states.set(device, { seed, calls });
  }
  return states;
}

/** Runs `fn` with the random streams as they were, and puts them back afterwards. */
function withRandom<T>(states: Checkpoint['random'], fn: () => T): T {
  const before: [RandomOps, number, number][] = [];
  for (const [device, { seed, calls }] of states) {
    const stream = randomOf(device.backend);
    before.push([stream, stream.seed, stream.calls]);
    stream.restore(seed, calls);
  }
  try {
    return fn();
  } finally {
    for (const [stream, seed, calls] of before) stream.restore(seed, calls);
  }
}
