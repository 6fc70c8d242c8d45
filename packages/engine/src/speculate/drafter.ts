import type { Lookahead } from './lookahead';

/** Guesses how one text goes on. */
export interface Drafter {
  /** Drafts of a step at most. */
  readonly tokens: number;
  /** Reads the prompt, where that is of use before there is a token. */
  read?(prompt: readonly number[], signal: AbortSignal | undefined): Promise<void>;
  /** Pushes drafts, as many as it has and `ahead` takes. */
  draft(ahead: Lookahead, signal: AbortSignal | undefined): Promise<void>;
  close(): void;
}
