import { type Device, memoryStats } from '@x/core';
import type { ChatMessage, ChatPiece } from '@x/transformers';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type ChatTurn, type LanguageModel, loadModel } from '../src';
import { deviceNames, GGUF, openDevice, settledMemory, TINY } from './helpers';

/** Each message a line that ends with the model's own end of a text, as templates of real models have it. */
const TEMPLATE =
  "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";
const user = (content: string): ChatMessage => ({ role: 'user', content });

async function piecesOf(answer: AsyncIterable<ChatPiece>): Promise<ChatPiece[]> {
  const pieces: ChatPiece[] = [];
  for await (const piece of answer) pieces.push(piece);
  return pieces;
}

describe.each(deviceNames)('chat on %s', (name) => {
  let device: Device;
  let model: LanguageModel;

  beforeAll(async () => {
    device = openDevice(name);
    model = await loadModel(TINY, { device, maxContext: 256, chatTemplate: TEMPLATE });
  });

  afterAll(() => model.dispose());

  /** Text only: random weights like special tokens as well as others, which are no part of the text. */
  const logitBias = Object.fromEntries(Array.from({ length: 19 }, (_, id) => [id, Number.NEGATIVE_INFINITY]));

  it('answers as generate does for the same tokens', async () => {
    const messages = [user('Once upon a time')];
    const answer = model.generateChat(messages, { logitBias, maxTokens: 12, reusePrompt: false });
    const text = await model.generate(answer.promptIds, { logitBias, maxTokens: 12, reusePrompt: false }).text();
    expect(model.tokenizer.decode(answer.promptIds)).toContain('user: Once upon a time');
    const pieces = await piecesOf(answer);
    expect(pieces.map((piece) => (piece.type === 'text' ? piece.text : '')).join('')).toBe(text);
    expect(answer.partial).toEqual({ role: 'assistant', content: text });
    expect(answer.finishReason).toBe('length');
    expect(answer.tokens).toHaveLength(12);
    await expect(piecesOf(answer)).rejects.toThrow('iterated before');
  });

  it('computes only what a turn adds', async () => {
    model.emptyCache();
    const chat = model.chat({
      system: 'You tell tales of long ago, to children who are about to sleep.',
      logitBias,
      maxTokens: 40,
    });
    const first = chat.send('Tell me of the king and his three daughters.');
    await first.message();
    expect(first.stats.reusedTokens).toBe(0);
    const second = chat.send('And then?');
    await second.message();
    // All whole blocks of the prompt and the answer before.
    const before = first.stats.promptTokens + first.stats.tokens - 1;
    expect(second.promptIds.slice(0, before)).toEqual(
      [...first.promptIds, ...first.tokens.map(({ id }) => id)].slice(0, before),
    );
    expect(second.stats.reusedTokens).toBe(Math.floor(before / 32) * 32);
    expect(second.stats.reusedTokens).toBeGreaterThan(32);

    const again = chat.regenerate();
    await again.message();
    expect(again.promptIds).toEqual(second.promptIds);
    expect(again.stats.reusedTokens).toBeGreaterThanOrEqual(Math.floor((again.promptIds.length - 1) / 32) * 32);
    expect(chat.messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'user', 'assistant']);
  });

  it('shares what branches have in common, and its blocks', async () => {
    model.emptyCache();
    const chat = model.chat({ logitBias, maxTokens: 4 });
    await chat.send(`${'The king had a daughter. '.repeat(6)}Who was she?`).message();
    const { usedBlocks } = model.cacheStats;
    const branch = chat.branch();
    const [one, two] = [chat.send('What did she say?'), branch.send('What did she do?')];
    const [a, b] = await Promise.all([piecesOf(one), piecesOf(two)]);
    expect(a.length + b.length).toBeGreaterThan(0);
    expect(one.stats.reusedTokens).toBeGreaterThanOrEqual(64);
    expect(two.stats.reusedTokens).toBe(one.stats.reusedTokens);
    expect(model.cacheStats.usedBlocks).toBe(usedBlocks);
    expect(chat.messages[2].content).toBe('What did she say?');
    expect(branch.messages[2].content).toBe('What did she do?');
  });

  it('keeps an interrupted answer, goes on with it, and takes the next turn', async () => {
    const chat = model.chat({ logitBias, maxTokens: 30 });
    const controller = new AbortController();
    const turn = chat.send('Once upon a time', { signal: controller.signal });
    let count = 0;
    const reading = (async () => {
      for await (const _ of turn) if (++count === 5) controller.abort();
    })();
    await expect(reading).rejects.toMatchObject({ name: 'AbortError' });
    const half = chat.messages.at(-1)!;
    expect(half).toEqual(turn.partial);
    expect(half.content).not.toBe('');
    expect(turn.finishReason).toBe('aborted');

    const rest = chat.continue({ logitBias, maxTokens: 8 });
    await rest.message();
    expect(chat.messages).toHaveLength(2);
    expect(chat.messages[1].content.startsWith(half.content)).toBe(true);
    expect(chat.messages[1].content.length).toBeGreaterThan(half.content.length);

    await chat.send('And then?', { logitBias, maxTokens: 4 }).message();
    expect(chat.messages).toHaveLength(4);
  });

  it('leaves a loop cleanly', async () => {
    const before = settledMemory(model);
    const chat = model.chat({ logitBias, maxTokens: 30 });
    for await (const _ of chat.send('Once upon a time')) break;
    expect(chat.messages).toHaveLength(2);
    expect(chat.messages[1].content).not.toBe('');
    model.emptyCache();
    expect(memoryStats()).toEqual(before);
  });
});

