/** How many tokens `candle bench` reads and writes: what was asked for, or what the model's context has room for. */
import { join } from 'node:path';
import { readJsonFile } from '@x/core/files';
import { findModel } from '@x/engine';
import { GgufFile } from '@x/quantized';
import { describeConfig, describeGguf } from '@x/transformers';
import { UsageError } from '../output';

/** Tokens, of which `--context` gives several prompts; undefined where the command line does not say. */
export interface AskedSizes {
  prompt?: number;
  gen?: number;
  context: readonly number[];
}

const PROMPT = 512;
const GENERATED = 128;

/** @param contextLength positions that the model was made for @throws UsageError for what was asked for and does not fit */
export function sizesFor(
  { prompt: askedPrompt, gen: askedGen, context }: AskedSizes,
  contextLength: number,
): { prompt: number; gen: number } {
  const gen = askedGen ?? Math.min(GENERATED, Math.floor(contextLength / 2));
  const room = contextLength - gen;
  const prompt = askedPrompt ?? Math.min(PROMPT, room);
  const longest = Math.max(prompt, ...context);
  if (prompt >= 1 && longest <= room) return { prompt, gen };
  const [option, tokens] = longest > prompt ? ['--context', longest] : ['--prompt', Math.max(prompt, 1)];
  const fits = room >= 1 ? `${option} of at most ${room}, or a smaller --gen` : `--gen of at most ${contextLength - 1}`;
  throw new UsageError(
    `${option} ${tokens} and --gen ${gen} take ${tokens + gen} positions, and the model's context has ${contextLength}; give a ${fits}.`,
  );
}

/** Positions that a model was made for, read without its weights. @throws as `loadModel` */
export function contextLengthOf(path: string): number {
  const files = findModel(path);
  if (files.kind === 'checkpoint')
    return describeConfig(readJsonFile(join(files.directory, 'config.json'))).config.contextLength;
  const file = GgufFile.open(files.path);
  try {
    return describeGguf(file.metadata).config.contextLength;
  } finally {
    file.close();
  }
}
