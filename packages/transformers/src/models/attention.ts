/**
 * Self-attention of a decoder: projections, norms of queries and keys, rotation, and the cache's attention. Query, key and
 * value are one product where their weights can be stacked, or are in the file. candle writes this out in every model.
 */
import { keep, type RopeKind, scope, Tensor } from '@x/core';
import {
  type ActivationForm,
  type Activations,
  fusesHeads,
  gatedActivation,
  type HeadOptions,
  type HeadRotation,
  headsAppend,
  headsAttend,
  type Module,
  promptHeads,
  type RmsNorm,
  RotaryTable,
  rotate,
} from '@x/nn';
import type { PartRange } from '@x/quantized';
import type { DecoderConfig } from '../config/decoder-config';
import { type RopeConfig, ropeFrequencies, ropeMagnitude } from '../config/rope';
import { type LinearGroup, readsOf } from '../weights/linear-group';
import { project, takesBlocks } from '../weights/q-linear';
import { headsOf, timesRange } from '../weights/shard';
import type { Weights } from '../weights/weights';
import type { AttendOptions, KvLayout, LayerKv, PagedLayer, PromptLayer } from './causal-model';
import type { LayerMemory } from './decoder';
import type { TokenMixer } from './token-mixer';

/** Rows of a {@link RotaryTable} at the positions of a batch: [tokens, rotaryDim / 2]. */
interface Turn {
  cos: Tensor;
  sin: Tensor;
}

export interface RotationOptions {
  /** Positions that a sequence may have. */
  length: number;
  headDim: number;
  /**
   * Multiplies the scores of attention. It is in the queries' table where all of a head is rotated, since rotation is linear:
   * one operation less a layer.
   */
  scale: number;
}

/** One kind of rotation of a model. */
export class Rotation {
  /** Views of the tables for keys, [length, rotaryDim / 2]. */
  readonly cos: Tensor;
  readonly sin: Tensor;

  private constructor(
    /** Cosines and sines for queries, then those for keys: [length, 4, rotaryDim / 2]. One row is what a token needs. */
    private readonly table: Tensor,
    /** Whether the queries' tables multiply by the scale of attention. */
    readonly scaled: boolean,
  ) {
    [this.cos, this.sin] = scope(() => keep([2, 3].map((i) => table.narrow(1, i, 1).squeeze(1))));
  }

  static async load(
    source: Weights,
    config: RopeConfig,
    { length, headDim, scale }: RotationOptions,
  ): Promise<Rotation> {
    const { rotaryDim, ropeScaling: scaling } = config;
    const isLong = scaling?.type === 'longrope' && length > scaling.originalContextLength;
    const factors = await source.ropeFactors(rotaryDim / 2, isLong ? 'long' : 'short');
    const frequencies = ropeFrequencies(config, { factors, length });
    const scaled = rotaryDim === headDim;
    const magnitude = ropeMagnitude(config);
    const { device } = source;
    const table = scope(() => {
      // Tables are of no scope.
      using query = new RotaryTable({ frequencies, length, device, scale: scaled ? scale * magnitude : magnitude });
      using key = new RotaryTable({ frequencies, length, device, scale: magnitude });
      return keep(Tensor.stack([query.cos, query.sin, key.cos, key.sin], 1));
    });
    return new Rotation(table, scaled);
  }

  /** Of a batch; the caller's to dispose. @param positions [tokens], u32, which stay while the angles are used */
  at(positions: Tensor): Angles {
    return new Angles(this, positions);
  }

  /** The tables' rows at positions. */
  rows(positions: Tensor): { query: Turn; key: Turn } {
    const rows = this.table.indexSelect(positions, 0);
    const [queryCos, querySin, keyCos, keySin] = [0, 1, 2, 3].map((i) => rows.narrow(1, i, 1).squeeze(1).contiguous());
    return { query: { cos: queryCos, sin: querySin }, key: { cos: keyCos, sin: keySin } };
  }

  dispose(): void {
    for (const part of [this.table, this.cos, this.sin]) part.dispose();
  }
}

/** How queries and keys of a batch are rotated. The rows of the tables are looked up when a layer first wants them. */
export class Angles {
  private rows: { query: Turn; key: Turn } | undefined;

  constructor(
    readonly rotation: Rotation,
    readonly positions: Tensor,
  ) {}

  get query(): Turn {
    return this.lookUp().query;
  }

  get key(): Turn {
    return this.lookUp().key;
  }

  dispose(): void {
    if (!this.rows) return;
    for (const { cos, sin } of Object.values(this.rows)) for (const part of [cos, sin]) part.dispose();
    this.rows = undefined;
  }

  private lookUp(): { query: Turn; key: Turn } {
    this.rows ??= scope(() => keep(this.rotation.rows(this.positions)));
    return this.rows;
  }
}

