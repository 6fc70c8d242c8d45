/**
 * Gated DeltaNet in the place of attention, as Qwen 3 Next and Qwen 3.5 have it: queries, keys and values go through a short
 * convolution, states follow the gated delta rule, and what is read is normalised a head, times silu of a gate.
 */
import type { Tensor } from '@x/core';
import {
  type ActivationForm,
  type Activations,
  causalConv1d,
  gatedDeltaRule,
  headNorm,
  type Module,
  RmsNorm,
} from '@x/nn';
import type { PartRange } from '@x/quantized';
import type { ConfigSource } from '../config/config-source';
import { badConfig } from '../config/problems';
import { type LinearGroup, separateGroups } from '../weights/linear-group';
import { project, takesBlocks } from '../weights/q-linear';
import type { Weights } from '../weights/weights';
import type { Angles } from './attention';
import type { StateLayout } from './causal-model';
import type { LayerMemory } from './decoder';
import { owning } from './owning';
import type { TokenMixer } from './token-mixer';

export interface GatedDeltaNetConfig {
  hiddenSize: number;
  normEps: number;
  delta: {
    keyHeads: number;
    /** A multiple of keyHeads. */
    valueHeads: number;
    keyDim: number;
    valueDim: number;
    /** Rows that the convolution sees, its own included. */
    taps: number;
    /** Which heads share keys: neighbours, or those that lie keyHeads apart. */
    sharing: 'grouped' | 'tiled';
  };
}

/** The numbers of the layers. @throws TransformersError BAD_CONFIG */
export function deltaSizes(source: ConfigSource, sharing: 'grouped' | 'tiled'): GatedDeltaNetConfig['delta'] {
  const keyHeads = source.count('linear_num_key_heads');
  const valueHeads = source.count('linear_num_value_heads');
  const inner = source.format === 'gguf' ? source.count('ssm_inner_size') : 0;
  const valueDim = inner > 0 ? inner / valueHeads : source.jsonWhole('linear_value_head_dim', 128);
  if (valueHeads % keyHeads !== 0 || !Number.isInteger(valueDim) || valueDim < 1)
    throw badConfig(`gives ${valueHeads} heads of ${valueDim} values for ${keyHeads} key heads, which does not divide`);
  const [keyDim, taps] = [source.count('linear_key_head_dim'), source.count('linear_conv_kernel_dim')];
  return { keyHeads, valueHeads, keyDim, valueDim, taps, sharing };
}

/** Layers without attention: by `layer_types`, flags of GGUF files, or all but each of so many. @throws BAD_CONFIG */
export function linearLayers(source: ConfigSource, numLayers: number): boolean[] {
  const types = source.json('layer_types') ?? undefined;
  const flags = source.flags('linear_layers')?.slice(0, numLayers);
  if (types !== undefined) {
    const known = ['linear_attention', 'full_attention'];
    if (!Array.isArray(types) || types.length !== numLayers || !types.every((type) => known.includes(type)))
      throw badConfig(`has other layer_types than ${numLayers} of "${known.join('" or "')}"`);
    return types.map((type) => type === 'linear_attention');
  }
  if (flags?.length === numLayers) return flags;
  const every = source.number('full_attention_interval', 4);
  return Array.from({ length: numLayers }, (_, i) => (i + 1) % every !== 0);
}

interface Parts {
  /** Queries, keys and values together, the gate, the shares of the difference that are written, and steps. */
  inProj: LinearGroup;
  taps: Tensor;
  dtBias: Tensor;
  a: Tensor;
  norm: RmsNorm;
  outProj: Module;
}

export class GatedDeltaNet implements TokenMixer {
  readonly stateLayout: StateLayout;

  private constructor(
    private readonly config: GatedDeltaNetConfig,
    private readonly dtype: Weights['activations'],
    private readonly parts: Parts,
  ) {
    const { keyHeads, valueHeads, keyDim, valueDim, taps } = config.delta;
    const mixed = 2 * keyHeads * keyDim + valueHeads * valueDim;
    this.stateLayout = { conv: [taps - 1, mixed], delta: [valueHeads, valueDim, keyDim] };
  }

