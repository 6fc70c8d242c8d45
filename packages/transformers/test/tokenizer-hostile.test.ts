/** Tokenizers and configurations from strangers: what they cost, and that every wrong field is said. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Tokenizer as HfTokenizer } from '@huggingface/tokenizers';
import { CandleError } from '@x/core';
import { GgufMetadata, gguf } from '@x/quantized';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../engine/src';
import { TOKENIZER, temporaryDirectory } from '../../engine/test/helpers';
import { describeConfig, describeGguf, SUPPORTED_ARCHITECTURES, Tokenizer } from '../src';
import { checkDefinition } from '../src/tokenizer/definition';

const { path: folder, remove } = temporaryDirectory();
afterAll(remove);

const bpe = { type: 'BPE', vocab: { a: 0, b: 1, ab: 2, '▁': 3, '<unk>': 4 }, merges: ['a b'], unk_token: '<unk>' };
const plain = {
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: null,
  post_processor: null,
  decoder: null,
  model: bpe,
};

function failure(body: () => unknown): string {
  try {
    body();
  } catch (error) {
    expect(error, (error as Error).stack).toBeInstanceOf(CandleError);
    return `${(error as CandleError).code}: ${(error as Error).message}`;
  }
  return 'none';
}

const load = (changes: object) => Tokenizer.fromJson({ ...plain, ...changes });
const split = (Regex: string) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated' });

it('says nothing of how many tokens a text has where words of any length can be one', () => {
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  const words = load({
    pre_tokenizer: byteLevel,
    model: { type: 'WordLevel', vocab: { a: 0, '<unk>': 1 }, unk_token: '<unk>' },
  });
  expect(words.encode('b'.repeat(500)).length).toBeLessThan(2);
  expect(words.fewestTokens('b'.repeat(500))).toBe(0);
  expect(load({ pre_tokenizer: byteLevel }).fewestTokens('b'.repeat(500))).toBe(100);
});

describe('patterns', () => {
  it.each(['pre_tokenizer', 'normalizer', 'decoder'])('that take exponential time do not hang a %s', (place) => {
    for (const Regex of ['(a+)+$', '(a|a)*b', '(?:a|aa)+$', '([a-z]+)*[0-9]', '(.*a){15}', 'a*a*a*a*b']) {
      const step = place === 'pre_tokenizer' ? split(Regex) : { type: 'Replace', pattern: { Regex }, content: 'x' };
      for (const value of [
        step,
        {
          type: 'Sequence',
          [{ pre_tokenizer: 'pretokenizers', normalizer: 'normalizers', decoder: 'decoders' }[place]!]: [step],
        },
      ]) {
        const tokenizer = load({ [place]: value });
        const start = performance.now();
        failure(() => tokenizer.decode(tokenizer.encode(`${'a'.repeat(40)}!${'a'.repeat(3000)}!`)));
        expect(performance.now() - start, Regex).toBeLessThan(3000);
      }
    }
  });

  it('of models stay fast on long prompts', async () => {
    const tokenizer = await Tokenizer.fromFile(TOKENIZER);
    const prompt = 'Once upon a time, there lived 1234 kings; they didn’t know.\n\n  '.repeat(8000);
    const start = performance.now();
    expect(tokenizer.encode(prompt).length).toBeGreaterThan(100_000);
    expect(performance.now() - start).toBeLessThan(10_000);
  });

  it('mean what they mean to the library', () => {
    const text = fc.string({ unit: fc.constantFrom(...'abAB  12\n.é'), maxLength: 30 });
    for (const Regex of ['a+b?|\\s+(?!\\S)|\\d{1,2}', '[^\\s\\p{N}]+|\\n', '(?i:ab)|\\p{Lu}+', '(?<=a)b|b(?=a)']) {
      for (const behavior of ['Isolated', 'Removed'])
        for (const invert of [false, true]) {
          const json = {
            ...plain,
            pre_tokenizer: { ...split(Regex), behavior, invert },
            model: { ...bpe, vocab: {}, merges: [], unk_token: null },
          };
          // Of isolated pieces nothing is lost, whichever of them match; the JavaScript library loses those that do not.
          const turned = { ...json.pre_tokenizer, invert: invert && behavior === 'Removed' };
          const reference = new HfTokenizer({ ...json, pre_tokenizer: turned }, {}).pre_tokenizer!;
          const ours = (Tokenizer.fromJson(json) as unknown as { inner: HfTokenizer }).inner.pre_tokenizer!;
          // The library puts captured groups among the pieces of a text that is split by what is removed.
          fc.assert(
            fc.property(text, (sample) => {
              expect(ours.pre_tokenize(sample)).toEqual(reference.pre_tokenize(sample));
            }),
            { numRuns: 60 },
          );
        }
    }
  });

  it('that cannot be used are refused', () => {
    for (const Regex of ['(a)\\1', '(?:a{200}){200}', '(?<=a+)b'])
      expect(failure(() => load({ pre_tokenizer: split(Regex) }))).toMatch(/^UNSUPPORTED_TOKENIZER: .*pattern/);
    expect(failure(() => load({ pre_tokenizer: split('(') }))).toMatch(/^BAD_TOKENIZER/);
    expect(failure(() => load({ model: { ...bpe, type: 'Foo' } }))).toMatch(/^BAD_TOKENIZER: .*model\.type is "Foo"/);
    expect(failure(() => load({ pre_tokenizer: split('a'.repeat(20_000)) }))).toMatch(
      /^BAD_TOKENIZER: .*pre_tokenizer\.pattern\.Regex/,
    );
  });
});

describe('what makes much of a little', () => {
  const replace = (text: string, content: string) => ({ type: 'Replace', pattern: { String: text }, content });
  const cases: [string, object, RegExp][] = [
    [
      'doubling again and again',
      { normalizer: { type: 'Sequence', normalizers: Array.from({ length: 40 }, () => replace('a', 'aa')) } },
      /normalizer\.normalizers\[\d\] .*256/,
    ],
    ['a long replacement', { normalizer: replace('a', 'x'.repeat(1e6)) }, /normalizer\.content/],
    [
      'bytes of bytes',
      { pre_tokenizer: { type: 'Sequence', pretokenizers: Array.from({ length: 20 }, () => ({ type: 'ByteLevel' })) } },
      /pretokenizers/,
    ],
    [
      'a space of no length',
      { pre_tokenizer: { type: 'Metaspace', replacement: '' } },
      /pre_tokenizer\.replacement is ""/,
    ],
    ['a long space', { pre_tokenizer: { type: 'Metaspace', str_rep: '▁'.repeat(1000) } }, /str_rep/],
    [
      'decoding',
      { decoder: { type: 'Sequence', decoders: Array.from({ length: 20 }, () => replace('a', 'aaaa')) } },
      /decoders/,
    ],
    ['pieces of no length', { pre_tokenizer: { type: 'FixedLength', length: 0 } }, /pre_tokenizer\.length is 0/],
    [
      'a text many times',
      {
        post_processor: {
          type: 'TemplateProcessing',
          single: Array.from({ length: 50 }, () => ({ Sequence: { id: 'A', type_id: 0 } })),
        },
      },
      /at most once/,
    ],
    [
      'deep sequences',
      {
        normalizer: Array.from({ length: 5000 }).reduce<object>(
          (inner) => ({ type: 'Sequence', normalizers: [inner] }),
          { type: 'NFC' },
        ),
      },
      /nesting/,
    ],
    [
      'wide sequences',
      { normalizer: { type: 'Sequence', normalizers: Array.from({ length: 1000 }, () => ({ type: 'NFC' })) } },
      /normalizers/,
    ],
    ['long added tokens', { added_tokens: [{ id: 5, content: 'x'.repeat(1e6) }] }, /added_tokens\[0\]\.content/],
    [
      'many added tokens',
      { added_tokens: Array.from({ length: 1e5 }, (_, i) => ({ id: i, content: String(i).padEnd(100) })) },
      /added_tokens/,
    ],
    ['ids far away', { model: { ...bpe, vocab: { a: 4_000_000_000 } } }, /model\.vocab\["a"\] is 4000000000/],
    ['long pieces', { model: { type: 'Unigram', vocab: [['a'.repeat(1000), 0]] } }, /model\.vocab\[0\]/],
    [
      'long words',
      { model: { type: 'WordPiece', vocab: { a: 0 }, unk_token: 'a', max_input_chars_per_word: 1e9 } },
      /max_input_chars_per_word/,
    ],
  ];
  it.each(cases)('%s', (_, changes, message) => {
    const start = performance.now();
    const said = failure(() => load(changes));
    expect(said).toMatch(/^BAD_TOKENIZER: /);
    expect(said).toMatch(message);
    expect(said.length).toBeLessThan(500);
    expect(performance.now() - start).toBeLessThan(1000);
  });

  it('the prefix before each match is not put in its place', () => {
    const dollar = load({ normalizer: { type: 'Replace', pattern: { String: 'b' }, content: '$`' } });
    expect(dollar.encode('ab')).toEqual(load({}).encode('a$`'));
    const pattern = load({ normalizer: { type: 'Replace', pattern: { Regex: '[b]' }, content: "$&$'" } });
    expect(pattern.encode('ab')).toEqual(load({}).encode("a$&$'"));
  });
});

describe('wrong fields', () => {
  it('are named', () => {
    const cases: [object, RegExp][] = [
      [{ model: { ...bpe, vocab: { a: 1.5 } } }, /model\.vocab\["a"\] is 1\.5.*whole number/],
      [{ model: { ...bpe, vocab: { a: '1' } } }, /model\.vocab\["a"\] is "1"/],
      [{ model: { ...bpe, vocab: { a: -1 } } }, /model\.vocab\["a"\] is -1/],
      [{ model: { ...bpe, vocab: { a: null } } }, /model\.vocab\["a"\] is null/],
      [{ model: { ...bpe, vocab: 'x' } }, /model\.vocab is "x".*object/],
      [{ model: { ...bpe, merges: {} } }, /model\.merges/],
      [{ model: { ...bpe, merges: ['ab'] } }, /model\.merges\[0\] is "ab"/],
      [{ model: { ...bpe, merges: [['a', 'b'], 'a b'] } }, /model\.merges\[1\]/],
      [{ model: { ...bpe, merges: [['a', 5]] } }, /model\.merges\[0\]/],
      [{ model: { ...bpe, byte_fallback: 'yes' } }, /model\.byte_fallback is "yes"/],
      [{ model: { ...bpe, unk_token: 7 } }, /model\.unk_token is 7/],
      [{ model: null }, /model is missing|model is null/],
      [{ model: [] }, /model is \[\]/],
      [{ model: { type: 'Unigram', vocab: [] } }, /model\.vocab/],
      [{ model: { type: 'Unigram', vocab: [['a', 0]], unk_id: 5 } }, /model\.unk_id is 5/],
      [{ model: { type: 'Unigram', vocab: [['a', 'b']] } }, /model\.vocab\[0\]/],
      [{ added_tokens: {} }, /added_tokens is \{\}/],
      [{ added_tokens: [null] }, /added_tokens\[0\] is null/],
      [{ added_tokens: [{ content: 'x', id: 0.5 }] }, /added_tokens\[0\]\.id is 0\.5/],
      [{ added_tokens: [{ content: 5, id: 0 }] }, /added_tokens\[0\]\.content is 5/],
      [{ normalizer: 'NFC' }, /normalizer is "NFC"/],
      [{ normalizer: { type: 'Unheard' } }, /normalizer\.type is "Unheard"/],
      [{ normalizer: { type: 'Replace', pattern: 'x' } }, /normalizer\.pattern is "x"/],
      [{ normalizer: { type: 'Prepend' } }, /normalizer\.prepend is missing/],
      [{ pre_tokenizer: { type: 'Sequence', pretokenizers: [5] } }, /pre_tokenizer\.pretokenizers\[0\] is 5/],
      [{ pre_tokenizer: { type: 'Digits', individual_digits: 1 } }, /individual_digits is 1/],
      [{ decoder: { type: 'Strip', start: -1 } }, /decoder\.start is -1/],
      [{ post_processor: { type: 'TemplateProcessing', single: [{}] } }, /single\[0\]\.Sequence is missing/],
      [{ post_processor: { type: 'BertProcessing', cls: ['x'] } }, /post_processor\.(cls|sep)/],
    ];
    for (const [changes, message] of cases) {
      const said = failure(() => load(changes));
      expect(said, JSON.stringify(changes)).toMatch(/^BAD_TOKENIZER: /);
      expect(said).toMatch(message);
    }
    for (const json of [null, undefined, 5, 'x', [], {}, () => 0])
      expect(failure(() => Tokenizer.fromJson(json))).toMatch(/^BAD_TOKENIZER/);
    for (const options of [{ bosId: 1.5 }, { eosIds: [-1] }, { eosIds: ['1' as never] }])
      expect(failure(() => Tokenizer.fromJson(plain, options))).toMatch(/^INVALID_OPTION/);
    expect(failure(() => Tokenizer.fromJson(plain).encode(5 as never))).toMatch(/^INVALID_ARGUMENT/);
  });

  it('of any kind are typed errors, and what loads encodes and decodes', () => {
    const good = JSON.parse(readFileSync(TOKENIZER, 'utf8'));
    const small = {
      ...good,
      model: {
        ...good.model,
        vocab: Object.fromEntries(Object.entries(good.model.vocab).slice(0, 300)),
        merges: good.model.merges.slice(0, 5),
      },
      normalizer: {
        type: 'Sequence',
        normalizers: [{ type: 'NFC' }, { type: 'Replace', pattern: { String: 'x' }, content: 'y' }],
      },
    };
    /** Places of a document, without most of the vocabulary. */
    const places: (string | number)[][] = [];
    const visit = (value: unknown, path: (string | number)[]) => {
      places.push(path);
      if (typeof value === 'object' && value !== null)
        for (const key of Object.keys(value).slice(0, 12))
          visit((value as Record<string, unknown>)[key], [...path, key]);
    };
    visit(small, []);
    const values = [
      null,
      undefined,
      true,
      0,
      -1,
      1.5,
      1e300,
      '',
      'a',
      '$`',
      [],
      [1],
      {},
      { type: 'Sequence' },
      { Regex: '(a+)+$' },
      [['a', 'b']],
    ];
    for (const path of places) {
      for (const value of values) {
        const copy = structuredClone(small);
        if (path.length === 0) continue;
        const parent = path.slice(0, -1).reduce((at, key) => at[key], copy);
        parent[path.at(-1)!] = value;
        failure(() => {
          const tokenizer = Tokenizer.fromJson(copy);
          const ids = tokenizer.encode('a x é<|endoftext|> b');
          for (const id of ids) expect(Number.isSafeInteger(id)).toBe(true);
          tokenizer.decode(ids);
        });
      }
    }
  });

  it('in files cut anywhere, or with bytes changed', async () => {
    const file = join(folder, 'cut.json');
    const good = Buffer.from(JSON.stringify({ ...plain, pre_tokenizer: split('\\s+'), decoder: { type: 'Fuse' } }));
    const read = async (bytes: Uint8Array) => {
      writeFileSync(file, bytes);
      await Tokenizer.fromFile(file).catch((error) => {
        if (!(error instanceof CandleError)) throw error;
      });
    };
    for (let i = 0; i < good.length; i++) {
      await read(good.subarray(0, i));
      await read(Uint8Array.from(good, (byte, j) => (i === j ? byte ^ (1 << (i % 8)) : byte)));
    }
  });
});

