// What an answer may be when a form, tools and reasoning come together, of a model whose tokenizer has the marks of a family.
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { ChatMessage } from '@x/transformers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LanguageModel, loadModel } from '../src';
import { TINY, temporaryDirectory } from './helpers';

const user = (content: string): ChatMessage => ({ role: 'user', content });
const TURNS = "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}";
const TEMPLATES = {
  thinking: `${TURNS}{% if add_generation_prompt %}{{ '<think>\n' }}{% endif %}{# </think> #}`,
  calling: `${TURNS}{{ tools }}{# <tool_call></tool_call> #}`,
  both: `${TURNS}{{ tools }}{% if add_generation_prompt %}{{ '<think>\n' }}{% endif %}{# </think><tool_call></tool_call> #}`,
  harmony: `${TURNS}{{ tools }}{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}{# <|channel|><|message|> #}`,
};
const MARKS = [
  '<think>',
  '</think>',
  '<tool_call>',
  '</tool_call>',
  '<|start|>',
  '<|channel|>',
  '<|message|>',
  '<|end|>',
  '<|call|>',
  '<|return|>',
];
const digit = { type: 'integer', minimum: 0, maximum: 9 };
const schema = { type: 'object', properties: { n: digit }, required: ['n'], additionalProperties: false };
const tools = [{ name: 'add', parameters: schema }];

