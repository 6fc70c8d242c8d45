import { describe, expect, test } from 'vitest';
import { isPrivateAddress } from '../src/addresses';
import { choose } from '../src/choose';
import type { RepoFile } from '../src/listing';
import { formatName, isHubName, parseName } from '../src/name';

describe('names', () => {
  test.each([
    ['hf:org/repo', { repo: 'org/repo' }],
    ['hf:org/repo:Q4_K_M', { repo: 'org/repo', tag: 'Q4_K_M' }],
    ['hf:org/repo@v1.0', { repo: 'org/repo', revision: 'v1.0' }],
    ['hf:org/repo:Q4_K_M@refs/pr/3', { repo: 'org/repo', tag: 'Q4_K_M', revision: 'refs/pr/3' }],
    ['hf:Org-1/Re_po.GGUF:sub/model-Q4.gguf', { repo: 'Org-1/Re_po.GGUF', tag: 'sub/model-Q4.gguf' }],
    ['hf.co/org/repo:q8_0', { repo: 'org/repo', tag: 'q8_0' }],
    ['HF:org/repo', { repo: 'org/repo' }],
    ['https://huggingface.co/org/repo', { repo: 'org/repo' }],
  ])('%s', (text, expected) => {
    expect(parseName(text)).toEqual({ tag: undefined, revision: undefined, ...expected });
    expect(isHubName(text)).toBe(true);
    expect(parseName(formatName(parseName(text)))).toEqual(parseName(text));
  });

  test.each([
    ...[
      '',
      'org/repo',
      './model.gguf',
      'hf:',
      'hf:repo',
      'hf:/repo',
      'hf:org/',
      'hf:org/repo/tree/main',
      'hf:../repo',
      'hf:org/..',
    ],
    ...[
      'hf:org/a..b',
      'hf:org/a--b',
      'hf:-org/repo',
      'hf:org/.repo',
      'hf:org/repo.',
      'hf:org/repo.git',
      'hf:org\\repo',
      'hf:o rg/repo',
    ],
    ...[
      'hf:org/repo:',
      'hf:org/repo:..',
      'hf:org/repo:../x.gguf',
      'hf:org/repo:/etc/passwd',
      'hf:org/repo:a//b',
      'hf:org/repo:a:b',
    ],
    ...[
      'hf:org/repo:a\\b',
      'hf:org/repo:a\0b',
      'hf:org/repo@',
      'hf:org/repo@..',
      'hf:org/repo@../main',
      'hf:org/repo@a/../b',
      'hf:org/repo@/x',
    ],
    ...[
      'hf:org/repo@a b',
      'hf:org/repo@a@b',
      'hf:org/repo@x.lock',
      `hf:org/${'r'.repeat(100)}`,
      'hf:org/répo',
      'hf:org/repo?x=1',
      'hf:org/repo#x',
    ],
  ])('%j is refused', (text) => {
    expect(() => parseName(text)).toThrow(
      expect.objectContaining({ code: 'INVALID_NAME', message: expect.stringContaining('hf:org/repo') }),
    );
  });

  test('what is no text is refused', () => {
    for (const value of [undefined, null, 1, {}, []]) {
      expect(() => parseName(value as unknown as string)).toThrow(expect.objectContaining({ code: 'INVALID_NAME' }));
    }
  });
});

const file = (path: string, size = 1): RepoFile => ({ path, size, oid: '', gitOid: '' });
const chosen = async (name: string, paths: string[], index?: unknown) => {
  const readIndex = async () => (typeof index === 'string' ? index : JSON.stringify(index));
  const { kind, files } = await choose(
    parseName(name),
    paths.map((path) => file(path)),
    readIndex,
  );
  return [kind, ...files.map(({ path }) => path)];
};

