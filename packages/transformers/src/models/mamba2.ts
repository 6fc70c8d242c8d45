/** Mamba 2: states that decay by one number a head. candle has it in mamba2.rs. */
import type { Tensor } from '@x/core';
import { type ActivationForm, type Activations, causalConv1d, gatedGroupNorm, type Module, ssd } from '@x/nn';
import type { ConfigSource } from '../config/config-source';
import { badConfig, shown } from '../config/problems';
import type { Architecture } from '../registry';
import type { LinearGroup } from '../weights/linear-group';
import { project, takesBlocks } from '../weights/q-linear';
import type { Weights } from '../weights/weights';
import type { Angles } from './attention';
import type { StateLayout } from './causal-model';
import type { LayerMemory } from './decoder';
import { MAMBA_NAMES, type MambaConfig, mambaConfig } from './mamba-config';
import { MixerLayer } from './mixer-layer';
import { owning } from './owning';
import type { TokenMixer } from './token-mixer';
import { transformer } from './transformer';

export interface Mamba2Config extends MambaConfig {
  /** Heads of the states, with inner / heads channels each. */
  heads: number;
  /** Groups of heads that share B and C. */
  groups: number;
  /** Range of the steps. */
  dtLimit: readonly [number, number];
}

interface Parts {
  /** The gate, what goes into the convolution (x, B and C), and the steps. */
  inProj: LinearGroup;
  taps: Tensor;
  bias: Tensor | undefined;
  dtBias: Tensor;
  a: Tensor;
  d: Tensor;
  /** [inner], each group of heads is normalised by itself, as the model's authors have it; transformers has all together. */
  norm: Tensor;
  outProj: Module;
}

class Mamba2 implements TokenMixer {
  readonly stateLayout: StateLayout;

  private constructor(
    private readonly config: Mamba2Config,
    private readonly dtype: Weights['activations'],
    private readonly parts: Parts,
  ) {
    const { inner, heads, groups, stateSize, taps } = config;
    this.stateLayout = { conv: [taps - 1, inner + 2 * groups * stateSize], ssm: [heads, inner / heads, stateSize] };
  }

  static load(source: Weights, at: string, config: Mamba2Config): Promise<Mamba2> {
    const { hiddenSize, inner, heads, groups, stateSize, taps } = config;
    const mixed = inner + 2 * groups * stateSize;
    return owning(async (own) => {
      const parts: Parts = {
        inProj: own(await source.fused(`${at}.ssm_in`, [inner, mixed, heads], hiddenSize)),
        taps: own(await source.numbers(`${at}.ssm_conv1d.weight`, [mixed, taps])),
        bias: own(await source.optional(`${at}.ssm_conv1d.bias`, [mixed])),
        dtBias: own(await source.numbers(`${at}.ssm_dt.bias`, [heads])),
        a: own(await source.numbers(`${at}.ssm_a`, [heads])),
        d: own(await source.numbers(`${at}.ssm_d`, [heads])),
        norm: own(await groupNorm(source, `${at}.ssm_norm.weight`, groups, inner / groups)),
        outProj: own(await source.linear(`${at}.ssm_out`, hiddenSize, inner)),
      };
      return new Mamba2(config, source.activations, parts);
    });
  }

  reads(rows: number): ActivationForm {
    return this.parts.inProj.reads(rows);
  }

  forward(input: Activations, _angles: Angles | undefined, { states: { states, spans } }: LayerMemory): Tensor {
    const { inner, groups, stateSize, normEps, dtLimit } = this.config;
    const { inProj, taps, bias, dtBias, a, d, norm, outProj } = this.parts;
    const [z, before, dt] = inProj.forward(input);
    const mixed = causalConv1d(before, taps, states.conv, spans, { bias, activation: 'silu' });
    const [v, k, q] = [0, inner, inner + groups * stateSize].map((start, i) =>
      mixed.narrow(1, start, i === 0 ? inner : groups * stateSize),
    );
    const y = ssd({ q, k, v, dt, dtBias, a, d }, { keyHeads: groups, dtLimit }, states.ssm, spans);
    const normed = gatedGroupNorm(y, norm, normEps, z, takesBlocks(outProj) ? 'blocks' : 'numbers');
    return project(outProj, normed, this.dtype);
  }

  dispose(): void {
    for (const part of Object.values(this.parts)) part?.dispose();
  }
}

/** Checkpoints have the weights of all groups in one row. */
async function groupNorm(source: Weights, name: string, groups: number, width: number): Promise<Tensor> {
  if (source.shapeOf(name)?.join() !== String(groups * width)) return source.numbers(name, [groups, width]);
  using row = await source.numbers(name, [groups * width]);
  return row.reshape([groups, width]);
}

function mamba2Config(source: ConfigSource, vocabSize?: number): Mamba2Config {
  const isGguf = source.format === 'gguf';
  const base = mambaConfig(source, vocabSize);
  const heads = isGguf ? source.count('time_step_rank') : source.jsonWhole('num_heads', 128);
  const groups = source.number('n_groups', isGguf ? 1 : 8);
  const divides = (count: number, of: number) => Number.isInteger(count) && count >= 1 && of % count === 0;
  if (!divides(heads, base.inner) || !divides(groups, heads))
    throw badConfig(`gives ${base.inner} channels for ${heads} heads in ${groups} groups, which does not divide`);
  return { ...base, heads, groups, dtLimit: dtLimitOf(source.json('time_step_limit')) };
}

function dtLimitOf(limit: unknown): [number, number] {
  if (limit == null) return [0, Number.POSITIVE_INFINITY];
  // JSON has no Infinity: transformers writes it as an object.
  const numbers = Array.isArray(limit)
    ? limit.map((end) => (typeof end === 'number' ? end : Number((end as { __float__?: unknown } | null)?.__float__)))
    : [];
  if (numbers.length === 2 && numbers[0] <= numbers[1]) return [numbers[0], numbers[1]];
  throw badConfig(`gives time_step_limit = ${shown(limit)}, but two numbers in order are needed; download it again`);
}

export const mamba2: Architecture<Mamba2Config> = {
  architectures: ['mamba2', 'Mamba2ForCausalLM'],
  gguf: 'mamba2',
  names: [
    ...MAMBA_NAMES,
    ['backbone.layers.{i}.mixer.dt_bias', 'blk.{i}.ssm_dt.bias'],
    ['backbone.layers.{i}.mixer.norm', 'blk.{i}.ssm_norm'],
  ],
  config: mamba2Config,
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      rotations: [],
      makeLayer: (i, own) =>
        MixerLayer.load(source, `blk.${i}`, config, own, () => Mamba2.load(source, `blk.${i}`, config)),
    }),
};
