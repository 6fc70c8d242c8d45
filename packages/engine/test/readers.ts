/** Readers of a model's texts, who come, wait and leave: what passes ahead and prompts in their steps are tested with. */
import fc from 'fast-check';
import { vi } from 'vitest';
import type { GenerateOptions, LanguageModel } from '../src';
import type { Runner } from '../src/runner';
import type { BatchScheduler } from '../src/schedule/scheduler';
import { goldenQ8 } from './helpers';

export const PROMPTS = goldenQ8().prompts.map(({ text }) => text);

/** A text, until the reader leaves, who takes his time now and then. */
export interface Reader {
  prompt: number;
  options: GenerateOptions;
  leaveAt: number;
  pauseAt: number;
  startAfter: number;
}

export const insideOf = (model: LanguageModel) => model as unknown as { runner: Runner; scheduler: BatchScheduler };
export const runnerOf = (model: LanguageModel) => insideOf(model).runner;

export async function read(model: LanguageModel, { prompt, options, leaveAt, pauseAt, startAfter }: Reader) {
  if (startAfter > 0) await new Promise((resolve) => setTimeout(resolve, startAfter));
  const pieces: unknown[] = [];
  for await (const piece of model.generate(PROMPTS[prompt], options)) {
    pieces.push(piece);
    if (piece.index === pauseAt) await new Promise((resolve) => setTimeout(resolve, 15));
    if (piece.index === leaveAt) break;
  }
  return pieces;
}

/** As they are written one after the other and step by step. */
export async function alone(model: LanguageModel, readers: readonly Reader[]) {
  const spy = vi.spyOn(runnerOf(model), 'follow').mockReturnValue(undefined);
  try {
    const texts: unknown[][] = [];
    for (const reader of readers) texts.push(await read(model, { ...reader, startAfter: 0, pauseAt: -1 }));
    return texts;
  } finally {
    spy.mockRestore();
  }
}

/** Any reader. */
export const anyReader: fc.Arbitrary<Reader> = fc.record({
  prompt: fc.nat(PROMPTS.length - 1),
  options: fc.record({
    maxTokens: fc.integer({ min: 1, max: 24 }),
    temperature: fc.constantFrom(0, 1),
    seed: fc.nat(50),
    repetitionPenalty: fc.constantFrom(1, 1, 1.2),
    ignoreEos: fc.boolean(),
  }),
  leaveAt: fc.integer({ min: 0, max: 60 }),
  pauseAt: fc.integer({ min: 0, max: 30 }),
  startAfter: fc.nat(12),
});

/** The tokens of texts. */
export const idsOf = (texts: unknown[][]) => texts.map((text) => text.map((piece) => (piece as { id: number }).id));
