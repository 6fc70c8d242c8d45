import { Device } from '@x/core';
import { expect, test } from 'vitest';
import { promptChunk } from './prompt-chunk';

const config = {
  vocabSize: 4096,
  hiddenSize: 256,
  intermediateSize: 768,
  numLayers: 8,
  numHeads: 8,
  numKvHeads: 4,
  headDim: 32,
  rotaryDim: 32,
  contextLength: 512,
  normEps: 1e-5,
  ropeTheta: 10000,
};

test('chunks follow from model and device, and are smaller far into a context and for wide models', () => {
  const device = Device.js();
  const sizes = [0, 100, 1e4, 1e6].map((position) => promptChunk(config, device, position));
  expect(sizes).toEqual([...sizes].sort((a, b) => b - a));
  for (const size of sizes) expect([8, 16, 32, 64, 128]).toContain(size);
  expect(promptChunk(config, device, 0, 2)).toBe(sizes[0]);
  const wide = { ...config, hiddenSize: 4096, intermediateSize: 14336 };
  expect(promptChunk(wide, device, 0)).toBe(8);
});

test('on GPUs a pass is as much work for narrow models, and for those that several share', () => {
  const device = { location: { kind: 'rocm' } } as Device;
  const of = (hiddenSize: number, ranks?: number) => promptChunk({ ...config, hiddenSize }, device, 0, ranks);
  expect([256, 2048, 3072, 4096, 8192].map((size) => of(size))).toEqual([4096, 4096, 1024, 1024, 1024]);
  expect([2, 4, 8].map((ranks) => of(4096, ranks))).toEqual([4096, 8192, 8192]);
});
