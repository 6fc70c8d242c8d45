/**
 * Decode steps as captured graphs: the forward pass of one token each of several sequences, recorded once for a number of
 * sequences and a width of their block tables, and replayed with other tokens, positions, places and tables. Hundreds of
 * launches, which take the host longer than the device, become one.
 */
import type { CapturedGraph, Tensor } from '@x/core';
import type { CausalModel } from '@x/transformers';
import { PagedKv } from './kv/paged';
import type { KvPool } from './kv/pool';
import type { Step } from './runner';
import { StepInputs } from './step-inputs';

/** Sequences of a graph: a batch takes the next larger one, whose further rows write nothing and see nothing. */
const BATCHES = [1, 2, 4, 8, 16, 32, 64];
/** Blocks of a sequence that the smallest tables have room for; wider ones double. */
const MIN_WIDTH = 8;
/** Graphs kept; the one used longest ago goes. */
const MAX_GRAPHS = 16;

/** No place in any pool: what goes there is left out. */
const NO_SLOT = 2 ** 32 - 1;

interface Captured {
  inputs: StepInputs<{ tokens: number; positions: number; slots: number; lengths: number; tables: number }>;
  graph: CapturedGraph<Tensor>;
}

export class DecodeGraphs {
  /** By batch and width, the one used last at the end; null after the first use, which is not worth a capture. */
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
  step(steps: readonly Step[]): Tensor | undefined {
    const batch = BATCHES.find((size) => size >= steps.length);
    if (!this.usable || batch === undefined) return undefined;
    if (this.version !== this.pool.version) this.dispose();
    this.version = this.pool.version;
    const longest = Math.max(...steps.map(({ cache }) => cache.blocks.length));
    const width = Math.max(MIN_WIDTH, 2 ** Math.ceil(Math.log2(longest)));
    const key = `${batch} ${width}`;
    const known = this.graphs.get(key);
    this.graphs.delete(key);
    if (known === undefined) {
      this.graphs.set(key, null);
      return undefined;
    }
    if (known) {
      this.graphs.set(key, known);
      fill(known.inputs, steps, batch, width);
      return rows(known.graph.replay(), steps.length);
    }
    return this.capture(key, steps, batch, width);
  }

  dispose(): void {
    for (const captured of this.graphs.values()) discard(captured);
    this.graphs.clear();
  }

  private capture(key: string, steps: readonly Step[], batch: number, width: number): Tensor {
    const { model, pool } = this;
    const sizes = { tokens: batch, positions: batch, slots: batch, lengths: batch, tables: batch * width };
    const inputs = new StepInputs(model.device, sizes);
    try {
      fill(inputs, steps, batch, width);
      const { tokens, positions, slots, lengths, tables } = inputs.pieces;
      const graph = model.device.capture(() => {
        const segment = {
          kind: 'tokens',
          start: 0,
          count: batch,
          lengths,
          tables: tables.reshape([batch, width]),
        } as const;
        const pass = model.pass({ tokens, positions, outputs: 'all' }, new PagedKv(pool, slots, [segment]));
        for (;;) {
          const step = pass.next();
          if (step.done) return step.value!;
        }
      });
      const logits = rows(graph.outputs, steps.length);
      if (graph.isCaptured) {
        this.graphs.set(key, { inputs, graph });
        this.limit();
      } else {
        // Here a graph is the function itself, for a batch that is larger than it has to be.
        this.usable = false;
        discard({ inputs, graph });
      }
      return logits;
    } catch (error) {
      inputs.dispose();
      throw error;
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

function fill(inputs: Captured['inputs'], steps: readonly Step[], batch: number, width: number): void {
  const [tokens, positions, slots, lengths, tables] = (
    ['tokens', 'positions', 'slots', 'lengths', 'tables'] as const
  ).map((name) => inputs.host(name));
  for (let row = 0; row < batch; row++) {
    const step = steps[row];
    const position = step?.cache.length ?? 0;
    tokens[row] = step?.ids[0] ?? 0;
    positions[row] = position;
    slots[row] = step?.cache.slot(position) ?? NO_SLOT;
    lengths[row] = step ? position + 1 : 0;
    step?.cache.blocks.forEach((block, i) => {
      tables[row * width + i] = block;
    });
  }
  inputs.upload();
}

/** The first rows of what a graph gave: the next replay does not change them. */
function rows(logits: Tensor, count: number): Tensor {
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