  /** @param at the name of the layer, such as `blk.0` */
  static load(source: Weights, at: string, config: GatedDeltaNetConfig): Promise<GatedDeltaNet> {
    const { hiddenSize, normEps } = config;
    const { keyHeads, valueHeads, keyDim, valueDim, taps } = config.delta;
    const inner = valueHeads * valueDim;
    const mixed = 2 * keyHeads * keyDim + inner;
    const shared = valueHeads / keyHeads;
    return owning(async (own) => {
      const qkvz = () =>
        source.has(`${at}.ssm_in`)
          ? source.fused(`${at}.ssm_in`, [mixed, inner], hiddenSize, {
              order: orderOfHeads(keyHeads, [keyDim, keyDim, shared * valueDim, shared * valueDim]),
            })
          : source.group(
              [
                { name: `${at}.attn_qkv`, out: mixed },
                { name: `${at}.attn_gate`, out: inner },
              ],
              hiddenSize,
            );
      const ba = () =>
        source.has(`${at}.ssm_ba`)
          ? source.fused(`${at}.ssm_ba`, [valueHeads, valueHeads], hiddenSize, {
              order: orderOfHeads(keyHeads, [shared, shared]),
            })
          : source.group(
              [
                { name: `${at}.ssm_beta`, out: valueHeads },
                { name: `${at}.ssm_alpha`, out: valueHeads },
              ],
              hiddenSize,
            );
      const parts: Parts = {
        inProj: own(await separateGroups([qkvz, ba])),
        taps: own(await source.numbers(`${at}.ssm_conv1d.weight`, [mixed, taps])),
        dtBias: own(await source.numbers(`${at}.ssm_dt.bias`, [valueHeads])),
        a: own(await source.numbers(`${at}.ssm_a`, [valueHeads])),
        // Without the offset that other norms have.
        norm: own(new RmsNorm(await source.numbers(`${at}.ssm_norm.weight`, [valueDim]), normEps)),
        outProj: own(await source.linear(`${at}.ssm_out`, hiddenSize, inner)),
      };
      return new GatedDeltaNet(config, source.activations, parts);
    });
  }

  reads(rows: number): ActivationForm {
    return this.parts.inProj.reads(rows);
  }

  forward(input: Activations, _angles: Angles | undefined, { states: { states, spans } }: LayerMemory): Tensor {
    const { keyHeads, valueHeads, keyDim, valueDim, sharing } = this.config.delta;
    const { inProj, taps, dtBias, a, norm, outProj } = this.parts;
    const [qkv, z, beta, dt] = inProj.forward(input);
    const mixed = causalConv1d(qkv, taps, states.conv, spans, { activation: 'silu' });
    const keys = keyHeads * keyDim;
    const [q, k, v] = [
      mixed.narrow(1, 0, keys),
      mixed.narrow(1, keys, keys),
      mixed.narrow(1, 2 * keys, valueHeads * valueDim),
    ];
    const read = gatedDeltaRule({ q, k, v, dt, dtBias, a, beta }, { keyHeads, sharing }, states.delta, spans);
    const normed = headNorm(read, norm, z, takesBlocks(outProj) ? 'blocks' : 'numbers');
    return project(outProj, normed, this.dtype);
  }

  dispose(): void {
    for (const part of Object.values(this.parts)) part.dispose();
  }
}

/**
 * Where rows of layers are in a weight that has them by heads of keys, each of `sizes` for a head: all of the first layer, then
 * all of the second.
 */
function orderOfHeads(keyHeads: number, sizes: readonly number[]): PartRange[] {
  const each = sizes.reduce((sum, size) => sum + size, 0);
  const starts = sizes.map((_, i) => sizes.slice(0, i).reduce((sum, size) => sum + size, 0));
  return sizes.flatMap((count, i) =>
    Array.from({ length: keyHeads }, (_, head) => ({ start: head * each + starts[i], count })),
  );
}
