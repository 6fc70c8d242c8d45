/** What GGUF files say in other ways than config.json, and leave out, counts as in llama.cpp. */
import { GgufMetadata, type GgufValue, gguf } from '@x/quantized';
import { expect, it } from 'vitest';
import { failure } from '../../test/failure';
import { describeConfig, describeGguf } from '../registry';

type Setting = number | string | readonly number[] | readonly boolean[];

/** A file of an architecture. @param extra settings by their keys without the architecture's name */
function describeOf(arch: string, extra: Readonly<Record<string, Setting>> = {}) {
  const settings: Record<string, Setting> = {
    vocab_size: 100,
    embedding_length: 64,
    feed_forward_length: 96,
    block_count: 6,
    'attention.head_count': 4,
    'attention.head_count_kv': 2,
    'attention.layer_norm_rms_epsilon': 1e-5,
    context_length: 128,
    ...extra,
  };
  const entries = Object.entries(settings).map(([key, value]) => [`${arch}.${key}`, typed(value)] as const);
  return describeGguf(new GgufMetadata('test.gguf', [['general.architecture', gguf.string(arch)], ...entries]));
}

const configOf = (...given: Parameters<typeof describeOf>) => describeOf(...given).config;

function typed(value: Setting): GgufValue {
  if (typeof value === 'string') return gguf.string(value);
  if (typeof value === 'number') return Number.isInteger(value) ? gguf.uint32(value) : gguf.float32(value);
  if (typeof value[0] === 'boolean') return { type: 'array', elementType: 'bool', value: value as readonly boolean[] };
  return gguf.array('int32', Int32Array.from(value as readonly number[]));
}

it('scales positions linearly where no kind is named', () => {
  const scaling = (extra: Readonly<Record<string, Setting>>) => configOf('llama', extra).ropeScaling;
  const four = { type: 'linear', factor: 4 };
  expect(scaling({ 'rope.scaling.factor': 4 })).toEqual(four);
  expect(scaling({ 'rope.scale_linear': 4 })).toEqual(four);
  expect(scaling({ 'rope.scaling.type': 'linear', 'rope.scale_linear': 4 })).toEqual(four);
  expect(scaling({ 'rope.scaling.factor': 4, 'rope.scale_linear': 8 })).toEqual(four);
  expect(scaling({ 'rope.scaling.type': 'linear' })).toEqual({ type: 'linear', factor: 1 });
  expect(scaling({ 'rope.scaling.type': 'none', 'rope.scaling.factor': 4 })).toBeUndefined();
  for (const key of ['rope.scaling.factor', 'rope.scale_linear']) expect(scaling({ [key]: 0 })).toBeUndefined();
  // As from a factor of 1, whatever length the model was for before.
  const yarn = { 'rope.scaling.type': 'yarn', 'rope.scaling.original_context_length': 32 };
  expect(scaling(yarn)).toMatchObject({ type: 'yarn', factor: 1 });
  // Of Phi's files, which hold divisors.
  expect(scaling({ 'rope.scaling.attn_factor': 1.25 })).toMatchObject({ type: 'longrope', attentionFactor: 1.25 });
});

it('takes windows by a number of layers, by numbers or by flags, and none of no width', () => {
  const [window, key] = ['attention.sliding_window', 'attention.sliding_window_pattern'];
  const gemma3 = (pattern: Setting) => configOf('gemma3', { [window]: 8, [key]: pattern });
  const some = [true, false, true, false, true, false];
  const usual = { local: [true, true, true, true, true, false], slidingWindow: 8 };
  expect(configOf('gemma3', { [window]: 8 })).toMatchObject(usual);
  for (const pattern of [2, [1, 0, 1, 0, 1, 0], some]) expect(gemma3(pattern)).toMatchObject({ local: some });
  expect(gemma3(0)).toMatchObject({ local: Array(6).fill(true) });
  expect(gemma3(1)).toMatchObject({ local: Array(6).fill(false) });
  for (const none of [{ [window]: 0 }, {}])
    expect(configOf('gemma3', none)).toMatchObject({ local: Array(6).fill(false), slidingWindow: undefined });
  const olmo = (width: number) => describeOf('olmo2', { [window]: width }).architecture.architectures[0];
  expect([0, 8].map(olmo)).toEqual(['olmo2', 'olmo3']);
  expect(failure(() => configOf('gemma3', { [window]: 1.5 }))).toMatch(
    /^BAD_CONFIG: The file gives gemma3.attention.sliding_window = 1.5, but a whole number/,
  );
});

it('caps the logits of Gemma 3', () => {
  const capped = (cap: number) => configOf('gemma3', { final_logit_softcapping: cap });
  expect([5, 0].map(capped)).toMatchObject([{ logitSoftcap: 5 }, { logitSoftcap: undefined }]);
  const sizes = { hidden_size: 64, intermediate_size: 96, num_hidden_layers: 6, num_attention_heads: 4 };
  const json = (more: object) => describeConfig({ model_type: 'gemma3_text', vocab_size: 9, ...sizes, ...more }).config;
  expect(json({ final_logit_softcapping: 5 })).toMatchObject({ logitSoftcap: 5 });
  expect(failure(() => json({ attn_logit_softcapping: 5 }))).toMatch(/^UNSUPPORTED_MODEL: .*attn_logit_softcapping/);
});

it('refuses ways of weighing experts that are not computed', () => {
  const moe = { expert_count: 8, expert_used_count: 2, expert_feed_forward_length: 32 };
  const of = (arch: string, extra: Readonly<Record<string, number>>) =>
    failure(() => configOf(arch, { ...moe, ...extra }));
  expect(of('qwen3moe', { expert_gating_func: 1, expert_weights_scale: 1 })).toBe('no error');
  expect(of('qwen3moe', { expert_gating_func: 2 })).toMatch(/^UNSUPPORTED_MODEL: .*not by softmax/);
  expect(of('qwen3moe', { expert_weights_scale: 2.5 })).toMatch(/^UNSUPPORTED_MODEL: .*experts by 2.5/);
  expect(of('glm4moe', { expert_gating_func: 2, expert_weights_scale: 2.5 })).toBe('no error');
  expect(of('glm4moe', { expert_gating_func: 1 })).toMatch(/^UNSUPPORTED_MODEL: .*not by sigmoid/);
});

it('takes a number for each layer where all are one', () => {
  const numbers = { 'attention.head_count': 4, 'attention.head_count_kv': 2, feed_forward_length: 96 };
  const each = Object.entries(numbers).map(([key, value]) => [key, Array<number>(6).fill(value)] as const);
  expect(configOf('llama', Object.fromEntries(each))).toEqual(configOf('llama'));
  for (const [key, equal] of each) {
    const of = (...values: number[]) => failure(() => configOf('llama', { [key]: values }));
    expect(of(...equal.slice(1), 8)).toMatch(new RegExp(`^UNSUPPORTED_MODEL: .*layers of different sizes .*${key} = `));
    expect(of(...equal, equal[0])).toMatch(new RegExp(`^BAD_CONFIG: .*${key} for 7 layers, but has 6`));
  }
});
