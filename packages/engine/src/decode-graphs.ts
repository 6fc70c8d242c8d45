/**
 * Decode steps as captured graphs: the forward pass of a few tokens of several sequences, recorded once for a number of
 * tokens and a width of their block tables, and replayed with other tokens, positions, places and tables. Hundreds of
 * launches, which take the host longer than the device, become one. Each token is a row with a table and a length of its own,
 * so a sequence may have several of them: a token and the drafts behind it.
 * Sequences with an adapter have graphs of their own where all of a step have the same one; a step of several is computed as any
 * pass.
 */
import { type CapturedGraph, CaptureError, type Tensor } from '@x/core';
import type { CausalModel, Lora } from '@x/transformers';
import { type AdapterUse, adaptedRows } from './adapters';
import { PagedKv } from './kv/paged';
import type { KvPool } from './kv/pool';
import { fillSpans, type SpanSizes, spanSizes, spansOf } from './kv/spans';
import { NO_SLOT } from './kv/states';
import type { Step } from './runner';
import type { Choice } from './sampling';
import {
  type ChoiceShape,
  type ChoiceSizes,
  choiceShape,
  choiceSizes,
  enqueueChoices,
  fillChoices,
  type RowSamplers,
  readChoices,
} from './sampling/device';
import { StepInputs } from './step-inputs';

/** Rows of a graph: a batch takes the next larger one, whose further rows write nothing and see nothing. */
const BATCHES = [1, 2, 4, 8, 16, 32, 64];
/** Blocks of a sequence that the smallest tables have room for; wider ones double. */
const MIN_WIDTH = 8;
/** Graphs kept; the one used longest ago goes. */
const MAX_GRAPHS = 16;

interface Sizes extends ChoiceSizes, SpanSizes {
  tokens: number;
  positions: number;
  slots: number;
  lengths: number;
  tables: number;
}

/** What a graph is for: rows, blocks of each, their adapter, and how tokens are chosen; without that it gives logits. */
interface Kind {
  batch: number;
  width: number;
  adapter: AdapterUse | undefined;
  choice: ChoiceShape | undefined;
}

interface Captured {
  inputs: StepInputs<Sizes>;
  graph: CapturedGraph<Tensor>;
  lora: Lora | undefined;
}

export class DecodeGraphs {
  /** By {@link Kind}, the one used last at the end; null after the first use, which is not worth a capture. */
  private readonly graphs = new Map<string, Captured | null>();
  private version: number;
  private usable = true;

  constructor(
    private readonly model: CausalModel,
    private readonly pool: KvPool,
  ) {
    this.version = pool.version;
  }

  /**
   * Logits [steps, vocabSize] of one token each, the caller's to dispose; undefined where a graph is of no use: the step is
   * then to be computed as any pass. Room for the tokens is reserved; nothing is committed.
   */
  logits(steps: readonly Step[]): Tensor | undefined {
    return this.step(steps, undefined, (logits) => firstRows(logits, steps.length));
  }

  /**
   * As {@link logits} for steps of any number of tokens, with the tokens that samplers choose instead: they are in the graph.
   * @param samplers one for each token of the steps
   */
  choices(steps: readonly Step[], samplers: RowSamplers): Promise<(Choice | undefined)[]> | undefined {
    return this.step(steps, samplers, (words) => readChoices(words, samplers));
  }

  /** Gives the graphs of an adapter back, which read its memory. */
  forget(lora: Lora): void {
    for (const [key, captured] of this.graphs) {
      if (captured?.lora !== lora) continue;
      this.graphs.delete(key);
      discard(captured);
    }
  }

  dispose(): void {
    for (const captured of this.graphs.values()) discard(captured);
    this.graphs.clear();
  }

  /** @param use what is made of the graph's output, which the next step overwrites */
  private step<T>(
    steps: readonly Step[],
    samplers: RowSamplers | undefined,
    use: (output: Tensor) => T,
  ): T | undefined {
    const tokens = steps.reduce((sum, { ids }) => sum + ids.length, 0);
    const batch = BATCHES.find((size) => size >= tokens);
    const [{ cache }] = steps;
    const { adapter } = cache;
    const isAlike = steps.every((step) => step.cache.adapter?.key === adapter?.key);
    if (!this.usable || batch === undefined || !isAlike) return undefined;
    if (this.version !== this.pool.version) this.dispose();
    this.version = this.pool.version;
    const longest = this.pool.hasBlocks ? Math.max(...steps.map(({ cache }) => cache.blocks.length)) : 1;
    const width = Math.max(MIN_WIDTH, 2 ** Math.ceil(Math.log2(longest)));
    const choice = samplers && choiceShape(samplers, batch, this.model.config.vocabSize);
    const kind: Kind = { batch, width, adapter, choice };
    const key = `${batch} ${width} ${choice?.edits} ${choice?.masked} ${choice?.top} ${adapter?.key}`;
    const known = this.graphs.get(key);
    this.graphs.delete(key);
    if (known === undefined) {
      this.graphs.set(key, null);
      return undefined;
    }
    if (known) {
      this.graphs.set(key, known);
      fill(known.inputs, steps, samplers, kind, this.pool);
      return use(known.graph.replay());
    }
    return this.capture(key, kind, use, (inputs) => fill(inputs, steps, samplers, kind, this.pool));
  }

