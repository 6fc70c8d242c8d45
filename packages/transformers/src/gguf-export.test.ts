import { GgufMetadata, gguf } from '@x/quantized';
import { describe, expect, test } from 'vitest';
import { ChatTemplate } from './chat/template';
import { ropeFrequencies } from './config/rope';
import { ggufExport } from './gguf-export';
import { describeConfig, describeGguf } from './registry';
import { tokenizerJsonFromGguf } from './tokenizer/from-gguf';
import { PRE_TOKENIZERS } from './tokenizer/pre-tokenizers';

const CONFIG = {
  model_type: 'llama',
  vocab_size: 8,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 128,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  bos_token_id: 1,
  eos_token_id: [2, 1],
};

test('the configuration comes back', () => {
  const linear = { ...CONFIG, rope_scaling: { type: 'linear', factor: 4 } };
  for (const json of [CONFIG, linear]) {
    const { metadata, ropeFactors } = ggufExport(json, undefined, 'small');
    const back = describeGguf(new GgufMetadata('x', Object.entries(metadata))).config;
    const { config } = describeConfig(json);
    expect(back).toEqual(config);
    expect(ropeFactors).toBeUndefined();
  }
});

test("llama3's scaling becomes factors that give the same frequencies", () => {
  const rope = { factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 64 };
  const json = { ...CONFIG, rope_scaling: { rope_type: 'llama3', ...rope } };
  const { ropeFactors } = ggufExport(json);
  const { config } = describeConfig(json);
  const expected = ropeFrequencies(config);
  const got = ropeFrequencies({ ...config, ropeScaling: undefined }, { factors: ropeFactors });
  expect(ropeFactors?.length).toBe(8);
  for (const [i, value] of expected.entries()) expect(Math.abs(got[i] / value - 1)).toBeLessThan(1e-6);
  expect(Math.max(...ropeFactors!)).toBeGreaterThan(2);
});

test('what is not written is refused', () => {
  const yarn = { ...CONFIG, rope_scaling: { rope_type: 'yarn', factor: 4 } };
  const windows = { ...CONFIG, model_type: 'olmo3', sliding_window: 8 };
  for (const [json, message] of [
    [yarn, /"yarn"/],
    [windows, /"olmo3"/],
  ] as const)
    expect(() => ggufExport(json)).toThrow(
      expect.objectContaining({ code: 'UNSUPPORTED_MODEL', message: expect.stringMatching(message) }),
    );
});

test('names, and the rows that change order', () => {
  const { tensors } = ggufExport(CONFIG);
  const list = [
    'model.embed_tokens.weight',
    'lm_head.weight',
    'model.layers.1.self_attn.q_proj.weight',
    'model.layers.1.self_attn.k_proj.bias',
    'model.layers.0.mlp.down_proj.weight',
    'model.layers.0.self_attn.rotary_emb.inv_freq',
  ];
  expect(tensors(list)).toEqual([
    { name: 'token_embd.weight' },
    { name: 'output.weight' },
    { name: 'blk.1.attn_q.weight', heads: 4 },
    { name: 'blk.1.attn_k.bias', heads: 2 },
    { name: 'blk.0.ffn_down.weight' },
  ]);
  expect(() => tensors(['model.layers.0.mlp.experts.3.w1.weight'])).toThrow(
    expect.objectContaining({ code: 'UNSUPPORTED_MODEL' }),
  );
});

test('experts become one tensor, and a fused one its parts', () => {
  const experts = { num_local_experts: 4, num_experts_per_tok: 2 };
  const mixtral = ggufExport({ ...CONFIG, ...experts, model_type: 'mixtral' });
  const list = [0, 1].map((e) => `model.layers.0.block_sparse_moe.experts.${e}.w2.weight`);
  expect(mixtral.tensors(list)).toEqual([{ name: 'blk.0.ffn_down_exps.weight' }]);
  const granite = ggufExport({ ...CONFIG, ...experts, model_type: 'granitemoe' });
  expect(granite.tensors(['model.layers.0.block_sparse_moe.input_linear.weight'])).toEqual([
    { name: 'blk.0.ffn_gate_exps.weight' },
    { name: 'blk.0.ffn_up_exps.weight' },
  ]);
});

test('a window in every layer has a key of ours, with which the file is of the same architecture', () => {
  const written = (settings: object) =>
    ggufExport({ ...CONFIG, model_type: 'mistral', max_position_embeddings: 64, ...settings }).metadata;
  expect(written({ sliding_window: 16 })['llama.attention.every_layer_window']).toEqual(gguf.uint32(16));
  expect(written({ sliding_window: 16 })['llama.context_length']).toEqual(gguf.uint32(64));
  expect(written({ sliding_window: null })['llama.attention.every_layer_window']).toBeUndefined();
  const phi = written({ sliding_window: 16, model_type: 'phi3' });
  expect(phi['phi3.attention.every_layer_window']).toEqual(gguf.uint32(16));
});

