/** Qwen 3: Llama with norms of queries and keys, a head each. candle's qwen3.rs and quantized_qwen3.rs. */
import { decoderConfig } from '../config/decoder-config';
import { qwenWindows } from '../config/layer-types';
import type { Architecture } from '../registry';
import { DECODER_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import type { QwenConfig } from './qwen2';
import { transformer } from './transformer';

export const qwen3: Architecture<QwenConfig> = {
  architectures: ['qwen3', 'Qwen3ForCausalLM'],
  gguf: 'qwen3',
  names: [...DECODER_NAMES, ...QK_NORM_NAMES],
  config(source, vocabSize) {
    const base = decoderConfig(source, vocabSize, { headDim: 128 });
    return { ...base, windows: qwenWindows(source, base.numLayers) };
  },
  ggufExtras: ({ windows }) => (windows.every((window) => window === undefined) ? {} : undefined),
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: (i) => ({ attention: { qkNorm: 'head', window: config.windows[i] } }),
    }),
};

/** The text part of Qwen 3 VL. */
export const qwen3Vl: Architecture<QwenConfig> = { ...qwen3, architectures: ['qwen3_vl_text'], gguf: 'qwen3vl' };
