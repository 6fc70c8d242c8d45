import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Device, memoryStats } from '@x/core';
import { gguf } from '@x/quantized';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel } from '../src';
import { GGUF, type GgufChanges, rewriteGguf, temporaryDirectory, writeCheckpoint } from './helpers';

describe('loadModel', () => {
  const device = Device.js();
  const { path: directory, remove } = temporaryDirectory();
  const checkpoint = join(directory, 'checkpoint');

  beforeAll(async () => {
    mkdirSync(checkpoint);
    await writeCheckpoint(checkpoint);
  });
  afterAll(remove);

  const changed = (name: string, changes: GgufChanges) => rewriteGguf(join(directory, name), changes);

  /** Fails as it should, and leaves no memory behind. */
  async function expectFailure(path: string, expected: Record<string, unknown>, options = {}): Promise<void> {
    const before = memoryStats();
    await expect(loadModel(path, { device, ...options })).rejects.toMatchObject(expected);
    expect(memoryStats()).toEqual(before);
  }

  it('reports progress up to all bytes and lets the event loop run', async () => {
    for (const path of [GGUF, checkpoint]) {
      const seen: [number, number][] = [];
      let turns = 0;
      let running = true;
      const count = () => {
        turns++;
        if (running) setImmediate(count);
      };
      setImmediate(count);
      const model = await loadModel(path, { device, onProgress: (...bytes) => seen.push(bytes) });
      running = false;
      expect(turns).toBeGreaterThan(20);
      expect(seen.length).toBe(74);
      expect(seen.every(([loaded], i) => i === 0 || loaded > seen[i - 1][0])).toBe(true);
      expect(seen.at(-1)![0]).toBe(seen.at(-1)![1]);
      expect(model.loadMs).toBeGreaterThan(0);
      expect(model.maxContext).toBe(512);
      model.dispose();
    }
  });

  it('stops for a signal and gives everything back', async () => {
    for (const path of [GGUF, checkpoint]) {
      const controller = new AbortController();
      let calls = 0;
      const onProgress = () => {
        if (++calls === 5) controller.abort();
      };
      await expectFailure(path, { name: 'AbortError' }, { signal: controller.signal, onProgress });
      expect(calls).toBe(5);
      await expectFailure(path, { name: 'AbortError' }, { signal: AbortSignal.abort() });
      // After the last tensor, too.
      const late = new AbortController();
      const last = (loaded: number, total: number) => {
        if (loaded === total) late.abort();
      };
      await expectFailure(path, { name: 'AbortError' }, { signal: late.signal, onProgress: last });
    }
  });

  it('says what is missing', async () => {
    const nowhere = join(directory, 'nowhere.gguf');
    await expectFailure(nowhere, {
      code: 'FILE_NOT_FOUND',
      path: nowhere,
      message: expect.stringContaining('no such file'),
    });
    const empty = join(directory, 'empty');
    mkdirSync(empty);
    await expectFailure(empty, { code: 'FILE_NOT_FOUND', message: expect.stringContaining('no *.safetensors') });
    copyFileSync(GGUF, join(empty, 'model.gguf'));
    (await loadModel(empty, { device })).dispose();
    copyFileSync(GGUF, join(empty, 'other.gguf'));
    await expectFailure(empty, { code: 'FILE_NOT_FOUND', message: expect.stringContaining(join(empty, 'model.gguf')) });
    copyFileSync(join(checkpoint, 'model.safetensors'), join(empty, 'model.safetensors'));
    await expectFailure(empty, { code: 'FILE_NOT_FOUND', message: expect.stringContaining('config.json') });
    copyFileSync(join(checkpoint, 'config.json'), join(empty, 'config.json'));
    await expectFailure(empty, { code: 'FILE_NOT_FOUND', message: expect.stringContaining('tokenizer.json') });
    // A head of its own that the weights have not.
    copyFileSync(join(checkpoint, 'tokenizer.json'), join(empty, 'tokenizer.json'));
    const config = JSON.parse(readFileSync(join(checkpoint, 'config.json'), 'utf8'));
    writeFileSync(join(empty, 'config.json'), JSON.stringify({ ...config, tie_word_embeddings: false }));
    await expectFailure(empty, { code: 'BAD_CONFIG', message: expect.stringContaining('lm_head.weight') });
  });

  it('says what to do with what lies beside the weights', async () => {
    const other = join(directory, 'other');
    mkdirSync(other);
    for (const name of ['config.json', 'model.safetensors']) copyFileSync(join(checkpoint, name), join(other, name));
    const config = join(other, 'config.json');
    await expectFailure(config, { code: 'FILE_INVALID', message: expect.stringContaining(`lies in, ${other}.`) });
    for (const names of [['vocab.json', 'merges.txt'], ['tokenizer.model']]) {
      for (const name of names) writeFileSync(join(other, name), '');
      await expectFailure(other, {
        code: 'FILE_NOT_FOUND',
        message: expect.stringMatching(`tokenizer.json: .*but ${names.join(' and ')}, of which`),
      });
    }
  });

  it('says what is wrong with a GGUF file', async () => {
    const text = join(directory, 'text.gguf');
    writeFileSync(text, 'no model at all');
    await expectFailure(text, { code: 'GGUF_BAD_MAGIC' });
    await expectFailure(await changed('arch.gguf', { metadata: { 'general.architecture': gguf.string('rwkv6') } }), {
      code: 'UNSUPPORTED_MODEL',
      message: expect.stringMatching(/"rwkv6".*supported: .*llama/),
    });
    await expectFailure(await changed('pre.gguf', { metadata: { 'tokenizer.ggml.pre': gguf.string('klingon') } }), {
      code: 'UNSUPPORTED_TOKENIZER',
    });
    await expectFailure(await changed('deep.gguf', { metadata: { 'llama.block_count': gguf.uint32(9) } }), {
      code: 'FILE_NO_SUCH_TENSOR',
      message: expect.stringContaining('blk.8.attn_norm.weight'),
    });
    await expectFailure(await changed('wide.gguf', { metadata: { 'llama.feed_forward_length': gguf.uint32(512) } }), {
      code: 'SHAPE_MISMATCH',
      message: expect.stringMatching(/ffn_gate.*\[768, 256\].*\[512, 256\]/),
    });
    await expectFailure(await changed('headless.gguf', { drop: ['output_norm.weight'] }), {
      code: 'FILE_NO_SUCH_TENSOR',
    });
  });

  it('refuses a GGUF file with layers, or parts of them, that the model would leave out', async () => {
    await expectFailure(await changed('shallow.gguf', { metadata: { 'llama.block_count': gguf.uint32(7) } }), {
      code: 'UNSUPPORTED_MODEL',
      message: expect.stringMatching(/shallow\.gguf: blk\.7\.\w+\.weight and 8 more tensors have no place/),
    });
    const norm = { name: 'blk.0.attn_q_norm.weight', shape: [32], values: new Float32Array(32).fill(5) };
    const path = await changed('norm.gguf', { add: [norm] });
    await expectFailure(path, { code: 'UNSUPPORTED_MODEL', message: expect.stringContaining(norm.name) });
    await expect(loadModel(path, { devices: ['cpu', 'cpu'] })).rejects.toMatchObject({ code: 'UNSUPPORTED_MODEL' });
    const beside = { name: 'blk.0.rope_freqs.weight', shape: [1], values: new Float32Array(1) };
    (await loadModel(await changed('beside.gguf', { add: [beside] }), { device })).dispose();
  });

  it('counts the tokens of a GGUF file that gives another number', async () => {
    const path = await changed('vocabulary.gguf', { metadata: { 'llama.vocab_size': gguf.uint32(100) } });
    const model = await loadModel(path, { device });
    expect(model.config.vocabSize).toBe(4096);
    using logits = model.forward([4095], 0);
    expect(logits.shape).toEqual([4096]);
    model.dispose();
  });

  it('refuses a GGUF file with weights of integers', async () => {
    const bytes = readFileSync(GGUF);
    const at = bytes.indexOf('blk.1.attn_norm.weight') + 'blk.1.attn_norm.weight'.length + 4 + 8;
    expect(bytes.readUInt32LE(at)).toBe(0); // f32
    bytes.writeUInt32LE(26, at); // i32
    const path = join(directory, 'integers.gguf');
    writeFileSync(path, bytes);
    await expectFailure(path, {
      code: 'FILE_INVALID',
      message: expect.stringMatching(/blk\.1\.attn_norm\.weight holds i32.*floating-point/),
    });
  });

  it('takes model.safetensors before an index that lies beside it', async () => {
    const both = join(directory, 'both');
    mkdirSync(both);
    for (const name of ['config.json', 'tokenizer.json', 'model.safetensors'])
      copyFileSync(join(checkpoint, name), join(both, name));
    const weight_map = { 'model.norm.weight': 'model-00001-of-00001.safetensors' };
    writeFileSync(join(both, 'model.safetensors.index.json'), JSON.stringify({ weight_map }));
    (await loadModel(both, { device })).dispose();
  });

  it('reads a model whose chat template cannot be read, for all but chats', async () => {
    const folder = join(directory, 'odd-template');
    mkdirSync(folder);
    for (const name of ['config.json', 'model.safetensors', 'tokenizer.json'])
      copyFileSync(join(checkpoint, name), join(folder, name));
    writeFileSync(join(folder, 'tokenizer_config.json'), '');
    const list = gguf.array('string', ['a']);
    const file = await changed('odd-template.gguf', { metadata: { 'tokenizer.chat_template': list } });
    for (const path of [folder, file]) {
      using model = await loadModel(path, { device });
      expect(await model.generate('Once', { maxTokens: 1, ignoreEos: true }).text()).not.toBe(undefined);
      expect(() => model.chat()).toThrow(expect.objectContaining({ code: expect.stringMatching(/^(FILE|GGUF)_/) }));
      using other = await loadModel(path, { device, chatTemplate: 'chatml' });
      expect(other.chatTemplate.source()).toContain('im_start');
    }
  });

  it('names a weight of a type that it cannot read', async () => {
    const bytes = readFileSync(GGUF);
    const at = bytes.indexOf('blk.7.ffn_down.weight') + 'blk.7.ffn_down.weight'.length + 4 + 16;
    expect(bytes.readUInt32LE(at)).toBe(8); // q8_0
    bytes.writeUInt32LE(57, at);
    const path = join(directory, 'future.gguf');
    writeFileSync(path, bytes);
    await expectFailure(path, {
      code: 'GGUF_UNKNOWN_TYPE',
      message: expect.stringMatching(/blk\.7\.ffn_down\.weight.*57/),
    });
  });

  it('says what is wrong with a checkpoint', async () => {
    const broken = join(directory, 'broken');
    mkdirSync(broken);
    for (const name of ['config.json', 'tokenizer.json', 'model.safetensors'])
      copyFileSync(join(checkpoint, name), join(broken, name));
    const config = JSON.parse(readFileSync(join(checkpoint, 'config.json'), 'utf8'));
    const write = (changes: object) =>
      writeFileSync(join(broken, 'config.json'), JSON.stringify({ ...config, ...changes }));
    write({ model_type: 'bert', architectures: ['BertModel'] });
    await expectFailure(broken, { code: 'UNSUPPORTED_MODEL', message: expect.stringMatching(/"bert".*llama/) });
    write({ num_hidden_layers: 9 });
    await expectFailure(broken, {
      code: 'FILE_NO_SUCH_TENSOR',
      message: expect.stringContaining('model.layers.8.input_layernorm.weight'),
    });
    write({ intermediate_size: 700 });
    await expectFailure(broken, { code: 'SHAPE_MISMATCH', message: expect.stringContaining('gate_proj') });
    write({});
    const bytes = readFileSync(join(checkpoint, 'model.safetensors'));
    const at = bytes.indexOf('"F32"', bytes.indexOf('model.layers.0.mlp.up_proj.weight'));
    bytes.write('"I32"', at);
    writeFileSync(join(broken, 'model.safetensors'), bytes);
    await expectFailure(broken, {
      code: 'FILE_INVALID',
      message: expect.stringMatching(/up_proj.*holds I32.*floating-point/),
    });
    writeFileSync(join(broken, 'config.json'), '{');
    await expectFailure(broken, { code: 'FILE_INVALID', message: expect.stringContaining('config.json') });
  });

  it('refuses a context that the model was not made for', async () => {
    for (const maxContext of [0, 513, 1.5, Number.NaN]) {
      await expectFailure(
        GGUF,
        { code: 'INVALID_OPTION', message: expect.stringContaining('1 to 512') },
        { maxContext },
      );
    }
    const model = await loadModel(GGUF, { device, maxContext: 8 });
    expect(model.maxContext).toBe(8);
    expect(() => model.forward(new Array<number>(9).fill(0), 0)).toThrow(
      expect.objectContaining({ code: 'CONTEXT_EXCEEDED' }),
    );
    model.dispose();
  });
});
