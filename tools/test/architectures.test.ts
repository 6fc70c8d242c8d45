/** The shapes of tools/bench/architectures: every decoder has one, with the tensors of real files, and decodes with random weights. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, memoryStats } from '@x/core';
import { GgufFile } from '@x/quantized';
import '@x/rocm-backend';
import { SUPPORTED_ARCHITECTURES } from '@x/transformers';
import { describe, expect, it } from 'vitest';
import { cacheBytesOf, weightBytesOf } from '../../packages/engine/src/step-bytes';
import { measureShape } from '../bench/architectures/measured';
import { fileBytesOf, outlineOf, readsOf } from '../bench/architectures/outline';
import { describeShape, SHAPES, typeOf } from '../bench/architectures/shapes';

const tiny = fileURLToPath(new URL('../../models/tiny/', import.meta.url));
const names = Object.keys(SHAPES);

it('has a shape of every architecture that loads', () => {
  // A new one needs an entry in tools/bench/architectures/shapes.ts.
  expect([...new Set(names.map(typeOf))].sort()).toEqual([...SUPPORTED_ARCHITECTURES].sort());
});

describe.each(names)('%s', (name) => {
  const { mix = 'q4_k_m', reduced } = SHAPES[name];

  it('is as large as said', async () => {
    const { description, optional } = describeShape(name);
    const outline = await outlineOf(description, optional, mix);
    const size = fileBytesOf(outline);
    expect(size).toBeGreaterThan(reduced === undefined ? 0.7e9 : 4e9);
    expect(size).toBeLessThan(8e9);
    const { config } = description;
    expect(weightBytesOf(readsOf(outline), config, 1)).toBeLessThanOrEqual(size * 1.001);
    expect(cacheBytesOf({ config, ...outline }, 128, 64)).toBeGreaterThan(0);
  });

  it('has the tensors of a GGUF file of its architecture', async () => {
    const folder = join(tiny, typeOf(name));
    const path = readdirSync(folder).find((file) => file.endsWith('.gguf'));
    if (path === undefined) return;
    const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
    const { description, optional } = describeShape(name, { config });
    const { tensors } = await outlineOf(description, optional, mix);
    using file = GgufFile.open(join(folder, path));
    const shapeOf = (shape: readonly number[]) => shape.filter((size) => size !== 1).join();
    const shapes = (all: Iterable<{ name: string; shape: readonly number[] }>) =>
      // What scales positions is in no published shape of those here.
      Object.fromEntries(
        [...all].filter((one) => !one.name.startsWith('rope_')).map((one) => [one.name, shapeOf(one.shape)]),
      );
    expect(shapes(tensors)).toEqual(shapes(file.tensors.values()));
  });

  it('decodes on the host', async () => {
    const before = memoryStats();
    const settings = { mix, scale: 'tiny', prompt: 4, gen: 4, repeat: 1 } as const;
    const result = await measureShape(name, Device.parse('cpu'), settings, AbortSignal.timeout(30_000));
    expect(result.tokensPerSecond).toBeGreaterThan(0);
    expect(result.kernels).toBeGreaterThan(0);
    expect(memoryStats()).toEqual(before);
  });
});
