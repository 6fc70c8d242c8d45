/** Files of before GGUF, and importance matrices in both of their forms. */
import { Device, FileFormatError } from '@x/core';
import { describe, expect, test } from 'vitest';
import { GgmlFile, gguf, loadImatrix, QTensor, writeGguf } from '../src';
import { blockFormat } from '../src/blocks';
import { Raw, store, temporaryPath } from './raw-gguf';

const f32 = (...values: number[]) => [...new Uint8Array(Float32Array.from(values).buffer)];
const latin = (text: string) => [...new TextEncoder().encode(text)];

function codeOf(use: () => unknown): string {
  try {
    use();
    return 'fine';
  } catch (error) {
    if (!(error instanceof FileFormatError)) throw error;
    return error.code;
  }
}

describe('GGML', () => {
  const MAGIC = { ggml: 0x67676d6c, ggmf: 0x67676d66, ggjt: 0x67676a74 };
  const q8 = (() => {
    const format = blockFormat('q8_0');
    const out = new Uint8Array(2 * format.blockBytes);
    format.quantize!(
      Float32Array.from({ length: 64 }, (_, i) => i - 32),
      0,
      out,
      0,
      2,
    );
    return out;
  })();

  function model(magic: keyof typeof MAGIC, version: number, q8Type = 8): Raw {
    const raw = new Raw().u32(MAGIC[magic]);
    if (magic !== 'ggml') raw.u32(version);
    for (const value of [2, 32, 256, 4, 1, 8, 7]) raw.u32(value);
    for (const [token, score] of [
      ['ab', -1.5],
      ['', 2],
    ] as const) {
      raw.u32(token.length).bytes(...latin(token));
      if (magic !== 'ggml') raw.bytes(...f32(score));
    }
    const tensor = (name: string, dims: number[], type: number, data: ArrayLike<number>) => {
      raw.u32(dims.length).u32(name.length).u32(type);
      for (const dim of dims) raw.u32(dim);
      raw.bytes(...latin(name));
      if (magic === 'ggjt') raw.pad(32);
      raw.bytes(...Array.from(data));
    };
    tensor('norm.weight', [3], 0, f32(1, 2, 3));
    if (version === 3) tensor('output.weight', [32, 2], q8Type, q8);
    return raw;
  }

  test.each([
    ['ggml', 0],
    ['ggmf', 1],
    ['ggjt', 1],
    ['ggjt', 2],
    ['ggjt', 3],
  ] as const)('%s version %i', async (magic, version) => {
    using file = GgmlFile.open(store(model(magic, version).done()));
    expect([file.magic, file.version]).toEqual([magic, version]);
    expect(file.parameters).toEqual({
      vocabularySize: 2,
      embeddingLength: 32,
      multipleOf: 256,
      headCount: 4,
      blockCount: 1,
      rotated: 8,
      fileType: 7,
    });
    const scores = magic === 'ggml' ? [0, 0] : [-1.5, 2];
    expect(file.vocabulary.map(({ bytes, score }) => [Buffer.from(bytes).toString(), score])).toEqual([
      ['ab', scores[0]],
      ['', scores[1]],
    ]);
    expect([...file.readTensorBytes('norm.weight')]).toEqual(f32(1, 2, 3));
    if (version < 3) return;
    expect(file.tensor('output.weight').shape).toEqual([2, 32]);
    expect(file.readTensorBytes('output.weight')).toEqual(q8);
    using weight = QTensor.fromGguf(file, 'output.weight', Device.js());
    using values = weight.dequantize();
    expect(Number(values.toArraySync()[0])).toBeCloseTo(-32, 1);
    using loaded = await QTensor.load(file, 'norm.weight', Device.js());
    expect(loaded.data.toArraySync()).toEqual(Float32Array.of(1, 2, 3));
  });

  test('what is refused', () => {
    const code = (bytes: Uint8Array) => codeOf(() => GgmlFile.fromBytes(bytes));
    expect(code(new Raw().header(0, 0).done())).toBe('GGUF_BAD_MAGIC');
    expect(code(new Raw().u32(MAGIC.ggjt).u32(4).done())).toBe('GGUF_UNSUPPORTED_VERSION');
    expect(code(new Raw().u32(MAGIC.ggmf).u32(2).done())).toBe('GGUF_UNSUPPORTED_VERSION');
    expect(code(model('ggjt', 3, 57).done())).toBe('GGUF_UNKNOWN_TYPE');
    const good = model('ggjt', 3).done();
    for (let length = 0; length < good.length; length++) {
      const expected = code(good.slice(0, length));
      // Cut between two tensors it is a shorter file.
      expect(['GGUF_TRUNCATED', 'GGUF_BAD_COUNT', 'fine']).toContain(expected);
    }
    const counts = good.slice();
    counts.set([0xff, 0xff, 0xff, 0xff], 8);
    expect(code(counts)).toBe('GGUF_BAD_COUNT');
    // The old blocks of q8_0 in ggjt 2.
    const old = model('ggjt', 3).done();
    old[4] = 2;
    expect(code(old)).toBe('GGUF_UNSUPPORTED_VERSION');
  });
});