describe('the choice of files', () => {
  const many = [
    'README.md',
    'm-BF16.gguf',
    'm-F16.gguf',
    'm-IQ4_XS.gguf',
    'm-Q4_K_M.gguf',
    'm-Q8_0.gguf',
    'mmproj-m-F16.gguf',
  ];

  test.each([
    ['hf:o/r', 'm-Q4_K_M.gguf'],
    ['hf:o/r:q8_0', 'm-Q8_0.gguf'],
    ['hf:o/r:F16', 'm-F16.gguf'],
    ['hf:o/r:BF16', 'm-BF16.gguf'],
    ['hf:o/r:iq4_xs', 'm-IQ4_XS.gguf'],
    ['hf:o/r:M-IQ4_XS.GGUF', 'm-IQ4_XS.gguf'],
    // No model by default, but a file that can be asked for.
    ['hf:o/r:mmproj-m-F16.gguf', 'mmproj-m-F16.gguf'],
  ])('%s', async (name, expected) => {
    expect(await chosen(name, many)).toEqual(['gguf', expected]);
  });

  test('without a tag: Q4_K_M, then Q8_0, then the first that is a model', async () => {
    expect(await chosen('hf:o/r', ['a-Q6_K.gguf', 'b-Q8_0.gguf'])).toEqual(['gguf', 'b-Q8_0.gguf']);
    expect(await chosen('hf:o/r', ['a-imatrix.gguf', 'a-Q6_K.gguf', 'b-F16.gguf'])).toEqual(['gguf', 'a-Q6_K.gguf']);
    // A tag within a word, as llama.cpp finds it.
    expect(await chosen('hf:o/r:Q4_K', ['a-UDQ4_K.gguf'])).toEqual(['gguf', 'a-UDQ4_K.gguf']);
  });

  test('parts of a model together, in order, by any of their names', async () => {
    const parts = [2, 1, 3].map((i) => `Q8_0/m-Q8_0-0000${i}-of-00003.gguf`);
    const paths = [...parts, 'm-Q4_0.gguf', 'n-Q8_0-00001-of-00002.txt'].sort();
    const all = ['gguf', ...[...parts].sort()];
    expect(await chosen('hf:o/r:Q8_0', paths)).toEqual(all);
    expect(await chosen(`hf:o/r:${parts[0]}`, paths)).toEqual(all);
    await expect(
      chosen(
        'hf:o/r:Q8_0',
        paths.filter((path) => !path.includes('00002-of')),
      ),
    ).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: expect.stringContaining('2 of 3 parts'),
    });
  });

  test.each([
    ['a part under two names', ['m-00001-of-00002.gguf', 'm-00001-of-00002.GGUF'], '1 of 2 parts'],
    ['parts of other numbers', ['m-00000-of-00002.gguf', 'm-00003-of-00002.gguf'], '0 of 2 parts'],
    ['a part of none', ['m-00001-of-00000.gguf'], '0 of 0 parts'],
  ])('%s is no whole model', async (_, paths, message) => {
    await expect(chosen('hf:o/r', paths)).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: expect.stringContaining(message),
    });
  });

  test('an @ in the name of a file is none of a revision', async () => {
    const paths = ['a@v1-Q4_K_M.gguf', 'b@v1-Q4_K_M.gguf'];
    await expect(chosen('hf:o/r:Q4_K_M', paths)).rejects.toThrow(/hf:o\/r:a@v1-Q4_K_M\.gguf/);
    expect(await chosen('hf:o/r:a@v1-Q4_K_M.gguf', paths)).toEqual(['gguf', paths[0]]);
    expect(parseName('hf:o/r:a@v1-Q4_K_M.gguf@main')).toEqual({ repo: 'o/r', tag: paths[0], revision: 'main' });
    expect(parseName('hf:o/r:Q8_0@v1.gguf-x')).toEqual({ repo: 'o/r', tag: 'Q8_0', revision: 'v1.gguf-x' });
  });

  test('letters count where files differ by them alone, and nothing is shown that a terminal would obey', async () => {
    const paths = ['M.gguf', 'm.gguf'];
    for (const path of paths) expect(await chosen(`hf:o/r:${path}`, paths)).toEqual(['gguf', path]);
    const odd = ['a\x1b[2J-Q4_K_M.gguf', 'b-Q4_K_M.gguf'];
    const error = await chosen('hf:o/r:Q4_K_M', odd).catch(({ message }) => message);
    expect(error).toMatch(/a\ufffd\[2J-Q4_K_M/);
  });

  test('what is ambiguous or missing lists what there is, by names that work', async () => {
    const paths = ['a/m-Q4_K_M.gguf', 'b/m-Q4_K_M.gguf', 'c/m-Q2_K.gguf'];
    for (const name of ['hf:o/r', 'hf:o/r:Q4_K_M@v1']) {
      await expect(chosen(name, paths)).rejects.toMatchObject({
        code: 'AMBIGUOUS',
        message: expect.stringMatching(/2 models.*:a\/m-Q4_K_M\.gguf.*:b\/m-Q4_K_M\.gguf/),
      });
    }
    expect(await chosen('hf:o/r:a/m-Q4_K_M.gguf', paths)).toEqual(['gguf', paths[0]]);
    await expect(chosen('hf:o/r:Q5_0', many)).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: expect.stringMatching(/hf:o\/r:BF16 .*hf:o\/r:Q8_0/),
    });
    await expect(chosen('hf:o/r:Q5_0', ['model.safetensors', 'config.json'])).rejects.toMatchObject({
      code: 'NOT_FOUND',
    });
  });

  const beside = [
    'config.json',
    'generation_config.json',
    'tokenizer.json',
    'tokenizer_config.json',
    'chat_template.jinja',
    'vocab.txt',
  ];
  const model = [
    ...beside,
    'README.md',
    '.gitattributes',
    'pytorch_model.bin',
    'onnx/model.onnx',
    'onnx/config.json',
    'LICENSE.txt',
  ];

  test('safetensors with what is beside them', async () => {
    const single = await chosen('hf:o/r', [...model, 'model.safetensors', 'consolidated.safetensors'].sort());
    expect(single).toEqual(['safetensors', ...beside.sort(), 'model.safetensors']);
    const shards = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
    const index = { weight_map: { a: shards[1], b: shards[0], c: shards[1] } };
    const paths = [
      ...model,
      ...shards,
      'model.safetensors.index.json',
      'pytorch_model.bin.index.json',
      '1_Pooling/config.json',
    ].sort();
    expect((await chosen('hf:o/r', paths, index)).sort()).toEqual(
      ['safetensors', ...beside, '1_Pooling/config.json', 'model.safetensors.index.json', ...shards].sort(),
    );
    // Beside GGUF they are asked for.
    expect((await chosen('hf:o/r', [...paths, 'm-Q4_0.gguf'], index))[0]).toBe('gguf');
    expect((await chosen('hf:o/r:safetensors', [...paths, 'm-Q4_0.gguf'], index))[0]).toBe('safetensors');
  });

  test('safetensors that are not whole', async () => {
    const index = 'model.safetensors.index.json';
    const cases: [string[], unknown, RegExp][] = [
      [['config.json', index], { weight_map: { a: 'x.safetensors' } }, /x\.safetensors, which the repository has not/],
      [['config.json', index], { weight_map: { a: '../../x' } }, /which the repository has not/],
      [['config.json', index], '{', /does not say where/],
      [['config.json', index], { weight_map: {} }, /does not say where/],
      [['model.safetensors'], {}, /no config\.json/],
      [['config.json', 'pytorch_model.bin'], {}, /neither .* \(only pytorch_model\.bin\)/],
      [[], {}, /neither/],
    ];
    for (const [paths, content, message] of cases) {
      await expect(chosen('hf:o/r', paths, content)).rejects.toMatchObject({
        code: 'NOT_FOUND',
        message: expect.stringMatching(message),
      });
    }
  });
});

test('addresses that a public host may not lead to', () => {
  const inside = [
    '127.0.0.1',
    '10.1.2.3',
    '172.31.0.1',
    '192.168.1.1',
    '169.254.169.254',
    '100.64.0.1',
    '0.0.0.0',
    '::1',
    '::',
    '[::1]',
    'fd00::1',
    'fe80::1%eth0',
  ];
  const hidden = [
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '64:ff9b::7f00:1',
    '2002:7f00:1::',
    '2002:a9fe:a9fe::1',
    '::127.0.0.1',
    '255.255.255.255',
    '224.0.0.1',
  ];
  for (const address of [...inside, ...hidden]) expect([address, isPrivateAddress(address)]).toEqual([address, true]);
  for (const address of [
    '1.1.1.1',
    '172.32.0.1',
    '2606:4700::1111',
    '64:ff9b::101:101',
    '::ffff:1.1.1.1',
    'example.com',
  ]) {
    expect([address, isPrivateAddress(address)]).toEqual([address, false]);
  }
});
