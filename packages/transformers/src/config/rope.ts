/**
 * Rotation frequencies of rotary position embeddings, and how positions beyond the trained length are squeezed in:
 * transformers' modeling_rope_utils.py, and `rope_freqs.weight` of GGUF files.
 */

/** `linear`: all positions closer together. `llama3`: slow rotations slower, fast ones as trained, those between blended. */
export type RopeScaling =
  | { type: 'linear'; factor: number }
  | { type: 'llama3'; factor: number; lowFreqFactor: number; highFreqFactor: number; originalContextLength: number };

export interface RopeConfig {
  headDim: number;
  ropeTheta: number;
  ropeScaling?: RopeScaling;
}

/**
 * The rotation of each pair of a head per position, in radians: [headDim / 2].
 * @param factors divisors of the frequencies, from a GGUF file's `rope_freqs.weight`
 */
export function ropeFrequencies(config: RopeConfig, factors?: ArrayLike<number>): Float64Array {
  const { headDim, ropeTheta, ropeScaling: scaling } = config;
  return Float64Array.from({ length: headDim / 2 }, (_, i) => {
    const frequency = ropeTheta ** ((-2 * i) / headDim) / (factors?.[i] ?? 1);
    if (!scaling) return frequency;
    if (scaling.type === 'linear') return frequency / scaling.factor;
    // llama3: long waves are stretched by the factor, short ones kept, those between blended.
    const { factor, lowFreqFactor: low, highFreqFactor: high } = scaling;
    const turns = (scaling.originalContextLength * frequency) / (2 * Math.PI);
    const kept = Math.min(1, Math.max(0, (turns - low) / (high - low)));
    return kept * frequency + ((1 - kept) * frequency) / factor;
  });
}

/** What a GGUF file divides the frequencies by where it cannot name the scaling: `rope_freqs.weight`. */
export function ropeFactors(config: RopeConfig): Float32Array {
  const scaled = ropeFrequencies(config);
  return Float32Array.from(ropeFrequencies({ ...config, ropeScaling: undefined }), (value, i) => value / scaled[i]);
}
