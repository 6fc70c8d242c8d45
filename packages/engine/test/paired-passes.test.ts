/** A pass as two halves whose steps go out in turn, of every architecture: the logits, the cache and the states of one pass. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Tensor } from '@x/core';
import { readGolden } from '@x/testing/golden';
import type { ForwardPass } from '@x/transformers';
import { expect, it, vi } from 'vitest';
import { loadModel } from '../src';
import type { SequenceCache } from '../src/kv/sequence-cache';
import { maxDifference, openDevice } from './helpers';
import { runnerOf } from './readers';

const models = fileURLToPath(new URL('../../../models/tiny/', import.meta.url));
const architectures = readdirSync(models).filter((name) => existsSync(join(models, name, 'model.safetensors')));
const text = (count: number, first: number) => Array.from({ length: count }, (_, i) => 5 + ((i * 37 + first) % 90));
const TEXTS = [text(45, 11), text(70, 3)];

async function ended(pass: ForwardPass): Promise<Float32Array> {
  let step = pass.next();
  while (!step.done) step = pass.next();
  using logits = step.value as Tensor;
  return logits.toArray<Float32Array>();
}

it.each(architectures)('gives what one pass gives: %s', async (name) => {
  const { logits_std } = readGolden<{ logits_std: number }>(join(models, name));
  using model = await loadModel(join(models, name, 'model.safetensors'), {
    device: openDevice('cpu'),
    maxContext: 200,
    dtype: 'f32',
  });
  const runner = runnerOf(model);
  const both = async () => {
    const caches: SequenceCache[] = TEXTS.map(() => runner.cache());
    const rows = [
      await ended(
        runner.pass(
          caches.map((cache, i) => ({ cache, ids: TEXTS[i] })),
          true,
        ),
      ),
    ];
    // What the pass left behind.
    rows.push(
      await ended(
        runner.pass(
          caches.map((cache, i) => ({ cache, ids: [40 + i] })),
          true,
        ),
      ),
    );
    for (const cache of caches) cache.dispose();
    return rows;
  };
  const whole = await both();
  Object.defineProperty(runner, 'sharesTensors', { get: () => true });
  const begun = vi.spyOn((runner as unknown as { executor: { pass(): ForwardPass } }).executor, 'pass');
  // In a sequence, which one with a state cannot be cut in, and between two.
  for (const least of runner.pool.states ? [45] : [20, 45, 57]) {
    runner.leastHalf = least;
    const before = begun.mock.calls.length;
    const halves = await both();
    expect(begun.mock.calls.length - before).toBe(3);
    for (const [i, rows] of halves.entries()) {
      expect(rows.length).toBe(whole[i].length);
      expect(maxDifference(rows, whole[i]), `pass ${i}, halves of ${least}`).toBeLessThan(2e-3 * logits_std);
    }
  }
});
