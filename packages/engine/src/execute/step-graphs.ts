/**
 * Forward passes as captured graphs, of decode steps and of prompts: recorded once for a shape, and replayed with other numbers.
 * Which there are is said from outside.
 */
import { type CapturedGraph, CaptureError, type Tensor } from '@x/core';
import type { CausalModel } from '@x/transformers';
import type { AdapterUse } from '../adapters';
import type { KvMemory } from '../kv/memory';
import type { GraphShape } from './batch';
import { type Following, followed } from './followed';
import { type GraphInputs, graphInputs } from './graph-inputs';
import { roundedAs } from './rounded';

/** What a graph has beside its shape. */
export interface StepExtras extends Following {
  /** Of all rows of a step. */
  adapter?: AdapterUse | undefined;
}

interface Captured {
  inputs: GraphInputs;
  graph: CapturedGraph<Tensor>;
}

export class StepGraphs {
  private readonly graphs = new Map<string, Captured>();

  constructor(
    private readonly model: CausalModel,
    private readonly memory: KvMemory,
  ) {}

  /**
   * Captures a pass, which gives logits, and computes it. Where nothing is recorded, what was computed is right, and {@link drop}
   * follows all the same.
   * @param values of its inputs
   * @returns undefined where a layer does what a graph cannot repeat: it is then to be computed as any pass
   */
  capture(
    key: string,
    shape: GraphShape,
    values: Uint32Array,
    { adapter, ...following }: StepExtras = {},
  ): { output: Tensor; isCaptured: boolean } | undefined {
    const { model, memory } = this;
    const inputs = graphInputs(model.device, memory, shape, adapter);
    try {
      inputs.write(values);
      // Nothing is made for good while a graph is captured.
      void following.chooser?.kept;
      const graph = model.device.capture(() => {
        const { batch, view } = inputs.open();
        const tokens = followed(inputs.tokens, following) ?? inputs.tokens;
        const roundsAs = 'batch' in shape ? shape.roundsAs : undefined;
        const pass = roundedAs(roundsAs, model, model.pass({ tokens, positions: inputs.positions, ...batch }, view));
        for (;;) {
          const step = pass.next();
          if (step.done) return step.value!;
        }
      });
      this.graphs.set(key, { inputs, graph });
      return { output: graph.outputs, isCaptured: graph.isCaptured };
    } catch (error) {
      inputs.dispose();
      // A layer without kernels for its sizes reads what is on the device.
      if (!(error instanceof CaptureError && error.code === 'CAPTURE_UNSUPPORTED')) throw error;
      return undefined;
    }
  }

  /** Computes a captured pass with other numbers. @returns what the next replay overwrites */
  replay(key: string, values: Uint32Array): Tensor {
    const captured = this.graphs.get(key);
    if (!captured) throw new Error(`internal: there is no graph "${key}"`);
    captured.inputs.write(values);
    return captured.graph.replay();
  }

  /** Gives a graph back; one that there is not is none's mistake. */
  drop(key: string): void {
    const captured = this.graphs.get(key);
    this.graphs.delete(key);
    captured?.graph.dispose();
    captured?.inputs.dispose();
  }

  dispose(): void {
    for (const key of [...this.graphs.keys()]) this.drop(key);
  }
}
