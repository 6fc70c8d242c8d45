/**
 * What a captured pass reads, and how the model sees it: a token each of several sequences, or prompts of which only the number of
 * rows is known. All that a replay may change is in one piece of memory.
 */
import type { Device, Tensor } from '@x/core';
import { TILE_NUMBERS } from '@x/nn';
import type { Batch } from '@x/transformers';
import { type AdapterUse, adaptedRows } from '../adapters';
import type { KvMemory } from '../kv/memory';
import { PagedKv } from '../kv/paged';
import { spansOf } from '../kv/spans';
import {
  type GraphShape,
  type PromptShape,
  type PromptSizes,
  promptSizes,
  type StepShape,
  type StepSizes,
  stepSizes,
} from './batch';
import { StepInputs } from './step-inputs';

export interface GraphInputs {
  readonly tokens: Tensor;
  readonly positions: Tensor;
  /** Within a capture: the rest of the batch, and its cache. */
  open(): { batch: Omit<Batch, 'tokens' | 'positions'>; view: PagedKv };
  /** @param values of all pieces */
  write(values: Uint32Array): void;
  dispose(): void;
}

/** @param adapter of all rows of a step */
export function graphInputs(device: Device, memory: KvMemory, shape: GraphShape, adapter?: AdapterUse): GraphInputs {
  return 'rows' in shape ? promptInputs(device, memory, shape) : stepInputs(device, memory, shape, adapter);
}

function stepInputs(device: Device, memory: KvMemory, shape: StepShape, adapter?: AdapterUse): GraphInputs {
  const { batch, width } = shape;
  const inputs = new StepInputs(device, stepSizes(memory, shape));
  const { slots, lengths, tables } = inputs.pieces;
  const open = () => {
    const own = tables.reshape([batch, width]);
    const segment = { kind: 'tokens', start: 0, count: batch, lengths, tables: own } as const;
    const spans = memory.states && spansOf(inputs.pieces, new Array<number>(batch).fill(1));
    const rows = adaptedRows([{ use: adapter, count: batch }]);
    const view = new PagedKv(memory, slots, [segment], spans);
    return { batch: { outputs: 'all', lora: { tokens: rows, outputs: rows } } as const, view };
  };
  return { ...writable(inputs), open };
}

function promptInputs(device: Device, memory: KvMemory, shape: PromptShape): GraphInputs {
  const inputs = new StepInputs(device, promptSizes(memory, shape));
  const { slots, outputs, tables, tiles } = inputs.pieces;
  const open = () => {
    const own = tiles.reshape([tiles.dim(0) / TILE_NUMBERS, TILE_NUMBERS]);
    return { batch: { outputs }, view: new PagedKv(memory, slots, [], undefined, { start: 0, tiles: own, tables }) };
  };
  return { ...writable(inputs), open };
}

/** What both kinds have. */
function writable<Sizes extends StepSizes | PromptSizes>(inputs: StepInputs<Sizes>): Omit<GraphInputs, 'open'> {
  const { tokens, positions } = inputs.pieces;
  return { tokens, positions, write: (values) => inputs.write(values), dispose: () => inputs.dispose() };
}
