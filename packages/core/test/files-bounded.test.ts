/** Files that ask for much: pipes in the place of files, headers and archives that would take many times their size. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CandleError, Tensor } from '../src';
import {
  NpzFile,
  PthFile,
  readJsonFile,
  readNpySync,
  SafetensorsFile,
  ShardedSafetensors,
  writeNpz,
} from '../src/files';
import { thrown } from './hostile';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'files-bounded-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string) => join(folder, name);

test('pipes, folders and devices are not read', () => {
  mkdirSync(at('folder.index.json'));
  execFileSync('mkfifo', [at('pipe.index.json'), at('pipe')]);
  symlinkSync('pipe', at('link'));
  const readers: [string, (path: string) => unknown][] = [
    ['pipe.index.json', ShardedSafetensors.open],
    ['folder.index.json', ShardedSafetensors.open],
    ['pipe', ShardedSafetensors.open],
    ['pipe', SafetensorsFile.open],
    ['pipe', PthFile.open],
    ['pipe', NpzFile.open],
    ['pipe', readNpySync],
    ['pipe', readJsonFile],
    ['link', readJsonFile],
    ['link', SafetensorsFile.open],
  ];
  for (const [name, open] of readers) expect(thrown(() => open(at(name)))).toMatchObject({ code: 'FILE_UNREADABLE' });
  for (const open of [SafetensorsFile.open, PthFile.open, NpzFile.open, readJsonFile])
    expect(thrown(() => open('/dev/zero'))).toMatchObject({ code: 'FILE_UNREADABLE' });
  expect(thrown(() => readJsonFile(at('none')))).toMatchObject({ code: 'FILE_NOT_FOUND' });
});

describe('JSON', () => {
  const limits = { bytes: 1000, items: 10, depth: 3 };
  const read = (text: string | Uint8Array) => {
    writeFileSync(at('x.json'), text);
    return readJsonFile(at('x.json'), limits);
  };

  test('within its limits', () => {
    const texts = [
      '{}',
      '[[[]]]',
      '"[[[[[[,,,,,,,,,,,,,"',
      '"\\"[[[[\\\\"',
      '[1,2,3,4,5,6,7,8,9,10]',
      '{"a\\"[[[[":"\\\\"}',
      '7',
    ];
    for (const text of texts) expect(read(text)).toEqual(JSON.parse(text));
  });

  test('with infinity, as Python writes it', () => {
    expect(read('{"a": [0.0, Infinity, -Infinity], "Infinity\\"Infinity": "Infinity"}')).toEqual({
      a: [0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
      'Infinity"Infinity': 'Infinity',
    });
  });

  test('with NaN, as Python writes it', () => {
    const text = '{"a": [NaN, {"NaN": "NaN", "b":NaN}], "c": [-Infinity, NaN], "d": "\\"NaN"}';
    expect(read(text)).toEqual({
      a: [Number.NaN, { NaN: 'NaN', b: Number.NaN }],
      c: [Number.NEGATIVE_INFINITY, Number.NaN],
      d: '"NaN',
    });
  });

  test('over them, and no JSON', () => {
    const cases: [string | Uint8Array, RegExp][] = [
      ['[[[[]]]]', /levels/],
      ['{"a":[{"b":[]}]}', /levels/],
      ['[1,2,3,4,5,6,7,8,9,10,11]', /items/],
      [`"${'x'.repeat(2000)}"`, /2002 bytes/],
      ['', /no valid JSON/],
      ['{"a', /no valid JSON/],
      ['"\\', /no valid JSON/],
      ['[Infinity', /no valid JSON/],
      ['[1Infinity]', /no valid JSON/],
      ['[NaN, Infinit]', /no valid JSON/],
      ['[NaN', /no valid JSON/],
      ['[1NaN]', /no valid JSON/],
      ['[-NaN]', /no valid JSON/],
      ['[NaNNaN]', /no valid JSON/],
      [Uint8Array.of(0x22, 0xff, 0x22), /no valid JSON/],
    ];
    for (const [text, message] of cases) {
      const error = thrown(() => read(text));
      expect(error).toMatchObject({ code: 'FILE_INVALID' });
      expect(error.message).toMatch(message);
    }
  });
});

/** A safetensors file with this header, and no tensor data. */
function safetensors(header: string): Buffer {
  const bytes = Buffer.from(header);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(bytes.length));
  return Buffer.concat([length, bytes]);
}

/** What this process computed, whatever else the machine does. */
function processorMsSince(begin: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(begin);
  return (user + system) / 1000;
}

