/**
 * Which decode steps are captured graphs: one for a number of tokens and a width of their block tables, replayed with other
 * tokens, positions, places and tables. Hundreds of launches, which take the host longer than the device, become one. Each token
 * is a row with a table and a length of its own, so a sequence may have several of them: a token and the drafts behind it.
 * Sequences with an adapter have graphs of their own where all of a step have the same one; a step of several is computed as any
 * pass.
 */
import type { Tensor } from '@x/core';
import type { Lora } from '@x/transformers';
import type { AdapterUse } from '../adapters';
import { MAX_ROWS, type StepShape, type StepSizes, stepSizes } from '../execute/batch';
import type { Executor } from '../execute/executor';
import { StepNumbers } from '../execute/step-inputs';
import type { KvPool } from '../kv/pool';
import { fillSpans } from '../kv/spans';
import { NO_SLOT } from '../kv/states';
import type { DeviceChooser } from '../sampling/device-chooser';
import type { Step } from '../schedule/pass-planner';
import { GraphTable } from './graph-table';

/** Rows of a graph: a batch takes the next larger one, whose further rows write nothing and see nothing. */
const BATCHES = [1, 2, 4, 8, 16, 32, 64, 96, MAX_ROWS];
/** Rows of a graph whose experts are in host memory, at most: there are no further ones, which would want experts as well. */
const MAX_EXACT = 16;
/** Blocks of a sequence that the smallest tables have room for; wider ones double. */
const MIN_WIDTH = 8;
/** Graphs kept; the one used longest ago goes. */
const MAX_GRAPHS = 16;

type Numbers = StepNumbers<StepSizes>;

interface Captured {
  numbers: Numbers;
  /** Whose memory it reads. */
  lora: Lora | undefined;
}

/** What a graph is for. */
interface Kind extends StepShape {
  /** Says all of it. */
  key: string;
  adapter: AdapterUse | undefined;
}

export class DecodeGraphs {
  /** By {@link Kind}. */
  private readonly graphs: GraphTable<Captured>;
  private version: number;
  private usable = true;
  private useCount = 0;

  /**
   * @param chooser whose choices may be tokens of the next step
   * @param tokensAtOnce of a model whose experts are in host memory: tokens whose experts have slots; undefined for others
   */
  constructor(
    private readonly executor: Executor,
    private readonly pool: KvPool,
    private readonly chooser: DeviceChooser | undefined,
    private readonly tokensAtOnce?: number,
  ) {
    this.version = pool.version;
    this.graphs = new GraphTable(MAX_GRAPHS, (key) => executor.drop(key));
  }

  /** False once the device turned out to have no graphs. */
  get isUsable(): boolean {
    return this.usable;
  }

  /** Changes when the logits of the last step are there no more. */
  get uses(): number {
    return this.useCount;
  }

  /**
   * Logits [tokens, vocabSize] of steps, the caller's to dispose; undefined where a graph is of no use: the steps are then to be
   * computed as any pass. Room for the tokens is reserved; nothing is committed.
   */
  logits(steps: readonly Step[]): Tensor | undefined {
    return this.forward(steps, (logits) => firstRows(logits, steps.length));
  }

  /**
   * As {@link logits}, without a copy.
   * @param use what is made of logits [tokens or more, vocabSize], which the next step overwrites
   */
  forward<T>(steps: readonly Step[], use: (logits: Tensor) => T): T | undefined {
    const kind = this.kindOf(steps);
    if (!kind) return undefined;
    if (this.version !== this.pool.version) {
      this.useCount++;
      this.graphs.renew();
    }
    this.version = this.pool.version;
    const known = this.graphs.use(kind.key);
    if (known === undefined) return undefined;
    if (known) return use(this.replay(kind, known, steps));
    const numbers: Numbers = new StepNumbers(stepSizes(this.pool.memory, kind));
    fill(numbers, steps, kind, this.pool);
    return this.capture(kind, numbers, use);
  }

  /**
   * The logits of {@link forward}, where the graph is captured already: of steps whose tokens may be those that rows of the step
   * before chose (`idOfRow`).
   */
  follow(steps: readonly Step[]): Tensor | undefined {
    const kind = this.chooser && this.version === this.pool.version ? this.kindOf(steps) : undefined;
    const isCaptured = kind && this.graphs.find(kind.key);
    return isCaptured ? this.replay(kind, this.graphs.use(kind.key)!, steps) : undefined;
  }

  /** Gives the graphs of an adapter back, which read its memory. */
  forget(lora: Lora): void {
    this.useCount++;
    this.graphs.forget((captured) => captured.lora === lora);
  }

  dispose(): void {
    this.useCount++;
    this.graphs.clear();
  }

  /** Which graph steps are; undefined where none can be. */
  private kindOf(steps: readonly Step[]): Kind | undefined {
    const tokens = steps.reduce((sum, { ids }) => sum + ids.length, 0);
    const batch = this.rowsFor(tokens);
    const [{ cache }] = steps;
    const { adapter } = cache;
    const isAlike = steps.every((step) => step.cache.adapter?.key === adapter?.key);
    if (!this.usable || batch === undefined || !isAlike) return undefined;
    const longest = this.pool.hasBlocks ? Math.max(...steps.map(({ cache }) => cache.blocks.length)) : 1;
    const width = Math.max(MIN_WIDTH, 2 ** Math.ceil(Math.log2(longest)));
    const roundsAs = tokens > steps.length ? this.rowsFor(steps.length) : undefined;
    return { key: `${batch} ${width} ${roundsAs} ${adapter?.key}`, batch, width, roundsAs, adapter };
  }

  /** Rows of the graph of so many tokens; undefined where there is none. */
  private rowsFor(tokens: number): number | undefined {
    if (this.tokensAtOnce === undefined) return BATCHES.find((size) => size >= tokens);
    return tokens <= Math.min(this.tokensAtOnce, MAX_EXACT) ? tokens : undefined;
  }

  private replay(kind: Kind, captured: Captured, steps: readonly Step[]): Tensor {
    const { key } = kind;
    this.useCount++;
    fill(captured.numbers, steps, kind, this.pool);
    return this.executor.replay(key, captured.numbers.values);
  }

  private capture<T>({ key, adapter, ...shape }: Kind, numbers: Numbers, use: (logits: Tensor) => T): T | undefined {
    const { executor, chooser } = this;
    this.useCount++;
    const captured = executor.capture(key, shape, numbers.values, { adapter, chooser });
    if (!captured) {
      this.usable = false;
      return undefined;
    }
    const result = use(captured.output);
    if (captured.isCaptured) {
      this.graphs.add(key, { numbers, lora: adapter?.adapter });
    } else {
      // Here a graph is the function itself, for a batch that is larger than it has to be.
      this.usable = false;
      executor.drop(key);
    }
    return result;
  }
}

function fill(numbers: Numbers, steps: readonly Step[], { batch, width }: Kind, pool: KvPool): void {
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
