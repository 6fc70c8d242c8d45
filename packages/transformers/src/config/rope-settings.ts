/** How configurations describe the scaling of rotations: config.json's `rope_scaling` or `rope_parameters`, and GGUF's keys. */
import { shown, unsupported } from './problems';
import type { RopeScaling } from './rope';

/** Settings of one rotation by key, and where an error says they are from. */
export interface RopeSettings {
  type: unknown;
  /** @throws TransformersError when it is no number above 0 */
  number(key: string, fallback?: number): number;
  has(key: string): boolean;
  numbers(key: string): readonly number[] | undefined;
  flag(key: string, fallback: boolean): boolean;
  /** Positions that the model is for. */
  contextLength: number;
}

/** @throws TransformersError UNSUPPORTED_MODEL for a kind that is not known, and as the settings */
export function readRopeScaling(settings: RopeSettings): RopeScaling | undefined {
  const { type, number, has, contextLength } = settings;
  const original = () => number('original_max_position_embeddings', contextLength);
  switch (type) {
    case 'default':
    // In sections for time, height and width, which are one number for texts: RopeConfig.ropeSections.
    case 'mrope':
      return undefined;
    case 'linear':
      return { type, factor: number('factor') };
    case 'dynamic':
      // As in transformers, from the length that the model is for, whatever was before.
      return { type, factor: number('factor'), originalContextLength: contextLength };
    case 'llama3':
      return {
        type,
        factor: number('factor'),
        lowFreqFactor: number('low_freq_factor'),
        highFreqFactor: number('high_freq_factor'),
        originalContextLength: original(),
      };
    case 'yarn': {
      const factor = number('factor', contextLength / original());
      const grown = (scale: number) => (factor <= 1 ? 1 : 0.1 * scale * Math.log(factor) + 1);
      const both = has('mscale') && has('mscale_all_dim');
      const inferred = both ? grown(number('mscale')) / grown(number('mscale_all_dim')) : grown(1);
      return {
        type,
        factor,
        originalContextLength: original(),
        betaFast: number('beta_fast', 32),
        betaSlow: number('beta_slow', 1),
        attentionFactor: number('attention_factor', inferred),
        magnitude: has('mscale_all_dim') ? grown(number('mscale_all_dim')) : 1,
        truncate: settings.flag('truncate', true),
      };
    }
    case 'longrope':
    case 'su': {
      const originalContextLength = original();
      const longer = has('factor') ? number('factor') : contextLength / originalContextLength;
      const inferred = longer <= 1 ? 1 : Math.sqrt(1 + Math.log(longer) / Math.log(originalContextLength));
      return {
        type: 'longrope',
        originalContextLength,
        attentionFactor: number('attention_factor', inferred),
        shortFactors: settings.numbers('short_factor'),
        longFactors: settings.numbers('long_factor'),
      };
    }
    default:
      throw unsupported(
        `scales positions by ${shown(type)}; "default", "linear", "dynamic", "llama3", "yarn", "longrope" and "mrope" work`,
      );
  }
}
