import { GgufMetadata, type GgufValue, gguf } from '@x/quantized';
import { describe, expect, it } from 'vitest';
import { failure } from '../../test/failure';
import { describeConfig, describeGguf } from '../registry';
import { ropeFrequencies, ropeMagnitude } from './rope';

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
      rotaryDim: 16,
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
    expect(failure(() => fromGguf(metadata({ 'llama.expert_count': 8 })))).toMatch(/^GGUF_MISSING_KEY: .*used_count/);
    const crowded = { 'llama.expert_count': 8, 'llama.expert_used_count': 9 };
    expect(failure(() => fromGguf(metadata(crowded)))).toMatch(/^BAD_CONFIG: .*9 of 8 experts/);
    expect(failure(() => fromGguf(metadata({ 'llama.attention.value_length': 8 })))).toMatch(
      /^UNSUPPORTED_MODEL: .*value heads of 8/,
    );
    expect(failure(() => fromGguf(metadata({ 'llama.rope.scaling.type': 'warped' })))).toMatch(
      /^UNSUPPORTED_MODEL: .*warped/,
    );
    expect(failure(() => fromJson({ ...json, rope_scaling: { type: 'proportional' } }))).toMatch(
      /^UNSUPPORTED_MODEL: .*proportional/,
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

it('knows another name of SiLU', () => {
  expect(fromJson({ ...json, hidden_act: 'swish' })).toEqual(fromJson(json));
});

describe('text parts of models of texts and images', () => {
  // As in google/gemma-3-4b-it, which leaves out what transformers has anyway.
  const gemma = {
    architectures: ['Gemma3ForConditionalGeneration'],
    model_type: 'gemma3',
    eos_token_id: [1, 106],
    text_config: {
      hidden_size: 2560,
      intermediate_size: 10240,
      model_type: 'gemma3_text',
      num_hidden_layers: 34,
      rope_scaling: { factor: 8, rope_type: 'linear' },
      sliding_window: 1024,
    },
    vision_config: { hidden_size: 1152, model_type: 'siglip_vision_model' },
  };

  it('are described by text_config and what it means', () => {
    const { architecture, config, textPartOf } = describeConfig(gemma);
    expect([architecture.architectures[0], textPartOf]).toEqual(['gemma3_text', 'gemma3']);
    expect(config).toMatchObject({
      vocabSize: 262208,
      numLayers: 34,
      numHeads: 8,
      numKvHeads: 4,
      headDim: 256,
      contextLength: 131072,
      slidingWindow: 1024,
      attentionScale: 1 / 16,
      ropeTheta: 1e6,
      ropeScaling: { type: 'linear', factor: 8 },
      localRope: { ropeTheta: 10000, ropeScaling: undefined },
    });
    expect(describeConfig(json).textPartOf).toBeUndefined();
    const rope_scaling = { type: 'mrope', mrope_section: [2, 3, 3] };
    const flat = describeConfig({ ...json, model_type: 'qwen2_vl', rope_scaling });
    expect([flat.architecture.gguf, flat.textPartOf, flat.config.ropeSections]).toEqual([
      'qwen2vl',
      'qwen2_vl',
      [2, 3, 3],
    ]);
    expect(flat.config.ropeTheta).toBe(1e6);
  });

  it('are refused where they are of another kind, or damaged', () => {
    const of = (text_config: unknown) => failure(() => fromJson({ ...gemma, text_config }));
    expect(of({ model_type: 'rwkv6' })).toMatch(/^UNSUPPORTED_MODEL: .*"rwkv6" of the text part of this "gemma3"/);
    expect(of([])).toMatch(/^BAD_CONFIG: .*text_config/);
    expect(of({ model_type: 3 })).toMatch(/^BAD_CONFIG: .*model_type = 3/);
    expect(failure(() => fromJson({ ...gemma, model_type: 'mllama' }))).toMatch(
      /^UNSUPPORTED_MODEL: .*"mllama" is not/,
    );
    const packed = { ...gemma, quantization_config: { quant_method: 'awq' } };
    expect(failure(() => fromJson(packed))).toMatch(/^UNSUPPORTED_MODEL: .*awq/);
  });

  it('turn by sections that are as many as frequencies', () => {
    const sections = (mrope_section: unknown) =>
      failure(() => fromJson({ ...json, rope_scaling: { type: 'mrope', mrope_section } }));
    expect(sections([4, 2, 2])).toBe('no error');
    expect(sections([16, 24, 24])).toMatch(/^BAD_CONFIG: .*64 frequencies .*16 values/);
    for (const bad of [undefined, [8], [4, 2, 1.5], 'x']) expect(sections(bad)).toMatch(/^BAD_CONFIG: .*mrope_section/);
    const inGguf = (...counts: number[]) =>
      failure(() =>
        describeGguf(
          new GgufMetadata('test.gguf', [
            ...metadata(),
            ['llama.rope.dimension_sections', gguf.array('int32', Int32Array.from(counts))],
          ]),
        ),
      );
    expect(inGguf(4, 2, 2, 0)).toBe('no error');
    expect(inGguf(4, 2, 1, 0)).toMatch(/^BAD_CONFIG: .*7 frequencies/);
    expect(inGguf(2, 2, 2, 2)).toMatch(/^BAD_CONFIG: .*dimension_sections/);
    // Scaled as without sections.
    const yarn = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 32 };
    const scaled = fromJson({ ...json, rope_scaling: { ...yarn, mrope_section: [2, 3, 3] } });
    expect(ropeFrequencies(scaled)).toEqual(ropeFrequencies(fromJson({ ...json, rope_scaling: yarn })));
  });
});

