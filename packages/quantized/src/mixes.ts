/**
 * Which type each weight of a model gets when the whole is quantised to `q4_k_m` and the like: the mixes of llama.cpp's
 * quantising tool, with its names, its numbers (`general.file_type`) and its choices for transformers. Values that need
 * more bits get them: attention values and the feed-forward's second matrix of some layers, the output matrix.
 */
import { kinds } from '@x/core';
import { blockFormat, type QuantType } from './blocks';

/** Names of mixes, and what most weights become. */
export const MIXES = {
  f32: { fileType: 0, type: 'f32' },
  f16: { fileType: 1, type: 'f16' },
  bf16: { fileType: 32, type: 'bf16' },
  q4_0: { fileType: 2, type: 'q4_0' },
  q4_1: { fileType: 3, type: 'q4_1' },
  q5_0: { fileType: 8, type: 'q5_0' },
  q5_1: { fileType: 9, type: 'q5_1' },
  q8_0: { fileType: 7, type: 'q8_0' },
  q2_k: { fileType: 10, type: 'q2_K' },
  q3_k_s: { fileType: 11, type: 'q3_K' },
  q3_k_m: { fileType: 12, type: 'q3_K' },
  q3_k_l: { fileType: 13, type: 'q3_K' },
  q4_k_s: { fileType: 14, type: 'q4_K' },
  q4_k_m: { fileType: 15, type: 'q4_K' },
  q5_k_s: { fileType: 16, type: 'q5_K' },
  q5_k_m: { fileType: 17, type: 'q5_K' },
  q6_k: { fileType: 18, type: 'q6_K' },
  iq4_nl: { fileType: 25, type: 'iq4_nl' },
  iq4_xs: { fileType: 30, type: 'iq4_xs' },
  tq1_0: { fileType: 36, type: 'tq1_0' },
  tq2_0: { fileType: 37, type: 'tq2_0' },
  mxfp4: { fileType: 38, type: 'mxfp4' },
} as const satisfies Record<string, { fileType: number; type: QuantType }>;

export type MixName = keyof typeof MIXES;

/** Whether {@link MIXES} has a mix of this name, in small letters: `q4_k_m`. */
export function isMixName(name: string): name is MixName {
  return Object.hasOwn(MIXES, name);
}

/** What the choice depends on beside names and shapes. */
export interface MixFacts {
  /** Query heads that share a key and value head; default 1. */
  groupSize?: number;
  /** Experts of a mixture; default 0. */
  experts?: number;
  /** Whether there is importance data; it makes some precautions needless. Default false. */
  importance?: boolean;
}

export interface MixTensor {
  readonly name: string;
  /** Outermost dimension first. */
  readonly shape: readonly number[];
}

type Category = 'output' | 'embedding' | 'value' | 'qkv' | 'key' | 'attention' | 'down' | 'other';

/** Parts of names whose matrices are small or delicate and stay as they are. */
const KEPT = [
  '_norm.weight',
  'ffn_gate_inp.weight',
  'ssm_conv1d',
  'shortconv.conv.weight',
  'time_mix_first.weight',
  'time_mix_lerp_fused.weight',
  'attn_rel_b.weight',
  'position_embd',
  'token_types.weight',
  'patch_embd',
];

const MIX = kinds.oneOf(Object.keys(MIXES));
const TENSOR = kinds.fields({ name: kinds.STRING, shape: kinds.COUNTS });
const TENSORS = kinds.kind(
  (value) => Array.isArray(value) && value.every(TENSOR.test),
  "give an array of names and shapes, as [{ name: 'output.weight', shape: [4096, 512] }]",
);
const FACTS = kinds.optional(
  kinds.fields({
    groupSize: kinds.optional(kinds.NUMBER),
    experts: kinds.optional(kinds.NUMBER),
    importance: kinds.optional(kinds.BOOLEAN),
  }),
);

/** Whether a tensor is a matrix that mixes quantise; norms, biases, routers and other small ones keep their values. */
export function isQuantizable(tensor: MixTensor): boolean {
  kinds.check('isQuantizable', 'tensor', tensor, TENSOR);
  const { name, shape } = tensor;
  const dims = shape.filter((dim) => dim > 1).length;
  return dims >= 2 && name.endsWith('weight') && !KEPT.some((part) => name.includes(part));
}

/** The type of every quantisable tensor of a model, by name. Names are llama.cpp's; others get the mix's main type. */
export function planMix(mix: MixName, tensors: readonly MixTensor[], facts: MixFacts = {}): Map<string, QuantType> {
  kinds.check('planMix', 'mix', mix, MIX);
  kinds.check('planMix', 'tensors', tensors, TENSORS);
  kinds.check('planMix', 'facts', facts, FACTS);
  const chosen = tensors.filter(isQuantizable);
  const layers = 1 + Math.max(-1, ...chosen.map(({ name }) => layerOf(name) ?? -1));
  const tied = !tensors.some(({ name }) => name === 'output.weight');
  const values = chosen.filter(({ name }) => ['value', 'qkv'].includes(categoryOf(name))).length;
  const plan = new Map<string, QuantType>();
  for (const tensor of chosen) {
    const { type } = MIXES[mix];
    const quantized = blockFormat(type).blockSize > 1;
    const wanted = quantized ? typeOf(mix, tensor, { ...facts, layers, tied, values }) : type;
    plan.set(tensor.name, fitting(wanted, tensor));
  }
  return plan;
}

