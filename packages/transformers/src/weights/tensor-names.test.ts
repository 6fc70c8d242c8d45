import { expect, test } from 'vitest';
import { ARCHITECTURES } from '../registry';
import { DECODER_NAMES, TensorNames } from './tensor-names';

test('names go there and back', () => {
  const names = new TensorNames(DECODER_NAMES);
  expect(names.toGguf('model.layers.31.mlp.up_proj')).toBe('blk.31.ffn_up');
  expect(names.toCheckpoint('blk.31.ffn_up')).toBe('model.layers.31.mlp.up_proj');
  expect(names.toGguf('model.norm')).toBe('output_norm');
  expect(names.toCheckpoint('output')).toBe('lm_head');
  for (const unknown of ['model.layers.1.mlp.experts.2.w1', 'model.layers.x.mlp.up_proj', '', 'model.layers.1'])
    expect(names.toGguf(unknown)).toBeUndefined();
});

test('no architecture gives two tensors one name', () => {
  for (const { name, tensors } of ARCHITECTURES) {
    const names = new TensorNames(tensors);
    const checkpoint = [...new Map(tensors).keys()].map((tensor) => tensor.replace('{i}', '7'));
    for (const tensor of checkpoint)
      expect([name, names.toCheckpoint(names.toGguf(tensor) ?? '')]).toEqual([name, tensor]);
  }
});
