/** Where chat templates and the texts of special tokens are found. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GgufMetadata, type GgufValue, gguf } from '@x/quantized';
import { afterAll, describe, expect, it } from 'vitest';
import { textsFromDirectory, textsFromGguf } from '../src/chat/sources';

describe('a directory', () => {
  const folder = mkdtempSync(join(tmpdir(), 'chat-sources-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const write = (name: string, json: unknown) => writeFileSync(join(folder, name), JSON.stringify(json));
  const found = () => Object.fromEntries(textsFromDirectory(folder)?.templates ?? []);

  it('may have templates by their names', () => {
    write('tokenizer_config.json', { chat_template: { default: 'one', rag: 'two' } });
    expect(found()).toEqual({ default: 'one', rag: 'two' });
    write('tokenizer_config.json', { chat_template: { default: 1 } });
    expect(found).toThrow('neither a text nor a list');
  });

  it('may have the template in chat_template.json, before which chat_template.jinja comes', () => {
    write('tokenizer_config.json', { chat_template: 'one', bos_token: '<b>' });
    write('chat_template.json', { chat_template: 'three' });
    expect(found()).toEqual({ default: 'three' });
    expect(textsFromDirectory(folder)?.specialTokens).toMatchObject({ bos_token: '<b>' });
    writeFileSync(join(folder, 'chat_template.jinja'), 'four');
    expect(found()).toEqual({ default: 'four' });
  });
});

describe('a GGUF file', () => {
  const texts = (entries: Record<string, GgufValue>) =>
    textsFromGguf(
      new GgufMetadata(
        'file.gguf',
        Object.entries(entries).map(([key, value]) => [`tokenizer.${key}`, value]),
      ),
    );

  it('has no template where it is empty', () => {
    expect(texts({ chat_template: gguf.string('') })).toBeUndefined();
  });

  it("has llama.cpp's special tokens of SentencePiece where it names none", () => {
    const rest = { 'ggml.tokens': gguf.strings(['<unk>', '<s>', '</s>']), chat_template: gguf.string('one') };
    const tokens = { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>' };
    expect(texts({ 'ggml.model': gguf.string('llama'), ...rest })?.specialTokens).toEqual(tokens);
    const none = { bos_token: '', eos_token: '' };
    expect(texts({ 'ggml.model': gguf.string('gpt2'), ...rest })?.specialTokens).toEqual(none);
  });
});
