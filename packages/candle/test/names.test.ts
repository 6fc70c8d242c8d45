import { expect, test } from 'vitest';
import * as candle from '../src';

test('daily names are flat, everything else is in a namespace a package', () => {
  expect(Object.keys(candle).sort()).toEqual(
    [
      ...[
        'CandleError',
        'Device',
        'EmbeddingModel',
        'LanguageModel',
        'Tensor',
        'Var',
        'keep',
        'loadEmbeddingModel',
        'loadModel',
        'memoryStats',
        'noGrad',
        'scope',
      ],
      ...['core', 'engine', 'files', 'grammar', 'hip', 'hub', 'nn', 'quantized', 'rocm', 'server', 'transformers'],
    ].sort(),
  );
  expect(candle.core.Tensor).toBe(candle.Tensor);
  expect(candle.engine.loadModel).toBe(candle.loadModel);
  expect(candle.core.registeredBackends()).toContain('cpu');
});

test('errors of every package are CandleErrors', () => {
  expect(new candle.hip.HipError('NO_DEVICE', 'none')).toBeInstanceOf(candle.CandleError);
  expect(new candle.core.ShapeError('INVALID_SHAPE', 'none')).toBeInstanceOf(candle.CandleError);
});
