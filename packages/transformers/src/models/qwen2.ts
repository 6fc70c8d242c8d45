/** Qwen 2 and 2.5: Llama with biases of query, key and value. candle's qwen2.rs and quantized_qwen2.rs. */
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { qwenWindows } from '../config/layer-types';
import type { Architecture } from '../registry';
import { DECODER_NAMES } from '../weights/tensor-names';
import { transformer } from './transformer';

/** Qwen 2 and 3 can have windows; no GGUF file holds them. */
export interface QwenConfig extends DecoderConfig {
  /** Positions that a token sees in each layer, its own included; undefined for all. */
  windows: readonly (number | undefined)[];
}

export const qwen2: Architecture<QwenConfig> = {
  architectures: ['qwen2', 'Qwen2ForCausalLM'],
  gguf: 'qwen2',
  names: DECODER_NAMES,
  config(source, vocabSize) {
    const base = decoderConfig(source, vocabSize);
    return { ...base, windows: qwenWindows(source, base.numLayers) };
  },
  ggufExtras: ({ windows }) => (windows.every((window) => window === undefined) ? {} : undefined),
  build: (source, config, length) =>
    transformer(source, config, { length, layer: (i) => ({ attention: { window: config.windows[i] } }) }),
};

/** The text part of Qwen 2 VL and 2.5 VL, whose GGUF files say how axes share the rotation. */
export const qwen2Vl: Architecture<QwenConfig> = {
  ...qwen2,
  architectures: ['qwen2_vl_text', 'qwen2_5_vl_text'],
  gguf: 'qwen2vl',
};
