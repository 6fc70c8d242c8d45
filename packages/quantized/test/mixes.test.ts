/** Which types mixes give to the weights of a model: llama.cpp's choices for 32 layers. */
import { describe, expect, test } from 'vitest';
import { blockFormat, isQuantizable, MIXES, type MixName, type MixTensor, planMix } from '../src';

function model(layers: number, width = 512): MixTensor[] {
  const tensors: MixTensor[] = [
    { name: 'token_embd.weight', shape: [1000, width] },
    { name: 'output_norm.weight', shape: [width] },
    { name: 'output.weight', shape: [1000, width] },
  ];
  for (let i = 0; i < layers; i++) {
    for (const part of ['attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_gate', 'ffn_up', 'ffn_down']) {
      tensors.push({ name: `blk.${i}.${part}.weight`, shape: [width, width] });
    }
    tensors.push(
      { name: `blk.${i}.attn_norm.weight`, shape: [width] },
      { name: `blk.${i}.attn_q.bias`, shape: [width] },
    );
  }
  return tensors;
}

/** Layers whose `part` got `type`. */
function layersOf(plan: ReadonlyMap<string, string>, part: string, type: string): number[] {
  return [...plan]
    .filter(([name, given]) => name.endsWith(`.${part}.weight`) && given === type)
    .map(([name]) => Number(name.split('.')[1]));
}

/** The first four, the last four, and every third between. */
const MORE_BITS = [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31];
const ALL = Array.from({ length: 32 }, (_, i) => i);

describe('32 layers', () => {
  const plan = (mix: MixName, facts = {}) => planMix(mix, model(32), facts);

  test('q4_k_m and q5_k_m', () => {
    for (const [mix, type] of [
      ['q4_k_m', 'q4_K'],
      ['q5_k_m', 'q5_K'],
    ] as const) {
      const types = plan(mix);
      expect(types.size).toBe(2 + 7 * 32);
      expect([types.get('token_embd.weight'), types.get('output.weight')]).toEqual([type, 'q6_K']);
      expect(layersOf(types, 'attn_v', 'q6_K')).toEqual(MORE_BITS);
      expect(layersOf(types, 'ffn_down', 'q6_K')).toEqual(MORE_BITS);
      for (const part of ['attn_q', 'attn_k', 'attn_output', 'ffn_gate', 'ffn_up']) {
        expect(layersOf(types, part, type)).toEqual(ALL);
      }
    }
  });

  test('q4_k_s, q3_k_m, q3_k_l and q2_k', () => {
    expect(layersOf(plan('q4_k_s'), 'attn_v', 'q5_K')).toEqual([0, 1, 2, 3]);
    expect(layersOf(plan('q4_k_s'), 'ffn_down', 'q5_K')).toEqual([0, 1, 2, 3]);
    expect(layersOf(plan('q3_k_m'), 'attn_v', 'q5_K')).toEqual([0, 1]);
    expect(layersOf(plan('q3_k_m'), 'ffn_down', 'q5_K')).toEqual([0, 1]);
    expect(layersOf(plan('q3_k_m'), 'attn_output', 'q4_K')).toEqual(ALL);
    for (const part of ['attn_v', 'ffn_down', 'attn_output']) {
      expect(layersOf(plan('q3_k_l'), part, 'q5_K')).toEqual(ALL);
      expect(layersOf(plan('q2_k'), part, 'q3_K')).toEqual(ALL);
    }
    expect(layersOf(plan('q2_k', { groupSize: 4 }), 'attn_v', 'q4_K')).toEqual(ALL);
    expect(layersOf(plan('q3_k_s'), 'attn_v', 'q3_K')).toEqual(ALL);
  });

  test('importance makes precautions needless, or needed', () => {
    expect(layersOf(plan('iq4_xs'), 'ffn_down', 'q5_K')).toEqual([0, 1, 2, 3]);
    expect(layersOf(plan('iq4_xs', { importance: true }), 'ffn_down', 'q5_K')).toEqual([]);
    expect(layersOf(plan('iq4_nl', { groupSize: 8 }), 'attn_v', 'q5_K')).toEqual(ALL);
    expect(layersOf(plan('q4_0'), 'ffn_down', 'q4_1')).toEqual([]);
    expect(layersOf(plan('q4_0', { importance: true }), 'ffn_down', 'q4_1')).toEqual([0, 1, 2, 3]);
  });

  test('experts', () => {
    const experts: MixTensor[] = [...model(1), { name: 'blk.0.ffn_up_exps.weight', shape: [8, 512, 512] }];
    experts.push({ name: 'blk.0.ffn_gate_inp.weight', shape: [8, 512] });
    const types = planMix('mxfp4', experts, { experts: 8 });
    expect(types.get('blk.0.ffn_up_exps.weight')).toBe('mxfp4');
    expect(types.get('blk.0.attn_q.weight')).toBe('q8_0');
    expect(types.has('blk.0.ffn_gate_inp.weight')).toBe(false);
    expect(planMix('mxfp4', model(1)).get('blk.0.attn_q.weight')).toBe('mxfp4');
    expect(planMix('q4_k_m', experts, { experts: 8 }).get('blk.0.attn_v.weight')).toBe('q8_0');
    expect(planMix('q4_k_m', experts, { experts: 8 }).get('blk.0.attn_output.weight')).toBe('q5_K');
  });
});

test('every mix plans types that can be written and whose blocks fit', () => {
  for (const width of [512, 96, 31]) {
    for (const mix of Object.keys(MIXES) as MixName[]) {
      const plan = planMix(mix, model(4, width));
      for (const [name, type] of plan) {
        expect(blockFormat(type).quantize, name).toBeDefined();
        expect(width % blockFormat(type).blockSize, name).toBe(0);
      }
    }
  }
  expect(planMix('q4_k_m', model(1, 96)).get('blk.0.attn_q.weight')).toBe('q5_0');
  expect(planMix('q4_k_m', model(1, 31)).get('blk.0.attn_q.weight')).toBe('f16');
});

test('a tied embedding is an output matrix too', () => {
  const tied = model(1).filter(({ name }) => name !== 'output.weight');
  expect(planMix('q4_k_m', tied).get('token_embd.weight')).toBe('q6_K');
});

test('what stays as it is', () => {
  expect(isQuantizable({ name: 'blk.0.attn_norm.weight', shape: [4, 512] })).toBe(false);
  expect(isQuantizable({ name: 'blk.0.attn_q.bias', shape: [4, 512] })).toBe(false);
  expect(isQuantizable({ name: 'x.weight', shape: [1, 512] })).toBe(false);
  expect(isQuantizable({ name: 'x.weight', shape: [2, 512] })).toBe(true);
});
