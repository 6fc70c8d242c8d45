/** Falcon Mamba: layers of Mamba with norms, without weights, of the steps and of B and C. */
import { Tensor } from '@x/core';
import {
  type ActivationForm,
  type Activations,
  causalConv1d,
  gatedActivation,
  type Module,
  normAdd,
  RmsNorm,
  selectiveScan,
} from '@x/nn';
import type { ConfigSource } from '../config/config-source';
import { unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { type LinearGroup, readsOf } from '../weights/linear-group';
import { project } from '../weights/q-linear';
import type { Weights } from '../weights/weights';
import type { Angles } from './attention';
import type { StateLayout } from './causal-model';
import type { LayerMemory } from './decoder';
import { MAMBA_NAMES, type MambaConfig, mambaConfig } from './mamba-config';
import { MixerLayer } from './mixer-layer';
import { owning } from './owning';
import type { TokenMixer } from './token-mixer';
import { transformer } from './transformer';

export interface FalconMambaConfig extends MambaConfig {
  /** Values from which a row's steps are made. */
  rank: number;
  /** Added to the mean of squares in the norms of steps, B and C. */
  mixerEps: number;
}

interface Parts {
  /** The convolution's input and the gate. */
  inProj: LinearGroup;
  taps: Tensor;
  bias: Tensor | undefined;
  /** Steps (before `dtProj`), and B and C together. */
  xProj: LinearGroup;
  dtProj: Module;
  /** Of the steps. */
  dtBias: Tensor;
  a: Tensor;
  d: Tensor;
  norms: { dt: RmsNorm; bc: RmsNorm };
  outProj: Module;
}

/** A Mamba layer: out(scan(conv(x)) · silu(z)), where x and z are one product. */
class Mamba implements TokenMixer {
  readonly stateLayout: StateLayout;

  private constructor(
    { inner, stateSize, taps }: FalconMambaConfig,
    private readonly dtype: Weights['activations'],
    private readonly parts: Parts,
  ) {
    this.stateLayout = { conv: [taps - 1, inner], ssm: [inner, stateSize] };
  }

  static load(source: Weights, at: string, config: FalconMambaConfig): Promise<Mamba> {
    const { hiddenSize, inner, stateSize, taps, rank, mixerEps } = config;
    const { device } = source;
    return owning(async (own) => {
      const ones = (size: number) => own(new RmsNorm(Tensor.ones([size], { device }), mixerEps));
      const parts: Parts = {
        inProj: own(await source.fused(`${at}.ssm_in`, [inner, inner], hiddenSize)),
        taps: own(await source.numbers(`${at}.ssm_conv1d.weight`, [inner, taps])),
        bias: own(await source.optional(`${at}.ssm_conv1d.bias`, [inner])),
        xProj: own(await source.fused(`${at}.ssm_x`, [rank, 2 * stateSize], inner)),
        dtProj: own(await source.linear(`${at}.ssm_dt`, inner, rank, { withoutBias: true })),
        dtBias: own(await source.numbers(`${at}.ssm_dt.bias`, [inner])),
        a: own(await source.numbers(`${at}.ssm_a`, [inner, stateSize])),
        d: own(await source.numbers(`${at}.ssm_d`, [inner])),
        norms: { dt: ones(rank), bc: ones(stateSize) },
        outProj: own(await source.linear(`${at}.ssm_out`, hiddenSize, inner)),
      };
      return new Mamba(config, source.activations, parts);
    });
  }

  reads(rows: number): ActivationForm {
    return this.parts.inProj.reads(rows);
  }

  forward(input: Activations, _angles: Angles | undefined, { states: { states, spans } }: LayerMemory): Tensor {
    const { inProj, taps, bias, xProj, dtProj, dtBias, a, d, norms, outProj } = this.parts;
    const [before, z] = inProj.forward(input);
    const x = causalConv1d(before, taps, states.conv, spans, { bias, activation: 'silu' });
    const [step, both] = xProj.forward(x).map((rows) => rows.contiguous());
    const { normed } = normAdd(step, undefined, norms.dt, { as: readsOf(dtProj, this.dtype, step.dim(0)) });
    const dt = project(dtProj, normed, this.dtype);
    const [rows, stateSize] = [both.dim(0), both.dim(1) / 2];
    const bc = norms.bc.forward(both.reshape([rows, 2, stateSize])).reshape(both.shape);
    const [b, c] = [0, stateSize].map((start) => bc.narrow(1, start, stateSize));
    const y = selectiveScan({ x, dt, dtBias, a, b, c, d }, states.ssm, spans);
    const gated = gatedActivation(z, y, 'silu', readsOf(outProj, this.dtype, rows));
    return project(outProj, gated, this.dtype);
  }

  dispose(): void {
    const { norms, ...parts } = this.parts;
    for (const part of [...Object.values(norms), ...Object.values(parts)]) part?.dispose();
  }
}

function falconMambaConfig(source: ConfigSource, vocabSize?: number): FalconMambaConfig {
  const base = mambaConfig(source, vocabSize, source.jsonWhole('intermediate_size', 0) || undefined);
  return {
    ...base,
    rank: source.number('time_step_rank', Math.ceil(base.hiddenSize / 16)),
    mixerEps: source.format === 'gguf' ? base.normEps : source.jsonNumber('mixer_rms_eps', 1e-6),
  };
}

export const falconMamba: Architecture<FalconMambaConfig> = {
  architectures: ['falcon_mamba', 'FalconMambaForCausalLM'],
  gguf: 'mamba',
  names: [
    ...MAMBA_NAMES,
    ['backbone.layers.{i}.mixer.x_proj', 'blk.{i}.ssm_x'],
    ['backbone.layers.{i}.mixer.dt_proj', 'blk.{i}.ssm_dt'],
  ],
  config(source, vocabSize) {
    if (!source.flag('ssm_norms', source.format === 'json'))
      throw unsupported('is a Mamba without norms of steps, B and C');
    return falconMambaConfig(source, vocabSize);
  },
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      rotations: [],
      makeLayer: (i, own) =>
        MixerLayer.load(source, `blk.${i}`, config, own, () => Mamba.load(source, `blk.${i}`, config)),
    }),
};
