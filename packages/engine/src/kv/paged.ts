/** The cache of a batch, as a forward pass sees it: the blocks of its sequences, whatever their lengths. */
import { CaptureError, type Device, type DType, keep, scope, Tensor } from '@x/core';
import {
  causalBias,
  fusesHeads,
  fusesPrompt,
  type PagedCache,
  type PromptHeadParts,
  pagedActivations,
  pagedAppend,
  pagedAttention,
  pagedPrompt,
  pagedUnpack,
  pagedVarlen,
  type SequenceSpans,
  sdpa,
  type VarlenTables,
  varlenRows,
} from '@x/nn';
import type { AttendOptions, KvView, LayerKv, LayerStates, PromptLayer } from '@x/transformers';
import type { KvMemory } from './memory';
import { BLOCK_SIZE } from './rows';

/** Rows of a batch whose attention is one call. */
export type Segment =
  /** A token each of several sequences. */
  | {
      kind: 'tokens';
      start: number;
      count: number;
      /** [count, maxBlocks], u32 */
      tables: Tensor;
      /** [count], u32: positions of each sequence, its token included. */
      lengths: Tensor;
    }
  /** Several tokens of one sequence. */
  | {
      kind: 'sequence';
      start: number;
      count: number;
      /** Positions in front of these tokens. */
      before: number;
      /** [blocks], u32: of all positions. */
      blocks: Tensor;
    };

/** All segments of several tokens, which are behind the others, in tiles. */
export interface PromptTiles extends VarlenTables {
  /** Their first row, from which on tiles count rows. */
  start: number;
}

type TokenSegment = Extract<Segment, { kind: 'tokens' }>;
type SequenceSegment = Extract<Segment, { kind: 'sequence' }>;

function isTokens(segment: Segment): segment is TokenSegment {
  return segment.kind === 'tokens';
}

export class PagedKv implements KvView {
  /** What hides later positions: made for the first layer that needs it, by sizes. */
  private readonly biases = new Map<string, Tensor | undefined>();

  /**
   * @param slots [tokens], u32: where the tokens go in the pool
   * @param spans the sequences of the batch and their states, of models that have states
   * @param tiles where the device attends in such; of a captured pass there are no segments of several tokens, whose numbers are of
   * one pass only
   */
  constructor(
    private readonly memory: KvMemory,
    private readonly slots: Tensor,
    private readonly segments: readonly Segment[],
    private readonly spans?: SequenceSpans,
    private readonly tiles?: PromptTiles,
  ) {}

  states(index: number): LayerStates {
    const states = this.memory.states?.layer(index);
    if (!states || !this.spans) throw new Error('internal: states of a layer that has none');
    return { states, spans: this.spans };
  }

  layer(index: number): LayerKv {
    const cache = this.memory.layer(index);
    let fresh: { k: Tensor; v: Tensor } | undefined;
    const valuesInKeys = this.memory.layouts[index]?.valuesInKeys;
    // Several tokens of a sequence want their keys and values at hand.
    const isInPlace = !this.tiles && this.segments.every(isTokens);
    const only = isInPlace && this.segments.length === 1 ? this.segments.find(isTokens) : undefined;
    return {
      ...(isInPlace && { paged: { ...cache, slots: this.slots } }),
      // Several may be of one sequence, as drafts are.
      ...(only?.count === 1 && {
        step: { ...cache, slots: this.slots, tables: only.tables, lengths: only.lengths },
      }),
      ...(only && { attendInBlocks: (q, options) => pagedActivations(...this.tokens(index, only, q, options)) }),
      ...(this.tiles && { prompts: (options) => this.prompts(index, this.tiles!, options) }),
      append: (k, v) => {
        pagedAppend(cache, k, valuesInKeys ? undefined : v, this.slots);
        fresh = { k, v };
      },
      attend: (q, options) => {
        if (this.tiles && varlenRows(cache) !== undefined) {
          const { start } = this.tiles;
          const prompts = rowsOf(q, start, q.dim(1) - start)
            .transpose(0, 1)
            .toDtype(cache.keys.dtype);
          return this.attendTiles(index, this.tiles, { wide: rowsOf(q, 0, start), q: prompts }, options).toDtype(
            q.dtype,
          );
        }
        if (this.tiles && this.segments.every(isTokens))
          throw new CaptureError(
            'CAPTURE_UNSUPPORTED',
            'attention that is not in tiles cannot be repeated with other lengths.',
          );
        const mixed = this.segments.map((segment) =>
          isTokens(segment)
            ? this.attendTokens(index, segment, q, options)
            : this.attendSequence(index, segment, q, options, fresh),
        );
        return rowsOfHeads(mixed);
      },
    };
  }