export interface AttentionOptions extends Omit<AttendOptions, 'sinks'> {
  /** Norms of queries and keys before the rotation: of each head, or of all heads together. Default: none. */
  qkNorm?: 'head' | 'width';
  /** Queries, keys and values are kept within plus and minus this, behind norms of all heads together. Default: they stay. */
  clip?: number;
  /** What is attended is multiplied by the sigmoid of a gate, which is made with each head's query. Default false. */
  gate?: boolean;
  /** A learnt score a head takes part in the softmax. Default false. */
  sinks?: boolean;
}

interface Parts {
  qkv: LinearGroup;
  o: Module;
  norms?: { q: RmsNorm; k: RmsNorm };
  sinks?: Tensor;
}

export class Attention implements TokenMixer {
  readonly kvLayout: KvLayout;
  private readonly scale: number;

  private constructor(
    private readonly config: DecoderConfig,
    private readonly ropeKind: RopeKind,
    private readonly dtype: Weights['activations'],
    private readonly options: AttentionOptions,
    private readonly parts: Parts,
  ) {
    const { numKvHeads, headDim } = config;
    this.kvLayout = { kvHeads: numKvHeads, keyDim: headDim, valueDim: headDim };
    this.scale = options.scale ?? 1 / Math.sqrt(headDim);
  }

  /** @param at the name of the layer, such as `blk.0` */
  static async load(source: Weights, at: string, config: DecoderConfig, options: AttentionOptions): Promise<Attention> {
    const { hiddenSize, numHeads, numKvHeads, headDim, normEps } = config;
    const made: { dispose(): void }[] = [];
    const own = <T extends { dispose(): void }>(thing: T): T => {
      made.push(thing);
      return thing;
    };
    try {
      const [wide, narrow] = [numHeads * headDim, numKvHeads * headDim];
      const output = `${at}.attn_output`;
      const unit = source.unitOf(output);
      // Norms of all heads together need all heads.
      const share =
        options.qkNorm === 'width'
          ? undefined
          : headsOf(source.shard, numHeads, numKvHeads, ({ count }) => (count * headDim) % unit === 0);
      const keys = share && timesRange(share.keys, headDim);
      const queries = share && timesRange(share.queries, headDim);
      const separate = [
        options.gate
          ? {
              name: `${at}.attn_q`,
              out: 2 * wide,
              order: gatesBehind(share?.queries ?? { start: 0, count: numHeads }, headDim),
            }
          : { name: `${at}.attn_q`, out: wide, rows: queries },
        { name: `${at}.attn_k`, out: narrow, rows: keys },
        { name: `${at}.attn_v`, out: narrow, rows: keys },
      ];
      const fused = `${at}.attn_qkv`;
      const shares = queries && keys && [queries, keys, keys];
      const parts: Parts = {
        qkv: own(
          source.has(fused)
            ? await source.fused(fused, [wide, narrow, narrow], hiddenSize, { shares })
            : await source.group(separate, hiddenSize),
        ),
        o: own(await source.linear(output, hiddenSize, wide, { columns: queries })),
      };
      if (options.qkNorm) {
        const [q, k] = options.qkNorm === 'head' ? [headDim, headDim] : [wide, narrow];
        parts.norms = {
          q: own(await source.norm(`${at}.attn_q_norm`, q, normEps)),
          k: own(await source.norm(`${at}.attn_k_norm`, k, normEps)),
        };
      }
      if (options.sinks) parts.sinks = own(await sinksOf(source, at, numHeads, share?.queries));
      const heads = share && { numHeads: share.queries.count, numKvHeads: share.keys.count };
      return new Attention({ ...config, ...heads }, source.ropeKind, source.activations, options, parts);
    } catch (error) {
      for (const thing of made) thing.dispose();
      throw error;
    }
  }

  /** As what it is best given its input. */
  reads(rows: number): ActivationForm {
    return this.parts.qkv.reads(rows);
  }

