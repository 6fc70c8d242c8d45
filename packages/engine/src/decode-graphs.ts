/**
 * Which decode steps are captured graphs: one for a number of tokens and a width of their block tables, replayed with other
 * tokens, positions, places and tables. Hundreds of launches, which take the host longer than the device, become one. Each token
 * is a row with a table and a length of its own, so a sequence may have several of them: a token and the drafts behind it.
 * Sequences with an adapter have graphs of their own where all of a step have the same one; a step of several is computed as any
 * pass.
 */
import type { Tensor } from '@x/core';
import type { Lora } from '@x/transformers';
import type { AdapterUse } from './adapters';
import { MAX_ROWS, type StepShape, type StepSizes, stepSizes } from './execute/batch';
import type { Executor } from './execute/executor';
import { StepNumbers } from './execute/step-inputs';
import type { KvPool } from './kv/pool';
import { fillSpans } from './kv/spans';
import { NO_SLOT } from './kv/states';
import type { Step } from './runner';
import type { Choice } from './sampling';
import {
  type ChoiceShape,
  type ChoiceSizes,
  choiceShape,
  choiceSizes,
  fillChoices,
  type RowSamplers,
  readChoices,
} from './sampling/device';

/** Rows of a graph: a batch takes the next larger one, whose further rows write nothing and see nothing. */
const BATCHES = [1, 2, 4, 8, 16, 32, MAX_ROWS];
/** Blocks of a sequence that the smallest tables have room for; wider ones double. */
const MIN_WIDTH = 8;
/** Graphs kept; the one used longest ago goes. */
const MAX_GRAPHS = 16;

/** The numbers of a step, and of what chooses its tokens. */
type Numbers = StepNumbers<StepSizes & ChoiceSizes>;

interface Captured {
  numbers: Numbers;
  /** Whose memory it reads. */
  lora: Lora | undefined;
}

/** What a graph is for. Without a choice it gives logits. */
interface Kind extends StepShape {
  /** Says all of it. */
  key: string;
  adapter: AdapterUse | undefined;
  choice: ChoiceShape | undefined;
}

export class DecodeGraphs {
  /** By {@link Kind}, the one used last at the end; null after the first use, which is not worth a capture. */
  private readonly graphs = new Map<string, Captured | null>();
  private version: number;
  private usable = true;

  constructor(
    private readonly executor: Executor,
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

  /**
   * As {@link choices}, right behind a step of which that gave a promise: ids of the tokens may be those of its rows (`idOfRow`).
   * Undefined where the graph is not captured yet.
   */
  follow(steps: readonly Step[], samplers: RowSamplers): Promise<(Choice | undefined)[]> | undefined {
    const kind = this.kindOf(steps, samplers);
    const captured = kind && this.version === this.pool.version ? this.graphs.get(kind.key) : undefined;
    if (!kind || !captured) return undefined;
    return this.replay(kind, captured, steps, samplers, (words) => readChoices(words, samplers));
  }

  /** Gives the graphs of an adapter back, which read its memory. */
  forget(lora: Lora): void {
    for (const [key, captured] of this.graphs) {
      if (captured?.lora !== lora) continue;
      this.graphs.delete(key);
      this.executor.drop(key);
    }
  }

  dispose(): void {
    for (const [key, captured] of this.graphs) if (captured) this.executor.drop(key);
    this.graphs.clear();
  }

  /** @param use what is made of the graph's output, which the next step overwrites */
  private step<T>(
    steps: readonly Step[],
    samplers: RowSamplers | undefined,
    use: (output: Tensor) => T,
  ): T | undefined {
    const kind = this.kindOf(steps, samplers);
    if (!kind) return undefined;
    if (this.version !== this.pool.version) this.dispose();
    this.version = this.pool.version;
    const known = this.graphs.get(kind.key);
    if (known) return this.replay(kind, known, steps, samplers, use);
    this.graphs.delete(kind.key);
    this.graphs.set(kind.key, null);
    if (known === undefined) return undefined;
    const { choice } = kind;
    const numbers: Numbers = new StepNumbers({
      ...stepSizes(this.pool.memory, kind),
      ...(choice ? choiceSizes(choice) : { params: 0, edits: 0, masks: 0 }),
    });
    fill(numbers, steps, samplers, kind, this.pool);
    return this.capture(kind, numbers, use);
  }

  /** Which graph a step is; undefined where none can be. */
  private kindOf(steps: readonly Step[], samplers: RowSamplers | undefined): Kind | undefined {
    const tokens = steps.reduce((sum, { ids }) => sum + ids.length, 0);
    const batch = BATCHES.find((size) => size >= tokens);
    const [{ cache }] = steps;
    const { adapter } = cache;
    const isAlike = steps.every((step) => step.cache.adapter?.key === adapter?.key);
    if (!this.usable || batch === undefined || !isAlike) return undefined;
    const longest = this.pool.hasBlocks ? Math.max(...steps.map(({ cache }) => cache.blocks.length)) : 1;
    const width = Math.max(MIN_WIDTH, 2 ** Math.ceil(Math.log2(longest)));
    const choice = samplers && choiceShape(samplers, batch, this.executor.model.config.vocabSize);
    const key = `${batch} ${width} ${choice?.edits} ${choice?.masked} ${choice?.top} ${adapter?.key}`;
    return { key, batch, width, adapter, choice };
  }

  private replay<T>(
    kind: Kind,
    captured: Captured,
    steps: readonly Step[],
    samplers: RowSamplers | undefined,
    use: (output: Tensor) => T,
  ): T {
    const { key } = kind;
    this.graphs.delete(key);
    this.graphs.set(key, captured);
    fill(captured.numbers, steps, samplers, kind, this.pool);
    return use(this.executor.replay(key, captured.numbers.values));
  }

  private capture<T>(
    { key, batch, width, adapter, choice }: Kind,
    numbers: Numbers,
    use: (output: Tensor) => T,
  ): T | undefined {
    const { executor } = this;
    const captured = executor.capture(key, { batch, width }, numbers.values, { adapter, choice });
    if (!captured) {
      this.usable = false;
      return undefined;
    }
    const result = use(captured.output);
    if (captured.isCaptured) {
      this.graphs.set(key, { numbers, lora: adapter?.adapter });
      this.limit();
    } else {
      // Here a graph is the function itself, for a batch that is larger than it has to be.
      this.usable = false;
      executor.drop(key);
    }
    return result;
  }

  private limit(): void {
    for (const [key, captured] of this.graphs) {
      if (this.graphs.size <= MAX_GRAPHS) return;
      this.graphs.delete(key);
      if (captured) this.executor.drop(key);
    }
  }
}

function fill(
  numbers: Numbers,
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
  ).map((name) => numbers.piece(name));
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
  if (pool.states) fillSpans(numbers, steps, batch);
  if (samplers && choice) fillChoices(numbers, samplers, choice);
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
