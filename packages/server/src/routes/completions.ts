/** `POST /v1/completions`: texts that go on, as OpenAI's first interface has them. */
import { randomUUID } from 'node:crypto';
import { kinds } from '@x/core';
import type { FinishReason, GenerationStats, Piece } from '@x/engine';
import { badField } from '../errors';
import type { Job } from '../job';
import type { Lease } from '../model-pool';
import type { ResolvedOptions } from '../options';
import { type Fields, isTokens } from '../request/fields';
import {
  forChoice,
  MAX_TOP_LOGPROBS,
  readMaxTokens,
  readSampling,
  readStream,
  type Sampling,
} from '../request/sampling';
import type { Service } from '../service';
import { finite, TokenTexts } from '../token-texts';

/** What the interface gives where nothing is said. */
const DEFAULT_MAX_TOKENS = 16;

type Prompt = string | number[];

interface CompletionRequest {
  prompts: Prompt[];
  n: number;
  echo: boolean;
  logprobs: number | undefined;
  maxTokens: number;
  sampling: Sampling;
  stream: boolean;
  includeUsage: boolean;
}

interface Logprobs {
  tokens: string[];
  token_logprobs: number[];
  top_logprobs: Record<string, number>[] | null;
  text_offset: number[];
}

export async function completions(service: Service, job: Job): Promise<Response> {
  const fields = await service.body(job);
  const name = service.modelName(fields);
  const request = readRequest(fields, service.options);
  const { prompts, n, echo, stream, includeUsage } = request;
  const work = await service.enter(job, name, prompts.length * n);
  const choices = work.tickets.map((_, index) => new Choice(work.lease, request, index, job.signal));
  const common = {
    id: `cmpl-${randomUUID()}`,
    object: 'text_completion',
    created: Math.floor(Date.now() / 1000),
    model: name,
  };
  const usage = () =>
    usageOf(
      choices.map(({ stats }) => stats),
      n,
    );
  if (!stream) {
    await service.every(job, choices, async (choice) => {
      for await (const piece of service.run(work, choice)) choice.add(piece);
    });
    return Response.json({ ...common, choices: choices.map((choice) => choice.whole(echo)), usage: usage() });
  }
  return service.stream(work, async (writer) => {
    const write = (parts: object) =>
      writer.write({ ...common, ...parts, ...(includeUsage && !('usage' in parts) && { usage: null }) });
    await service.every(job, choices, async (choice) => {
      if (echo)
        await write({
          choices: [{ index: choice.index, text: choice.promptText, logprobs: null, finish_reason: null }],
        });
      for await (const piece of service.run(work, choice)) {
        const part = choice.add(piece);
        if (part.text !== '' || part.logprobs)
          await write({ choices: [{ index: choice.index, ...part, finish_reason: null }] });
      }
      await write({
        choices: [
          { index: choice.index, text: '', logprobs: null, finish_reason: finishReason(choice.stats.finishReason) },
        ],
      });
    });
    if (includeUsage) await write({ choices: [], usage: usage() });
    await writer.done();
  });
}

/** One text of an answer. */
class Choice {
  readonly generation;
  readonly promptText: string;
  private readonly texts: TokenTexts;
  private text = '';
  private readonly logprobs: Logprobs | undefined;
  private offset: number;

  constructor(
    { model, adapter }: Lease,
    { prompts, n, echo, logprobs, maxTokens, sampling }: CompletionRequest,
    readonly index: number,
    signal: AbortSignal,
  ) {
    const prompt = prompts[Math.floor(index / n)];
    this.generation = model.generate(prompt, {
      ...forChoice(sampling, index),
      signal,
      adapter,
      ...(Number.isFinite(maxTokens) && { maxTokens }),
      ...(logprobs !== undefined && { logprobs: true, topLogprobs: logprobs }),
    });
    this.promptText = !echo ? '' : typeof prompt === 'string' ? prompt : model.tokenizer.decode(prompt);
    this.offset = this.promptText.length;
    this.texts = TokenTexts.of(model.tokenizer);
    if (logprobs !== undefined)
      this.logprobs = { tokens: [], token_logprobs: [], top_logprobs: logprobs > 0 ? [] : null, text_offset: [] };
  }

  get stats(): GenerationStats {
    return this.generation.stats;
  }

