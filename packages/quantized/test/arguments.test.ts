/** The package called as TypeScript would refuse: an error of the family, or a result. */
import { CandleError, Device, Tensor } from '@x/core';
import { afterAll, describe, expect, test } from 'vitest';
import * as quantized from '../src';
import { GgmlFile, GgufFile, isQuantizable, planMix, QMatMul, QTensor, quantizeBlocks } from '../src';
import { ALL_TYPES } from './fixture';

type Callable = (...args: unknown[]) => unknown;

const device = Device.js();
const JUNK = [undefined, null, '1', [1], {}, 1.5, -1, Number.NaN, 2 ** 53, Symbol('s'), () => 1, true];

const file = GgufFile.open(ALL_TYPES);
afterAll(() => file.close());

describe('arguments of @x/quantized', () => {
  const weight = () => QTensor.quantizeSync(Tensor.ones([32, 32], { device }), 'q8_0');
  const receivers: [string, () => object, string[]][] = [
    ['QTensor', () => QTensor, ['fromGguf', 'load', 'quantize', 'quantizeSync', 'quantizeOnto', 'quantizeImatrix']],
    ['QTensor', () => QTensor, ['fromTensor', 'fromBytes', 'stack', 'loadMxfp4', 'loadMxfp4Sync']],
    ['a QTensor', weight, ['dequantize', 'embedding', 'expert', 'indexedMoeForward', 'indexedMoeForwardSync']],
    ['a QTensor', weight, ['reshape', 'part']],
    ['GgufFile', () => GgufFile, ['open', 'fromBytes']],
    ['GgmlFile', () => GgmlFile, ['open', 'fromBytes']],
    ['a GgufFile', () => file, ['tensor', 'info', 'format', 'has', 'load', 'loadSync', 'readTensorBytes']],
    ['a GgufFile', () => file, ['readTensorSlice', 'tensorChunks', 'tensorChunksAhead']],
    ['metadata', () => file.metadata, ['require', 'uint', 'int', 'float', 'bool', 'string', 'strings', 'numbers']],
    [
      'the package',
      () => quantized,
      ['deviceBytes', 'quantizeBlocks', 'planMix', 'isQuantizable', 'writeGguf', 'loadImatrix'],
    ],
    ['QMatMul', () => QMatMul, ['fromQTensor', 'fromTensor']],
    ['a QMatMul', () => QMatMul.fromQTensor(weight()), ['forward', 'embedding']],
  ];

  test.each(receivers)('junk for the methods of %s', async (_, make, methods) => {
    const x = Tensor.ones([2, 32], { device });
    const failures = new Set<string>();
    for (const name of methods) {
      for (const junk of JUNK) {
        for (const args of [[junk], [x, junk], [x, 'q8_0', junk], [x, x, junk], ['Q8_0', junk], ['Q8_0', 0, junk]]) {
          try {
            await (make() as Record<string, Callable>)[name](...args);
          } catch (error) {
            if (!(error instanceof CandleError)) failures.add(`${name}(${args.map(String)}): ${error}`);
          }
        }
      }
    }
    expect([...failures]).toEqual([]);
  });

  test('devices go by their names', () => {
    const onto = QTensor.quantizeSync(Tensor.ones([32, 32], { device }), 'q8_0', { device: 'js' });
    expect(onto.device).toBe(device);
  });

  const bytes = new Uint8Array(34);
  const cases: [string, () => unknown, RegExp, string?][] = [
    [
      'dense',
      () => QTensor.fromGguf(file, 'Q8_0', 'js', { dense: 'foo' as never }),
      /options\.dense is "foo"; use one/,
    ],
    ['dense of a product', () => QMatMul.fromQTensor(weight(), { dense: 0 as never }), /options\.dense is 0; use one/],
    [
      'a part',
      () => QTensor.load(file, 'Q8_0', 'js', { part: 'foo' as never }),
      /options\.part is "foo"; give an object/,
    ],
    ['ranges', () => weight().part({ dim: 0, ranges: 5 as never }), /part\.ranges is 5; give an array of ranges/],
    ['a range', () => weight().part({ dim: 0, ranges: [null as never] }), /part\.ranges is \[null\]; give an array/],
    ['a signal', () => QTensor.load(file, 'Q8_0', 'js', { signal: 5 as never }), /options\.signal is 5.*AbortSignal/],
    ['a new shape', () => weight().reshape([-2, -16, 32]), /shape is \[-2, -16, 32\]; give an array/, 'INVALID_SHAPE'],
    ['a shape', () => QTensor.fromBytes('q8_0', [-1, -32], bytes, 'js'), /shape is \[-1, -32\]/, 'INVALID_SHAPE'],
    ['blocks', () => QTensor.fromBytes('q8_0', [1, 32], [1] as never, 'js'), /bytes is \[1\]; give bytes as a Uint8/],
    ['weights', () => QTensor.stack([1] as never), /parts is \[1\]; give an array of QTensors/],
    ['options of a file', () => GgufFile.open(ALL_TYPES, 'foo' as never), /GgufFile\.open: options is "foo"; give/],
    ['a limit', () => GgufFile.open(ALL_TYPES, { limits: { headerMemory: Number.NaN } }), /headerMemory is NaN; give/],
    ['a limit', () => GgufFile.open(ALL_TYPES, { limits: { stringBytes: 'foo' as never } }), /stringBytes is "foo"/],
    ['bytes of a file', () => GgufFile.fromBytes({} as never), /fromBytes: bytes is {}; give bytes as a Uint8Array/],
    ['a name', () => file.tensor(undefined as never), /TensorFile\.tensor: name is undefined; give a string/],
    ['a key', () => file.metadata.uint(0 as never), /GgufMetadata\.uint: key is 0; give a string/],
    ['a size of chunks', () => file.tensorChunks('Q8_0', Number.NaN), /chunkBytes is NaN; give a whole number from 1/],
    ['a mix', () => planMix('q4_K_M' as never, []), /mix is "q4_K_M"; use one of .*q4_k_m/],
    ['tensors', () => planMix('q4_k_m', [null] as never), /tensors is \[null\]; give an array of names and shapes/],
    ['a tensor', () => isQuantizable(null as never), /isQuantizable: tensor is null/],
    ['a type', () => quantizeBlocks('q9_9' as never, new Float32Array(32), 32), /no type 'q9_9'/, 'UNSUPPORTED'],
    ['values', () => quantizeBlocks('q8_0', [1] as never, 32), /x is \[1\]; give a Float32Array/],
    ...[null, 0, -32, 1.5, Number.NaN].map((k): (typeof cases)[number] => {
      const message = new RegExp(`k is ${k}; give a whole number from 1`);
      return [`rows of ${k}`, () => quantizeBlocks('q8_0', new Float32Array(64), k as never), message];
    }),
    [
      'part of a row',
      () => quantizeBlocks('q8_0', new Float32Array(65), 32),
      /65 values are no whole/,
      'SHAPE_MISMATCH',
    ],
    ['part of a block', () => quantizeBlocks('q8_0', new Float32Array(64), 16), /rows of 16 values/, 'SHAPE_MISMATCH'],
    ['threads', () => quantizeBlocks('q8_0', new Float32Array(64), 32, { threads: 0 }), /threads is 0; give a whole/],
  ];

  test.each(cases)('%s that is none', async (_, call, message, code = 'INVALID_ARGUMENT') => {
    const error = await Promise.resolve()
      .then(call)
      .catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(CandleError);
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
  });

  test('limits that are undefined are the default ones', () => {
    using opened = GgufFile.open(ALL_TYPES, { limits: { headerMemory: undefined, arrayDepth: 2 } });
    expect(opened.tensors.size).toBeGreaterThan(0);
    const memory = { stringBytes: undefined, headerMemory: 300 };
    expect(() => GgufFile.open(ALL_TYPES, { limits: memory })).toThrow(expect.objectContaining({ code: 'GGUF_LIMIT' }));
  });
});
