/**
 * Text generation, token by token: what candle's examples write out in their main loops, and its
 * `pipelines::text_generation`. A generation is an async iterator; leaving the loop early ends it cleanly.
 */
import { performance } from 'node:perf_hooks';
import { type Tokenizer, TransformersError } from '@x/transformers';
import type { AdapterUse } from './adapters';
import { type Constraint, checkPossible } from './constraint';
import { GENERATE_OPTIONS, type GenerateOptions } from './generate-options';
import type { SequenceCache } from './kv/sequence-cache';
import { checkOptions } from './options';
import { promptIdsOf } from './prompt-ids';
import { type Choice, LogitsProcessor, type Sampler, type TokenLogprob } from './sampling';
import type { BatchScheduler } from './schedule/scheduler';
import type { Drafter } from './speculate/drafter';
import { Lookahead } from './speculate/lookahead';
import { drafting } from './speculate/options';
import { Reach } from './speculate/reach';
import { StopStrings } from './stop';
import { parsedValue, structureOf } from './structured';

/** One generated token. */
export interface Piece {
  /** Text that this token completes: empty inside a character, or while it might belong to a stop string. All pieces joined are the text. */
  text: string;
  id: number;
  /** 0 for the first generated token. */
  index: number;
  /**
   * Natural log of the model's probability for this token, among those that a form allows where there is one, before penalties,
   * temperature and filters; with `logprobs` or `topLogprobs` only.
   */
  logprob?: number;
  /** The most likely tokens in its place, likeliest first, with their log probabilities; with `topLogprobs` only. */
  topLogprobs?: readonly TokenLogprob[];
}

/**
 * Why a generation ended: the model's own end or that of its grammar, `maxTokens`, a stop string, a full context, the signal, or
 * leaving the loop.
 */
export type FinishReason = 'eos' | 'length' | 'stop' | 'context' | 'aborted' | 'left';

export interface GenerationStats {
  promptTokens: number;
  /** Of them, those that were in the cache and not computed again. */
  reusedTokens: number;
  /** Tokens generated so far, an end-of-text token included. */
  tokens: number;
  /** Milliseconds that loading the model took. */
  loadMs: number;
  /** Milliseconds from the first `next()` to the first token: reading the prompt. */
  firstTokenMs: number;
  /** Tokens after the first, per second of generating; time that the consumer takes between them is left out. 0 before the second. */
  decodeTokensPerSecond: number;
  /** The sampling seed: give it again to repeat the text. */
  seed: number;
  /** With `speculative` only. */
  speculative?: SpeculativeStats;
  /** Of answers in chats: tokens so far that are reasoning, with the mark in front of it. */
  reasoningTokens?: number;
  /** Undefined until the end. */
  finishReason: FinishReason | undefined;
}

/** How good the drafts were. */
export interface SpeculativeStats {
  /** Steps behind the prompt. */
  steps: number;
  /** Drafts that these steps checked. */
  drafted: number;
  /** Of them, those that were what the model chose. */
  accepted: number;
}

/** What a generation needs of a model; {@link LanguageModel} provides it. */
export interface GenerationHost {
  readonly scheduler: BatchScheduler;
  readonly tokenizer: Tokenizer;
  readonly loadMs: number;
  /** Tokens that end the text, in place of the tokenizer's. */
  readonly stopIds?: readonly number[];
  /** Special tokens whose text is part of the text. */
  readonly keptIds?: ReadonlySet<number>;
}

/** Tokens between two reports of progress, at least. */
const PROGRESS_STEP = 16;

/**
 * A text under way, piece by piece: what `LanguageModel.generate` gives. It is iterated once, by a loop, {@link text}
 * or {@link value}.
 */
export class Generation<T = unknown> implements AsyncIterable<Piece> {
  readonly promptIds: readonly number[];
  private readonly processor: LogitsProcessor;
  private readonly stops: StopStrings;
  private readonly maxTokens: number;
  private readonly constraint: Constraint | undefined;
  private readonly ends: ReadonlySet<number>;
  private readonly makeDrafter: (() => Drafter) | undefined;
  private readonly drafts: SpeculativeStats = { steps: 0, drafted: 0, accepted: 0 };
  private readonly adapter: AdapterUse | undefined;
  /** What was shown. */
  private shown = '';
  private started = false;
  private generated = 0;
  private reusedTokens = 0;
  private firstTokenMs = 0;
  private decodeMs = 0;
  private finishReason: FinishReason | undefined;

