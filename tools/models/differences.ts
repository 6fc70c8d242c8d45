/**
 * The largest difference between logits here and those of transformers, by model, file, device and mode: a part of the deviation of the
 * model's logits. tools/bench/differences.ts prints them.
 *
 * Modes: `prompt`, all tokens in one step; `steps`, one by one; `captured`, the same as graphs; `batch`, one by one beside the other
 * prompts of the model.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Device } from '@x/core';
import { loadModel, type Runner } from '@x/engine';
import '@x/rocm-backend';
import { goldenNames, readGolden } from '@x/testing/golden';
import { ROOT } from './facts';

interface Prompt {
  ids: number[];
  last: number[];
}
interface Golden {
  logits_std: number;
  prompts: Prompt[];
  gguf?: { prompts: Prompt[] };
}
interface Case {
  model: string;
  path: string;
  deviation: number;
  prompts: Prompt[];
}

const TINY = join(ROOT, 'models/tiny');
const FILES = ['model.safetensors', 'model-f16.gguf', 'model-f32.gguf'];
export const MODES = ['prompt', 'steps', 'captured', 'batch'] as const;
type Mode = (typeof MODES)[number];

/** All files of models with golden values. */
export function cases(names: readonly string[] = goldenNames(TINY)): Case[] {
  return names.flatMap((model) => {
    const folder = join(TINY, model);
    const golden = readGolden<Golden>(folder);
    return FILES.map((file) => join(folder, file))
      .filter((path) => existsSync(path))
      .map((path) => {
        // Phi's factors here hang on the length for which it is loaded, as in GGUF files.
        const asInGguf = path.endsWith('.gguf') || model === 'phi3';
        const prompts = (asInGguf && golden.gguf?.prompts) || golden.prompts;
        return { model, path, deviation: golden.logits_std, prompts };
      });
  });
}

/** A model in blocks: its golden values are of the blocks, not of what they were made from. */
export function quantizedCase(): Case {
  const folder = join(ROOT, 'models/tiny-tales');
  const { prompts } = JSON.parse(readFileSync(join(folder, 'golden-q8_0.json'), 'utf8')) as {
    prompts: { ids: number[]; logits: number[] }[];
  };
  const all = prompts.flatMap(({ logits }) => logits);
  const mean = all.reduce((sum, value) => sum + value, 0) / all.length;
  const deviation = Math.sqrt(all.reduce((sum, value) => sum + (value - mean) ** 2, 0) / all.length);
  return {
    model: 'tiny-tales',
    path: join(folder, 'tiny-tales-q8_0.gguf'),
    deviation,
    prompts: prompts.map(({ ids, logits }) => ({ ids, last: logits })),
  };
}

/** The largest difference of each mode, as a part of the deviation. Modes that a device has not are left out. */
export async function differences(one: Case, device: Device): Promise<Partial<Record<Mode, number>>> {
  const found: Partial<Record<Mode, number>> = {};
  for (const mode of MODES) {
    if (device.kind === 'js' && mode === 'captured') continue;
    using model = await loadModel(one.path, { device, cacheDtype: 'f32', graphs: mode === 'captured' });
    const largest = mode === 'batch' ? await together(model, one.prompts) : await alone(model, one.prompts, mode);
    found[mode] = largest / one.deviation;
  }
  return found;
}

type Loaded = Awaited<ReturnType<typeof loadModel>>;

async function alone(model: Loaded, prompts: readonly Prompt[], mode: Mode): Promise<number> {
  let largest = 0;
  for (const { ids, last } of prompts) {
    model.reset();
    const steps = mode === 'prompt' ? [ids] : ids.map((id) => [id]);
    for (const [at, step] of steps.entries()) {
      using logits = model.forward(step, at);
      if (at === steps.length - 1) largest = Math.max(largest, distance(await logits.toArray<Float32Array>(), last));
    }
  }
  return largest;
}

/** All prompts a token a step; those that are over sit out. */
async function together(model: Loaded, prompts: readonly Prompt[]): Promise<number> {
  const { runner } = model as unknown as { runner: Runner };
  const caches = prompts.map(() => runner.cache());
  let largest = 0;
  try {
    for (let at = 0; prompts.some(({ ids }) => at < ids.length); at++) {
      const open = prompts.flatMap((prompt, i) => (at < prompt.ids.length ? [{ ...prompt, cache: caches[i] }] : []));
      using rows = runner.step(open.map(({ ids, cache }) => ({ cache, ids: [ids[at]] })));
      const values = await rows.toArray<Float32Array>();
      const width = values.length / open.length;
      for (const [i, { ids, last }] of open.entries())
        if (at === ids.length - 1)
          largest = Math.max(largest, distance(values.subarray(i * width, (i + 1) * width), last));
    }
  } finally {
    for (const cache of caches) cache.dispose();
  }
  return largest;
}

function distance(actual: ArrayLike<number>, expected: readonly number[]): number {
  if (actual.length !== expected.length)
    throw new Error(`${actual.length} logits, and ${expected.length} are expected`);
  return expected.reduce((largest, value, i) => Math.max(largest, Math.abs(actual[i] - value)), 0);
}
