// Adapters of a model as models of their own names.
import { fileURLToPath } from 'node:url';
import { loadModel } from '@x/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createServer } from '../src';
import { ON_CPU, TINY, testServer } from './support';

const fixture = (name: string) => fileURLToPath(new URL(`../../engine/test/fixtures/lora/${name}`, import.meta.url));
const adapters = { all: fixture('llama-all'), some: fixture('llama-some') };
const options = { ...ON_CPU, chatTemplate: 'chatml', adapters };
const { server, ask, post } = testServer({ models: { tiny: { path: TINY, options } } });
let model: Awaited<ReturnType<typeof loadModel>>;
beforeAll(async () => {
  model = await loadModel(TINY, options);
});
afterAll(async () => {
  model.dispose();
  await server.close();
});

const prompt = [40, 7, 300, 41, 99];
const names = ['tiny', 'all', 'some'];
const adapterOf = (name: string) => (name === 'tiny' ? undefined : name);

test('are listed, and answer at once', async () => {
  const { data } = await (await ask('/v1/models')).json();
  expect(data.map(({ id }: { id: string }) => id)).toEqual(names);
  expect((await ask('/v1/models/some')).status).toBe(200);
  const answers = await Promise.all(
    names.map(async (name) => {
      const body = { model: name, prompt, max_tokens: 10, temperature: 0 };
      const answer = await (await post('/v1/completions', body)).json();
      expect(answer.model).toBe(name);
      return answer.choices[0].text;
    }),
  );
  const expected = [];
  for (const name of names)
    expected.push(await model.generate(prompt, { maxTokens: 10, temperature: 0, adapter: adapterOf(name) }).text());
  expect(answers).toEqual(expected);
  expect(new Set(answers).size).toBe(3);
});

test('chats and responses are theirs, and a body without a name asks the model itself', async () => {
  const messages = [{ role: 'user' as const, content: 'Hi' }];
  for (const name of names) {
    const own = model.generateChat(messages, { maxTokens: 8, temperature: 0, adapter: adapterOf(name) });
    const { content } = await own.message();
    const chat = await (
      await post('/v1/chat/completions', { model: name, messages, max_tokens: 8, temperature: 0 })
    ).json();
    expect(chat.choices[0].message.content).toBe(content);
    const body = { model: name, input: 'Hi', max_output_tokens: 8, temperature: 0 };
    const response = await (await post('/v1/responses', body)).json();
    expect(response.output[0].content[0].text).toBe(content);
  }
  const { choices } = await (await post('/v1/completions', { prompt, max_tokens: 10, temperature: 0 })).json();
  expect(choices[0].text).toBe(await model.generate(prompt, { maxTokens: 10, temperature: 0 }).text());
  const unknown = await post('/v1/completions', { model: 'none', prompt });
  expect(unknown.status).toBe(404);
});

test("names are told apart, and what does not load is the server's to know", async () => {
  const two = { all: TINY, tiny: { path: TINY, options } };
  expect(() => createServer({ models: two })).toThrow('Two models or adapters are called "all"');
  const errors: string[] = [];
  const broken = testServer({
    models: { tiny: { path: TINY, options: { ...ON_CPU, adapters: { bad: fixture('qwen2-all') } } } },
    onLog: ({ error }) => errors.push(String(error)),
  });
  const answer = await broken.post('/v1/completions', { model: 'bad', prompt });
  expect(answer.status).toBe(500);
  expect((await answer.json()).error.code).toBe('model_load_failed');
  expect(errors.join()).toMatch(/qwen2-all: the adapter changes/);
  await broken.server.close();
});