interface Model extends MixFacts {
  layers: number;
  /** The embedding serves as the output matrix too. */
  tied: boolean;
  /** Attention value matrices. */
  values: number;
}

function typeOf(mix: MixName, tensor: MixTensor, model: Model): QuantType {
  const { type } = MIXES[mix];
  const category = categoryOf(tensor.name);
  const { experts = 0, groupSize = 1, importance = false, layers } = model;
  const layer = layerOf(tensor.name) ?? 0;
  if (category === 'output' || (category === 'embedding' && model.tied)) {
    if (type === 'q8_0' || type === 'mxfp4') return 'q8_0';
    return (tensor.shape.at(-1) ?? 1) % blockFormat(type).blockSize === 0 ? 'q6_K' : 'q8_0';
  }
  // Of a mixture only the experts take four bits; a model without any is all matrices.
  if (mix === 'mxfp4') return category === 'embedding' || (experts > 0 && tensor.shape.length < 3) ? 'q8_0' : type;
  if (category === 'embedding') return mix === 'tq1_0' || mix === 'tq2_0' ? 'q4_K' : type;
  if (category === 'value' || category === 'qkv') {
    if (experts === 8) return 'q8_0';
    if (mix === 'q2_k') return groupSize >= 4 ? 'q4_K' : 'q3_K';
    if (mix === 'q3_k_m') return layer < 2 ? 'q5_K' : 'q4_K';
    if (mix === 'q3_k_l') return 'q5_K';
    if ((mix === 'iq4_nl' || mix === 'iq4_xs') && groupSize >= 4) return 'q5_K';
    if ((mix === 'q4_k_m' || mix === 'q5_k_m') && takesMoreBits(layer, model.values)) return 'q6_K';
    if (mix === 'q4_k_s' && layer < 4) return 'q5_K';
    return type;
  }
  if (category === 'key') return experts === 8 ? 'q8_0' : type;
  if (category === 'down') {
    const first = layer < Math.floor(layers / 8);
    if (mix === 'q2_k') return 'q3_K';
    if (mix === 'q3_k_m') return layer < Math.floor(layers / 16) ? 'q5_K' : 'q4_K';
    if (mix === 'q3_k_l') return 'q5_K';
    if ((mix === 'q4_k_m' || mix === 'q5_k_m') && takesMoreBits(layer, layers)) return 'q6_K';
    if (mix === 'q4_k_s' && first) return 'q5_K';
    if ((mix === 'iq4_nl' || mix === 'iq4_xs') && first && !importance) return 'q5_K';
    if ((mix === 'q4_0' || mix === 'q5_0') && first && importance) return mix === 'q4_0' ? 'q4_1' : 'q5_1';
    return type;
  }
  if (category === 'attention') {
    const k = ['q2_k', 'q3_k_s', 'q3_k_m', 'q4_k_s', 'q4_k_m', 'iq4_nl', 'iq4_xs'];
    if (experts === 8) return k.includes(mix) ? 'q5_K' : type;
    if (mix === 'q2_k') return 'q3_K';
    if (mix === 'q3_k_m') return 'q4_K';
    if (mix === 'q3_k_l') return 'q5_K';
  }
  return type;
}

/** The first and last eighth of the layers, and every third between. */
function takesMoreBits(layer: number, layers: number): boolean {
  const eighth = Math.floor(layers / 8);
  return layer < eighth || layer >= Math.floor((7 * layers) / 8) || (layer - eighth) % 3 === 2;
}

function categoryOf(name: string): Category {
  if (name === 'output.weight') return 'output';
  if (name === 'token_embd.weight' || name === 'per_layer_token_embd.weight') return 'embedding';
  if (name.includes('attn_qkv.weight')) return 'qkv';
  if (name.includes('attn_v.weight') || name.includes('attn_kv_b.weight')) return 'value';
  if (name.includes('attn_k.weight')) return 'key';
  if (name.includes('attn_output.weight')) return 'attention';
  return name.includes('ffn_down') ? 'down' : 'other';
}

function layerOf(name: string): number | undefined {
  const match = /^blk\.(\d+)\./.exec(name);
  return match === null ? undefined : Number(match[1]);
}

/** Types with blocks of 32 that stand in for those with blocks of 256. */
const SMALLER: Partial<Record<QuantType, QuantType>> = {
  iq4_xs: 'iq4_nl',
  q2_K: 'q4_0',
  q3_K: 'q4_0',
  tq1_0: 'q4_0',
  tq2_0: 'q4_0',
  q4_K: 'q5_0',
  q5_K: 'q5_1',
  q6_K: 'q8_0',
};

/** The type, or one with smaller blocks when rows are no whole number of its blocks; f16 when none fits. */
function fitting(type: QuantType, { shape }: MixTensor): QuantType {
  const k = shape.at(-1) ?? 1;
  for (const candidate of [type, SMALLER[type]]) {
    if (candidate !== undefined && k % blockFormat(candidate).blockSize === 0) return candidate;
  }
  return 'f16';
}
