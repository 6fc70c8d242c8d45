/** `POST /v1/embeddings`. */
import { kinds } from '@x/core';
import type { EmbeddingInput } from '@x/engine';
import { ApiError, badField, toApiError } from '../errors';
import type { Job } from '../job';
import { type Fields, isTokens } from '../request/fields';
import type { Service } from '../service';

/** Texts of a request, as OpenAI has it. */
const MAX_INPUTS = 2048;

export async function embeddings(service: Service, job: Job): Promise<Response> {
  const fields = await service.body(job);
  const name = service.modelName(fields);
  const inputs = readInputs(fields);
  const isBase64 = fields.choice('encoding_format', ['float', 'base64']) === 'base64';
  const dimensions = fields.integer('dimensions', 1, 2 ** 20);
  // Other servers' names for the prompts that models want before queries and documents.
  const named = (['prompt_name', 'input_type'] as const).find((field) => fields.has(field));
  const promptName = named && fields.string(named, 64);
  const truncate = fields.boolean('truncate') ?? false;
  const { lease, tickets } = await service.enter(job, name, 1);
  const { embedder } = lease;
  await tickets[0].ready(job.signal);
  const options = {
    signal: job.signal,
    truncate,
    ...(dimensions !== undefined && { dimensions }),
    ...(promptName !== undefined && { promptName }),
  };
  const results = await embedder.embed(inputs, options).catch((error: unknown) => {
    const { status, message, code, param } = toApiError(error, job.route);
    throw param === 'prompt_name' && named ? new ApiError(status, message, { code, param: named }) : error;
  });
  const tokens = results.reduce((sum, result) => sum + result.tokens, 0);
  service.metrics.promptTokens.add(tokens, { model: name });
  return Response.json({
    object: 'list',
    data: results.map(({ vector }, index) => ({
      object: 'embedding',
      index,
      embedding: isBase64 ? base64(vector) : Array.from(vector),
    })),
    model: name,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  });
}

/** Little-endian f32, as clients decode it. */
function base64({ buffer, byteOffset, byteLength }: Float32Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64');
}

function readInputs(fields: Fields): EmbeddingInput[] {
  const input = fields.required('input', fields.raw('input'));
  const isInput = (value: unknown): value is EmbeddingInput =>
    (typeof value === 'string' && value !== '') || isTokens(value);
  if (isInput(input)) return [input];
  const list = Array.isArray(input) ? fields.list('input', MAX_INPUTS)! : [];
  const wrong = list.findIndex((one) => !isInput(one));
  if (list.length > 0 && wrong < 0) return list as EmbeddingInput[];
  const what = list.length === 0 ? kinds.showField(input) : `a list with ${kinds.showField(list[wrong])} at ${wrong}`;
  throw badField('input', `is ${what}; give a text that is not empty, a list of token ids, or a list of those`);
}
