import { GgufMetadata, type GgufValue, gguf } from '@x/quantized';
import { describe, expect, it } from 'vitest';
import { describeConfig, describeGguf } from '../registry';
import { ropeFrequencies } from './rope';

const fromJson = (value: unknown) => describeConfig(value).config;
const fromGguf = (value: GgufMetadata) => describeGguf(value).config;

const json = {
  model_type: 'llama',
  vocab_size: 100,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 128,
  rms_norm_eps: 1e-5,
};
const entries = {
  'general.architecture': 'llama',
  'llama.vocab_size': 100,
  'llama.embedding_length': 64,
  'llama.feed_forward_length': 96,
  'llama.block_count': 2,
  'llama.attention.head_count': 4,
  'llama.attention.head_count_kv': 2,
  'llama.context_length': 128,
  'llama.attention.layer_norm_rms_epsilon': 1e-5,
};
const metadata = (extra: Record<string, unknown> = {}) =>
  new GgufMetadata(
    'test.gguf',
    Object.entries({ ...entries, ...extra })
      .filter(([, value]) => value !== undefined)
      .map(([key, value]) => [key, typed(value)]),
  );
function typed(value: unknown): GgufValue {
  if (typeof value === 'string') return gguf.string(value);
  if (Array.isArray(value)) return gguf.strings(value);
  return Number.isInteger(value) ? gguf.uint32(value as number) : gguf.float32(value as number);
}

function failure(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    return `${(error as { code: string }).code}: ${(error as Error).message}`;
  }
  return 'no error';
}

describe('configuration', () => {
  it('is the same from both kinds of file', () => {
    const expected = {
      vocabSize: 100,
      hiddenSize: 64,
      intermediateSize: 96,
      numLayers: 2,
      numHeads: 4,
      numKvHeads: 2,
      headDim: 16,
      contextLength: 128,
      normEps: expect.closeTo(1e-5, 10),
      ropeTheta: 10000,
      ropeScaling: undefined,
    };
    expect(fromJson(json)).toEqual(expected);
    expect(fromGguf(metadata())).toEqual(expected);
    expect(fromGguf(metadata({ 'llama.vocab_size': undefined, 'tokenizer.ggml.tokens': ['a', 'b'] })).vocabSize).toBe(
      2,
    );
    expect(
      fromJson({ ...json, num_key_value_heads: null, head_dim: 32, rope_parameters: { rope_theta: 5e5 } }),
    ).toMatchObject({
      numKvHeads: 4,
      headDim: 32,
      ropeTheta: 5e5,
    });
  });

  it('refuses other models and says which ones work', () => {
    expect(failure(() => fromJson({ ...json, model_type: 'bert' }))).toMatch(/^UNSUPPORTED_MODEL: .*"bert".*llama/);
    expect(failure(() => fromGguf(metadata({ 'general.architecture': 'rwkv6' })))).toMatch(
      /^UNSUPPORTED_MODEL: .*"rwkv6".*llama/,
    );
    expect(failure(() => fromGguf(metadata({ 'llama.expert_count': 8 })))).toMatch(/^UNSUPPORTED_MODEL: .*8 experts/);
    expect(failure(() => fromGguf(metadata({ 'llama.rope.dimension_count': 8 })))).toMatch(
      /^UNSUPPORTED_MODEL: .*rotates 8/,
    );
    expect(failure(() => fromGguf(metadata({ 'llama.rope.scaling.type': 'yarn' })))).toMatch(
      /^UNSUPPORTED_MODEL: .*yarn/,
    );
    expect(failure(() => fromJson({ ...json, rope_scaling: { type: 'dynamic' } }))).toMatch(
      /^UNSUPPORTED_MODEL: .*dynamic/,
    );
    expect(failure(() => fromJson({ ...json, hidden_act: 'gelu' }))).toMatch(/^UNSUPPORTED_MODEL: .*gelu/);
    expect(failure(() => fromJson({ ...json, quantization_config: {} }))).toMatch(/^UNSUPPORTED_MODEL: /);
  });

  it('refuses numbers that cannot be', () => {
    expect(failure(() => fromJson([]))).toMatch(/^BAD_CONFIG: /);
    expect(failure(() => fromJson({ ...json, hidden_size: undefined }))).toMatch(/^BAD_CONFIG: .*hidden_size/);
    expect(failure(() => fromJson({ ...json, num_hidden_layers: -1 }))).toMatch(/^BAD_CONFIG: .*numLayers = -1/);
    expect(failure(() => fromJson({ ...json, num_key_value_heads: 3 }))).toMatch(/^BAD_CONFIG: .*4 heads for 3/);
    expect(failure(() => fromJson({ ...json, head_dim: 15 }))).toMatch(/^BAD_CONFIG: .*15/);
    expect(failure(() => fromJson({ ...json, rms_norm_eps: 0 }))).toMatch(/^BAD_CONFIG: .*normEps/);
    expect(failure(() => fromJson({ ...json, rope_scaling: { rope_type: 'llama3', factor: 8 } }))).toMatch(
      /^BAD_CONFIG: .*low_freq_factor/,
    );
    expect(failure(() => fromGguf(metadata({ 'llama.block_count': undefined })))).toMatch(
      /^GGUF_MISSING_KEY: .*block_count/,
    );
    expect(failure(() => fromGguf(metadata({ 'llama.block_count': 'two' })))).toMatch(/^GGUF_WRONG_TYPE: .*"two"/);
  });
});

describe('ropeFrequencies', () => {
  const base = { ...fromJson(json), headDim: 64, ropeTheta: 500000 };

  it('falls geometrically and is scaled linearly', () => {
    const plain = ropeFrequencies(base);
    expect([plain.length, plain[0]]).toEqual([32, 1]);
    expect(plain[16]).toBeCloseTo(1 / Math.sqrt(500000), 12);
    expect(ropeFrequencies({ ...base, ropeScaling: { type: 'linear', factor: 4 } })[16]).toBeCloseTo(plain[16] / 4, 12);
    expect(ropeFrequencies(base, new Float32Array(32).fill(2))[16]).toBeCloseTo(plain[16] / 2, 12);
  });

  it('is scaled as Llama 3.2 is', () => {
    const scaled = ropeFrequencies({
      ...base,
      ropeScaling: { type: 'llama3', factor: 32, lowFreqFactor: 1, highFreqFactor: 4, originalContextLength: 8192 },
    });
    // The formula of transformers' modeling_rope_utils.py, evaluated in Python.
    const expected: [number, number][] = [
      [0, 1],
      [8, 0.03760603093086393],
      [14, 0.0032114459947525913],
      [16, 0.00042955679655936815],
      [17, 9.70828780262767e-5],
      [31, 9.418306725434909e-8],
    ];
    for (const [i, value] of expected) expect(Math.abs(scaled[i] / value - 1)).toBeLessThan(1e-12);
  });
});