describe('settings of another kind are refused by name', () => {
  const granite = { ...json, model_type: 'granite' };
  const deepseek = { ...json, model_type: 'deepseek_v3', num_experts_per_tok: 1, n_routed_experts: 8 };
  const olmo3 = { ...json, model_type: 'olmo3', sliding_window: 4 };
  const longrope = { rope_type: 'longrope', short_factor: [1, 2], long_factor: [1, 2, 3] };

  it.each([
    [{ ...json, model_type: 'qwen2', use_sliding_window: 'yes' }, /use_sliding_window = "yes", but true or false/],
    [{ ...json, model_type: 'olmoe', num_experts: 4, norm_topk_prob: 1 }, /norm_topk_prob = 1, but true or false/],
    [{ ...json, tie_word_embeddings: 'false' }, /tie_word_embeddings = "false"/],
    [{ ...json, rms_norm_eps: Number.POSITIVE_INFINITY }, /rms_norm_eps/],
    [{ ...granite, logits_scaling: 0 }, /logits_scaling = 0, but a number above 0/],
    [{ ...json, model_type: 'gemma2', final_logit_softcapping: -30 }, /final_logit_softcapping = -30/],
    [{ ...olmo3, rope_parameters: { sliding_attention: { rope_theta: -1 } } }, /ropeTheta = -1/],
    [{ ...json, rope_scaling: longrope }, /2 divisors .* for 8 frequencies/],
    [{ ...json, rope_scaling: { rope_type: 'yarn', factor: 2, truncate: 0 } }, /truncate = 0; true or false/],
    [{ ...deepseek, scoring_func: 'softmax' }, /scores experts by "softmax" \(scoring_func\)/],
    [{ ...deepseek, topk_method: 'greedy' }, /chooses experts by "greedy" \(topk_method\)/],
  ])('%j', (config, message) => {
    expect(failure(() => fromJson(config))).toMatch(message);
  });

  it.each([
    [{ 'llama.rope.freq_base': Number.NaN }, /llama.rope.freq_base = NaN/],
    [{ 'llama.rope.scaling.type': 'linear', 'llama.rope.scaling.factor': 0 }, /scaling.factor = 0, .* above 0/],
  ])('in GGUF files, too: %o', (entries, message) => {
    expect(failure(() => fromGguf(metadata(entries)))).toMatch(message);
  });
});

