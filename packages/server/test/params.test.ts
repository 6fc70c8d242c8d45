// What only the engine can refuse: the answer names the field of the request, and nothing of the engine.
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { MODEL, ON_CPU, TINY, testServer } from './support';

const BERT = fileURLToPath(new URL('../../../models/encoders/bert', import.meta.url));
const chatTemplate = '{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | length }}<tool_call></tool_call>';
const { server, post } = testServer({
  models: {
    tiny: { path: TINY, options: { ...ON_CPU, chatTemplate } },
    mute: { path: MODEL, options: ON_CPU },
    embed: { path: BERT, kind: 'embedding', options: ON_CPU },
  },
});
afterAll(() => server.close());

const chat = { messages: [{ role: 'user', content: 'a' }], max_tokens: 1 };
const tool = { type: 'function', function: { name: 'getTime', parameters: { type: 'object' } } };
const bad = { type: 'object', properties: { inCelsius: { type: 'klingon' } } };
const strict = { ...tool, function: { name: 'getTime', parameters: bad, strict: true } };
const format = { type: 'json_schema', json_schema: { name: 'a', schema: bad } };
const far = { 99999999: 1 };
test.each([
  ['/v1/completions', { prompt: 'a', logit_bias: far }, 'logit_bias', /^logit_bias has token 99999999/],
  [
    '/v1/completions',
    { prompt: 'a', repetition_penalty: 1e-39 },
    'repetition_penalty',
    /^repetition_penalty is 1e-39; /,
  ],
  ['/v1/completions', { prompt: [5, 99999999] }, 'prompt', /^token 99999999/],
  ['/v1/completions', { prompt: '', stream: true }, 'prompt', /no tokens/],
  ['/v1/chat/completions', { ...chat, logit_bias: far }, 'logit_bias', /^logit_bias has token/],
  ['/v1/chat/completions', { ...chat, continue_final_message: true }, 'continue_final_message', /final_message/],
  ['/v1/chat/completions', { ...chat, chat_template_kwargs: { colour: 1 } }, 'chat_template_kwargs', /"colour"/],
  ['/v1/chat/completions', { ...chat, response_format: format }, 'response_format', /inCelsius.*klingon/],
  ['/v1/chat/completions', { ...chat, tools: [strict] }, 'tools', /"getTime".*inCelsius.*klingon/],
  ['/v1/chat/completions', { messages: [{ role: 'user', content: 'a '.repeat(2000) }] }, 'messages', /shorten it\.$/],
  ['/v1/responses', { input: 'a', logit_bias: far }, 'logit_bias', /^logit_bias has token/],
  [
    '/v1/responses',
    { input: 'a', text: { format: { ...format.json_schema, type: 'json_schema' } } },
    'text.format',
    /klingon/,
  ],
  ['/v1/responses', { input: 'a '.repeat(2000) }, 'input', /shorten it\.$/],
  ['/v1/chat/completions', { ...chat, model: 'mute' }, 'model', /no chat template/],
  ['/v1/embeddings', { model: 'embed', input: 'a', dimensions: 1000000 }, 'dimensions', /^dimensions is 1000000/],
  ['/v1/embeddings', { model: 'embed', input: 'a', prompt_name: 'mine' }, 'prompt_name', /"mine"/],
  ['/v1/embeddings', { model: 'embed', input: 'a', input_type: 'mine' }, 'input_type', /"mine"/],
  ['/v1/embeddings', { model: 'embed', input: [[5, 99999999]] }, 'input', /^input\[0\]\[1\] is 99999999/],
  ['/v1/embeddings', { model: 'embed', input: 'a '.repeat(5000) }, 'input', /shorten it/],
  ['/detokenize', { tokens: [99999999] }, 'tokens', /99999999/],
] as const)('%s %j', async (route, body, param, message) => {
  const response = await post(route, { model: 'tiny', ...body });
  expect(response.status).toBe(400);
  const { error } = await response.json();
  expect([error.param, error.message]).toEqual([param, expect.stringMatching(message)]);
  expect(error.message).not.toMatch(/^[a-z]+: |logitBias|continueLast|maxContext|loadModel|promptName/);
});
