/** `--speculative` of the commands that write text: drafts from the text itself, or from a model that is loaded for it. */
import { type GenerationStats, type LanguageModel, loadModel, type Speculative } from '@x/engine';
import type { Command } from 'commander';
import type { DeviceFlags } from './devices';
import { localModel } from './model-source';
import { someText, wholeNumber } from './option-values';
import { UsageError } from './output';

export interface SpeculativeFlags {
  speculative?: string;
  draftTokens?: number;
}

export function addSpeculativeFlags(command: Command): Command {
  return command
    .option(
      '--speculative <source>',
      'check several guessed tokens a step: lookup guesses from the text so far, a smaller MODEL of the same vocabulary writes them',
      someText('Give lookup, or a model.'),
    )
    .option('--draft-tokens <count>', 'tokens that are guessed a step at most, 1 to 15', wholeNumber(1, 15));
}

/** What the flags ask for, and the draft model, which is the caller's to dispose. */
export interface Drafts {
  speculative?: Speculative;
  draft?: LanguageModel;
}

/** @param model that is drafted for; the draft model is put beside it */
export async function loadDrafts(
  { speculative: source, draftTokens: tokens, graphs, fused }: SpeculativeFlags & Pick<DeviceFlags, 'graphs' | 'fused'>,
  { device, maxContext }: LanguageModel,
  { json, signal }: { json?: boolean; signal: AbortSignal },
): Promise<Drafts> {
  if (source === undefined) return {};
  if (source === 'lookup') return { speculative: { lookup: { tokens } } };
  const path = await localModel(source, { json, signal });
  let draft: LanguageModel;
  try {
    draft = await loadModel(path, { device, signal, maxContext, graphs, fused });
  } catch (error) {
    // One that was made for shorter texts drafts as far as it can.
    if ((error as { code?: unknown }).code !== 'INVALID_OPTION') throw error;
    draft = await loadModel(path, { device, signal, graphs, fused });
  }
  return { speculative: { draft, tokens }, draft };
}

/** Before anything is loaded. */
export function checkSpeculative({ speculative, draftTokens }: SpeculativeFlags): void {
  if (draftTokens === undefined || speculative !== undefined) return;
  throw new UsageError('--draft-tokens is of drafts; give --speculative lookup or --speculative MODEL too.');
}

/** The end of a line of figures; empty without drafts. */
export function acceptedText({ speculative }: GenerationStats): string {
  return speculative ? ` · ${speculative.accepted} of ${speculative.drafted} drafts accepted` : '';
}
