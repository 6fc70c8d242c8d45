/**
 * Llama and the models built like it (Llama 1 to 3.3, TinyLlama, SmolLM, ...): candle's llama.rs and quantized_llama.rs in
 * one file, because the weights decide what a linear layer is.
 */
import type { Module } from '@x/nn';
import { type ConfigSource, unsupported } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { DECODER_NAMES } from '../weights/tensor-names';
import type { Weights } from '../weights/weights';
import { type Angles, Attention, type AttentionOptions, Rotation } from './attention';
import type { LayerKv } from './causal-model';
import { Decoder, type DecoderLayer, type Own } from './decoder';
import { GatedMlp } from './gated-mlp';
import { normed, type Residual } from './residual';

/** Two residual steps: attention of the normed input, feed-forward layer of the normed result. */
export class LlamaLayer implements DecoderLayer {
  private constructor(
    private readonly inputNorm: Module,
    private readonly attention: Attention,
    private readonly postNorm: Module,
    private readonly mlp: GatedMlp,
  ) {}

  static async load(
    source: Weights,
    at: string,
    config: DecoderConfig,
    own: Own,
    options: AttentionOptions = {},
  ): Promise<LlamaLayer> {
    const { hiddenSize, normEps } = config;
    return new LlamaLayer(
      own(await source.norm(`${at}.attn_norm`, hiddenSize, normEps)),
      own(await Attention.load(source, at, config, options)),
      own(await source.norm(`${at}.ffn_norm`, hiddenSize, normEps)),
      own(await GatedMlp.load(source, at, config)),
    );
  }

  attend(at: Residual, [angles]: readonly Angles[], kv: LayerKv): Residual {
    const { x, input } = normed(at, this.inputNorm, this.attention.reads);
    return { x, delta: this.attention.forward(input, angles, kv) };
  }

  feed(at: Residual): Residual {
    const { x, input } = normed(at, this.postNorm, this.mlp.reads);
    return { x, delta: this.mlp.forward(input) };
  }

  dispose(): void {
    for (const part of [this.inputNorm, this.attention, this.postNorm, this.mlp]) part.dispose();
  }
}

/** A model of {@link LlamaLayer}s that differ in their attention only. */
export function llamaModel(
  source: Weights,
  config: DecoderConfig,
  length: number,
  options: (layer: number) => AttentionOptions = () => ({}),
): Promise<Decoder> {
  return Decoder.load(source, config, {
    rotations: async (own) => {
      const factors = await source.ropeFactors(config.headDim / 2);
      return [own(new Rotation(source, config, { length, factors, scale: 1 / Math.sqrt(config.headDim) }))];
    },
    layer: (i, own) => LlamaLayer.load(source, `blk.${i}`, config, own, options(i)),
  });
}

export const llama: Architecture = {
  architectures: ['llama', 'LlamaForCausalLM'],
  gguf: 'llama',
  names: DECODER_NAMES,
  pairs: 'reordered',
  config(source: ConfigSource, vocabSize?: number) {
    const experts = source.number('num_experts', 0);
    if (experts > 0) throw unsupported(`is a mixture of ${experts} experts`);
    return decoderConfig(source, vocabSize);
  },
  build: (source, config, length) => llamaModel(source, config, length),
};
