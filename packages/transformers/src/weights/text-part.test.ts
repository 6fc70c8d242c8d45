import type { TensorReader } from '@x/core/files';
import { expect, test } from 'vitest';
import { textName, textPart } from './text-part';

/** A file of which only the names are looked at. */
const fileOf = (...names: string[]): TensorReader =>
  ({
    path: 'x.safetensors',
    names,
    has: (name: string) => names.includes(name),
    info: (name: string) => ({ name, shape: [1], byteLength: 4 }),
  }) as unknown as TensorReader;

test('names of text parts are those of text models', () => {
  expect(textName('model.language_model.layers.3.mlp.up_proj.weight')).toBe('model.layers.3.mlp.up_proj.weight');
  expect(textName('language_model.model.norm.weight')).toBe('model.norm.weight');
  expect(textName('model.text_model.embed_tokens.weight')).toBe('model.embed_tokens.weight');
  for (const head of ['lm_head.weight', 'language_model.lm_head.weight', 'model.lm_head.weight'])
    expect(textName(head)).toBe('lm_head.weight');
  expect(textName('model.layers.0.self_attn.q_proj.bias')).toBe('model.layers.0.self_attn.q_proj.bias');
  expect(textName('visual.blocks.0.norm1.weight')).toBeUndefined();
});

test('a whole is its text part and the head, wherever that is', () => {
  const whole = fileOf(
    'language_model.model.embed_tokens.weight',
    'language_model.model.layers.0.mlp.up_proj.weight',
    'language_model.lm_head.weight',
    'vision_tower.vision_model.encoder.layers.0.layer_norm1.weight',
    'image_newline',
    'mtp.norm.weight',
  );
  const part = textPart(whole);
  expect(part.names).toEqual(['model.embed_tokens.weight', 'model.layers.0.mlp.up_proj.weight', 'lm_head.weight']);
  expect(part.info('lm_head.weight').name).toBe('language_model.lm_head.weight');
  expect(part.has('image_newline')).toBe(false);
  const flat = textPart(fileOf('model.embed_tokens.weight', 'visual.merger.weight', 'lm_head.weight'));
  expect(flat.names).toEqual(['model.embed_tokens.weight', 'lm_head.weight']);
});

test('other files stay as they are', () => {
  for (const file of [
    fileOf('model.embed_tokens.weight', 'model.norm.weight'),
    fileOf('text_model.embeddings.token_embedding.weight', 'vision_model.embeddings.class_embedding'),
    fileOf(),
  ])
    expect(textPart(file)).toBe(file);
});
