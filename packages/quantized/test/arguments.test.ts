/** QTensor and QMatMul called as TypeScript would refuse: an error of the family, or a result. */
import { CandleError, Device, Tensor } from '@x/core';
import { describe, expect, test } from 'vitest';
import { QMatMul, QTensor } from '../src';

type Callable = (...args: unknown[]) => unknown;

const device = Device.js();
const JUNK = [undefined, null, '1', [1], {}, 1.5, -1, Number.NaN, 2 ** 53, Symbol('s'), () => 1, true];

describe('arguments of @x/quantized', () => {
  const weight = () => QTensor.quantizeSync(Tensor.ones([32, 32], { device }), 'q8_0');
  const receivers: [string, () => object, string[]][] = [
    ['QTensor', () => QTensor, ['fromGguf', 'load', 'quantize', 'quantizeSync', 'quantizeOnto', 'quantizeImatrix']],
    ['a QTensor', weight, ['dequantize', 'embedding', 'expert', 'indexedMoeForward', 'indexedMoeForwardSync']],
    ['QMatMul', () => QMatMul, ['fromQTensor', 'fromTensor']],
    ['a QMatMul', () => QMatMul.fromQTensor(weight()), ['forward', 'embedding']],
  ];

  test.each(receivers)('junk for the methods of %s', async (_, make, methods) => {
    const x = Tensor.ones([2, 32], { device });
    const failures = new Set<string>();
    for (const name of methods) {
      for (const junk of JUNK) {
        for (const args of [[junk], [x, junk], [x, 'q8_0', junk], [x, x, junk]]) {
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
});
