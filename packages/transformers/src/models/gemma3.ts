/**
 * Gemma 3, text: candle's gemma3.rs and quantized_gemma3.rs. Differences from Llama: embeddings times sqrt(hidden), norms
 * behind attention and feed-forward layer too, norms of queries and keys, and layers that see a window of positions only,
 * five of six in released models, which rotate by a base of their own.
 */
import type { RmsNorm } from '@x/nn';
import { type ConfigSource, jsonRopeScaling, partOf, shown, unsupported } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import type { Architecture } from '../registry';
import { BASE_NAMES, FOUR_NORM_NAMES, GATED_MLP_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import type { Weights } from '../weights/weights';
import { type Angles, Attention, Rotation } from './attention';
import type { LayerKv } from './causal-model';
import { Decoder, type DecoderLayer, type Own } from './decoder';
import { GatedMlp } from './gated-mlp';
import { normed, type Residual } from './residual';

export interface Gemma3Config extends DecoderConfig {
  /** Positions that a local layer sees, the token's own included. */
  slidingWindow: number;
  /** Whether each layer is local. */
  local: readonly boolean[];
  /** Base of the local layers' rotation. */
  localRopeTheta: number;
  /** Multiplies the scores of attention. */
  attentionScale: number;
}

/** Released models have a layer that sees everything after five that do not. */
const PATTERN = 6;

class Gemma3Layer implements DecoderLayer {
  private constructor(
    private readonly local: boolean,
    private readonly attention: Attention,
    private readonly mlp: GatedMlp,
    private readonly norms: { input: RmsNorm; postAttention: RmsNorm; preMlp: RmsNorm; postMlp: RmsNorm },
  ) {}

  static async load(source: Weights, index: number, config: Gemma3Config, own: Own): Promise<Gemma3Layer> {
    const at = `blk.${index}`;
    const local = config.local[index];
    const norm = async (name: string) => own(await source.norm(`${at}.${name}`, config.hiddenSize, config.normEps));
    const attention = { qkNorm: true, window: local ? config.slidingWindow : undefined };
    return new Gemma3Layer(
      local,
      own(await Attention.load(source, at, config, attention)),
      own(await GatedMlp.load(source, at, config, 'gelu_pytorch_tanh')),
      {
        input: await norm('attn_norm'),
        postAttention: await norm('post_attention_norm'),
        preMlp: await norm('ffn_norm'),
        postMlp: await norm('post_ffw_norm'),
      },
    );
  }

  attend(at: Residual, [global, local]: readonly Angles[], kv: LayerKv): Residual {
    const { x, input } = normed(at, this.norms.input, this.attention.reads);
    const delta = this.attention.forward(input, this.local ? local : global, kv);
    return { x, delta, deltaNorm: this.norms.postAttention };
  }

  feed(at: Residual): Residual {
    const { x, input } = normed(at, this.norms.preMlp, this.mlp.reads);
    return { x, delta: this.mlp.forward(input), deltaNorm: this.norms.postMlp };
  }

  dispose(): void {
    const { input, postAttention, preMlp, postMlp } = this.norms;
    for (const part of [this.attention, this.mlp, input, postAttention, preMlp, postMlp]) part.dispose();
  }
}

/** Which layers are local: `layer_types` of config.json, or every one but each sixth. */
function localLayers(source: ConfigSource, numLayers: number): boolean[] {
  const types = source.json('layer_types');
  if (types === undefined || types === null) {
    const pattern = source.jsonNumber('sliding_window_pattern', source.jsonNumber('_sliding_window_pattern', PATTERN));
    return Array.from({ length: numLayers }, (_, i) => (i + 1) % pattern !== 0);
  }
  const known = ['sliding_attention', 'full_attention'];
  if (!Array.isArray(types) || types.length !== numLayers || !types.every((type) => known.includes(type))) {
    throw unsupported(`has layer_types ${shown(types)}; ${numLayers} of "${known.join('" or "')}" work`);
  }
  return types.map((type) => type === 'sliding_attention');
}

function gemma3Config(source: ConfigSource, vocabSize?: number): Gemma3Config {
  if (source.json('attn_logit_softcapping') || source.json('final_logit_softcapping')) {
    throw unsupported('caps its scores or logits');
  }
  if (source.json('use_bidirectional_attention')) throw unsupported('looks at tokens that follow');
  // Rotations of the two kinds of layers, where transformers 5 wrote them down.
  const rope = partOf({ rope_parameters: source.json('rope_parameters') }, 'rope_parameters') ?? {};
  const full = partOf(rope, 'full_attention');
  const theta = (kind: string, fallback: number) => {
    const value = partOf(rope, kind)?.rope_theta;
    return typeof value === 'number' ? value : fallback;
  };
  const activations = ['gelu_pytorch_tanh'];
  const base = decoderConfig(source, vocabSize, { headDim: 256, ropeTheta: theta('full_attention', 1e6), activations });
  const scalar = source.jsonNumber('query_pre_attn_scalar', ggufScalar(base));
  return {
    ...base,
    ropeScaling: full ? jsonRopeScaling(full) : base.ropeScaling,
    slidingWindow: source.count('sliding_window'),
    local: localLayers(source, base.numLayers),
    localRopeTheta: source.number('rope_local_base_freq', theta('sliding_attention', 10000)),
    attentionScale: 1 / Math.sqrt(scalar),
  };
}

/** GGUF files do not hold it; llama.cpp knows that of the 27B model (62 layers) is hidden / heads, of the others headDim. */
function ggufScalar({ numLayers, hiddenSize, numHeads, headDim }: DecoderConfig): number {
  return numLayers === 62 ? hiddenSize / numHeads : headDim;
}

export const gemma3: Architecture<Gemma3Config> = {
  architectures: ['gemma3_text', 'Gemma3ForCausalLM'],
  gguf: 'gemma3',
  names: [...BASE_NAMES, ...FOUR_NORM_NAMES, ...QK_NORM_NAMES, ...GATED_MLP_NAMES],
  normOffset: 1,
  config: gemma3Config,
  ggufExtras: (config) => ({
    whole: { sliding_window: config.slidingWindow },
    real: { rope_local_base_freq: config.localRopeTheta },
  }),
  build(source, config, length) {
    const options = { length, scale: config.attentionScale };
    return Decoder.load(source, config, {
      embeddingScale: Math.sqrt(config.hiddenSize),
      rotations: (own) => [
        own(new Rotation(source, config, options)),
        own(new Rotation(source, { headDim: config.headDim, ropeTheta: config.localRopeTheta }, options)),
      ],
      layer: (i, own) => Gemma3Layer.load(source, i, config, own),
    });
  },
};
