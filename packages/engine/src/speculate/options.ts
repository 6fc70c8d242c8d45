/** How `generate` is told where drafts come from. */
import { kinds } from '@x/core';
import { TransformersError } from '@x/transformers';
import { checkOptions } from '../options';
import { checkDraft, type DraftParts, ModelDrafter } from './draft-model';
import type { Drafter } from './drafter';
import { LookupDrafter } from './lookup';

/** A model that `loadModel` gave; it stays the caller's to dispose, after the texts that it drafts for. */
export interface DraftModel {
  /** @internal */
  draftParts(): DraftParts;
}

/** Drafts are what followed the last tokens earlier in the text. Steps have fewer than `tokens` while most are wrong. */
export interface LookupOptions {
  /** Drafts of a step at most, 1 to 15. Default 7. */
  tokens?: number;
  /** Last tokens of the text that an earlier place has to have too, at least 1. Default 2. */
  minMatch?: number;
}

/** Drafts are what a smaller model of the same vocabulary writes, on any device. Steps have fewer than `tokens` while most are wrong. */
export interface DraftOptions {
  draft: DraftModel;
  /** Drafts of a step at most, 1 to 15. Default 3. */
  tokens?: number;
}

/** Where drafts come from: the text itself (`'lookup'`, or with options) or another model. */
export type Speculative = 'lookup' | { lookup: LookupOptions } | DraftOptions;

/** A step of so many drafts and one token more has 16 rows. */
const MOST = 15;
const TOKENS = kinds.kind(
  (value) => Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MOST,
  `give a whole number from 1 to ${MOST}`,
);
const LOOKUP = {
  tokens: TOKENS,
  minMatch: kinds.POSITIVE,
} satisfies Record<keyof LookupOptions, kinds.Kind>;
const DRAFT = {
  draft: kinds.kind(
    (value) => typeof (value as DraftModel | null)?.draftParts === 'function',
    'give a model that loadModel gave, of the same vocabulary',
  ),
  tokens: TOKENS,
} satisfies Record<keyof DraftOptions, kinds.Kind>;

/** What it holds is checked by {@link drafting}. */
export const speculative: kinds.Kind = kinds.kind(
  (value) => value === 'lookup' || (kinds.isObject(value) && ('lookup' in value || 'draft' in value)),
  "give 'lookup', { lookup: { tokens, minMatch } } or { draft: model, tokens }",
);

/**
 * Makes the drafter of a text, which its caller closes. All checks are made at once.
 * @throws TransformersError INVALID_OPTION, UNSUPPORTED_MODEL where target or draft have states; DisposedError
 */
export function drafting(option: Speculative, target: DraftParts): () => Drafter {
  const place = 'generate: speculative';
  if (target.scheduler.runner.pool.states) {
    throw new TransformersError(
      'UNSUPPORTED_MODEL',
      'speculative: the model has layers with states, which cannot go back when drafts are refused; generate without it.',
    );
  }
  if (option !== 'lookup' && 'draft' in option) {
    checkOptions(place, option, DRAFT);
    const { draft, tokens = 3 } = option;
    const parts = draft.draftParts();
    checkDraft(parts, target);
    return () => new ModelDrafter(tokens, parts);
  }
  if (option !== 'lookup')
    checkOptions(place, option, { lookup: kinds.kind(kinds.isObject, 'give an object, such as { tokens: 7 }') });
  const lookup = option === 'lookup' ? {} : option.lookup;
  checkOptions(`${place}.lookup`, lookup, LOOKUP);
  const { tokens = 7, minMatch = 2 } = lookup;
  return () => new LookupDrafter(tokens, minMatch);
}