describe('rotations', () => {
  const yarn = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 32 };

  it('are those of rope_parameters where a file says both, unless someone has added rope_scaling', () => {
    const both = { ...json, model_type: 'nemotron', partial_rotary_factor: 0.5, rope_theta: 1, hidden_act: 'relu2' };
    const parameters = { rope_type: 'default', rope_theta: 700, partial_rotary_factor: 0.25 };
    expect(fromJson({ ...both, rope_parameters: parameters })).toMatchObject({ rotaryDim: 4, ropeTheta: 700 });
    const added = fromJson({ ...json, rope_parameters: parameters, rope_scaling: yarn });
    expect(added).toMatchObject({ ropeTheta: 700, ropeScaling: { type: 'yarn', originalContextLength: 32 } });
  });

  it('turn parts of heads in the architectures that do', () => {
    expect(fromJson({ ...json, partial_rotary_factor: 0.5 }).rotaryDim).toBe(16);
    expect(fromJson({ ...json, model_type: 'phi3', partial_rotary_factor: 0.5 }).rotaryDim).toBe(8);
  });

  it('take the length before scaling from the model, else from the scaling, else the whole', () => {
    const trained = (settings: object, more = {}) =>
      fromJson({ ...json, rope_scaling: { ...yarn, ...settings }, ...more }).ropeScaling;
    expect(trained({}, { original_max_position_embeddings: 64 })).toMatchObject({ originalContextLength: 64 });
    expect(trained({})).toMatchObject({ originalContextLength: 32 });
    const llama3 = { rope_type: 'llama3', low_freq_factor: 1, high_freq_factor: 4 };
    expect(trained({ ...llama3, original_max_position_embeddings: null })).toMatchObject({
      originalContextLength: 128,
    });
    expect(trained({ factor: null })).toMatchObject({ factor: 4, originalContextLength: 32 });
  });
});

describe("settings that config.json leaves out are those of transformers' classes", () => {
  const { rms_norm_eps: _, num_key_value_heads: __, max_position_embeddings: ___, ...bare } = json;
  const of = (model_type: string, more = {}) => fromJson({ ...bare, model_type, ...more });

  it.each([
    ['llama', {}, { normEps: 1e-6, numKvHeads: 4, contextLength: 2048 }],
    ['olmo2', {}, { normEps: 1e-5 }],
    ['mistral', { num_attention_heads: 8 }, { numKvHeads: 8, slidingWindow: 4096, contextLength: 131_072 }],
    ['mistral', { num_attention_heads: 8, sliding_window: null }, { slidingWindow: undefined }],
    ['gemma2', {}, { attentionScale: 1 / 16, softcap: { scores: 50, logits: 30 } }],
    ['gemma2', { final_logit_softcapping: null }, { softcap: { scores: 50, logits: undefined } }],
    ['lfm2', { num_attention_heads: 8 }, { normEps: 1e-5, taps: 3, ropeTheta: 1e6 }],
    ['lfm2', { num_attention_heads: 8, norm_eps: 1e-3 }, { normEps: 1e-3 }],
    ['smollm3', {}, { ropeTheta: 2e6 }],
    ['gpt_oss', { num_attention_heads: 8 }, { ropeTheta: 150_000, ropeScaling: { type: 'yarn', factor: 32 } }],
    ['mixtral', { num_attention_heads: 8, num_local_experts: 4 }, { moe: { experts: 4, chosen: 2 } }],
  ])('%s with %j', (type, more, expected) => {
    expect(of(type, more)).toMatchObject(expected);
  });
});

