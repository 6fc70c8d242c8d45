/** `POST /v1/chat/completions`. */
import { randomUUID } from 'node:crypto';
import type { ChatGeneration, ChatOptions } from '@x/engine';
import type { ChatPiece } from '@x/transformers';
import type { Job } from '../job';
import type { ResolvedOptions } from '../options';
import { readFormat, readMessages, readTemplateVariables, readToolChoice, readTools } from '../request/chat';
import type { Fields } from '../request/fields';
import { forChoice, MAX_TOP_LOGPROBS, readMaxTokens, readSampling, readStream } from '../request/sampling';
import type { Choice, Service } from '../service';
import { type ChatLogprob, chatLogprob, TokenTexts } from '../token-texts';
import { WrittenAnswer, type WrittenCall } from '../written-calls';
import { usageOf } from './completions';

export async function chatCompletions(service: Service, job: Job): Promise<Response> {
  const fields = await service.body(job);
  const name = service.modelName(fields);
  const { messages, n, options, parallel, stream, includeUsage } = readRequest(fields, service.options);
  const work = await service.enter(job, name, n);
  const { model, adapter } = work.lease;
  const texts = TokenTexts.of(model.tokenizer);
  const choices = work.tickets.map((_, index) => {
    const own = { ...options, ...forChoice(options, index), signal: job.signal, adapter };
    const choice = { index, generation: model.generateChat(messages, own), answer: new WrittenAnswer() };
    return choice satisfies Choice<ChatPiece>;
  });
  const common = { id: `chatcmpl-${randomUUID()}`, created: Math.floor(Date.now() / 1000), model: name };
  const usage = () =>
    usageOf(
      choices.map(({ generation }) => generation.stats),
      n,
    );
  /** The answer's pieces; only the first call, where one at a time is asked for. */
  async function* pieces(choice: (typeof choices)[number]): AsyncGenerator<ChatPiece, void, void> {
    for await (const piece of service.run(work, choice)) {
      choice.answer.add(piece);
      yield piece;
      if (piece.type === 'tool-call-end' && !parallel) return;
    }
  }
  const logprobsOf = ({ tokens }: ChatGeneration, from = 0): { content: ChatLogprob[]; refusal: null } | null =>
    options.logprobs && tokens.length > from
      ? { content: tokens.slice(from).map((token) => chatLogprob(texts, token)), refusal: null }
      : null;

  if (!stream) {
    await service.every(job, choices, async (choice) => {
      for await (const _ of pieces(choice));
    });
    const answers = choices.map(({ index, generation, answer }) => ({
      index,
      message: toMessage(answer),
      logprobs: logprobsOf(generation),
      finish_reason: finishReason(generation, answer),
    }));
    return Response.json({ ...common, object: 'chat.completion', choices: answers, usage: usage() });
  }
  return service.stream(work, async (writer) => {
    const write = (parts: object) =>
      writer.write({
        ...common,
        object: 'chat.completion.chunk',
        ...parts,
        ...(includeUsage && !('usage' in parts) && { usage: null }),
      });
    await service.every(job, choices, async (choice) => {
      const { index, generation, answer } = choice;
      let told = 0;
      const send = async (delta: object, finish_reason: string | null = null) => {
        const logprobs = logprobsOf(generation, told);
        told = generation.tokens.length;
        await write({ choices: [{ index, delta, logprobs, finish_reason }] });
      };
      await send({ role: 'assistant', content: '' });
      for await (const piece of pieces(choice)) {
        const delta = toDelta(piece);
        if (delta) await send(delta);
      }
      await send({}, finishReason(generation, answer));
    });
    if (includeUsage) await write({ choices: [], usage: usage() });
    await writer.done();
  });
}

function readRequest(fields: Fields, options: ResolvedOptions) {
  fields.refuse({ audio: 'is not supported', web_search_options: 'is not supported' });
  const modalities = fields.list('modalities', 4);
  if (modalities?.some((one) => one !== 'text'))
    fields.refuse({ modalities: 'has others than "text"; this server gives text' });
  const messages = readMessages(fields);
  const { tools, toolChoice } = readToolChoice(fields, readTools(fields), true);
  const format = readFormat(fields.object('response_format'), true);
  const maxTokens = readMaxTokens(fields, ['max_completion_tokens', 'max_tokens'], options);
  const top = fields.integer('top_logprobs', 0, MAX_TOP_LOGPROBS);
  const logprobs = fields.boolean('logprobs') ?? false;
  if (top !== undefined && !logprobs) fields.refuse({ top_logprobs: 'needs "logprobs": true' });
  const template = readTemplateVariables(fields);
  const chat: ChatOptions = {
    ...readSampling(fields),
    ...(Number.isFinite(maxTokens) && { maxTokens }),
    ...(logprobs && { logprobs, topLogprobs: top ?? 0 }),
    ...(tools.length > 0 && { tools, toolChoice }),
    ...(template && { template }),
    ...format,
    continueLast: fields.boolean('continue_final_message') ?? false,
  };
  const n = fields.integer('n', 1, options.maxChoices) ?? 1;
  const parallel = fields.boolean('parallel_tool_calls') ?? true;
  return { messages, n, options: chat, parallel, ...readStream(fields) };
}

/** What a piece of an answer is in a stream: the first of a call names it, the others hold its arguments alone. */
function toDelta(piece: ChatPiece): object | undefined {
  switch (piece.type) {
    case 'text':
      return piece.text === '' || piece.ofCall !== undefined ? undefined : { content: piece.text };
    case 'reasoning':
      return piece.text === '' ? undefined : { reasoning_content: piece.text };
    case 'tool-call-start': {
      const { index, id, name } = piece;
      return { tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] };
    }
    case 'tool-call-arguments':
      return { tool_calls: [{ index: piece.index, function: { arguments: piece.text } }] };
    case 'tool-call-end':
      return undefined;
  }
}

function toMessage({ calls, message: { content, reasoning } }: WrittenAnswer): object {
  return {
    role: 'assistant',
    content: content === '' && calls.length > 0 ? null : content,
    refusal: null,
    ...(reasoning && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls.map(toCall) }),
  };
}

function toCall({ id, ...call }: WrittenCall): object {
  return { id, type: 'function', function: call };
}

/** As OpenAI names it. An answer that is left after its first call has ended with it. */
function finishReason(
  { finishReason: reason }: ChatGeneration,
  answer: WrittenAnswer,
): 'stop' | 'length' | 'tool_calls' {
  if (reason === 'length' || reason === 'context') return 'length';
  return answer.calls.length > 0 ? 'tool_calls' : 'stop';
}
