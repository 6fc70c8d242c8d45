/** OLMo 3: OLMo 2 with a window in three of four layers, whose rotations are never scaled. GGUF files are called `olmo2`. */
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { windowedLayers, windowedRope } from '../config/layer-types';
import type { RopeConfig } from '../config/rope';
import type { Architecture } from '../registry';
import { POST_NORMS } from './layer';
import { olmo2 } from './olmo2';
import { transformer } from './transformer';

export interface Olmo3Config extends DecoderConfig {
  /** Positions that a local layer sees, the token's own included. */
  slidingWindow: number;
  /** Whether each layer is local. */
  local: readonly boolean[];
  /** How local layers rotate. */
  localRope: RopeConfig;
}

export const olmo3: Architecture<Olmo3Config> = {
  ...olmo2,
  architectures: ['olmo3', 'Olmo3ForCausalLM'],
  ggufExtras: undefined,
  isInGguf: (source) => source.number('sliding_window', 0) !== 0,
  config(source, vocabSize) {
    const base = decoderConfig(source, vocabSize);
    return {
      ...base,
      slidingWindow: source.count('sliding_window'),
      local: windowedLayers(source, base.numLayers, 4),
      localRope: windowedRope(source, base),
    };
  },
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      rotations: [config, config.localRope],
      layer: (i) => ({
        attention: { qkNorm: 'width', window: config.local[i] ? config.slidingWindow : undefined },
        rotation: config.local[i] ? 1 : 0,
        norms: POST_NORMS,
      }),
    }),
};