  /** {@link LayerKv.prompts}: where the kernel of tiles is for this layer. */
  private prompts(index: number, tiles: PromptTiles, options: AttendOptions): PromptLayer | undefined {
    const cache = this.memory.layer(index);
    const isOwn = !this.memory.layouts[index]?.valuesInKeys && varlenRows(cache) !== undefined;
    if (!isOwn || !fusesHeads(cache)) return undefined;
    const attend = ({ wide, q }: PromptHeadParts) =>
      this.attendTiles(index, tiles, { wide: wide.transpose(0, 1), q }, { ...options, scale: 1 });
    return { ...cache, slots: this.slots, wide: tiles.start, attend };
  }

  /**
   * @param wide queries of the rows in front of the tiles, [heads, tokens, d], f32 @param q of those in tiles, [tokens, heads, d], in the
   * cache's dtype @returns [tokens, heads · dv] in the cache's dtype
   */
  private attendTiles(
    layer: number,
    tiles: PromptTiles,
    { wide, q }: PromptHeadParts,
    { scale = 1, ...options }: AttendOptions,
  ): Tensor {
    const mixed = this.segments
      .filter(isTokens)
      .map((segment) => this.attendTokens(layer, segment, wide, { ...options, scale }).toDtype(q.dtype));
    return rowsOfHeads([...mixed, pagedVarlen(q, this.memory.layer(layer), tiles, { ...options, scale })]);
  }

  /** Gives back what belongs to the forward pass; the pool stays. */
  dispose(): void {
    for (const bias of this.biases.values()) bias?.dispose();
    this.biases.clear();
  }

  /** q [heads, tokens, d] to [count, heads, dv] */
  private attendTokens(layer: number, segment: TokenSegment, q: Tensor, options: AttendOptions): Tensor {
    return pagedAttention(...this.tokens(layer, segment, q, options));
  }

  /** What attention of such a segment is given. */
  private tokens(
    layer: number,
    { start, count, tables, lengths }: TokenSegment,
    q: Tensor,
    { scale = 1, window, softcap, sinks }: AttendOptions,
  ) {
    const queries = rowsOf(q, start, count).transpose(0, 1);
    return [queries, this.memory.layer(layer), tables, lengths, { scale, window, softcap, sinks }] as const;
  }

  /** q [heads, tokens, d] to [count, heads, dv], a view too */
  private attendSequence(
    layer: number,
    segment: SequenceSegment,
    q: Tensor,
    { scale = 1, window, softcap = 1, sinks }: AttendOptions,
    fresh: { k: Tensor; v: Tensor } | undefined,
  ): Tensor {
    const { start, count, before } = segment;
    const { cache, blocks, isOwn } = this.numbersOf(layer, segment, q.device.kind);
    const dtype = this.promptDtype(q, cache, segment);
    const special =
      window !== undefined ||
      softcap !== 1 ||
      sinks !== undefined ||
      !this.hasOwnKernel(dtype, q.dim(0), cache, segment);
    if (special && fusesPrompt(q, cache)) {
      const options = { scale, window, softcap: softcap === 1 ? undefined : softcap, sinks };
      return pagedPrompt(rowsOf(q, start, count), cache, blocks, before, options);
    }
    // Keys that none of these queries sees are left out.
    const first = window === undefined ? 0 : Math.max(0, before + 1 - window);
    const length = before + count - first;
    const { keys, values } = cache;
    // What no position in front can add to need not come back from the pool.
    const isFresh = before === 0 && isOwn && fresh;
    const k = isFresh ? rowsOf(fresh.k, start, count).toDtype(dtype) : this.gather(keys, blocks, first, length, dtype);
    const v = isFresh
      ? rowsOf(fresh.v, start, count).toDtype(dtype)
      : this.gather(values, blocks, first, length, dtype);
    // One query sees all that is left; several see less the earlier they are.
    const queries = rowsOf(q, start, count).toDtype(dtype).unsqueeze(0);
    const masked = count > 1 && { causal: true, window, causalBias: () => this.bias(count, length, window, queries) };
    const mixed = sdpa(queries, k.unsqueeze(0), v.unsqueeze(0), { scale, softcapping: softcap, sinks, ...masked });
    return mixed.squeeze(0).transpose(0, 1).toDtype(q.dtype);
  }

