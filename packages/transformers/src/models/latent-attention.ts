/**
 * Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads are products of one latent vector
 * a token, which the cache holds beside one rotated key that heads share. Queries are brought to the latent's width instead of
 * keys and values to the heads' (the absorbed form), so that attention has one key head, whose first elements are its values.
 */
import { fusedKernels, QuantizedActivations, type RopeKind, scope, Tensor } from '@x/core';
import {
  type ActivationForm,
  type Activations,
  type LatentQueries,
  latentAppend,
  type Module,
  normAdd,
  type RmsNorm,
  rotate,
} from '@x/nn';
import { areBlocks, type PartRange, QTensor } from '@x/quantized';
import { HeadLinear } from '../weights/head-linear';
import { type LinearGroup, readsOf } from '../weights/linear-group';
import { project } from '../weights/q-linear';
import { headsOf, timesRange } from '../weights/shard';
import type { Weights } from '../weights/weights';
import type { Angles } from './attention';
import type { KvLayout, LayerKv } from './causal-model';
import type { LayerMemory } from './decoder';
import type { TokenMixer } from './token-mixer';

/** Of the norms of latent vectors, whatever that of the model's other norms is. */
const LATENT_EPS = 1e-6;

export interface LatentConfig {
  hiddenSize: number;
  numHeads: number;
  latent: {
    /** Width that queries are compressed to; undefined where they are not. */
    queryRank?: number;
    /** Width of the latent vector of keys and values. */
    rank: number;
    /** Elements of a head's key that are not rotated, those that are, and those of its value. */
    plain: number;
    rotated: number;
    value: number;
    /** How the rotated pairs lie. */
    ropeKind: RopeKind;
    /** Multiplies the scores. */
    scale: number;
  };
}

interface Parts {
  /** What reads the layer's input: queries, or what they are made from, and the latent vector with the shared key. */
  inputs: LinearGroup;
  query?: { norm: RmsNorm; up: Module };
  norm: RmsNorm;
  /** From the plain part of queries to the latent's width, and from there to values. */
  keyUp: HeadLinear;
  valueUp: HeadLinear;
  o: Module;
}

export class LatentAttention implements TokenMixer {
  readonly kvLayout: KvLayout;

  private constructor(
    private readonly config: LatentConfig,
    private readonly dtype: Weights['activations'],
    private readonly parts: Parts,
  ) {
    const { rank, rotated } = config.latent;
    this.kvLayout = { kvHeads: 1, keyDim: rank + rotated, valueDim: rank, valuesInKeys: true };
  }

  /** @param at the name of the layer, such as `blk.0` */
  static async load(source: Weights, at: string, config: LatentConfig): Promise<LatentAttention> {
    const { hiddenSize, numHeads } = config;
    const { queryRank, rank, plain, rotated, value } = config.latent;
    const made: { dispose(): void }[] = [];
    const own = <T extends { dispose(): void }>(thing: T): T => {
      made.push(thing);
      return thing;
    };
    try {
      const width = numHeads * (plain + rotated);
      const output = `${at}.attn_output`;
      const unit = source.unitOf(output);
      const share = headsOf(source.shard, numHeads, numHeads, ({ count }) => (count * value) % unit === 0)?.queries;
      const rows = share && timesRange(share, plain + rotated);
      const query = queryRank ? { name: `${at}.attn_q_a`, out: queryRank } : { name: `${at}.attn_q`, out: width, rows };
      const parts: Parts = {
        inputs: own(await source.group([query, { name: `${at}.attn_kv_a_mqa`, out: rank + rotated }], hiddenSize)),
        norm: own(await source.norm(`${at}.attn_kv_a_norm`, rank, LATENT_EPS)),
        ...(await headLayers(source, at, config, own, share)),
        o: own(
          await source.linear(output, hiddenSize, numHeads * value, { columns: share && timesRange(share, value) }),
        ),
      };
      if (queryRank)
        parts.query = {
          norm: own(await source.norm(`${at}.attn_q_a_norm`, queryRank, LATENT_EPS)),
          up: own(await source.linear(`${at}.attn_q_b`, width, queryRank, { rows })),
        };
      return new LatentAttention({ ...config, numHeads: share?.count ?? numHeads }, source.activations, parts);
    } catch (error) {
      for (const thing of made) thing.dispose();
      throw error;
    }
  }

  reads(rows: number): ActivationForm {
    return this.parts.inputs.reads(rows);
  }

  forward(x: Activations, angles: Angles | undefined, { kv }: LayerMemory): Tensor {
    if (!angles) throw new Error('internal: latent attention without a rotation');
    const { numHeads, latent } = this.config;
    const { inputs, query, o } = this.parts;
    const [first, compressed] = inputs.forward(x);
    const tokens = first.dim(0);
    const whole = query ? project(query.up, this.normedQuery(first, query), this.dtype) : first;
    const fused = this.appendAtOnce(whole, compressed, angles, kv);
    const queries = fused ? this.absorb(fused, tokens) : this.append(whole, compressed, angles, kv);
    const values = this.attend(queries, kv).reshape([tokens, numHeads * latent.value]);
    return project(o, values, this.dtype);
  }

