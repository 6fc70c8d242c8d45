/** SmolLM 3: Llama whose every fourth layer knows no positions. candle's smollm3.rs. */
import type { ConfigSource } from '../config/config-source';
import { type DecoderConfig, decoderConfig } from '../config/decoder-config';
import { askedWindow, windowedLayers } from '../config/layer-types';
import { shown, unsupported } from '../config/problems';
import type { Architecture } from '../registry';
import { DECODER_NAMES } from '../weights/tensor-names';
import { transformer } from './transformer';

export interface SmolLm3Config extends DecoderConfig {
  /** Whether each layer rotates queries and keys. */
  rotated: readonly boolean[];
  /** Positions that a token sees in each layer, its own included; undefined for all. */
  windows: readonly (number | undefined)[];
}

/** GGUF files do not hold it. */
const INTERVAL = 4;

function rotatedLayers(source: ConfigSource, numLayers: number): boolean[] {
  const flags = source.json('no_rope_layers') ?? undefined;
  if (flags === undefined) {
    const interval = source.jsonWhole('no_rope_layer_interval', INTERVAL);
    return Array.from({ length: numLayers }, (_, i) => interval === 0 || (i + 1) % interval !== 0);
  }
  if (!Array.isArray(flags) || flags.length !== numLayers || !flags.every((flag) => flag === 0 || flag === 1))
    throw unsupported(`has no_rope_layers ${shown(flags)}; ${numLayers} of 0 and 1 work`);
  return flags.map((flag) => flag === 1);
}

/** Windows, where they are asked for, are in the layers that `layer_types` names, else in those that do not rotate. */
function windowsOf(source: ConfigSource, rotated: readonly boolean[]): (number | undefined)[] {
  const window = askedWindow(source);
  const named = window !== undefined && source.json('layer_types') != null;
  const local = named ? windowedLayers(source, rotated.length, 0) : rotated.map((flag) => !flag);
  return local.map((flag) => (flag ? window : undefined));
}

export const smollm3: Architecture<SmolLm3Config> = {
  architectures: ['smollm3', 'SmolLM3ForCausalLM'],
  gguf: 'smollm3',
  names: DECODER_NAMES,
  pairs: 'reordered',
  config(source, vocabSize) {
    const base = decoderConfig(source, vocabSize);
    const rotated = rotatedLayers(source, base.numLayers);
    return { ...base, rotated, windows: windowsOf(source, rotated) };
  },
  // llama.cpp's files do not say which layers rotate, or have windows.
  ggufExtras: ({ rotated, windows }) =>
    rotated.every((flag, i) => flag === ((i + 1) % INTERVAL !== 0) && windows[i] === undefined) ? {} : undefined,
  build: (source, config, length) =>
    transformer(source, config, {
      length,
      layer: (i) => ({
        attention: { window: config.windows[i] },
        rotation: config.rotated[i] ? 0 : 'none',
      }),
    }),
};