  /**
   * A layer's cache in numbers, and the blocks of a sequence in it: of one in 8 bits the sequence's are unpacked, as they are read by
   * later tokens too, whatever a prompt is cut into.
   */
  private numbersOf(
    layer: number,
    { blocks }: SequenceSegment,
    kind: Device['kind'],
  ): { cache: PagedCache; blocks: Tensor; isOwn: boolean } {
    const cache = this.memory.layer(layer);
    if (!cache.scales) return { cache, blocks, isOwn: true };
    const isGpu = kind === 'rocm' || kind === 'cuda';
    const unpacked = pagedUnpack(cache, blocks, isGpu ? 'f16' : 'f32');
    return { cache: unpacked, blocks: Tensor.arange(0, blocks.dim(0), 'u32', blocks.device), isOwn: false };
  }

  /**
   * What queries are multiplied in: on GPUs as narrow as the cache, to which keys and values are rounded for later tokens anyway,
   * where that is a kernel on matrix units.
   */
  private promptDtype(q: Tensor, cache: PagedCache, segment: SequenceSegment): DType {
    const { dtype } = cache.keys;
    const isNarrower = q.dtype === 'f32' && dtype !== 'f32' && q.device.kind !== 'cpu';
    return isNarrower && this.hasOwnKernel(dtype, q.dim(0), cache, segment) ? dtype : q.dtype;
  }

  /** Whether {@link sdpa} is a kernel of the device for such queries in a dtype. */
  private hasOwnKernel(
    dtype: DType,
    heads: number,
    { keys, values }: PagedCache,
    { count, before }: SequenceSegment,
  ): boolean {
    const [, kvHeads, d] = keys.shape;
    const size = { heads, kvHeads, seq: count, kv: before + count, d, scale: 1, causal: true };
    return values.dim(2) === d && (keys.device.backend.attention?.supports(dtype, { b: 1, ...size }) ?? false);
  }

  /** Positions [first, first + length) of a sequence, [kvHeads, length, d] in a dtype. */
  private gather(rows: Tensor, blocks: Tensor, first: number, length: number, dtype: DType): Tensor {
    const blockSize = BLOCK_SIZE;
    const [slots, kvHeads, width] = rows.shape;
    const from = Math.floor(first / blockSize);
    const count = Math.ceil((first + length) / blockSize) - from;
    return rows
      .contiguous()
      .reshape([slots / blockSize, blockSize * kvHeads * width])
      .indexSelect(blocks.narrow(0, from, count), 0)
      .reshape([count * blockSize, kvHeads, width])
      .narrow(0, first - from * blockSize, length)
      .toDtype(dtype)
      .transpose(0, 1);
  }

  private bias(
    count: number,
    length: number,
    window: number | undefined,
    { device, dtype }: Tensor,
  ): Tensor | undefined {
    const key = `${count} ${length} ${window}`;
    if (!this.biases.has(key)) {
      const made = scope(() => causalBias(count, length, { window, device, dtype }));
      this.biases.set(key, made && keep(made));
    }
    return this.biases.get(key);
  }
}

/** [count, heads, dv] of segments one after the other, as [tokens, heads · dv]: of several, each is copied once, to its place. */
function rowsOfHeads(parts: readonly Tensor[]): Tensor {
  const all = parts.length === 1 ? parts[0] : Tensor.cat(parts, 0);
  return all.reshape([all.dim(0), all.dim(1) * all.dim(2)]);
}

/** Tokens [start, start + count) of [heads, tokens, d]. */
function rowsOf(all: Tensor, start: number, count: number): Tensor {
  return count === all.dim(1) ? all : all.narrow(1, start, count);
}