describe('ropeFrequencies', () => {
  const base = { ...fromJson(json), rotaryDim: 64, ropeTheta: 500000 };

  it('falls geometrically and is scaled linearly', () => {
    const plain = ropeFrequencies(base);
    expect([plain.length, plain[0]]).toEqual([32, 1]);
    expect(plain[16]).toBeCloseTo(1 / Math.sqrt(500000), 12);
    expect(ropeFrequencies({ ...base, ropeScaling: { type: 'linear', factor: 4 } })[16]).toBeCloseTo(plain[16] / 4, 12);
    expect(ropeFrequencies(base, { factors: new Float32Array(32).fill(2) })[16]).toBeCloseTo(plain[16] / 2, 12);
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
    near(scaled, expected);
  });

  // As above, from the formulas in Python.
  it('is scaled by yarn, whose range may be rounded', () => {
    const yarn = (rope: object) => fromJson({ ...json, head_dim: 64, rope_scaling: { rope_type: 'yarn', ...rope } });
    const exact = { factor: 32, original_max_position_embeddings: 4096, truncate: false };
    near(ropeFrequencies({ ...yarn(exact), ropeTheta: 150000 }), [
      [0, 1],
      [8, 0.050813274815461475],
      [12, 0.006794959489732219],
      [16, 0.00045648391922324086],
      [31, 3.0235114281192144e-7],
    ]);
    const rounded = yarn({ factor: 4, original_max_position_embeddings: 2048 });
    near(ropeFrequencies(rounded), [
      [8, 0.1],
      [12, 0.024325212770525993],
      [16, 0.005384615384615384],
      [31, 3.33380358040831e-5],
    ]);
    expect(ropeMagnitude(rounded)).toBeCloseTo(0.1 * Math.log(4) + 1, 12);
    expect(ropeMagnitude(yarn({ factor: 4, attention_factor: 0.5 }))).toBe(0.5);
    const entries = { 'llama.rope.scaling.type': 'yarn', 'llama.rope.scaling.factor': 4 };
    const inGguf = fromGguf(metadata({ ...entries, 'llama.rope.scaling.original_context_length': 2048 }));
    expect(inGguf.ropeScaling).toEqual(rounded.ropeScaling);
  });

  it('has a base that grows with the length for which a model is loaded', () => {
    // What the model was for before is of no account: transformers.
    const rope = { rope_type: 'dynamic', factor: 2, original_max_position_embeddings: 100 };
    const config = fromJson({ ...json, head_dim: 64, max_position_embeddings: 4096, rope_scaling: rope });
    near(ropeFrequencies(config, { length: 8192 }), [
      [1, 0.7237840223942559],
      [16, 0.005672099864306926],
      [31, 4.445071440544414e-5],
    ]);
    expect(ropeFrequencies(config, { length: 100 })).toEqual(ropeFrequencies({ ...config, ropeScaling: undefined }));
  });

  it('has divisors for short and for long texts', () => {
    const rope = { type: 'longrope', short_factor: [1, 2], long_factor: [4, 8] };
    const phi3 = { ...json, model_type: 'phi3', original_max_position_embeddings: 32 };
    const config = fromJson({ ...phi3, head_dim: 8, partial_rotary_factor: 0.5, rope_scaling: rope });
    expect(config.rotaryDim).toBe(4);
    expect(Array.from(ropeFrequencies(config, { length: 32 }))).toEqual([1, 0.005]);
    expect(Array.from(ropeFrequencies(config, { length: 33 }))).toEqual([0.25, 0.00125]);
    expect(ropeMagnitude(config)).toBeCloseTo(Math.sqrt(1 + Math.log(4) / Math.log(32)), 12);
    const short = { ...rope, short_factor: 3 };
    expect(failure(() => fromJson({ ...phi3, rope_scaling: short }))).toMatch(/^BAD_CONFIG: .*short_factor/);
  });
});

function near(got: Float64Array, expected: readonly [number, number][]): void {
  for (const [i, value] of expected) expect(Math.abs(got[i] / value - 1)).toBeLessThan(1e-12);
}