describe('importance matrices', () => {
  function binary(): Raw {
    const raw = new Raw().u32(2);
    raw
      .u32(3)
      .bytes(...latin('a.w'))
      .u32(4)
      .u32(2)
      .bytes(...f32(8, 2));
    return raw
      .u32(1)
      .bytes(...latin('b'))
      .u32(0)
      .u32(1)
      .bytes(...f32(5));
  }

  test('the binary form, with and without its end', () => {
    const short = loadImatrix(store(binary().done()));
    expect(Object.fromEntries(short.entries)).toEqual({ 'a.w': Float32Array.of(2, 0.5), b: Float32Array.of(5) });
    expect([short.chunkCount, short.datasets]).toEqual([0, []]);
    const long = loadImatrix(
      store(
        binary()
          .u32(12)
          .u32(4)
          .bytes(...latin('wiki'))
          .done(),
      ),
    );
    expect([long.chunkCount, long.datasets]).toEqual([12, ['wiki']]);
  });

  test('the GGUF form, experts each by their own count', async () => {
    const path = temporaryPath();
    const tensor = (name: string, shape: number[], values: number[]) => {
      return { name, type: 'f32' as const, shape, data: Uint8Array.from(f32(...values)) };
    };
    await writeGguf(path, {
      metadata: {
        'general.type': gguf.string('imatrix'),
        'imatrix.datasets': gguf.strings(['wiki']),
        'imatrix.chunk_count': gguf.uint32(7),
      },
      tensors: [
        tensor('blk.0.ffn_up.weight.in_sum2', [1, 2], [6, 3]),
        tensor('blk.0.ffn_up.weight.counts', [1, 1], [3]),
        tensor('blk.0.ffn_up_exps.weight.in_sum2', [2, 2], [8, 4, 9, 9]),
        tensor('blk.0.ffn_up_exps.weight.counts', [2, 1], [4, 0]),
      ],
    });
    const { entries, datasets, chunkCount } = loadImatrix(path);
    expect(Object.fromEntries(entries)).toEqual({
      'blk.0.ffn_up.weight': Float32Array.of(2, 1),
      'blk.0.ffn_up_exps.weight': Float32Array.of(2, 1, 1, 1),
    });
    expect([datasets, chunkCount]).toEqual([['wiki'], 7]);
  });

  test('what is refused', async () => {
    const code = (bytes: Uint8Array) => codeOf(() => loadImatrix(store(bytes)));
    expect(code(new Raw().u32(0).data(20).done())).toBe('GGUF_BAD_COUNT');
    expect(code(new Raw().u32(0xffffffff).data(20).done())).toBe('GGUF_BAD_COUNT');
    expect(code(new Raw().u32(1).u32(0xffffffff).data(20).done())).toBe('GGUF_TRUNCATED');
    expect(code(new Raw().u32(1).u32(1).data(1).u32(1).u32(0xffffffff).data(20).done())).toBe('GGUF_TRUNCATED');
    expect(code(new Raw().u32(1).u32(1).data(1).u32(1).u32(0).data(4).done())).toBe('GGUF_INVALID_CONTENT');
    const path = temporaryPath();
    await writeGguf(path, { metadata: { 'general.type': gguf.string('model') }, tensors: [] });
    expect(codeOf(() => loadImatrix(path))).toBe('GGUF_INVALID_CONTENT');
    await writeGguf(path, { metadata: { 'general.type': gguf.string('imatrix') }, tensors: [] });
    expect(codeOf(() => loadImatrix(path))).toBe('GGUF_INVALID_CONTENT');
    const good = binary().done();
    for (let length = 0; length < good.length; length++) {
      expect(code(good.slice(0, length))).toMatch(/GGUF_(TRUNCATED|BAD_COUNT)/);
    }
  });
});
