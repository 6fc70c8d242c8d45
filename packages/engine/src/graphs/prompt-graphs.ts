/**
 * Short passes of prompts as captured graphs: one for a number of rows, replayed with other tokens, lengths and sequences, where
 * the device attends in tiles (`pagedVarlen`). The host is not done with the launches of such a pass before a fast GPU is.
 */
import { OutOfMemoryError, type Tensor } from '@x/core';
import { type VarlenPart, varlenTiles } from '@x/nn';
import { MAX_PARTS, type PromptShape, type PromptSizes, promptSizes } from '../execute/batch';
import type { Executor } from '../execute/executor';
import { StepNumbers } from '../execute/step-inputs';
import type { KvPool } from '../kv/pool';
import { NO_SLOT } from '../kv/states';
import type { Step } from '../schedule/pass-planner';
import { GraphTable } from './graph-table';

/** Rows of a graph: a pass takes the next larger one, whose further rows write nothing and see nothing. */
const ROWS = [16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512];
const MAX_ROWS = ROWS[ROWS.length - 1];
/** Blocks of all sequences that the smallest tables have room for; larger ones double. */
const MIN_BLOCKS = 32;
const MAX_GRAPHS = 8;

type Numbers = StepNumbers<PromptSizes>;

export class PromptGraphs {
  private readonly graphs: GraphTable<Numbers>;
  private version: number;
  private usable = true;

  constructor(
    private readonly executor: Executor,
    private readonly pool: KvPool,
  ) {
    this.version = pool.version;
    this.graphs = new GraphTable(MAX_GRAPHS, (key) => executor.drop(key));
    // A cache that grows has other memory: theirs is not to be missed by it.
    pool.onGrow = () => this.graphs.renew();
  }

  /**
   * Logits [steps, vocabSize] behind the last token of each step, the caller's to dispose; undefined where a graph is of no use: the
   * steps are then to be computed as any pass. Room for the tokens is reserved; nothing is committed.
   */
  logits(steps: readonly Step[]): Tensor | undefined {
    const shape = this.shapeOf(steps);
    if (!shape) return undefined;
    if (this.version !== this.pool.version) this.graphs.renew();
    this.version = this.pool.version;
    const key = `prompts ${shape.rows} ${shape.sequences} ${shape.blocks}`;
    const known = this.graphs.use(key);
    if (known === undefined) return undefined;
    const numbers: Numbers = known ?? new StepNumbers(promptSizes(this.pool.memory, shape));
    fill(numbers, steps, shape, this.pool);
    const logits = known ? this.executor.replay(key, numbers.values) : this.capture(key, shape, numbers);
    if (!logits) return undefined;
    const own = logits.narrow(0, 0, steps.length);
    try {
      return own.copy();
    } finally {
      own.dispose();
      if (!this.usable) this.executor.drop(key);
    }
  }

  dispose(): void {
    this.graphs.clear();
  }

  private shapeOf(steps: readonly Step[]): PromptShape | undefined {
    const { pool } = this;
    const isPlain = steps.every(({ cache, drafts, ids }) => !cache.adapter && drafts === undefined && ids.length > 1);
    const tokens = steps.reduce((sum, { ids }) => sum + ids.length, 0);
    if (!this.usable || !isPlain || tokens > MAX_ROWS || steps.length > MAX_PARTS) return undefined;
    if (pool.states || pool.memory.varlenRows === undefined) return undefined;
    const blocks = steps.reduce((sum, { cache }) => sum + cache.blocks.length, 0);
    return {
      rows: ROWS.find((rows) => rows >= tokens)!,
      sequences: 2 ** Math.ceil(Math.log2(steps.length)),
      blocks: Math.max(MIN_BLOCKS, 2 ** Math.ceil(Math.log2(blocks))),
    };
  }

  private capture(key: string, shape: PromptShape, numbers: Numbers): Tensor | undefined {
    let captured: ReturnType<Executor['capture']>;
    try {
      captured = this.executor.capture(key, shape, numbers.values);
    } catch (error) {
      // A graph keeps memory, which a pass of its own gives back.
      if (!(error instanceof OutOfMemoryError)) throw error;
    }
    // Where it is not captured, a graph is the function itself, for more rows than there have to be.
    this.usable = captured?.isCaptured === true;
    if (captured?.isCaptured) this.graphs.add(key, numbers);
    return captured?.output;
  }
}

function fill(numbers: Numbers, steps: readonly Step[], { rows }: PromptShape, pool: KvPool): void {
  const [tokens, positions, slots, outputs, tables, tiles] = (
    ['tokens', 'positions', 'slots', 'outputs', 'tables', 'tiles'] as const
  ).map((name) => numbers.piece(name));
  const parts: VarlenPart[] = [];
  let [at, table] = [0, 0];
  outputs.fill(0);
  for (const [i, { cache, ids }] of steps.entries()) {
    tokens.set(ids, at);
    for (let j = 0; j < ids.length; j++) {
      positions[at + j] = cache.length + j;
      slots[at + j] = cache.slot(cache.length + j);
    }
    tables.set(cache.blocks, table);
    parts.push({ start: at, count: ids.length, before: cache.length, table });
    at += ids.length;
    table += cache.blocks.length;
    outputs[i] = at - 1;
  }
  tokens.fill(0, at);
  positions.fill(0, at);
  slots.fill(NO_SLOT, at);
  if (at < rows) parts.push({ start: at, count: rows - at, before: -1, table: 0 });
  tiles.fill(0);
  tiles.set(varlenTiles(parts, pool.memory.varlenRows!));
}