describe('an answer', () => {
  const folder = temporaryDirectory();
  const models = new Map<string, LanguageModel>();

  beforeAll(() => {
    const from = dirname(TINY);
    for (const name of ['config.json', 'model.safetensors', 'tokenizer_config.json'])
      copyFileSync(join(from, name), join(folder.path, name));
    const tokenizer = JSON.parse(readFileSync(join(from, 'tokenizer.json'), 'utf8'));
    const { vocab } = tokenizer.model;
    MARKS.forEach((mark, i) => {
      const token = tokenizer.added_tokens[8 + i];
      vocab[mark] = vocab[token.content];
      delete vocab[token.content];
      token.content = mark;
    });
    writeFileSync(join(folder.path, 'tokenizer.json'), JSON.stringify(tokenizer));
  });

  afterAll(() => {
    for (const model of models.values()) model.dispose();
    folder.remove();
  });

  const load = async (name: keyof typeof TEMPLATES) => {
    const model = models.get(name) ?? (await loadModel(folder.path, { device: 'cpu', chatTemplate: TEMPLATES[name] }));
    models.set(name, model);
    return model;
  };
  /** Marks come as soon as they may, the last ones rather than the first. */
  const soon = (model: LanguageModel, ...marks: string[]) =>
    Object.fromEntries(marks.map((mark, i) => [model.tokenizer.tokenToId(mark)!, 100 * (i + 1)]));
  /** Neither white space nor lists of calls, of which random weights would make much. */
  const terse = ({ tokenizer, config }: LanguageModel) =>
    Object.fromEntries(
      Array.from({ length: config.vocabSize }, (_, id) => [id, /[\s[,]/.test(tokenizer.decode([id])) ? -100 : 0]),
    );

  it.each([{ schema }, { regex: '\\{"n": ?\\d\\}' }, { choices: ['{"n":1}', '{"n":2}'] }])(
    'has its form behind reasoning that the prompt begins: %j',
    async (form) => {
      const model = await load('thinking');
      const answer = model.generateChat([user('x')], {
        ...form,
        logitBias: soon(model, '</think>', '</s>'),
        maxTokens: 60,
        temperature: 1,
        seed: 1,
      });
      const { content, reasoning } = await answer.message();
      expect(reasoning).toBeUndefined();
      expect(JSON.parse(content).n).toBeLessThan(10);
      // Which goes on where it does not end.
      const long = model.generateChat([user('x')], { ...form, maxTokens: 12, temperature: 0 });
      expect(await long.message()).toMatchObject({ content: '', reasoning: expect.stringMatching(/./) });
      expect(long.finishReason).toBe('length');
    },
  );

  it('has its form also with drafts', async () => {
    const model = await load('thinking');
    const options = { schema, maxTokens: 60, temperature: 0, logitBias: soon(model, '</think>') };
    const plain = await model.generateChat([user('x')], options).message();
    expect(await model.generateChat([user('x')], { ...options, speculative: 'lookup' }).message()).toEqual(plain);
  });

  it('of gpt-oss has its form in the channel for answers, behind an analysis', async () => {
    const model = await load('harmony');
    const answer = model.generateChat([user('x')], {
      schema,
      logitBias: soon(model, '<|end|>', '<|return|>', '<|call|>'),
      maxTokens: 80,
      temperature: 1,
      seed: 2,
    });
    expect(model.tokenizer.decode(answer.promptIds, { skipSpecialTokens: false })).toMatch(
      /<\|start\|>assistant<\|channel\|>analysis<\|message\|>$/,
    );
    const { content, reasoning } = await answer.message();
    expect([JSON.parse(content).n < 10, reasoning]).toEqual([true, undefined]);
    const written = model.tokenizer.decode(
      answer.tokens.map(({ id }) => id),
      { skipSpecialTokens: false },
    );
    expect(written).toMatch(/^<\|end\|><\|start\|>assistant<\|channel\|>final<\|message\|>\{/);
  });

  it.each(['calling', 'both'] as const)('is a call or has the form, as the model likes: %s', async (name) => {
    const model = await load(name);
    const think = name === 'both' ? ['</think>'] : [];
    const ask = (more: object, ...marks: string[]) =>
      model.generateChat([user('x')], {
        schema,
        tools,
        logitBias: { ...terse(model), ...soon(model, ...marks, ...think), ...more },
        maxTokens: 120,
        temperature: 0,
      });
    const called = ask({}, '<tool_call>', '</tool_call>', '</s>');
    const { content, toolCalls } = await called.message();
    expect([content, called.finishReason]).toEqual(['', 'tool-calls']);
    expect(toolCalls![0]).toMatchObject({ name: 'add', arguments: { n: expect.any(Number) } });
    const written = await ask({ [model.tokenizer.tokenToId('<tool_call>')!]: -100 }).message();
    expect(written.toolCalls).toBeUndefined();
    expect(JSON.parse(written.content).n).toBeLessThan(10);
  });

  it('cannot be a call or have a form where calls do not begin with a token', async () => {
    const model = await load('harmony');
    expect(() => model.generateChat([user('x')], { schema, tools })).toThrow(
      'tools are given with schema, and calls of this model do not begin with a token of their own',
    );
  });

  it('is no call where none may be made', async () => {
    const model = await load('calling');
    for (const none of [{ tools, toolChoice: 'none' as const }, {}]) {
      const answer = model.generateChat([user('x')], {
        ...none,
        regex: 'I call \\{"name": "add", "arguments": \\{\\}\\}',
        maxTokens: 60,
      });
      const { content, toolCalls } = await answer.message();
      expect([toolCalls, content, answer.finishReason]).toEqual([
        undefined,
        'I call {"name": "add", "arguments": {}}',
        'eos',
      ]);
    }
  });

  it('goes on within reasoning that broke off', async () => {
    const model = await load('thinking');
    const chat = model.chat({ maxTokens: 6, temperature: 0 });
    const { content, reasoning } = await chat.send('Why?').message();
    expect([content, reasoning !== undefined]).toEqual(['', true]);
    const next = chat.continue();
    expect(model.tokenizer.decode(next.promptIds, { skipSpecialTokens: false })).toContain(`<think>\n${reasoning}`);
    await next.message();
    const whole = chat.messages.at(-1)!;
    expect(whole.content).toBe('');
    expect(whole.reasoning!.startsWith(reasoning!)).toBe(true);
    expect(whole.reasoning!.length).toBeGreaterThan(reasoning!.length);
    const end = chat.continue({ logitBias: soon(model, '</think>'), maxTokens: 1 });
    await end.message();
    expect(chat.messages.at(-1)!.reasoning).toBe(whole.reasoning);
  });
});
