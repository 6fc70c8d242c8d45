/**
 * Decode steps as captured graphs: the forward pass of a few tokens of several sequences, recorded once for a number of
 * tokens and a width of their block tables, and replayed with other numbers. Which there are is said from outside.
 */
import { type CapturedGraph, CaptureError, type Tensor } from '@x/core';
import type { CausalModel } from '@x/transformers';
import { type AdapterUse, adaptedRows } from '../adapters';
import type { KvMemory } from '../kv/memory';
import { PagedKv } from '../kv/paged';
import { spansOf } from '../kv/spans';
import { type StepShape, stepSizes } from './batch';
import { type Following, followed } from './followed';
import { StepInputs } from './step-inputs';

/** What a graph has beside its shape. */
export interface StepExtras extends Following {
  /** Of all rows. */
  adapter?: AdapterUse | undefined;
}

interface Captured {
  inputs: { write(values: Uint32Array): void; dispose(): void };
  graph: CapturedGraph<Tensor>;
}

export class StepGraphs {
  private readonly graphs = new Map<string, Captured>();

  constructor(
    private readonly model: CausalModel,
    private readonly memory: KvMemory,
  ) {}

  /**
   * Captures a step, which gives logits, and computes it. Where nothing is recorded, what was computed is right, and {@link drop}
   * follows all the same.
   * @param values of the step's inputs
   * @returns undefined where a layer does what a graph cannot repeat: the step is then to be computed as any pass
   */
  capture(
    key: string,
    shape: StepShape,
    values: Uint32Array,
    { adapter, ...following }: StepExtras = {},
  ): { output: Tensor; isCaptured: boolean } | undefined {
    const { model, memory } = this;
    const { batch, width } = shape;
    const inputs = new StepInputs(model.device, stepSizes(memory, shape));
    try {
      inputs.write(values);
      // Nothing is made for good while a graph is captured.
      void following.chooser?.kept;
      const { positions, slots, lengths, tables } = inputs.pieces;
      const graph = model.device.capture(() => {
        const segment = {
          kind: 'tokens',
          start: 0,
          count: batch,
          lengths,
          tables: tables.reshape([batch, width]),
        } as const;
        const spans = memory.states && spansOf(inputs.pieces, new Array<number>(batch).fill(1));
        const rows = adaptedRows([{ use: adapter, count: batch }]);
        const lora = { tokens: rows, outputs: rows };
        const view = new PagedKv(memory, slots, [segment], spans);
        const { tokens: ids } = inputs.pieces;
        const tokens = followed(ids, following) ?? ids;
        const pass = model.pass({ tokens, positions, outputs: 'all', lora }, view);
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

  /** Computes a captured step with other numbers. @returns what the next replay overwrites */
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