  private normedQuery(first: Tensor, { norm, up }: NonNullable<Parts['query']>): Activations {
    return normAdd(first.contiguous(), undefined, norm, { as: readsOf(up, this.dtype, first.dim(0)) }).normed;
  }

  /** Puts latent vectors and shared keys into the cache: queries [heads, tokens, rank + rotated]. */
  private append(whole: Tensor, compressed: Tensor, angles: Angles, kv: LayerKv): Tensor {
    const { numHeads, latent } = this.config;
    const { rank, plain, rotated, ropeKind } = latent;
    const { norm, keyUp } = this.parts;
    const turned = (rows: Tensor, { cos, sin }: Angles['query']) =>
      rotate(rows.transpose(0, 1).unsqueeze(0), cos, sin, ropeKind).squeeze(0);
    const shared = compressed.narrow(1, rank, rotated).unsqueeze(1);
    const key = norm.forward(compressed.narrow(1, 0, rank).contiguous()).unsqueeze(0);
    kv.append(Tensor.cat([key, turned(shared, angles.key)], -1), key);
    const heads = whole.reshape([whole.dim(0), numHeads, plain + rotated]);
    const absorbed = keyUp.forward(heads.narrow(2, 0, plain)).transpose(0, 1);
    return Tensor.cat([absorbed, turned(heads.narrow(2, plain, rotated), angles.query)], -1);
  }

  /** The same in one step, but for the product with the plain parts; undefined where the device has no kernel for it. */
  private appendAtOnce(
    whole: Tensor,
    compressed: Tensor,
    { rotation, positions }: Angles,
    { paged }: LayerKv,
  ): LatentQueries | undefined {
    const { numHeads: heads, latent } = this.config;
    const { norm, keyUp } = this.parts;
    if (!paged || !keyUp.takesBlocks(whole.dim(0)) || rotation.scaled || latent.ropeKind === 'thd') return undefined;
    const turn = { cos: rotation.cos, sin: rotation.sin, positions, kind: latent.ropeKind };
    return latentAppend({ q: whole, heads, latent: compressed }, turn, norm, paged, paged.slots);
  }

  /** Brings the plain parts to the latent's width, in front of the rotated ones. */
  private absorb({ queries, plain }: LatentQueries, tokens: number): Tensor {
    this.parts.keyUp.forwardInto(queries, plain);
    return queries.reshape([tokens, this.config.numHeads, queries.dim(1)]).transpose(0, 1);
  }

  /** @param queries [heads, tokens, rank + rotated] @returns values of the heads, in the order of tokens */
  private attend(queries: Tensor, kv: LayerKv): Tensor {
    const { rank, scale } = this.config.latent;
    const { valueUp } = this.parts;
    const [heads, tokens] = queries.shape;
    const splits = valueUp.takesBlocks(tokens) && fusedKernels(queries.device, 'decode')?.splitsRows(rank);
    const mixed = splits && kv.attendInBlocks ? kv.attendInBlocks(queries, { scale }) : kv.attend(queries, { scale });
    if (mixed instanceof QuantizedActivations && areBlocks(mixed.blocks))
      return valueUp.forwardBlocks(new QuantizedActivations(mixed.blocks, tokens * heads, rank));
    if (mixed instanceof QuantizedActivations) throw new Error('internal: attention in another form than blocks');
    return valueUp.forward(mixed.reshape([tokens, heads, rank]));
  }

  dispose(): void {
    const { inputs, query, norm, keyUp, valueUp, o } = this.parts;
    for (const part of [inputs, query?.norm, query?.up, norm, keyUp, valueUp, o]) part?.dispose();
  }
}

/**
 * The second products of keys and values, a matrix a head: GGUF files have each by itself and that of keys turned, checkpoints
 * and older GGUF files one after the other as rows of one weight.
 */
async function headLayers(
  source: Weights,
  at: string,
  { numHeads, latent: { rank, plain, value } }: LatentConfig,
  own: <T extends { dispose(): void }>(thing: T) => T,
  share: PartRange | undefined,
): Promise<Pick<Parts, 'keyUp' | 'valueUp'>> {
  if (source.has(`${at}.attn_k_b`)) {
    return {
      keyUp: own(await source.heads(`${at}.attn_k_b`, numHeads, rank, plain, share)),
      valueUp: own(await source.heads(`${at}.attn_v_b`, numHeads, value, rank, share)),
    };
  }
  using both = await source.numbers(`${at}.attn_kv_b.weight`, [numHeads * (plain + value), rank], source.dtype);
  const [keys, values] = scope(() => {
    const all = both.reshape([numHeads, plain + value, rank]);
    const heads = share ? all.narrow(0, share.start, share.count) : all;
    const turned = heads.narrow(1, 0, plain).transpose(1, 2).contiguous();
    return [turned, heads.narrow(1, plain, value).contiguous()].map((part) => QTensor.fromTensor(part));
  });
  return { keyUp: own(new HeadLinear(keys)), valueUp: own(new HeadLinear(values)) };
}