  /**
   * x [tokens, hidden] to the same shape, f32, in which rotations and scores are too. What it makes on the way is its caller's
   * scope's.
   * @param angles undefined where positions do not turn queries and keys
   */
  forward(x: Activations, angles: Angles | undefined, { kv }: LayerMemory): Tensor {
    const { qkv, o, norms, sinks } = this.parts;
    const { window, softcap, qkNorm } = this.options;
    let [q, k, v] = qkv.forward(x);
    let gate: Tensor | undefined;
    if (this.options.gate) [q, gate] = [0, 1].map((i) => q.narrow(1, (i * q.dim(1)) / 2, q.dim(1) / 2));
    if (norms && qkNorm === 'width') [q, k] = [norms.q.forward(q), norms.k.forward(k)];
    const { clip } = this.options;
    if (clip !== undefined) [q, k, v] = [q, k, v].map((rows) => rows.clamp(-clip, clip));
    const fused = angles !== undefined && kv.paged !== undefined && fusesHeads(kv.paged);
    const inBlocks = takesBlocks(o) && !gate && kv.attendInBlocks;
    if (fused && inBlocks && kv.step) {
      const options = { ...this.headOptions, window, softcap, sinks };
      return project(o, headsAttend({ q, k, v }, this.turnOf(angles), options, kv.step, kv.step), this.dtype);
    }
    const prompts = angles && kv.prompts?.({ window, softcap, sinks });
    if (prompts) {
      const attended = prompts.attend(this.headsOfPrompts(q, k, v, angles, prompts));
      return project(o, gate ? this.gated(attended.toDtype('f32'), gate) : attended, this.dtype);
    }
    const queries = fused ? this.appendAtOnce(q, k, v, angles, kv.paged!) : this.append(q, k, v, angles, kv);
    const scale = fused || angles?.rotation.scaled ? 1 : this.scale;
    const options = { scale, window, softcap, sinks };
    const plain = () => (gate ? this.gated(kv.attend(queries, options), gate) : kv.attend(queries, options));
    const attended = inBlocks ? kv.attendInBlocks!(queries, options) : plain();
    return project(o, attended, this.dtype);
  }

  /** What is attended times the sigmoid of its gate, as the last product takes it. */
  private gated(attended: Tensor, gate: Tensor): Activations {
    return gatedActivation(gate, attended, 'sigmoid', readsOf(this.parts.o, this.dtype, gate.dim(0)));
  }

  /** Norms of each head. */
  private get headNorms(): { q: RmsNorm; k: RmsNorm } | undefined {
    return this.options.qkNorm === 'head' ? this.parts.norms : undefined;
  }

  /** Puts keys and values into the cache: queries [heads, tokens, d], scaled where their rotation's table is. */
  private append(q: Tensor, k: Tensor, v: Tensor, angles: Angles | undefined, kv: LayerKv): Tensor {
    const { numHeads, numKvHeads, headDim } = this.config;
    const norms = this.headNorms;
    const heads = (rows: Tensor, count: number) => rows.reshape([rows.dim(0), count, headDim]);
    const placed = (rows: Tensor, norm: RmsNorm | undefined, turn: Turn | undefined) => {
      const ordered = (norm ? norm.forward(rows) : rows).transpose(0, 1);
      return turn ? rotate(ordered.unsqueeze(0), turn.cos, turn.sin, this.ropeKind).squeeze(0) : ordered;
    };
    kv.append(placed(heads(k, numKvHeads), norms?.k, angles?.key), heads(v, numKvHeads).transpose(0, 1));
    return placed(heads(q, numHeads), norms?.q, angles?.query);
  }

  /** The same in one step; queries are scaled. */
  private appendAtOnce(q: Tensor, k: Tensor, v: Tensor, angles: Angles, paged: PagedLayer): Tensor {
    return headsAppend({ q, k, v }, this.turnOf(angles), this.headOptions, paged, paged.slots).transpose(0, 1);
  }

  /** The same where some tokens are prompts'. */
  private headsOfPrompts(q: Tensor, k: Tensor, v: Tensor, angles: Angles, { wide, ...paged }: PromptLayer) {
    return promptHeads({ q, k, v }, this.turnOf(angles), this.headOptions, paged, paged.slots, wide);
  }

  private turnOf({ rotation: { cos, sin }, positions }: Angles): HeadRotation {
    return { cos, sin, positions, kind: this.ropeKind as Exclude<RopeKind, 'thd'> };
  }

  private get headOptions(): HeadOptions {
    const norms = this.headNorms;
    return { scale: this.scale, ...(norms && { norms }) };
  }

  dispose(): void {
    const { qkv, o, norms, sinks } = this.parts;
    for (const part of [qkv, o, norms?.q, norms?.k, sinks]) part?.dispose();
  }
}

/** Of a query and a gate for each of some heads, where the file has the queries, and behind them the gates. */
function gatesBehind({ start, count }: PartRange, headDim: number): PartRange[] {
  const heads = Array.from({ length: count }, (_, i) => 2 * (start + i) * headDim);
  return [0, headDim].flatMap((offset) => heads.map((first) => ({ start: first + offset, count: headDim })));
}

async function sinksOf(source: Weights, at: string, heads: number, own: PartRange | undefined): Promise<Tensor> {
  const all = await source.numbers(`${at}.attn_sinks.weight`, [heads]);
  if (!own) return all;
  using whole = all;
  return scope(() => whole.narrow(0, own.start, own.count).copy());
}
