/** `POST /tokenize` and `POST /detokenize`. */
import { kinds } from '@x/core';
import { badField } from '../errors';
import type { Job } from '../job';
import type { Service } from '../service';

const MAX_TOKENS = 2 ** 20;

/** `{ model, prompt | content, add_special_tokens? }` to `{ tokens, count, max_model_len }`. */
export async function tokenize(service: Service, job: Job): Promise<Response> {
  const fields = await service.body(job);
  const name = service.modelName(fields);
  const text = fields.required('prompt', fields.string('prompt') ?? fields.string('content'));
  const addSpecialTokens = fields.boolean('add_special_tokens') ?? true;
  const { lease } = await service.enter(job, name, 0);
  const tokens = lease.any.tokenizer.encode(text, { addSpecialTokens });
  return Response.json({
    tokens,
    count: tokens.length,
    max_model_len: 'maxContext' in lease.any ? lease.any.maxContext : lease.any.maxTokens,
  });
}

/** `{ model, tokens }` to `{ prompt, content }`, the same text twice: both names are in use. */
export async function detokenize(service: Service, job: Job): Promise<Response> {
  const fields = await service.body(job);
  const name = service.modelName(fields);
  const tokens = fields.required('tokens', fields.list('tokens', MAX_TOKENS));
  const wrong = tokens.findIndex((id) => !Number.isInteger(id) || (id as number) < 0);
  if (wrong >= 0) throw badField(`tokens[${wrong}]`, `is ${kinds.showField(tokens[wrong])}; give ids of tokens`);
  const { lease } = await service.enter(job, name, 0);
  const prompt = lease.any.tokenizer.decode(tokens as number[], { skipSpecialTokens: false });
  return Response.json({ prompt, content: prompt });
}