  /** @throws TransformersError INVALID_OPTION, EMPTY_INPUT, CONTEXT_EXCEEDED, UNSUPPORTED_MODEL, UNSUPPORTED_TOKENIZER; GrammarError */
  constructor(
    readonly host: GenerationHost,
    prompt: string | ArrayLike<number>,
    private readonly options: GenerateOptions<T>,
  ) {
    checkOptions('generate', options, GENERATE_OPTIONS);
    this.processor = new LogitsProcessor(options);
    this.stops = new StopStrings(options.stop);
    this.maxTokens = options.maxTokens ?? Number.POSITIVE_INFINITY;
    if (!(this.maxTokens >= 1) || (Number.isFinite(this.maxTokens) && !Number.isInteger(this.maxTokens))) {
      throw new TransformersError(
        'INVALID_OPTION',
        `maxTokens is ${options.maxTokens}; give a whole number of 1 or more.`,
        { option: 'maxTokens' },
      );
    }
    const { tokenizer } = host;
    const { maxContext, model, adapters } = host.scheduler.runner;
    this.adapter = adapters.use(options.adapter);
    const { vocabSize } = model.config;
    this.constraint = structureOf(options, tokenizer, vocabSize, host.stopIds ?? tokenizer.eosIds);
    this.ends = new Set(options.ignoreEos ? [] : (host.stopIds ?? tokenizer.eosIds));
    if (options.speculative !== undefined) this.makeDrafter = drafting(options.speculative, host);
    if (this.makeDrafter && this.constraint && typeof this.constraint.fork !== 'function') {
      throw new TransformersError(
        'INVALID_OPTION',
        'generate: speculative asks the constraint what may follow drafts, and it has no fork(); add that, or leave speculative out.',
        { option: 'speculative' },
      );
    }
    const outside = Object.keys(this.processor.logitBias).find((id) => Number(id) >= vocabSize);
    if (outside !== undefined) {
      throw new TransformersError(
        'INVALID_OPTION',
        `logitBias has token ${outside}, which is not in the vocabulary of ${vocabSize}; use ids of this model's tokenizer.`,
        { option: 'logitBias' },
      );
    }
    this.promptIds = promptIdsOf('generate', prompt, tokenizer, options, maxContext);
    if (this.promptIds.length === 0) {
      throw new TransformersError(
        'EMPTY_INPUT',
        'generate: the prompt has no tokens; give some text, or ids such as the BOS token.',
      );
    }
  }

  /** Figures so far; final once the iteration has ended. */
  get stats(): GenerationStats {
    const { reusedTokens, generated, firstTokenMs, decodeMs, finishReason } = this;
    return {
      promptTokens: this.promptIds.length,
      reusedTokens,
      tokens: generated,
      loadMs: this.host.loadMs,
      firstTokenMs,
      decodeTokensPerSecond: decodeMs > 0 ? ((generated - 1) * 1000) / decodeMs : 0,
      seed: this.processor.seed,
      ...(this.makeDrafter && { speculative: { ...this.drafts } }),
      finishReason,
    };
  }

  /** Runs to the end and returns the whole text. */
  async text(): Promise<string> {
    let text = '';
    for await (const piece of this) text += piece.text;
    return text;
  }

  /**
   * Runs to the end, unless that is done, and returns the value of a text that was written for a `schema`.
   * @throws TransformersError INVALID_OPTION without `schema`; TEXT_INCOMPLETE where `maxTokens`, the context or a stop string cut
   * the text; INVALID_VALUE where a schema checks more than its JSON Schema says and refuses the value
   */
  async value(): Promise<T> {
    const { schema } = this.options;
    if (schema === undefined)
      throw new TransformersError(
        'INVALID_OPTION',
        'value() is of texts that follow a schema; give generate the option schema.',
      );
    if (this.finishReason === undefined) await this.text();
    if (this.finishReason !== 'eos') {
      const remedy = {
        length: 'give a larger maxTokens, or limit lengths in the schema',
        context: 'give a shorter prompt, or load the model with a larger maxContext',
      }[this.finishReason as string];
      throw new TransformersError(
        'TEXT_INCOMPLETE',
        `The text ended early (${this.finishReason}, after ${this.generated} tokens) and is no value of the schema; ${remedy ?? 'let it come to its end'}.`,
      );
    }
    return parsedValue(schema, this.shown);
  }

  /** @throws TransformersError INVALID_OPTION when iterated twice: make another generation for that */
  [Symbol.asyncIterator](): AsyncGenerator<Piece, void, void> {
    if (this.started) {
      throw new TransformersError(
        'INVALID_OPTION',
        'This generation was iterated before; call generate again for another one.',
      );
    }
    this.started = true;
    return this.run();
  }

