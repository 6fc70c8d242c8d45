/**
 * A draft model: a small model of the same vocabulary writes what a large one will probably write, token by token, and the large
 * one reads all of it in a single step. The draft model has a sequence of its own for each text, in its own cache; drafts of
 * several texts are steps of one batch, as any decode steps.
 */
import { type Tokenizer, TransformersError } from '@x/transformers';
import { isAnyPossible } from '../constraint';
import type { SequenceCache } from '../kv/sequence-cache';
import { LogitsProcessor } from '../sampling';
import type { BatchScheduler } from '../schedule/scheduler';
import type { Drafter } from './drafter';
import type { Lookahead } from './lookahead';

/** What a draft model is to drafts. */
export interface DraftParts {
  readonly scheduler: BatchScheduler;
  readonly tokenizer: Tokenizer;
}

/** More tokens that the draft model has not seen are read as a prompt is. */
const MOST_AT_ONCE = 8;

export class ModelDrafter implements Drafter {
  private readonly scheduler: BatchScheduler;
  private readonly cache: SequenceCache;
  /** Tokens at the beginning of the sequence that are those of the text. */
  private agreed = 0;

  constructor(
    readonly tokens: number,
    { scheduler }: DraftParts,
  ) {
    this.scheduler = scheduler;
    this.cache = scheduler.open();
  }

  async read(prompt: readonly number[], signal: AbortSignal | undefined): Promise<void> {
    if (!this.hasRoom(prompt, prompt.length)) return;
    // Nobody asks for its token behind the prompt: the text has one.
    await this.scheduler.prefill(this.cache, prompt, new LogitsProcessor().sampler([]), { signal });
    this.agreed = prompt.length;
  }

  async draft(ahead: Lookahead, signal: AbortSignal | undefined): Promise<void> {
    const { scheduler, cache } = this;
    const { history, most } = ahead;
    // The last draft is not read.
    if (!this.hasRoom(history, history.length + most - 1)) return;
    let next = this.rewind(history);
    for (;;) {
      const sampler = { ...ahead.last, logprob: false, top: 0 };
      if (!isAnyPossible(sampler, scheduler.runner.model.config.vocabSize)) return;
      const choice =
        next.length > MOST_AT_ONCE
          ? await scheduler.prefill(cache, next, sampler, { signal })
          : (await scheduler.verify(cache, next, [sampler], signal)).choices[0];
      this.agreed = Math.max(this.agreed, history.length);
      if (!ahead.push(choice.id) || ahead.isFull) return;
      next = [choice.id];
    }
  }

  close(): void {
    this.scheduler.close(this.cache);
  }

  /** Goes back to where the sequence and the text part, and gives what the text has from there on: its last token at least. */
  private rewind(history: readonly number[]): number[] {
    const { cache } = this;
    const most = Math.min(cache.tokens.length, history.length - 1);
    let same = Math.min(this.agreed, most);
    while (same < most && cache.tokens[same] === history[same]) same++;
    cache.truncate(same);
    this.agreed = same;
    return history.slice(same);
  }

  /** Whether there is room without waiting for it, and the draft model knows the tokens. Without, a step has no drafts. */
  private hasRoom(history: readonly number[], length: number): boolean {
    const { scheduler, cache, agreed } = this;
    const { maxContext, model } = scheduler.runner;
    for (let i = agreed; i < history.length; i++) if (history[i] >= model.config.vocabSize) return false;
    return length <= maxContext && scheduler.tryReserve(cache, length);
  }
}

/** Pairs of tokenizers that were compared: the target's, and of each draft's what the first difference is. */
const compared = new WeakMap<Tokenizer, WeakMap<Tokenizer, string | undefined>>();

/** @throws TransformersError INVALID_OPTION where the draft model has other tokens; UNSUPPORTED_MODEL where it has states */
export function checkDraft(draft: DraftParts, target: DraftParts): void {
  if (draft.scheduler.runner.pool.states) {
    throw new TransformersError(
      'UNSUPPORTED_MODEL',
      'speculative: the draft model has layers with states, which cannot go back when drafts are refused; use another draft, or "lookup".',
    );
  }
  if (draft.tokenizer === target.tokenizer) return;
  const known = compared.get(target.tokenizer) ?? new WeakMap<Tokenizer, string | undefined>();
  compared.set(target.tokenizer, known);
  if (!known.has(draft.tokenizer)) known.set(draft.tokenizer, difference(draft.tokenizer, target.tokenizer));
  const found = known.get(draft.tokenizer);
  if (found === undefined) return;
  throw new TransformersError(
    'INVALID_OPTION',
    `speculative: the draft model has another vocabulary (${found}); use a model of the same family with the same tokens.`,
  );
}

/** Of what stands for text, where both have it: files of one family fill up their vocabulary, and name control tokens, differently. */
function difference(draft: Tokenizer, target: Tokenizer): string | undefined {
  const count = Math.min(draft.vocabSize, target.vocabSize);
  for (let id = 0; id < count; id++) {
    const [own, wanted] = [draft.idToToken(id), target.idToToken(id)];
    if (own === wanted || own === undefined || wanted === undefined) continue;
    if (draft.isSpecial(id) && target.isSpecial(id)) continue;
    return `token ${id} is ${JSON.stringify(own)} in the draft and ${JSON.stringify(wanted)} in the model`;
  }
  return undefined;
}
