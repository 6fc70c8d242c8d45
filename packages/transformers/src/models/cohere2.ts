/**
 * Command R7B and its relatives: attention and feed-forward layer side by side on one norm, windows and rotations in three
 * of four layers, none of either in the fourth.
 */
import type { Tensor } from '@x/core';
import type { Module } from '@x/nn';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { isPattern, windowedLayers } from '../config/layer-types';
import { unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { BASE_NAMES, GATED_MLP_NAMES } from '../weights/tensor-names';
import type { Weights } from '../weights/weights';
import { type Angles, Attention } from './attention';
import type { KvLayout } from './causal-model';
import type { DecoderLayer, LayerMemory, Own } from './decoder';
import { GatedMlp } from './gated-mlp';
import { normOf } from './norm-of';
import { normed, type Residual } from './residual';
import { transformer } from './transformer';

export interface Cohere2Config extends DecoderConfig {
  /** Positions that a local layer sees, the token's own included. */
  slidingWindow: number;
  /** Whether each layer is local. */
  local: readonly boolean[];
  /** Multiplies the logits. */
  logitScale: number;
}

class ParallelLayer implements DecoderLayer {
  private constructor(
    private readonly norm: Module,
    private readonly attention: Attention,
    private readonly mlp: GatedMlp,
    private readonly local: boolean,
  ) {}

  static async load(source: Weights, index: number, config: Cohere2Config, own: Own): Promise<ParallelLayer> {
    const at = `blk.${index}`;
    const local = config.local[index];
    return new ParallelLayer(
      own(await normOf(source, 'layer', `${at}.attn_norm`, config)),
      own(await Attention.load(source, at, config, { window: local ? config.slidingWindow : undefined })),
      own(await GatedMlp.load(source, at, config)),
      local,
    );
  }

  get kvLayout(): KvLayout {
    return this.attention.kvLayout;
  }

  attend(at: Residual, [angles]: readonly Angles[], memory: LayerMemory): Residual {
    const { x, input } = normed(at, this.norm, 'f32');
    const attended: Tensor = this.attention.forward(input, this.local ? angles : undefined, memory);
    return { x, delta: attended.add(this.mlp.forward(input)) };
  }

  dispose(): void {
    for (const part of [this.norm, this.attention, this.mlp]) part.dispose();
  }
}

/** Layers without a window: each of so many, which GGUF files do not say. */
const PATTERN = 4;

export const cohere2: Architecture<Cohere2Config> = {
  architectures: ['cohere2', 'Cohere2ForCausalLM'],
  gguf: 'cohere2',
  names: [...BASE_NAMES, ['model.layers.{i}.input_layernorm', 'blk.{i}.attn_norm'], ...GATED_MLP_NAMES],
  pairs: 'interleaved',
  config(source, vocabSize) {
    if (source.jsonFlag('use_qk_norm', false)) throw unsupported('has norms of queries and keys (use_qk_norm)');
    if (!source.jsonFlag('use_parallel_block', true)) throw unsupported('has steps that follow one another');
    const base = decoderConfig(source, vocabSize, { norm: 'layer' });
    return {
      ...base,
      slidingWindow: source.has('sliding_window') ? source.count('sliding_window') : 4096,
      local: windowedLayers(source, base.numLayers, source.jsonWhole('layer_switch', PATTERN)),
      logitScale: source.number('logit_scale', 0.0625),
    };
  },
  ggufExtras: ({ slidingWindow, local, logitScale, normEps }) =>
    isPattern(local, PATTERN)
      ? { whole: { sliding_window: slidingWindow }, real: { logit_scale: logitScale, layer_norm_eps: normEps } }
      : undefined,
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      norm: 'layer',
      logitScale: config.logitScale,
      makeLayer: (i, own) => ParallelLayer.load(source, i, config, own),
    }),
};