test('a text part is written as the model that it is, with its sections', () => {
  const rope_scaling = { type: 'mrope', mrope_section: [4, 2, 2] };
  const whole = {
    model_type: 'qwen2_5_vl',
    eos_token_id: 2,
    text_config: { ...CONFIG, model_type: 'qwen2_5_vl_text', rope_scaling },
  };
  const { metadata } = ggufExport(whole);
  expect(metadata['general.architecture']).toEqual(gguf.string('qwen2vl'));
  expect(metadata['qwen2vl.rope.dimension_sections']).toEqual(gguf.array('int32', Int32Array.of(4, 2, 2, 0)));
  const { config } = describeGguf(new GgufMetadata('x', Object.entries(metadata)));
  expect(config.ropeSections).toEqual([4, 2, 2]);
});

describe('tokenizers', () => {
  test('SentencePiece comes back with its merges, kinds of tokens and ends', () => {
    const tokens = ['<unk>', '<s>', '</s>', '<0x0A>', 'a', 'b', 'ab', 'aba'];
    const source = new GgufMetadata('x', [
      ['tokenizer.ggml.model', gguf.string('llama')],
      ['tokenizer.ggml.tokens', gguf.strings(tokens)],
      ['tokenizer.ggml.token_type', gguf.array('int32', Int32Array.of(2, 3, 3, 6, 1, 1, 1, 1))],
      ['tokenizer.ggml.scores', gguf.array('float32', Float32Array.of(0, 0, 0, 0, -3, -4, -1, -2))],
      ['tokenizer.ggml.bos_token_id', gguf.uint32(1)],
      ['tokenizer.ggml.eos_token_id', gguf.uint32(2)],
    ]);
    const original = tokenizerJsonFromGguf(source);
    const { metadata } = ggufExport(CONFIG, original.json);
    const back = tokenizerJsonFromGguf(new GgufMetadata('y', Object.entries(metadata)));
    for (const key of ['json', 'bosId'] as const) expect(back[key]).toEqual(original[key]);
    expect(back.eosIds).toEqual(CONFIG.eos_token_id);
    expect(metadata['tokenizer.ggml.add_bos_token']).toEqual(gguf.bool(true));
  });

  test('the name says all steps of splitting, and what else goes with it', () => {
    const byteLevel = { type: 'ByteLevel', add_prefix_space: false, use_regex: false };
    const split = (Regex: string) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false });
    const named = (pretokenizers: object[], more: object = {}, model: object = {}) => {
      const bpe = { type: 'BPE', vocab: { a: 0 }, merges: [], ...model };
      const json = { added_tokens: [], pre_tokenizer: { type: 'Sequence', pretokenizers }, model: bpe, ...more };
      return ggufExport(CONFIG, json).metadata['tokenizer.ggml.pre'];
    };
    const digits = { type: 'Digits', individual_digits: true };
    expect(named([digits, { ...byteLevel, use_regex: true }])).toEqual(gguf.string('smollm'));
    expect(named([{ ...byteLevel, use_regex: true }])).toEqual(gguf.string('gpt-2'));
    const patterns = (name: string) => PRE_TOKENIZERS.get(name)!.split.map(split);
    expect(named([...patterns('deepseek-coder').slice(0, -1), digits, byteLevel])).toEqual(
      gguf.string('deepseek-coder'),
    );
    const qwen = [...patterns('qwen2'), byteLevel];
    expect(named(qwen, { normalizer: { type: 'NFC' } })).toEqual(gguf.string('qwen2'));
    expect(named(qwen)).toEqual(gguf.string('stablelm2'));
    const llama = [...patterns('llama-bpe'), byteLevel];
    expect(named(llama, {}, { ignore_merges: true })).toEqual(gguf.string('llama-bpe'));
    expect(named(llama)).toEqual(gguf.string('smaug-bpe'));
    const punctuation = { type: 'Punctuation', behavior: 'Contiguous' };
    expect(() => named([punctuation, { ...byteLevel, use_regex: true }])).toThrow(/Punctuation/);
  });

  describe('what begins and ends texts', () => {
    const byteLevel = { type: 'ByteLevel', add_prefix_space: false, use_regex: true };
    const special = (content: string, id: number, more: object = {}) => ({
      ...{ content, id, special: true, single_word: false, lstrip: false, rstrip: false, normalized: false },
      ...more,
    });
    const names = ['<s>', '<|im_end|>', '<x>', '<y>', '<z>', '<w>'];
    const json = (more: object = {}, added: object = {}) => ({
      added_tokens: names.map((name, i) => special(name, i + 1, added)),
      pre_tokenizer: byteLevel,
      model: { type: 'BPE', vocab: { a: 0 }, merges: [] },
      ...more,
    });
    const single = (...before: string[]) => ({
      type: 'TemplateProcessing',
      single: [...before.map((id) => ({ SpecialToken: { id, type_id: 0 } })), { Sequence: { id: 'A', type_id: 0 } }],
      pair: [
        { SpecialToken: { id: '<x>', type_id: 0 } },
        { Sequence: { id: 'A', type_id: 0 } },
        { Sequence: { id: 'B', type_id: 0 } },
      ],
      special_tokens: {},
    });
    const toBlock = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
    const { bos_token_id: _bos, eos_token_id: _eos, ...without } = CONFIG;
    const numbers = ({ metadata }: { metadata: object }) =>
      Object.fromEntries(
        Object.entries(metadata).flatMap(([key, value]) => {
          const [, name] = /^tokenizer\.ggml\.(\w+?)(?:_token_id|_token)$/.exec(key) ?? [];
          return name === undefined ? [] : [[name, (value as { value: unknown }).value]];
        }),
      );

    test('comes from the tokenizer, generation_config.json and tokenizer_config.json', () => {
      const post_processor = { type: 'Sequence', processors: [{ type: 'ByteLevel' }, single('<s>')] };
      const files = {
        generationConfig: { eos_token_id: [3, 4, 2] },
        specialTokens: { eos_token: '<y>', pad_token: '<z>' },
      };
      const made = ggufExport(without, json({ post_processor }), 'm', files);
      expect(numbers(made)).toMatchObject({
        bos: 1,
        add_bos: true,
        eos: 4,
        eot: 3,
        eom: 2,
        padding: 5,
        add_eos: false,
      });
      expect(made.warnings).toEqual([]);
      const { eosIds, bosId } = tokenizerJsonFromGguf(new GgufMetadata('y', Object.entries(made.metadata)));
      expect([bosId, [...eosIds].sort()]).toEqual([1, [2, 3, 4]]);
      // A token that stands in front of pairs alone is in front of no text.
      expect(numbers(ggufExport(without, json({ post_processor: single() })))).toMatchObject({ add_bos: false });
    });

    test('what is lost is said, and what would change every text refused', () => {
      const many = ggufExport(without, json(), 'm', { generationConfig: { eos_token_id: [1, 3, 4, 5, 6] } });
      expect(many.warnings).toEqual([expect.stringContaining('"<z>", "<w>" end a generation too')]);
      const { warnings } = ggufExport(CONFIG, json({}, { rstrip: true }));
      expect(warnings).toEqual([expect.stringMatching(/"<s>", "<\|im_end\|>", "<x>" and 3 more take spaces/)]);
      expect(ggufExport(CONFIG, json({ normalizer: { type: 'NFKC' } })).warnings).toEqual([
        expect.stringContaining('forms of Unicode'),
      ]);
      for (const [more, message] of [
        [{ normalizer: { type: 'Lowercase' } }, /Lowercase/],
        [{ normalizer: { type: 'Sequence', normalizers: [{ type: 'NFC' }, { type: 'Strip' }] } }, /Strip/],
        [{ post_processor: single('<s>', '<x>') }, /<s>, <x>/],
        [{ post_processor: { type: 'RobertaProcessing', cls: ['<s>', 1], sep: ['<x>', 3] } }, /RobertaProcessing/],
        [{ pre_tokenizer: { ...byteLevel, add_prefix_space: true } }, /space before texts/],
      ] as const)
        expect(() => ggufExport(CONFIG, json(more))).toThrow(
          expect.objectContaining({ code: 'UNSUPPORTED_TOKENIZER', message: expect.stringMatching(message) }),
        );
    });

    test.each([
      [{ normalizer: { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, toBlock] } }, true],
      [
        {
          normalizer: toBlock,
          pre_tokenizer: { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious' },
        },
        false,
      ],
      [{ pre_tokenizer: { type: 'Metaspace', prepend_scheme: 'first' } }, true],
      [{ pre_tokenizer: { type: 'Metaspace', prepend_scheme: 'never' } }, false],
    ])('SentencePiece by %j: a space in front is %s', (more, isThere) => {
      const bpe = { type: 'BPE', vocab: { a: 0 }, merges: [], byte_fallback: true };
      const { metadata } = ggufExport(CONFIG, json({ model: bpe, pre_tokenizer: null, ...more }));
      expect(metadata['tokenizer.ggml.add_space_prefix']).toEqual(gguf.bool(isThere));
    });

    test('chat templates are written by their names', () => {
      const templates = new Map([
        ['default', 'a'],
        ['tool_use', 'b'],
      ]);
      const { metadata } = ggufExport(CONFIG, json(), 'm', { templates });
      const back = new GgufMetadata('y', Object.entries(metadata));
      expect(ChatTemplate.fromGguf(back)!.source()).toBe('a');
      expect(ChatTemplate.fromGguf(back)!.source(true)).toBe('b');
    });
  });

  test('what GGUF has no name for is refused', () => {
    const json = (model: object, pattern = 'x+') => ({
      added_tokens: [],
      pre_tokenizer: { type: 'Split', pattern: { Regex: pattern } },
      model,
    });
    const bpe = { type: 'BPE', vocab: { a: 0 }, merges: [] };
    expect(() => ggufExport(CONFIG, json({ type: 'Unigram' }))).toThrow(
      expect.objectContaining({ code: 'UNSUPPORTED_TOKENIZER' }),
    );
    expect(() => ggufExport(CONFIG, json(bpe))).toThrow(expect.objectContaining({ code: 'UNSUPPORTED_TOKENIZER' }));
    expect(() => ggufExport(CONFIG, json({ ...bpe, vocab: { a: 8 } }))).toThrow(
      expect.objectContaining({ code: 'BAD_TOKENIZER' }),
    );
  });
});