  /** @returns what the piece adds */
  add(piece: Piece): { text: string; logprobs: Logprobs | null } {
    this.text += piece.text;
    if (!this.logprobs) return { text: piece.text, logprobs: null };
    const { texts } = this;
    const token = texts.get(piece.id).text;
    const top = piece.topLogprobs?.map(({ id, logprob }) => [texts.get(id).text, finite(logprob)] as const);
    const own: Logprobs = {
      tokens: [token],
      token_logprobs: [finite(piece.logprob!)],
      top_logprobs: top ? [Object.fromEntries(top)] : null,
      text_offset: [this.offset],
    };
    this.offset += token.length;
    this.logprobs.tokens.push(...own.tokens);
    this.logprobs.token_logprobs.push(...own.token_logprobs);
    if (own.top_logprobs) this.logprobs.top_logprobs?.push(...own.top_logprobs);
    this.logprobs.text_offset.push(...own.text_offset);
    return { text: piece.text, logprobs: own };
  }

  whole(echo: boolean): object {
    const text = echo ? this.promptText + this.text : this.text;
    return {
      index: this.index,
      text,
      logprobs: this.logprobs ?? null,
      finish_reason: finishReason(this.stats.finishReason),
    };
  }
}

function readRequest(fields: Fields, options: ResolvedOptions): CompletionRequest {
  fields.refuse({ suffix: 'is not supported: this server has no texts to be filled in' });
  const n = fields.integer('n', 1, options.maxChoices) ?? 1;
  const best = fields.integer('best_of', 1, options.maxChoices) ?? n;
  if (best !== n) throw badField('best_of', `is ${best} and n ${n}; only equal numbers are supported`);
  const prompts = readPrompts(fields, options);
  if (prompts.length * n > options.maxChoices)
    throw badField(
      'prompt',
      `has ${prompts.length} texts for ${n} choices each; this server makes ${options.maxChoices} a request`,
    );
  const echo = fields.boolean('echo') ?? false;
  const logprobs = fields.integer('logprobs', 0, MAX_TOP_LOGPROBS);
  if (echo && logprobs !== undefined) throw badField('echo', 'is not supported together with logprobs');
  const maxTokens = readMaxTokens(fields, ['max_tokens'], options, DEFAULT_MAX_TOKENS);
  return { prompts, n, echo, logprobs, maxTokens, sampling: readSampling(fields), ...readStream(fields) };
}

function readPrompts(fields: Fields, { maxChoices }: ResolvedOptions): Prompt[] {
  const prompt = fields.required('prompt', fields.raw('prompt'));
  if (typeof prompt === 'string') return [prompt];
  if (isTokens(prompt)) return [prompt];
  const list = Array.isArray(prompt) ? fields.list('prompt', maxChoices)! : [];
  const wrong = list.findIndex((one) => typeof one !== 'string' && !isTokens(one));
  if (list.length === 0 || wrong >= 0) {
    const what =
      list.length === 0 ? kinds.showField(prompt) : `a list with ${kinds.showField(list[wrong])} at ${wrong}`;
    throw badField('prompt', `is ${what}; give a string, a list of token ids, or a list of those`);
  }
  return list as Prompt[];
}

/** As OpenAI names it: an end of its own, or a length that was reached. */
function finishReason(reason: FinishReason | undefined): 'stop' | 'length' {
  return reason === 'length' || reason === 'context' ? 'length' : 'stop';
}

/** @param n choices that share a prompt, which counts once */
export function usageOf(
  stats: readonly Pick<GenerationStats, 'promptTokens' | 'tokens' | 'reusedTokens' | 'reasoningTokens'>[],
  n: number,
): object {
  const firsts = stats.filter((_, i) => i % n === 0);
  const prompt = firsts.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
  const cached = firsts.reduce((sum, { reusedTokens }) => sum + reusedTokens, 0);
  const completion = stats.reduce((sum, { tokens }) => sum + tokens, 0);
  const isChat = stats.some(({ reasoningTokens }) => reasoningTokens !== undefined);
  const reasoning = stats.reduce((sum, { reasoningTokens = 0 }) => sum + reasoningTokens, 0);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: cached },
    ...(isChat && { completion_tokens_details: { reasoning_tokens: reasoning } }),
  };
}
