// Tools over HTTP with a real model of random weights: what it is made to call meets the schema, and what cannot be met is said.
import { compileSchema } from '@x/grammar';
import { afterAll, expect, test } from 'vitest';
import { events, ON_CPU, TINY, testServer } from './support';

const chatTemplate = '{{ messages | length }}{{ tools | length }}<tool_call></tool_call>';
/** Words of other families' templates. */
const FAMILIES = {
  mistral: '[TOOL_CALLS][ARGS]',
  deepseek: '<｜tool▁calls▁begin｜>',
  coder: '<tool_call><function=',
  glm: '<arg_key>',
  gemma: '<|tool_call>',
  harmony: '<|channel|><|message|>',
};
const speaking = (words: string) => ({
  path: TINY,
  options: { ...ON_CPU, chatTemplate: `{{ messages | length }}{{ tools | length }}${words}` },
});
const { server, post } = testServer({ models: { tiny: { path: TINY, options: { ...ON_CPU, chatTemplate } } } });
const others = testServer({
  models: Object.fromEntries(Object.entries(FAMILIES).map(([name, words]) => [name, speaking(words)])),
});
afterAll(() => Promise.all([server.close(), others.server.close()]));

const properties = { city: { enum: ['Oslo', 'Rome'] }, days: { type: 'integer', minimum: 1, maximum: 9 } };
const parameters = { type: 'object', properties, required: ['city'], additionalProperties: false };
const schema = compileSchema(parameters, { whitespace: 'any' });
const klingon = { type: 'object', properties: { of: { type: 'string', format: 'klingon' } } };
const messages = [{ role: 'user', content: 'x' }];
const nested = (extra: object = {}) => [{ type: 'function', function: { name: 'weather', parameters, ...extra } }];
const flat = (extra: object = {}) => [{ type: 'function', name: 'weather', parameters, ...extra }];
const hot = { temperature: 2, seed: 1 };

test.each(['required', { type: 'function', function: { name: 'weather' } }])(
  'a chat that has to call: %j',
  async (tool_choice) => {
    for (const seed of [1, 2, 3]) {
      const body = { messages, tools: nested({ strict: true }), tool_choice, ...hot, seed, max_tokens: 200 };
      const { choices } = await (await post('/v1/chat/completions', body)).json();
      expect(choices[0].finish_reason).toBe('tool_calls');
      for (const { function: call } of choices[0].message.tool_calls) {
        expect(call.name).toBe('weather');
        expect(schema.accepts(call.arguments), call.arguments).toBe(true);
      }
      const streamed = await events(await post('/v1/chat/completions', { ...body, stream: true }));
      const text = streamed.map((event) => event.choices?.[0].delta.tool_calls?.[0].function.arguments ?? '').join('');
      expect(schema.accepts(text), text).toBe(true);
    }
  },
);

test.each(Object.keys(FAMILIES))('a chat of the family %s that has to call', async (model) => {
  const named = { type: 'function', function: { name: 'weather' } };
  const body = { model, messages, tools: nested({ strict: true }), ...hot, max_tokens: 300 };
  const { choices } = await (await others.post('/v1/chat/completions', { ...body, tool_choice: 'required' })).json();
  expect([choices[0].finish_reason, choices[0].message.content]).toEqual(['tool_calls', null]);
  const [{ function: call }] = choices[0].message.tool_calls;
  expect([call.name, schema.accepts(call.arguments)], call.arguments).toEqual(['weather', true]);
  const streamed = await events(
    await others.post('/v1/chat/completions', { ...body, tool_choice: named, stream: true }),
  );
  const text = streamed.map((event) => event.choices?.[0].delta.tool_calls?.[0].function.arguments ?? '').join('');
  expect(schema.accepts(text), text).toBe(true);
});

test('a response that has to call', async () => {
  for (const tool_choice of ['required', { type: 'function', name: 'weather' }]) {
    const body = { input: 'x', tools: flat({ strict: true }), tool_choice, max_output_tokens: 200, temperature: 2 };
    const { output, status } = await (await post('/v1/responses', body)).json();
    expect([status, output[0].type, output[0].name]).toEqual(['completed', 'function_call', 'weather']);
    expect(schema.accepts(output[0].arguments), output[0].arguments).toBe(true);
  }
});

test('a schema that cannot be enforced is refused where it has to be, with the name of its tool', async () => {
  const asks = [
    ['/v1/chat/completions', { messages, tools: nested({ parameters: klingon, strict: true }) }],
    ['/v1/chat/completions', { messages, tools: nested({ parameters: klingon }), tool_choice: 'required' }],
    ['/v1/responses', { input: 'x', tools: flat({ parameters: klingon, strict: true }) }],
  ] as const;
  for (const [path, body] of asks) {
    const answer = await post(path, body);
    const { error } = await answer.json();
    expect([answer.status, error.code]).toEqual([400, 'invalid_schema']);
    expect(error.message).toMatch(/The tool "weather".*klingon/);
  }
  const relaxed = { messages, tools: nested({ parameters: klingon }), max_tokens: 2 };
  expect((await post('/v1/chat/completions', relaxed)).status).toBe(200);
});

test.each([
  [{ tools: nested({ strict: 'yes' }) }, 'tools[0].function.strict'],
  [{ tools: nested(), tool_choice: { type: 'function', function: { name: 'wether' } } }, 'tool_choice.function.name'],
  [{ tools: [], tool_choice: 'required' }, 'tool_choice'],
  [{ tools: nested(), tool_choice: 'sometimes' }, 'tool_choice'],
  [{ tools: [...nested(), ...nested()] }, 'tools'],
])('%j is refused', async (extra, param) => {
  const answer = await post('/v1/chat/completions', { messages, ...extra });
  expect([answer.status, (await answer.json()).error.param]).toEqual([400, param]);
});