  private async *run(): AsyncGenerator<Piece, void, void> {
    const { host, options, stops, promptIds } = this;
    const { tokenizer } = host;
    options.signal?.throwIfAborted();
    const { scheduler } = host;
    const cache = scheduler.open(false, this.adapter);
    const drafter = this.makeDrafter?.();
    const reach = new Reach(drafter?.tokens ?? 0);
    let working = performance.now();
    try {
      const decoder = tokenizer.decodeStream({ context: promptIds, keep: host.keptIds });
      const eos = this.ends;
      const history = [...promptIds];
      const { constraint } = this;
      const { signal, reusePrompt: reuse } = options;
      const onReused = (tokens: number) => {
        this.reusedTokens = tokens;
      };
      const reading = { signal, reuse, onReused, onProgress: this.report };
      const [first] = await allOf([
        scheduler.prefill(cache, promptIds, this.sampler(history), reading),
        drafter?.read?.(promptIds, signal),
      ]);
      let chosen: readonly Choice[] = [first];
      for (let next = 0; ; next++) {
        const { id, logprob, top } = chosen[next];
        const index = this.generated++;
        history.push(id);
        if (!eos.has(id)) constraint?.accept(id);
        const ended = this.endAfter(eos.has(id), promptIds.length + index);
        let text = eos.has(id) ? '' : decoder.push(id);
        if (ended) text += decoder.flush();
        const shown = stops.push(text);
        if (ended && !shown.stopped) shown.text += stops.flush();
        this.finishReason = shown.stopped ? 'stop' : ended;

        const ms = performance.now() - working;
        if (index === 0) this.firstTokenMs = ms;
        else this.decodeMs += ms;
        this.shown += shown.text;
        const piece: Piece = { text: shown.text, id, index };
        if (logprob !== undefined) piece.logprob = logprob;
        if (top) piece.topLogprobs = top;
        yield piece;
        if (this.finishReason) return;
        working = performance.now();
        options.signal?.throwIfAborted();
        if (next < chosen.length - 1) continue;
        next = -1;
        if (drafter) {
          chosen = await this.speculate(cache, history, drafter, reach);
          continue;
        }
        chosen = [await scheduler.decode(cache, id, this.sampler(history), signal, this.goesOn(history.length))];
      }
    } catch (error) {
      if (options.signal?.aborted) this.finishReason = 'aborted';
      throw error;
    } finally {
      this.finishReason ??= 'left';
      scheduler.close(cache);
      drafter?.close();
    }
  }

  /** A step of the last token and what the drafter expects behind it: the choices that it gives. */
  private async speculate(
    cache: SequenceCache,
    history: readonly number[],
    drafter: Drafter,
    reach: Reach,
  ): Promise<readonly Choice[]> {
    const { processor, constraint, ends, maxTokens, generated, drafts } = this;
    const { logprobs: logprob, topLogprobs: top, signal } = this.options;
    const { scheduler } = this.host;
    const { maxContext, model } = scheduler.runner;
    // The last token that is wanted is no draft, and every draft has a place.
    const most = Math.min(reach.drafts, maxTokens - generated - 1, maxContext - history.length);
    const { vocabSize } = model.config;
    const ahead = new Lookahead({ history, processor, constraint, ends, vocabSize, logprob, top }, most);
    if (most > 0) await drafter.draft(ahead, signal);
    const ids = [history[history.length - 1], ...ahead.drafts];
    const { choices, drafts: checked } = await scheduler.verify(cache, ids, ahead.samplers, signal);
    processor.take(choices.length);
    reach.report(checked, choices.length - 1);
    drafts.steps++;
    drafts.drafted += checked;
    drafts.accepted += choices.length - 1;
    return choices;
  }

  /** How the token after `history` is to be chosen. */
  private sampler(history: readonly number[]): Sampler {
    const { logprobs, topLogprobs } = this.options;
    const mask = this.constraint?.mask();
    const sampler = this.processor.sampler(history, { mask, logprob: logprobs, top: topLogprobs });
    checkPossible(sampler, this.host.scheduler.runner.model.config.vocabSize);
    return sampler;
  }

  /** Whether a token may follow the next one, which goes to this position. */
  private goesOn(position: number): boolean {
    return this.generated + 1 < this.maxTokens && position < this.host.scheduler.runner.maxContext;
  }

  /** Calls `onProgress` when there is enough to tell. */
  private readonly report = (() => {
    let reported = 0;
    return (done: number) => {
      const total = this.promptIds.length;
      if (done < total && done < reported + PROGRESS_STEP) return;
      reported = done;
      this.options.onProgress?.(done, total);
    };
  })();

  /** @param position where the token would go in the cache */
  private endAfter(isEos: boolean, position: number): FinishReason | undefined {
    if (isEos || this.constraint?.isFinished) return 'eos';
    if (this.generated >= this.maxTokens) return 'length';
    return position >= this.host.scheduler.runner.maxContext ? 'context' : undefined;
  }
}

/** As `Promise.all`, but waits for all of them when one fails: nothing of theirs is under way afterwards. */
async function allOf<T extends readonly unknown[]>(
  promises: T,
): Promise<{ -readonly [Index in keyof T]: Awaited<T[Index]> }> {
  const settled = await Promise.allSettled(promises);
  for (const result of settled) if (result.status === 'rejected') throw result.reason;
  return Promise.all(promises);
}
