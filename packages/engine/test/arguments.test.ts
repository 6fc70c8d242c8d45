/** Functions of the engine and of what it is made of, called as TypeScript would refuse: one error that says what to give. */
import { Device, Tensor } from '@x/core';
import { findModel, LogitsProcessor, loadModel, Random, TransformersError } from '@x/engine';
import { compileGbnf, compileRegex, compileSchema, compileToolCalls, Matcher, Vocabulary } from '@x/grammar';
import { ExpertSlots, GgufFile, indexedMoe } from '@x/quantized';
import { ChatTemplate, describeEncoderGguf, describeGguf, openLora, Tokenizer } from '@x/transformers';
import { afterAll, beforeAll, expect, test } from 'vitest';

const MODEL = 'models/tiny-tales/tiny-tales-q8_0.gguf';
const none = undefined as never;
let tokenizer: Tokenizer;
let file: GgufFile;
beforeAll(() => {
  file = GgufFile.open(MODEL);
  tokenizer = Tokenizer.fromGguf(file.metadata);
});
afterAll(() => file.close());

test.each<[string, () => unknown]>([
  ['compileGbnf: source is undefined', () => compileGbnf(none)],
  ['compileRegex: flags is null', () => compileRegex('x', null as never)],
  ['compileSchema: options is null', () => compileSchema({}, null as never)],
  ['compileToolCalls: tools is {}; give a list of tools', () => compileToolCalls({} as never, none)],
  ['compileToolCalls: syntax is undefined', () => compileToolCalls([{ name: 'f', parameters: {} }], none)],
  ['new Vocabulary: parts is undefined', () => new Vocabulary(none)],
  ['new Matcher: grammar is {}; give a Grammar', () => new Matcher({} as never, none)],
  ['new Matcher: vocabulary is undefined', () => new Matcher(compileRegex('a'), none)],
  ['Tokenizer.fromGguf: metadata is an object of class GgufFile', () => Tokenizer.fromGguf(file as never)],
  ['Tokenizer.encode: text is undefined', () => tokenizer.encode(none)],
  ['Tokenizer.encode: options is null', () => tokenizer.encode('x', null as never)],
  ['Tokenizer.decode: ids is undefined', () => tokenizer.decode(none)],
  ['Tokenizer.fewestTokens: text is undefined', () => tokenizer.fewestTokens(none)],
  ['ChatTemplate.fromGguf: metadata is an object of class GgufFile', () => ChatTemplate.fromGguf(file as never)],
  ['ChatTemplate.fromDirectory: directory is 1', () => ChatTemplate.fromDirectory(1 as never)],
  ['describeGguf: metadata is undefined', () => describeGguf(none)],
  ['describeEncoderGguf: metadata is undefined', () => describeEncoderGguf(none)],
  ['openLora: path is undefined', () => openLora(none, none)],
  ['ExpertSlots.of: host is null', () => ExpertSlots.of(null as never, 1, Device.js())],
  ['weights is {}; give a QTensor', () => indexedMoe({} as never, none, none)],
  ['Random.fromSeed: seed is "x"', () => Random.fromSeed('x' as never)],
  ['sample: logits is Tensor', () => new LogitsProcessor({}).sample(Tensor.ones([4], 'f32', 'js') as never)],
  ['findModel: path is Symbol(a)', () => findModel(Symbol('a') as never)],
])('%s', (message, call) => {
  expect(call).toThrow(
    expect.objectContaining({ code: 'INVALID_ARGUMENT', message: expect.stringContaining(message) }),
  );
});

test('errors of adapters name what was given, and their class is exported', async () => {
  using model = await loadModel(MODEL, { device: 'js' });
  expect(() => model.unloadAdapter(none)).toThrow(/unloadAdapter: the name of the adapter is undefined; give a string/);
  expect(() => model.unloadAdapter('x')).toThrow(TransformersError);
});