  private capture<T>(
    key: string,
    { batch, width, adapter, choice }: Kind,
    use: (output: Tensor) => T,
    fill: (inputs: Captured['inputs']) => void,
  ): T | undefined {
    const { model, pool } = this;
    const inputs = new StepInputs<Sizes>(model.device, {
      tokens: batch,
      positions: batch,
      slots: batch,
      lengths: batch,
      tables: batch * width,
      ...spanSizes(pool, batch),
      ...(choice ? choiceSizes(choice) : { params: 0, edits: 0, masks: 0 }),
    });
    try {
      fill(inputs);
      const { tokens, positions, slots, lengths, tables } = inputs.pieces;
      const graph = model.device.capture(() => {
        const segment = {
          kind: 'tokens',
          start: 0,
          count: batch,
          lengths,
          tables: tables.reshape([batch, width]),
        } as const;
        const spans = pool.states && spansOf(inputs.pieces, new Array<number>(batch).fill(1));
        const rows = adaptedRows([{ use: adapter, count: batch }]);
        const lora = { tokens: rows, outputs: rows };
        const pass = model.pass(
          { tokens, positions, outputs: 'all', lora },
          new PagedKv(pool, slots, [segment], spans),
        );
        for (;;) {
          const step = pass.next();
          if (step.done) return choice ? enqueueChoices(step.value!, inputs.pieces, choice) : step.value!;
        }
      });
      const result = use(graph.outputs);
      if (graph.isCaptured) {
        this.graphs.set(key, { inputs, graph, lora: adapter?.adapter });
        this.limit();
      } else {
        // Here a graph is the function itself, for a batch that is larger than it has to be.
        this.usable = false;
        discard({ inputs, graph, lora: undefined });
      }
      return result;
    } catch (error) {
      inputs.dispose();
      // A layer without kernels for its sizes reads what is on the device.
      if (!(error instanceof CaptureError && error.code === 'CAPTURE_UNSUPPORTED')) throw error;
      this.usable = false;
      return undefined;
    }
  }

  private limit(): void {
    for (const [key, captured] of this.graphs) {
      if (this.graphs.size <= MAX_GRAPHS) return;
      this.graphs.delete(key);
      discard(captured);
    }
  }
}

function fill(
  inputs: Captured['inputs'],
  steps: readonly Step[],
  samplers: RowSamplers | undefined,
  { batch, width, choice }: Kind,
  pool: KvPool,
): void {
  const rows = steps.flatMap(({ cache, ids }) =>
    Array.from(ids, (id, i) => ({ id, position: cache.length + i, cache })),
  );
  const [tokens, positions, slots, lengths, tables] = (
    ['tokens', 'positions', 'slots', 'lengths', 'tables'] as const
  ).map((name) => inputs.host(name));
  for (let row = 0; row < batch; row++) {
    const token = rows[row];
    const position = token?.position ?? 0;
    tokens[row] = token?.id ?? 0;
    positions[row] = position;
    slots[row] = token?.cache.slot(position) ?? NO_SLOT;
    lengths[row] = token ? position + 1 : 0;
    if (!pool.hasBlocks) continue;
    token?.cache.blocks.forEach((block, i) => {
      tables[row * width + i] = block;
    });
  }
  if (pool.states) fillSpans(inputs, steps, batch);
  if (samplers && choice) fillChoices(inputs, samplers, choice);
  inputs.upload();
}

/** The first rows of what a graph gave: the next replay does not change them. */
function firstRows(logits: Tensor, count: number): Tensor {
  const part = logits.narrow(0, 0, count);
  try {
    return part.copy();
  } finally {
    part.dispose();
  }
}

function discard(captured: Captured | null): void {
  captured?.graph.dispose();
  captured?.inputs.dispose();
}
