/**
 * Self-attention of a decoder: projections, norms of queries and keys, rotation, and the cache's attention. Query, key and
 * value are one product where their weights can be stacked. candle writes this out in every model.
 */
import { keep, type RopeKind, scope, Tensor } from '@x/core';
import {
  type ActivationForm,
  type Activations,
  fusesHeads,
  headsAppend,
  type Module,
  type RmsNorm,
  RotaryTable,
} from '@x/nn';
import type { DecoderConfig } from '../config/decoder-config';
import { type RopeConfig, ropeFrequencies } from '../config/rope';
import type { LinearGroup } from '../weights/linear-group';
import { inDtype, project } from '../weights/q-linear';
import type { Weights } from '../weights/weights';
import type { AttendOptions, LayerKv, PagedLayer } from './causal-model';

/** Rows of a {@link RotaryTable} at the positions of a batch: [tokens, d / 2]. */
interface Turn {
  cos: Tensor;
  sin: Tensor;
}

export interface RotationOptions {
  /** Positions that a sequence may have. */
  length: number;
  /**
   * Multiplies the scores of attention. It is in the queries' table, since rotation is linear: one operation less a layer.
   */
  scale: number;
  /** Divisors of the frequencies. */
  factors?: ArrayLike<number>;
}

/** One kind of rotation of a model. */
export class Rotation {
  /** Cosines and sines for queries, then those for keys: [length, 4, headDim / 2]. One row is what a token needs. */
  private readonly table: Tensor;
  /** Views of those for keys, [length, headDim / 2]. */
  readonly cos: Tensor;
  readonly sin: Tensor;
  /** What those for queries are multiplied by. */
  readonly scale: number;

  constructor({ device }: Weights, config: RopeConfig, { length, scale, factors }: RotationOptions) {
    const frequencies = ropeFrequencies(config, factors);
    this.scale = scale;
    this.table = scope(() => {
      const query = new RotaryTable({ frequencies, length, device, scale });
      const key = new RotaryTable({ frequencies, length, device });
      const table = Tensor.stack([query.cos, query.sin, key.cos, key.sin], 1);
      for (const part of [query, key]) part.dispose();
      return keep(table);
    });
    [this.cos, this.sin] = scope(() => keep([2, 3].map((i) => this.table.narrow(1, i, 1).squeeze(1))));
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

export interface AttentionOptions extends AttendOptions {
  /** Normalise each head of queries and keys before the rotation. Default false. */
  qkNorm?: boolean;
}

export class Attention {
  private constructor(
    private readonly config: DecoderConfig,
    private readonly ropeKind: RopeKind,
    private readonly dtype: Weights['activations'],
    private readonly options: AttentionOptions,
    private readonly qkv: LinearGroup,
    private readonly o: Module,
    private readonly norms: { q: RmsNorm; k: RmsNorm } | undefined,
  ) {}

  /** @param at the name of the layer, such as `blk.0` */
  static async load(source: Weights, at: string, config: DecoderConfig, options: AttentionOptions): Promise<Attention> {
    const { hiddenSize, numHeads, numKvHeads, headDim, normEps } = config;
    const made: { dispose(): void }[] = [];
    try {
      const parts = [
        { name: `${at}.attn_q`, out: numHeads * headDim },
        { name: `${at}.attn_k`, out: numKvHeads * headDim },
        { name: `${at}.attn_v`, out: numKvHeads * headDim },
      ];
      const qkv = await source.group(parts, hiddenSize);
      made.push(qkv);
      const o = await source.linear(`${at}.attn_output`, hiddenSize, numHeads * headDim);
      made.push(o);
      const { ropeKind, activations } = source;
      if (!options.qkNorm) return new Attention(config, ropeKind, activations, options, qkv, o, undefined);
      const q = await source.norm(`${at}.attn_q_norm`, headDim, normEps);
      made.push(q);
      const k = await source.norm(`${at}.attn_k_norm`, headDim, normEps);
      return new Attention(config, ropeKind, activations, options, qkv, o, { q, k });
    } catch (error) {
      for (const thing of made) thing.dispose();
      throw error;
    }
  }

  /** As what it is best given its input. */
  get reads(): ActivationForm {
    return this.qkv.reads;
  }

  /** x [tokens, hidden] to the same shape, f32, in which rotations and scores are too. What it makes on the way is its caller's scope's. */
  forward(x: Activations, angles: Angles, kv: LayerKv): Tensor {
    const [q, k, v] = this.qkv.forward(x).map((rows) => inDtype(rows, 'f32'));
    const fused = kv.paged && fusesHeads(kv.paged);
    const queries = fused ? this.appendAtOnce(q, k, v, angles, kv.paged) : this.append(q, k, v, angles, kv);
    const attended = kv.attend(queries, this.options);
    return inDtype(project(this.o, attended, this.dtype), 'f32');
  }

  /** Puts keys and values into the cache: queries [heads, tokens, d]. */
  private append(q: Tensor, k: Tensor, v: Tensor, angles: Angles, kv: LayerKv): Tensor {
    const { numHeads, numKvHeads, headDim } = this.config;
    const heads = (rows: Tensor, count: number) => rows.reshape([rows.dim(0), count, headDim]);
    const rotated = (rows: Tensor, norm: RmsNorm | undefined, { cos, sin }: Turn) => {
      const normed = norm ? norm.forward(rows) : rows;
      return normed.transpose(0, 1).unsqueeze(0).rope(cos, sin, this.ropeKind).squeeze(0);
    };
    const keys = rotated(heads(k, numKvHeads), this.norms?.k, angles.key);
    kv.append(keys, heads(v, numKvHeads).transpose(0, 1));
    return rotated(heads(q, numHeads), this.norms?.q, angles.query);
  }

  /** The same in one step. */
  private appendAtOnce(q: Tensor, k: Tensor, v: Tensor, { rotation, positions }: Angles, paged: PagedLayer): Tensor {
    const { cos, sin, scale } = rotation;
    const turn = { cos, sin, positions, kind: this.ropeKind as Exclude<RopeKind, 'thd'> };
    const options = { scale, ...(this.norms && { norms: this.norms }) };
    return headsAppend({ q, k, v }, turn, options, paged, paged.slots).transpose(0, 1);
  }

  dispose(): void {
    for (const part of [this.qkv, this.o, this.norms?.q, this.norms?.k]) part?.dispose();
  }
}
