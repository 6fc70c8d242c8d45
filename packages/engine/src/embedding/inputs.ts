/** Texts, pairs and token ids of callers, made the inputs of a model: checked, with prompts and special tokens, cut to length. */
import { performance } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { CandleError, didYouMean, kinds } from '@x/core';
import { type Tokenizer, TransformersError } from '@x/transformers';
import type { EmbeddingSettings } from './settings';
import type { TextIds } from './text-model';
import { YesNoPairs } from './yes-no';

/** A text, or token ids. */
export type EmbeddingInput = string | ArrayLike<number>;

export interface Input extends TextIds {
  ids: ArrayLike<number>;
  dropped: number;
  /** Token ids of the caller: without a prompt. */
  plain?: boolean;
}

export interface InputOptions {
  truncate?: boolean;
  maxTokens?: number;
  signal?: AbortSignal;
}

/** Time after which the event loop has a turn. */
const TURN_MS = 20;
/** Names that a prompt for documents has in published models. */
const DOCUMENT_NAMES = ['document', 'passage', 'corpus'];

export class Inputs {
  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly settings: EmbeddingSettings,
    private readonly maxTokens: number,
  ) {}

  /** The text in front of others, and how many tokens it makes at the beginning of each. */
  prompt(literal: string | undefined, name: string | undefined): { text: string; tokens: () => number } {
    const text = literal ?? this.named(name ?? this.settings.defaultPrompt);
    return {
      text,
      tokens: () => {
        if (text === '') return 0;
        // As sentence-transformers: the special tokens in front count, those behind do not.
        const { ids } = this.tokenizer.encodeInput(text);
        return ids.findLastIndex((id) => !this.tokenizer.isSpecial(id)) + 1;
      },
    };
  }

  /** @param op for messages */
  async texts(op: string, texts: readonly EmbeddingInput[], prompt: string, options: InputOptions): Promise<Input[]> {
    if (!Array.isArray(texts)) throw notTexts(op, 'texts', texts);
    const most = this.most(op, options);
    return this.each(op, texts, options, (text, i) =>
      typeof text === 'string' ? this.encode(prompt + text, most) : this.given(op, text, i, most),
    );
  }

  /** @param options `instruction`: what is asked of a document, of models that are told it */
  async pairs(
    op: string,
    query: string,
    documents: readonly string[],
    options: InputOptions & { instruction?: string },
  ): Promise<Input[]> {
    const { instruction } = options;
    const questions = this.settings.yesNo ? new YesNoPairs(this.tokenizer) : undefined;
    if (instruction !== undefined && !questions)
      throw new TransformersError(
        'INVALID_OPTION',
        `${op}: this model takes no instruction; leave it out, or use a reranker that is told what to look for (Qwen3-Reranker).`,
        { option: 'instruction' },
      );
    if (typeof query !== 'string') throw notTexts(op, 'query', query);
    if (!Array.isArray(documents)) throw notTexts(op, 'documents', documents);
    const most = this.most(op, options);
    return this.each(op, documents, options, (document, i) => {
      if (typeof document !== 'string') throw notTexts(op, `documents[${i}]`, document);
      if (questions) return questions.encode(this.cased(query), this.cased(document), most, instruction);
      return this.tokenizer.encodeInput(this.cased(query), { pair: this.cased(document), maxTokens: most });
    });
  }

  private named(name: string | undefined): string {
    if (name === undefined) return '';
    const { prompts } = this.settings;
    const names = name === 'document' ? DOCUMENT_NAMES : [name];
    const found = names.find((one) => Object.hasOwn(prompts, one));
    if (found !== undefined) return prompts[found];
    if (name === 'document' || name === 'query') return '';
    const known = Object.keys(prompts);
    const list = known.length === 0 ? 'has no prompts' : `has the prompts ${known.join(', ')}`;
    throw new TransformersError(
      'INVALID_OPTION',
      `embed: there is no prompt ${kinds.show(name)}.${didYouMean(name, known)} The model ${list}; name one that it has, or begin the texts with yours.`,
      { option: 'promptName' },
    );
  }

  private most(op: string, { maxTokens = this.maxTokens }: InputOptions): number {
    if (maxTokens <= this.maxTokens) return maxTokens;
    throw new TransformersError(
      'INVALID_OPTION',
      `${op}: maxTokens is ${maxTokens}; the model was loaded for ${this.maxTokens}.`,
      { option: 'maxTokens' },
    );
  }

  private cased(text: string): string {
    return this.settings.lowerCase ? text.toLowerCase() : text;
  }

  private encode(text: string, maxTokens: number): Input {
    return this.tokenizer.encodeInput(this.cased(text), { maxTokens });
  }

  private given(op: string, ids: ArrayLike<number>, i: number, most: number): Input {
    if (!(Array.isArray(ids) || ArrayBuffer.isView(ids))) throw notTexts(op, `texts[${i}]`, ids);
    for (let at = 0; at < ids.length; at++) {
      const id: unknown = ids[at];
      if (Number.isInteger(id) && (id as number) >= 0 && (id as number) < this.tokenizer.vocabSize) continue;
      throw new TransformersError(
        'BAD_TOKEN',
        `${op}: texts[${i}][${at}] is ${String(id)}; give ids from 0 to ${this.tokenizer.vocabSize - 1}.`,
        { option: 'texts' },
      );
    }
    const kept = Array.from(ids).slice(0, most);
    return { ids: kept, dropped: ids.length - kept.length, plain: true };
  }

  private async each<T>(
    op: string,
    items: readonly T[],
    { truncate = true, signal }: InputOptions,
    make: (item: T, index: number) => Input,
  ): Promise<Input[]> {
    const made: Input[] = [];
    let turn = performance.now();
    for (const [i, item] of items.entries()) {
      const input = make(item, i);
      if (input.ids.length === 0) {
        throw new TransformersError('EMPTY_INPUT', `${op}: text ${i} has no tokens; leave it out.`);
      }
      if (!truncate && input.dropped > 0) {
        throw new TransformersError(
          'CONTEXT_EXCEEDED',
          `${op}: text ${i} has ${input.ids.length + input.dropped} tokens, ${input.dropped} more than fit; shorten it, or allow truncate.`,
        );
      }
      made.push(input);
      if (performance.now() - turn < TURN_MS) continue;
      await nextTurn();
      signal?.throwIfAborted();
      turn = performance.now();
    }
    signal?.throwIfAborted();
    return made;
  }
}

function notTexts(op: string, name: string, value: unknown): CandleError {
  const what = value === null ? 'null' : Array.isArray(value) ? 'a list' : `a ${typeof value}`;
  const wanted = name === 'texts' || name === 'documents' ? 'a list of texts' : 'a text';
  return new CandleError('INVALID_ARGUMENT', `${op}: ${name} is ${what}; give ${wanted}.`);
}