describe('Unigram', () => {
  it('chooses the pieces that the library chooses', () => {
    const vocab: [string, number][] = [
      ['<unk>', 0],
      ['a', -2.5],
      ['b', -3],
      ['ab', -3.25],
      ['ba', -3.5],
      ['aab', -4],
      ['🙂', -5],
      ['bb', -6],
      ['abab', -6.125],
    ];
    const json = { ...plain, model: { type: 'Unigram', vocab, unk_id: 0 } };
    const reference = new HfTokenizer(json, { clean_up_tokenization_spaces: false });
    const ours = Tokenizer.fromJson(json);
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('a', 'b', 'c', '🙂'), maxLength: 30 }), (text) => {
        expect(ours.encode(text)).toEqual(reference.encode(text).ids);
      }),
      { numRuns: 500 },
    );
  });

  it('takes little for long texts and pieces', () => {
    const vocab = Array.from({ length: 250 }, (_, i) => ['a'.repeat(i + 1), -i]);
    const tokenizer = load({ model: { type: 'Unigram', vocab, unk_id: 0 } });
    const start = performance.now();
    expect(tokenizer.encode('a'.repeat(200_000)).length).toBeGreaterThan(500);
    expect(performance.now() - start).toBeLessThan(15_000);
  });
});

describe('files beside it, and configurations', () => {
  it('pipes and folders do not block', async () => {
    const pipes = join(folder, 'pipes');
    mkdirSync(pipes);
    execFileSync('mkfifo', [join(pipes, 'tokenizer.json')]);
    await expect(Tokenizer.fromFile(join(pipes, 'tokenizer.json'))).rejects.toMatchObject({ code: 'FILE_UNREADABLE' });
    await expect(Tokenizer.fromFile(pipes)).rejects.toMatchObject({ code: 'FILE_UNREADABLE' });
    const beside = join(folder, 'beside');
    mkdirSync(beside);
    copyFileSync(TOKENIZER, join(beside, 'tokenizer.json'));
    execFileSync('mkfifo', [join(beside, 'generation_config.json')]);
    await expect(Tokenizer.fromFile(join(beside, 'tokenizer.json'))).rejects.toMatchObject({ code: 'FILE_UNREADABLE' });
    const model = join(folder, 'model');
    mkdirSync(model);
    execFileSync('mkfifo', [join(model, 'config.json'), join(model, 'model.safetensors')]);
    for (const path of [model, join(model, 'model.safetensors'), join(model, 'config.json')])
      await expect(loadModel(path)).rejects.toMatchObject({ code: 'FILE_UNREADABLE' });
  });

  it('ends of generation that are no ids are refused', async () => {
    const beside = join(folder, 'ends');
    mkdirSync(beside);
    const file = join(beside, 'tokenizer.json');
    copyFileSync(TOKENIZER, file);
    for (const value of ['1.5', '"x"', '[1, 2.5]', '-1', '{}', '[[1]]']) {
      writeFileSync(join(beside, 'config.json'), `{"eos_token_id": ${value}}`);
      await expect(Tokenizer.fromFile(file)).rejects.toMatchObject({
        code: 'BAD_CONFIG',
        message: expect.stringContaining('eos_token_id'),
      });
    }
    writeFileSync(join(beside, 'config.json'), '{"eos_token_id": null}');
    expect((await Tokenizer.fromFile(file)).eosIds).toEqual([1]);
  });

  it('every field of config.json of a wrong kind is a typed error', () => {
    const config = {
      model_type: 'llama', architectures: ['LlamaForCausalLM'], hidden_act: 'silu', vocab_size: 8, hidden_size: 16, intermediate_size: 32,
      num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 4, max_position_embeddings: 64, rms_norm_eps: 1e-5,
      rope_theta: 1e4, rope_scaling: { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 32 },
    }; // biome-ignore format: a list reads better in rows
    const values: unknown[] = [
      null,
      true,
      'x',
      '',
      0,
      -1,
      1.5,
      1e15,
      2 ** 40,
      1e300,
      [],
      [5],
      {},
      { toString: 1 },
      { valueOf: 1, toString: 1 },
    ];
    expect(failure(() => describeConfig(config))).toBe('none');
    for (const model_type of SUPPORTED_ARCHITECTURES) {
      const path = new URL(`../../../models/tiny/${model_type}/config.json`, import.meta.url);
      const full = { ...JSON.parse(readFileSync(path, 'utf8')), architectures: [] };
      expect([model_type, failure(() => describeConfig(full))]).toEqual([model_type, 'none']);
      for (const value of values)
        for (const key of Object.keys(full)) failure(() => describeConfig({ ...full, [key]: value }));
      for (const value of values)
        failure(() =>
          describeConfig({ ...full, rope_parameters: { full_attention: value, sliding_attention: value } }),
        );
    }
    for (const value of values) {
      for (const key of Object.keys(config)) failure(() => describeConfig({ ...config, [key]: value }));
      for (const key of Object.keys(config.rope_scaling))
        failure(() => describeConfig({ ...config, rope_scaling: { ...config.rope_scaling, [key]: value } }));
    }
    expect(failure(() => describeConfig({ ...config, model_type: { toString: 1 } }))).toMatch(
      /^BAD_CONFIG: .*model_type/,
    );
    expect(failure(() => describeConfig({ ...config, vocab_size: 1e15 }))).toMatch(/^BAD_CONFIG: .*vocabSize/);
    expect(failure(() => describeConfig({ ...config, rope_scaling: 5 }))).toMatch(/^BAD_CONFIG: .*rope_scaling/);
  });

  it('GGUF metadata of a wrong kind is a typed error', () => {
    const entries = {
      model: gguf.string('llama'),
      tokens: gguf.strings(['<unk>', '<s>', 'a', 'b', 'ab']),
      scores: gguf.array('float32', Float32Array.of(0, 0, -1, -2, -3)),
      token_type: gguf.array('int32', Int32Array.of(2, 3, 1, 1, 1)),
      bos_token_id: gguf.uint32(1),
      add_bos_token: gguf.bool(true),
    };
    const values = [
      gguf.string('x'), gguf.uint32(7), gguf.float32(Number.NaN), gguf.float32(0.5), gguf.bool(true), gguf.strings([]), gguf.strings(['a', 'b', 'c', 'd', 'e']),
      gguf.array('float32', Float32Array.of(Number.NaN, 1, 2, 3, Number.NaN)), gguf.array('int32', Int32Array.of(9, 9, -9, 9, 9)),
    ]; // biome-ignore format: a list reads better in rows
    const read = (changes: object) => {
      const all = Object.entries({ ...entries, ...changes }).map(
        ([key, value]) => [`tokenizer.ggml.${key}`, value] as const,
      );
      const tokenizer = Tokenizer.fromGguf(new GgufMetadata('x.gguf', all));
      tokenizer.decode(tokenizer.encode('ab <s> ba'));
    };
    expect(failure(() => read({}))).toBe('none');
    for (const value of values)
      for (const key of [...Object.keys(entries), 'merges', 'pre', 'eos_token_id', 'add_space_prefix'])
        failure(() => read({ [key]: value }));
    expect(failure(() => read({ scores: values[7] }))).toMatch(/^BAD_GGUF_METADATA: .*score NaN/);
    const long = gguf.strings(['<unk>', '<s>', 'a'.repeat(100_000), 'b', 'ab']);
    const start = performance.now();
    expect(failure(() => read({ tokens: long }))).toMatch(/^BAD_GGUF_METADATA: .*too long/);
    expect(performance.now() - start).toBeLessThan(1000);
    expect(
      failure(() =>
        describeGguf(
          new GgufMetadata('x.gguf', [
            ['general.architecture', gguf.string('llama')],
            ['llama.attention.head_count', gguf.uint32(0)],
          ]),
        ),
      ),
    ).toMatch(/^GGUF_MISSING_KEY/);
  });

  it('checked definitions hold checked fields only', () => {
    const { json } = checkDefinition({
      ...plain,
      normalizer: { type: 'Precompiled', precompiled_charsmap: 'x'.repeat(1e6), extra: 5 },
      extra: 5,
    });
    expect([json.normalizer, Object.keys(json).sort()]).toEqual([
      { type: 'Precompiled', charsmap: expect.any(Uint8Array) },
      Object.keys(plain).sort(),
    ]);
  });
});
