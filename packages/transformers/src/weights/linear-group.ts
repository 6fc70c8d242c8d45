/**
 * Linear layers that read the same input (query, key and value; gate and up). Where their weights are of one kind they are
 * stacked into one matrix, so that one product does the work of several: at one token a time the launches are the cost.
 */
import { type GateActivation, QuantizedActivations, type Tensor } from '@x/core';
import type { ActivationForm, Activations, Module } from '@x/nn';
import { areBlocks, type DenseDType, fusesGate, gatedExperts, productsBeside, type QTensor } from '@x/quantized';
import { project, roundsTo, takesBlocks } from './q-linear';

export interface LinearGroup {
  /** What it is best given of so many rows: blocks where all layers take these, else numbers of a dtype. */
  reads(rows: number): ActivationForm;
  /** One output per layer, [..., out]; views of one tensor where weights are stacked. */
  forward(xs: Activations): Tensor[];
  /** Of two layers of one size: activation(first) · second in one kernel; undefined where the device has none for them. */
  gated?(xs: QuantizedActivations, activation: GateActivation): QuantizedActivations | undefined;
  /** Outputs of each layer. */
  readonly outs: readonly number[];
  /** What it multiplies with, in blocks, one below the other; undefined where it does more than that, or with numbers. */
  blockWeights(): readonly QTensor[] | undefined;
  dispose(): void;
}

/** What a layer is best given of so many rows: blocks where it takes these, else numbers in `dtype`, or in what it rounds f32 to. */
export function readsOf(layer: Module, dtype: DenseDType, rows: number): 'blocks' | DenseDType {
  if (takesBlocks(layer)) return 'blocks';
  return (dtype === 'f32' && roundsTo(layer, rows)) || dtype;
}

/** Layers as rows of one matrix. */
export class StackedGroup implements LinearGroup {
  /** Owns `layer`, whose outputs are those of the layers one after the other. @param dtype of numbers that it is given */
  constructor(
    private readonly layer: Module,
    readonly outs: readonly number[],
    private readonly dtype: DenseDType,
  ) {}

  reads(rows: number): ActivationForm {
    return readsOf(this.layer, this.dtype, rows);
  }

  forward(xs: Activations): Tensor[] {
    return columnsOf(project(this.layer, xs, this.dtype), this.outs);
  }

  blockWeights(): readonly QTensor[] | undefined {
    const { weight, bias } = (takesBlocks(this.layer) && this.layer.blockWeight) || {};
    return weight && !bias ? [weight] : undefined;
  }

  gated(xs: QuantizedActivations, activation: GateActivation): QuantizedActivations | undefined {
    const { outs } = this;
    const { weight, bias } = (takesBlocks(this.layer) && this.layer.blockWeight) || {};
    const areTwo = outs.length === 2 && outs[0] === outs[1];
    if (!weight || !areTwo || !areBlocks(xs.blocks) || !fusesGate({ both: weight })) return undefined;
    const biases = bias && {
      gateBias: bias.narrow(0, 0, outs[0]),
      upBias: bias.narrow(0, outs[0], outs[0]),
    };
    return gatedExperts({ both: weight }, xs, undefined, { activation, ...biases });
  }

  dispose(): void {
    this.layer.dispose();
  }
}

/** Views of columns that lie beside each other, so many each. */
function columnsOf(all: Tensor, counts: readonly number[]): Tensor[] {
  let start = 0;
  return counts.map((count) => {
    const part = all.narrow(-1, start, count);
    start += count;
    return part;
  });
}

/** What several are best given together: what they all are, else the dtype that layers are given few rows in. */
function formForAll(groups: readonly LinearGroup[], rows: number): ActivationForm {
  const forms = groups.map((group) => group.reads(rows));
  if (new Set(forms).size === 1) return forms[0];
  return groups.map((group) => group.reads(1)).find((form) => form !== 'blocks') ?? 'blocks';
}

/** Groups side by side, for layers that cannot all be stacked: of few rows they are one launch where the device has that. */
class SeparateGroups implements LinearGroup {
  /** Owns the groups. */
  constructor(private readonly groups: readonly LinearGroup[]) {}

  get outs(): readonly number[] {
    return this.groups.flatMap(({ outs }) => outs);
  }

  reads(rows: number): ActivationForm {
    return formForAll(this.groups, rows);
  }

  forward(xs: Activations): Tensor[] {
    const weights = xs instanceof QuantizedActivations ? this.blockWeights() : undefined;
    const all = weights && productsBeside(weights, xs as QuantizedActivations);
    return all ? columnsOf(all, this.outs) : this.groups.flatMap((group) => group.forward(xs));
  }

  blockWeights(): readonly QTensor[] | undefined {
    const weights = this.groups.map((group) => group.blockWeights());
    return weights.every((each) => each !== undefined) ? weights.flat() : undefined;
  }

  dispose(): void {
    for (const group of this.groups) group.dispose();
  }
}

/** Loads one group after the other; those made are given back when one fails. */
export async function separateGroups(make: readonly (() => Promise<LinearGroup>)[]): Promise<LinearGroup> {
  const groups: LinearGroup[] = [];
  try {
    for (const next of make) groups.push(await next());
    return groups.length === 1 ? groups[0] : new SeparateGroups(groups);
  } catch (error) {
    for (const group of groups) group.dispose();
    throw error;
  }
}