describe('a chat', () => {
  let model: LanguageModel;

  beforeAll(async () => {
    model = await loadModel(GGUF, { device: 'cpu', maxContext: 160, chatTemplate: TEMPLATE });
  });

  afterAll(() => model.dispose());

  it('changes nothing before it is read, nor when it is refused', async () => {
    const chat = model.chat({ maxTokens: 2 });
    const [first, other]: ChatTurn[] = [chat.send('One'), chat.send('Two')];
    expect(chat.messages).toEqual([]);
    await first.message();
    await expect(other.message()).rejects.toThrow('has changed since');
    expect(() => chat.send('word '.repeat(400))).toThrow(/whenFull/);
    expect(() => chat.send([{ role: 'user', content: 5 as never }])).toThrow('messages[0].content is 5');
    expect(chat.messages).toHaveLength(2);
    expect(() => model.chat({ sytem: '' } as never)).toThrow('no option "sytem"');
    expect(() => chat.send('x', { tempratur: 1 } as never)).toThrow('tempratur');
    expect(() => model.chat({ template: { messages: [] } })).toThrow('no template variable "messages"');
  });

  it('answers one at a time', async () => {
    const chat = model.chat({ maxTokens: 4 });
    const iterator = chat.send('One')[Symbol.asyncIterator]();
    await iterator.next();
    expect(() => chat.send('Two')).toThrow('under way');
    expect(() => chat.clear()).toThrow('under way');
    await iterator.return();
    const turn = chat.send('Two');
    const first = await turn[Symbol.asyncIterator]().next();
    expect(first.done).toBe(false);
    // On to the end.
    expect(await turn.message()).toEqual(chat.messages[3]);
    expect(() => turn[Symbol.asyncIterator]()).toThrow('iterated before');
    expect(chat.messages).toHaveLength(4);
  });

  it('gives the former answer back when a new one fails at once', async () => {
    const chat = model.chat({ maxTokens: 4 });
    const message = await chat.send('One').message();
    const turn = chat.regenerate({ signal: AbortSignal.abort() });
    await expect(turn.message()).rejects.toMatchObject({ name: 'AbortError' });
    expect(chat.messages.at(-1)).toEqual(message);
  });

  it('edits, branches and clears', async () => {
    const chat = model.chat({
      system: 'S',
      messages: [user('One'), { role: 'assistant', content: 'a', reasoning: 'r' }],
    });
    chat.edit(2, 'b');
    expect(chat.messages[2]).toEqual({ role: 'assistant', content: 'b', reasoning: 'r' });
    const branch = chat.branch(2);
    branch.edit(1, 'Other');
    await branch.regenerate({ maxTokens: 2 }).message();
    expect(branch.messages.map(({ content }) => content).slice(0, 2)).toEqual(['S', 'Other']);
    expect(chat.messages[1].content).toBe('One');
    chat.system = 'T';
    chat.clear();
    expect((chat as unknown as { known: unknown[] }).known).toEqual([]);
    expect(chat.messages).toEqual([{ role: 'system', content: 'T' }]);
    chat.system = undefined;
    expect(chat.messages).toEqual([]);
    for (const index of [-1, 0.5, 7, Number.NaN]) expect(() => branch.edit(index, 'x')).toThrow('there is no message');
    for (const length of [-1, 0.5, 7]) expect(() => branch.branch(length)).toThrow(`a branch of ${length} messages`);
    expect(() => branch.edit(1, 5 as never)).toThrow('messages[1].content is 5');
    expect(() => chat.regenerate()).toThrow('nothing to answer');
    expect(() => chat.continue()).toThrow('no answer to go on with');
  });

  it('is saved and restored', async () => {
    const chat = model.chat({ system: 'S', temperature: 0.5, seed: 3, maxTokens: 5 });
    await chat.send('One').message();
    const saved = JSON.parse(JSON.stringify(chat));
    const [next, same] = [chat, model.chat({}, saved)].map((each) => each.send('Two'));
    expect(await same.message()).toEqual(await next.message());
    const odd = model.chat({
      regex: /[a-z ]+/i,
      logitBias: { 5: Number.NEGATIVE_INFINITY, 6: 1 },
      maxTokens: 5,
      seed: 1,
    });
    const copy = model.chat({}, JSON.parse(JSON.stringify(odd)));
    const [text, again] = [odd, copy].map((each) => each.send('Three').message());
    expect(await again).toEqual(await text);
    expect(JSON.stringify(copy)).toBe(JSON.stringify(odd));
    for (const bad of [null, {}, { ...saved, version: 2 }, { ...saved, messages: 3 }, [], 'x'])
      expect(() => model.chat({}, bad as never)).toThrow('no saved chat');
    expect(() => model.chat({}, { ...saved, messages: [{ role: 'king', content: '' }] })).toThrow('messages[0].role');
  });

  it('leaves out its oldest turns when asked to, and says how many', async () => {
    const messages = Array.from({ length: 12 }, (_, i): ChatMessage => {
      return { role: i % 2 ? 'assistant' : 'user', content: `${i} ${'and so they went on '.repeat(3)}` };
    });
    const chat = model.chat({ system: 'S', messages, whenFull: 'drop-oldest', maxTokens: 4 });
    const turn = chat.send('And then?');
    expect(turn.dropped).toBeGreaterThan(0);
    expect(turn.dropped % 2).toBe(0);
    await turn.message();
    const text = model.tokenizer.decode(turn.promptIds);
    expect(text.startsWith('system: S')).toBe(true);
    expect(text).toContain('And then?');
    expect(text).not.toContain('user: 0 ');
    expect(chat.messages).toHaveLength(15);
    expect(() => chat.send('word '.repeat(400))).toThrow(/CONTEXT|positions/);
    // An answer has its own choice.
    expect(() => chat.send('And then?', { whenFull: 'error' })).toThrow(/CONTEXT|positions/);
    expect(model.chat({ messages }).send('And then?', { whenFull: 'drop-oldest' }).dropped).toBeGreaterThan(0);
    expect(() => chat.send('x', { whenFull: 'drop' as never })).toThrow(
      'whenFull is "drop"; use one of error, drop-oldest.',
    );
  });

  it('refuses messages that are too long by far without reading them', () => {
    const encode = vi.spyOn(model.tokenizer, 'encode');
    try {
      for (const text of [' '.repeat(2_000_000), 'word '.repeat(400_000)])
        expect(() => model.generateChat([user(text)])).toThrow(/at least \d+ tokens/);
      expect(encode).not.toHaveBeenCalled();
    } finally {
      encode.mockRestore();
    }
  });

  it('begins a call that is demanded', async () => {
    const tiny = await loadModel(TINY, {
      device: 'cpu',
      chatTemplate: '{{ messages }}{{ tools }}<tool_call></tool_call>',
    });
    try {
      const tools = [{ name: 'f', parameters: { type: 'object' } }];
      const answer = tiny.generateChat([user('x')], { tools, toolChoice: { name: 'f' }, maxTokens: 8 });
      await piecesOf(answer);
      expect(tiny.tokenizer.decode(answer.promptIds)).toContain('<tool_call>\n{"name": "f", "arguments":');
      expect(() => tiny.generateChat([user('x')], { toolChoice: 'required' })).toThrow('there are no tools');
      expect(() => tiny.generateChat([user('x')], { tools, toolChoice: { name: 'g' } })).toThrow('give one of f');
    } finally {
      tiny.dispose();
    }
  });

  it('writes a call that is demanded, of a tool that is there, with arguments that meet its schema', async () => {
    const chatTemplate = '{{ messages | length }}{{ tools | length }}<tool_call></tool_call>';
    const tiny = await loadModel(TINY, { device: 'cpu', chatTemplate });
    try {
      const digit = { type: 'integer', minimum: 0, maximum: 9 };
      const two = ['add', 'subtract'].map((name) => {
        return {
          name,
          parameters: { type: 'object', properties: { n: digit, of: { enum: ['x', 'y'] } }, required: ['n'] },
        };
      });
      const choices = ['required', { name: 'subtract' }, 'required'] as const;
      for (const [seed, toolChoice] of choices.entries()) {
        const called = tiny.generateChat([user('x')], { tools: two, toolChoice, temperature: 9, seed, maxTokens: 200 });
        const { toolCalls } = await called.message();
        expect(called.finishReason).toBe('tool-calls');
        expect(toolCalls).toHaveLength(1);
        const [{ name, arguments: given }] = toolCalls!;
        expect(typeof toolChoice === 'object' ? [toolChoice.name] : ['add', 'subtract']).toContain(name);
        expect(given.n).toBeGreaterThanOrEqual(0);
        expect(given.n).toBeLessThanOrEqual(9);
        for (const key of Object.keys(given)) expect(['n', 'of']).toContain(key);
      }
      const odd = [{ name: 'f', parameters: { type: 'string', format: 'klingon' } }];
      expect(() => tiny.generateChat([user('x')], { tools: odd, toolChoice: 'required' })).toThrow(
        /The tool "f".*klingon/,
      );
      expect(() => tiny.generateChat([user('x')], { tools: two, toolChoice: 'required', regex: 'a' })).toThrow(
        /and regex another/,
      );
    } finally {
      tiny.dispose();
    }
  });

  it('wants a template', async () => {
    const broken = await loadModel(GGUF, { device: 'cpu', chatTemplate: '{% if %}' });
    expect(() => broken.chat()).toThrow('The chat template cannot be used');
    broken.dispose();
    const plain = await loadModel(GGUF, { device: 'cpu' });
    expect(() => plain.chat()).toThrow("chatTemplate: 'chatml'");
    plain.dispose();
    expect(() => plain.chat()).toThrow('disposed');
    const tiny = await loadModel(TINY, { device: 'cpu' });
    expect(() => tiny.generateChat([user('x')], { tools: [{ name: 'f', parameters: {} }] })).toThrow('knows no tools');
    tiny.dispose();
  });
});
