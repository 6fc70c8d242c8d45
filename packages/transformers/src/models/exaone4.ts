/**
 * EXAONE 4: norms behind attention and feed-forward layer, and of each head. The large model has a window in three of four
 * layers and no rotation in the fourth; the small one has neither.
 */
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { windowedLayers } from '../config/layer-types';
import type { Architecture } from '../registry';
import { BASE_NAMES, GATED_MLP_NAMES, POST_NORM_NAMES, QK_NORM_NAMES } from '../weights/tensor-names';
import { POST_NORMS } from './layer';
import type { WindowedConfig } from './mistral';
import { transformer } from './transformer';

export interface Exaone4Config extends DecoderConfig, WindowedConfig {
  /** Whether each layer is local. */
  local: readonly boolean[];
}

export const exaone4: Architecture<Exaone4Config> = {
  architectures: ['exaone4', 'Exaone4ForCausalLM'],
  gguf: 'exaone4',
  names: [...BASE_NAMES, ...POST_NORM_NAMES, ...QK_NORM_NAMES, ...GATED_MLP_NAMES],
  config(source, vocabSize) {
    const base = decoderConfig(source, vocabSize);
    const slidingWindow = source.has('sliding_window') ? source.count('sliding_window') : undefined;
    const local = slidingWindow ? windowedLayers(source, base.numLayers, 4) : Array(base.numLayers).fill(false);
    return { ...base, slidingWindow, local };
  },
  build(source, config, length) {
    const { local, slidingWindow } = config;
    return transformer(source, config, {
      length,
      layer: (i) => ({
        attention: { qkNorm: 'head', window: local[i] ? slidingWindow : undefined },
        rotation: slidingWindow === undefined || local[i] ? 0 : 'none',
        norms: POST_NORMS,
      }),
    });
  },
};
