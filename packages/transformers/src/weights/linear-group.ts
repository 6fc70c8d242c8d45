/**
 * Linear layers that read the same input (query, key and value; gate and up). Where their weights are of one kind they are
 * stacked into one matrix, so that one product does the work of several: at one token a time the launches are the cost.
 */
import type { Tensor } from '@x/core';
import type { Module } from '@x/nn';

export interface LinearGroup {
  /** One output per layer, [..., out]; views of one tensor where weights are stacked. */
  forward(xs: Tensor): Tensor[];
  dispose(): void;
}

/** Layers as rows of one matrix. */
export class StackedGroup implements LinearGroup {
  /** Owns `layer`, whose outputs are those of the layers one after the other. */
  constructor(
    private readonly layer: Module,
    private readonly outs: readonly number[],
  ) {}

  forward(xs: Tensor): Tensor[] {
    const all = this.layer.forward(xs);
    let start = 0;
    return this.outs.map((out) => {
      const part = all.narrow(-1, start, out);
      start += out;
      return part;
    });
  }

  dispose(): void {
    this.layer.dispose();
  }
}

/** Groups side by side, for layers that cannot all be stacked. */
class SeparateGroups implements LinearGroup {
  /** Owns the groups. */
  constructor(private readonly groups: readonly LinearGroup[]) {}

  forward(xs: Tensor): Tensor[] {
    return this.groups.flatMap((group) => group.forward(xs));
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
