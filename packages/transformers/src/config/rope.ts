/**
 * Rotation frequencies of rotary position embeddings, and how positions beyond the trained length are squeezed in:
 * transformers' modeling_rope_utils.py, and what llama.cpp puts into GGUF files for the same.
 *
 * Where transformers chooses by the length of the text so far (`dynamic`, `longrope`), the length that a model is loaded for
 * decides here, as in llama.cpp and vLLM: keys in the cache stay right, and a step depends on no number of the host.
 */
export type RopeScaling =
  /** All positions closer together. */
  | { type: 'linear'; factor: number }
  /** A base that grows with the length beyond the trained one. */
  | { type: 'dynamic'; factor: number; originalContextLength: number }
  /** Slow rotations slower, fast ones as trained, those between blended. */
  | { type: 'llama3'; factor: number; lowFreqFactor: number; highFreqFactor: number; originalContextLength: number }
  /** As llama3 by the number of turns; queries and keys grow by `attentionFactor`. */
  | {
      type: 'yarn';
      factor: number;
      originalContextLength: number;
      betaFast: number;
      betaSlow: number;
      attentionFactor: number;
      /** What architectures that say so multiply queries and keys with beside it, rotated or not. */
      magnitude: number;
      /** The range between fast and slow is rounded to whole dimensions. */
      truncate: boolean;
    }
  /** A divisor for each frequency; those of GGUF files are tensors. Queries and keys grow by `attentionFactor`. */
  | {
      type: 'longrope';
      originalContextLength: number;
      attentionFactor: number;
      shortFactors?: readonly number[];
      longFactors?: readonly number[];
    };

export interface RopeConfig {
  /** Elements of a head that are rotated, the first ones. */
  rotaryDim: number;
  ropeTheta: number;
  ropeScaling?: RopeScaling;
  /**
   * Frequencies that time, height and width of a place in an image or film turn. For texts the three are the same number, so that
   * positions turn as they do without sections, whether these lie one behind the other or take turns.
   */
  ropeSections?: readonly number[];
}

export interface FrequencyOptions {
  /** Divisors of the frequencies, from a GGUF file. */
  factors?: ArrayLike<number>;
  /** Positions that a sequence may have. Default: those of training. */
  length?: number;
}

/** The rotation of each pair of a head per position, in radians: [rotaryDim / 2]. */
export function ropeFrequencies(config: RopeConfig, { factors, length = 0 }: FrequencyOptions = {}): Float64Array {
  const { rotaryDim: dim, ropeScaling: scaling } = config;
  const base = baseFor(config, length);
  const plain = Float64Array.from({ length: dim / 2 }, (_, i) => base ** ((-2 * i) / dim) / (factors?.[i] ?? 1));
  switch (scaling?.type) {
    case 'linear':
      return plain.map((frequency) => frequency / scaling.factor);
    case 'llama3': {
      const { factor, lowFreqFactor: low, highFreqFactor: high, originalContextLength } = scaling;
      return plain.map((frequency) => {
        const turns = (originalContextLength * frequency) / (2 * Math.PI);
        return blended(frequency, factor, (turns - low) / (high - low));
      });
    }
    case 'yarn': {
      const { factor, originalContextLength, betaFast, betaSlow, truncate } = scaling;
      // The dimension, as a real number, whose pair makes so many turns in the trained length.
      const dimension = (turns: number) =>
        (dim * Math.log(originalContextLength / (turns * 2 * Math.PI))) / (2 * Math.log(base));
      const [first, last] = [dimension(betaFast), dimension(betaSlow)];
      const low = Math.max(0, truncate ? Math.floor(first) : first);
      const high = Math.min(dim - 1, truncate ? Math.ceil(last) : last);
      const width = high === low ? 0.001 : high - low;
      return plain.map((frequency, i) => blended(frequency, factor, 1 - (i - low) / width));
    }
    case 'longrope': {
      const own = length > scaling.originalContextLength ? scaling.longFactors : scaling.shortFactors;
      return plain.map((frequency, i) => frequency / (own?.[i] ?? 1));
    }
    default:
      return plain;
  }
}

/** What cosines and sines are multiplied with. */
export function ropeMagnitude({ ropeScaling: scaling }: RopeConfig): number {
  return scaling?.type === 'yarn' || scaling?.type === 'longrope' ? scaling.attentionFactor : 1;
}

/** What a GGUF file divides the frequencies by where it cannot name the scaling: `rope_freqs.weight`. */
export function ropeFactors(config: RopeConfig): Float32Array {
  const scaled = ropeFrequencies(config);
  return Float32Array.from(ropeFrequencies({ ...config, ropeScaling: undefined }), (value, i) => value / scaled[i]);
}

function baseFor({ ropeTheta, rotaryDim, ropeScaling: scaling }: RopeConfig, length: number): number {
  if (scaling?.type !== 'dynamic') return ropeTheta;
  const { factor, originalContextLength } = scaling;
  const longer = Math.max(length, originalContextLength) / originalContextLength;
  return ropeTheta * (factor * longer - (factor - 1)) ** (rotaryDim / (rotaryDim - 2));
}

/** A frequency that is kept (share 1), divided by the factor (0), or something between. */
function blended(frequency: number, factor: number, share: number): number {
  const kept = Math.min(1, Math.max(0, share));
  return kept * frequency + ((1 - kept) * frequency) / factor;
}
