/** `POST /v1/responses`, without state: what was said before comes with each request. */
import { randomUUID } from 'node:crypto';
import type { ChatPiece } from '@x/transformers';
import type { Job } from '../job';
import { readResponses } from '../request/responses';
import { ResponseItems } from '../response-items';
import type { Service } from '../service';
import { chatLogprob, TokenTexts } from '../token-texts';

export async function responses(service: Service, job: Job): Promise<Response> {
  const fields = await service.body(job);
  const name = service.modelName(fields);
  const { messages, options, stream, parallel, echo } = readResponses(fields, service.options);
  const work = await service.enter(job, name, 1);
  const { model, adapter } = work.lease;
  const generation = model.generateChat(messages, { ...options, signal: job.signal, adapter });
  const texts = TokenTexts.of(model.tokenizer);
  const items = new ResponseItems();
  const id = `resp_${randomUUID()}`;
  const createdAt = Math.floor(Date.now() / 1000);

  const snapshot = (status: string, parts: object = {}) => {
    const { promptTokens, tokens, reusedTokens, reasoningTokens = 0 } = generation.stats;
    const usage = {
      input_tokens: promptTokens,
      input_tokens_details: { cached_tokens: reusedTokens },
      output_tokens: tokens,
      output_tokens_details: { reasoning_tokens: reasoningTokens },
      total_tokens: promptTokens + tokens,
    };
    return {
      id,
      object: 'response',
      created_at: createdAt,
      status,
      background: false,
      error: null,
      incomplete_details: null,
      model: name,
      output: items.output,
      usage: status === 'in_progress' ? null : usage,
      ...echo,
      ...parts,
    };
  };
  /** Events of the pieces; the answer ends after its first call where one at a time is asked for. */
  async function* events() {
    let told = 0;
    for await (const piece of service.run<ChatPiece>(work, { index: 0, generation })) {
      const logprobs = options.logprobs ? generation.tokens.slice(told).map((token) => chatLogprob(texts, token)) : [];
      told = generation.tokens.length;
      yield* items.add(piece, logprobs);
      if (piece.type === 'tool-call-end' && !parallel) break;
    }
    yield* items.end(isCut() ? 'incomplete' : 'completed');
  }
  const isCut = () => generation.finishReason === 'length' || generation.finishReason === 'context';
  const last = () =>
    isCut() ? snapshot('incomplete', { incomplete_details: { reason: 'max_output_tokens' } }) : snapshot('completed');

  if (!stream) {
    for await (const _ of events());
    job.signal.throwIfAborted();
    return Response.json(last());
  }
  let sequence = 0;
  return service.stream(
    work,
    async (writer) => {
      const write = (event: { type: string }) => writer.write({ ...event, sequence_number: sequence++ }, event.type);
      const wrap = (type: string, response: object) => ({ type, response });
      await write(wrap('response.created', snapshot('in_progress')));
      await write(wrap('response.in_progress', snapshot('in_progress')));
      for await (const event of events()) await write(event);
      await write(wrap(isCut() ? 'response.incomplete' : 'response.completed', last()));
    },
    {
      failure: (error) => {
        const { message, code } = error;
        const response = snapshot('failed', { error: { code, message } });
        return { event: 'response.failed', data: { type: 'response.failed', response, sequence_number: sequence } };
      },
    },
  );
}