describe('safetensors headers', () => {
  const empty = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}';

  test('of a hundred thousand tensors are read', () => {
    const names = Array.from({ length: 100_000 }, (_, i) => `"model.layers.${i}.self_attn.q_proj.weight":${empty}`);
    const begin = process.cpuUsage();
    expect(SafetensorsFile.open(safetensors(`{${names.join(',')}}`)).names).toHaveLength(100_000);
    expect(processorMsSince(begin)).toBeLessThan(5000);
  }, 60_000);

  test.each([
    ['tensors', () => `{${Array.from({ length: 1_600_000 }, (_, i) => `"${i}":${empty}`).join(',')}}`],
    ['sizes', () => `{"a":{"dtype":"U8","shape":[${'1,'.repeat(40_000_000)}1],"data_offsets":[0,1]}}`],
    ['metadata', () => `{"__metadata__":{${Array.from({ length: 7_000_000 }, (_, i) => `"${i}":""`).join(',')}}}`],
    ['nesting', () => '['.repeat(90_000_000)],
    ['objects', () => `{"a":[${'{},'.repeat(30_000_000)}{}]}`],
  ])('of many %s are refused in little time and memory', (_, header) => {
    const bytes = safetensors(header());
    expect(bytes.length).toBeGreaterThan(70_000_000);
    const before = process.memoryUsage().rss;
    const begin = process.cpuUsage();
    expect(thrown(() => SafetensorsFile.open(bytes)).code).toBe('FILE_INVALID');
    expect(processorMsSince(begin)).toBeLessThan(5000);
    // A copy of the header, and what the items before the limit took.
    expect(process.memoryUsage().rss - before).toBeLessThan(400 * 2 ** 20);
  });

  test('whose messages would be long', () => {
    const name = 'x'.repeat(1_000_000);
    const cases = [
      `{"${name}":1}`,
      `{"a":{"dtype":"${name}","shape":[],"data_offsets":[0,0]}}`,
      `{"a":{"dtype":"U8","shape":[${'1,'.repeat(100)}1],"data_offsets":[0,1]}}`,
    ];
    for (const header of cases)
      expect(thrown(() => SafetensorsFile.open(safetensors(header))).message.length).toBeLessThan(1000);
  });

  test('cut at every byte, and with any byte changed', () => {
    const good = safetensors(
      `{"__metadata__":{"a":"b"},"x":${empty},"y":{"dtype":"F32","shape":[0,2],"data_offsets":[0,0]}}`,
    );
    const open = (bytes: Uint8Array) => {
      try {
        SafetensorsFile.open(bytes).close();
      } catch (error) {
        if (!(error instanceof CandleError)) throw error;
      }
    };
    open(good);
    for (let i = 0; i < good.length; i++) {
      open(good.subarray(0, i));
      for (let bit = 0; bit < 8; bit++) open(Uint8Array.from(good, (byte, j) => (j === i ? byte ^ (1 << bit) : byte)));
    }
  });

  test('an index of too many files', () => {
    const map = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`t${i}`, `f${i}`]));
    writeFileSync(at('many.index.json'), JSON.stringify({ weight_map: map }));
    expect(thrown(() => ShardedSafetensors.open(at('many.index.json'))).message).toMatch(/5000 files/);
  });
});

describe('deflated arrays', () => {
  test.each(['sync', 'async'])('take the memory of the array and little more (%s)', async (mode) => {
    const path = at('large.npz');
    const megabytes = 256;
    if (statSync(path, { throwIfNoEntry: false }) === undefined)
      await writeNpz(path, { x: Tensor.zeros([megabytes * 2 ** 18], 'f32') }, { deflate: true });
    expect(statSync(path).size).toBeLessThan(2 ** 20);
    // A process of its own: what this one has used before does not count.
    const program = `
      import { Device } from ${JSON.stringify(new URL('../src/index.ts', import.meta.url).href)};
      import { NpzFile } from ${JSON.stringify(new URL('../src/files/index.ts', import.meta.url).href)};
      (async () => {
        const file = NpzFile.open(${JSON.stringify(path)});
        file.info('x');
        const before = process.resourceUsage().maxRSS;
        const x = ${mode === 'sync' ? "file.loadSync('x', Device.js())" : "await file.load('x', Device.js())"};
        console.log(x.elemCount, (process.resourceUsage().maxRSS - before) / 1024);
      })();`;
    writeFileSync(at('main.ts'), program);
    const tsx = new URL('../../../node_modules/.bin/tsx', import.meta.url).pathname;
    const { stdout, stderr } = spawnSync(tsx, [at('main.ts')], { encoding: 'utf8' });
    expect(stderr).toBe('');
    const [count, used] = stdout.split(' ').map(Number);
    expect(count).toBe(megabytes * 2 ** 18);
    expect(used).toBeLessThan(megabytes + 96);
  });
});
