/**
 * Decode steps as captured graphs: the forward pass of a few tokens of several sequences, recorded once for a number of
 * tokens and a width of their block tables, and replayed with other numbers. Which there are is said from outside.
 */
import { type CapturedGraph, CaptureError, Tensor } from '@x/core';
import type { CausalModel } from '@x/transformers';
import { type AdapterUse, adaptedRows } from '../adapters';
import type { KvMemory } from '../kv/memory';
import { PagedKv } from '../kv/paged';
import { spansOf } from '../kv/spans';
import { type ChoiceShape, choiceSizes, enqueueChoices, enqueueIds, keepChosen } from '../sampling/device';
import { MAX_ROWS, type StepShape, stepSizes } from './batch';
import { StepInputs } from './step-inputs';

/** What only the rank that leads has at a graph. */
export interface StepExtras {
  /** Of all rows. */
  adapter?: AdapterUse | undefined;
  /** How tokens are chosen, from inputs behind those of the step; without that the graph gives logits. */
  choice?: ChoiceShape | undefined;
}

interface Captured {
  inputs: { write(values: Uint32Array): void; dispose(): void };
  graph: CapturedGraph<Tensor>;
}

export class StepGraphs {
  private readonly graphs = new Map<string, Captured>();
  /** [MAX_ROWS], u32: the tokens that the last step with a choice chose. */
  private chosen: Tensor | undefined;

  constructor(
    private readonly model: CausalModel,
    private readonly memory: KvMemory,
  ) {}

  /**
   * Captures a step and computes it. Tokens of a step with a choice may be those of rows of the step with one before it (`idOfRow`). Where nothing is recorded, what was computed is right, and {@link drop} follows all the same.
   * @param values of the step's inputs, and of the choice's
   * @returns undefined where a layer does what a graph cannot repeat: the step is then to be computed as any pass
   */
  capture(
    key: string,
    shape: StepShape,
    values: Uint32Array,
    { adapter, choice }: StepExtras = {},
  ): { output: Tensor; isCaptured: boolean } | undefined {
    const { model, memory } = this;
    const { batch, width } = shape;
    const inputs = new StepInputs(model.device, {
      ...stepSizes(memory, shape),
      ...(choice ? choiceSizes(choice) : { params: 0, edits: 0, masks: 0 }),
    });
    try {
      inputs.write(values);
      if (choice) this.chosen ??= Tensor.zeros([MAX_ROWS], { dtype: 'u32', device: model.device });
      const { chosen } = this;
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
        const ids = inputs.pieces.tokens;
        const tokens = choice ? enqueueIds(ids, chosen!, model.config.vocabSize) : ids;
        const pass = model.pass({ tokens, positions, outputs: 'all', lora }, view);
        for (;;) {
          const step = pass.next();
          if (!step.done) continue;
          if (!choice) return step.value!;
          const words = enqueueChoices(step.value!, inputs.pieces, choice);
          keepChosen(words, chosen!);
          return words;
        }
      });
      this.graphs.set(key, { inputs, graph });
      return { output: graph.outputs, isCaptured: graph.isCaptured };
    } catch (error) {
      inputs.dispose();
      this.tidy();
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
    this.tidy();
  }

  dispose(): void {
    for (const key of [...this.graphs.keys()]) this.drop(key);
  }

  /** Without graphs nothing is kept. */
  private tidy(): void {
    if (this.graphs.size > 0) return;
    this.chosen?.dispose();
    this.chosen = undefined;
  }
}
