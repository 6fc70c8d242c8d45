import { expect, test } from 'vitest';
import { ARCHITECTURES } from '../registry';
import { DECODER_NAMES, TensorNames } from './tensor-names';

test('names go there and back', () => {
  const names = new TensorNames(DECODER_NAMES);
  expect(names.toGguf('model.layers.31.mlp.up_proj.weight')).toEqual(['blk.31.ffn_up.weight']);
  expect(names.toCheckpoint('blk.31.ffn_up.bias')).toEqual({ name: 'model.layers.31.mlp.up_proj.bias', form: {} });
  expect(names.toGguf('model.norm.weight')).toEqual(['output_norm.weight']);
  expect(names.toCheckpoint('output.weight')).toEqual({ name: 'lm_head.weight', form: {} });
  for (const unknown of ['model.layers.1.mlp.experts.2.w1.weight', 'model.layers.x.mlp.up_proj.weight', '', 'model'])
    expect(names.toGguf(unknown)).toEqual([]);
  for (const unknown of ['blk.1.ffn_gate_exps.weight', 'blk.x.ffn_up.weight', 'blk.1.ffn_up', ''])
    expect(names.toCheckpoint(unknown)).toBeUndefined();
});

test('what checkpoints call in two ways', () => {
  const names = new TensorNames([
    ['layer.{i}.mlp.wo', 'blk.{i}.ffn_down'],
    ['layer.{i}.mlp.down_layer', 'blk.{i}.ffn_down', { transposed: true }],
  ]);
  expect(names.allInCheckpoints('blk.2.ffn_down.weight')).toEqual([
    { name: 'layer.2.mlp.wo.weight', form: {} },
    { name: 'layer.2.mlp.down_layer.weight', form: { transposed: true } },
  ]);
  expect(names.toCheckpoint('blk.2.ffn_down.weight')?.name).toBe('layer.2.mlp.wo.weight');
  expect(names.toGguf('layer.2.mlp.down_layer.bias')).toEqual(['blk.2.ffn_down.bias']);
  expect(names.allInCheckpoints('blk.2.ffn_up.weight')).toEqual([]);
});

test('experts, parts, and names of tensors without an ending', () => {
  const names = new TensorNames([
    ['model.layers.{i}.mlp.experts.{e}.w1', 'blk.{i}.ffn_gate_exps'],
    ['model.layers.{i}.mlp.gate_up', 'blk.{i}.ffn_gate', { part: [0, 2] }],
    ['model.layers.{i}.mlp.gate_up', 'blk.{i}.ffn_up', { part: [1, 2] }],
    ['model.layers.{i}.self_attn.sinks', 'blk.{i}.attn_sinks.weight'],
    ['model.layers.{i}.mixer.A_log', 'blk.{i}.ssm_a', { bare: true }],
  ]);
  expect(names.toCheckpoint('blk.4.ffn_gate_exps.weight')?.name).toBe('model.layers.4.mlp.experts.{e}.w1.weight');
  expect(names.toGguf('model.layers.4.mlp.experts.11.w1.weight')).toEqual(['blk.4.ffn_gate_exps.weight']);
  expect(names.toGguf('model.layers.4.mlp.gate_up.weight')).toEqual(['blk.4.ffn_gate.weight', 'blk.4.ffn_up.weight']);
  expect(names.toCheckpoint('blk.4.ffn_up.weight')?.form).toEqual({ part: [1, 2] });
  expect(names.toCheckpoint('blk.4.attn_sinks.weight')?.name).toBe('model.layers.4.self_attn.sinks');
  expect(names.toGguf('model.layers.4.self_attn.sinks')).toEqual(['blk.4.attn_sinks.weight']);
  expect(names.toCheckpoint('blk.4.ssm_a')?.name).toBe('model.layers.4.mixer.A_log');
  expect(names.toCheckpoint('blk.4.ssm_a.weight')).toBeUndefined();
  expect(names.toGguf('model.layers.4.mixer.A_log')).toEqual(['blk.4.ssm_a']);
});

test('no architecture gives two tensors one name', () => {
  for (const { architectures, names: pairs } of ARCHITECTURES) {
    const names = new TensorNames(pairs);
    for (const [, gguf, form] of pairs) {
      const asked = `${gguf.replace('{i}', '7')}${form?.bare || /\.(weight|bias)$/.test(gguf) ? '' : '.weight'}`;
      const stored = names.toCheckpoint(asked)?.name.replace('{e}', '3') ?? '';
      expect([architectures[0], names.toGguf(stored)]).toEqual([architectures[0], expect.arrayContaining([asked])]);
    }
    expect(new Set(pairs.map(([, gguf]) => gguf)).size).toBe(pairs.length);
  }
});
