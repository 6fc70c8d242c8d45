/** Headers that lie, one field at a time: always a typed error, never a crash, a hang or a large allocation. */
import { execFileSync } from 'node:child_process';
import { closeSync, openSync, readFileSync, truncateSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { FileFormatError } from '@x/core';
import { describe, expect, test } from 'vitest';
import { GgufFile } from '../src/gguf';
import { ALL_TYPES } from './fixture';
import { codeOf, openCode, Raw, scratch, store, temporaryPath } from './raw-gguf';

/** Bytes of the fixture's header, without padding. */
const HEADER = 1422;
const HUGE = [2n ** 32n, 2n ** 40n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n];

describe('the start of the file', () => {
  test('magic', () => {
    expect(openCode(new Raw().bytes(0x50, 0x4b, 3, 4).u32(3).u64(0).u64(0).done())).toBe('GGUF_BAD_MAGIC');
    expect(openCode(new TextEncoder().encode('{"json": true}'))).toBe('GGUF_BAD_MAGIC');
    expect(openCode(new Uint8Array(0))).toBe('GGUF_TRUNCATED');
    expect(openCode(Uint8Array.of(0x47, 0x47, 0x55))).toBe('GGUF_TRUNCATED');
  });

  test.each([
    ['version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 134\n', /Git LFS pointer .*`git lfs pull`/],
    ['<!DOCTYPE html>\n<html lang="en">', /web page .*download it again/],
    ['\n<HTML><head>', /web page .*download it again/],
  ])('a file that is something else in its place: %j', (text, message) => {
    const bytes = new TextEncoder().encode(text);
    expect(openCode(bytes)).toBe('FILE_INVALID');
    expect(() => GgufFile.fromBytes(bytes)).toThrow(message);
  });

  test.each([0, 4, 100, 0xffff])('version %i', (version) => {
    expect(openCode(new Raw().header(0, 0, version).done())).toBe('GGUF_UNSUPPORTED_VERSION');
  });

  test.each([1, 2, 3])('an empty file of version %i opens', (version) => {
    expect(openCode(new Raw(version > 1).header(0, 0, version).done())).toBe('opened');
  });
});

/** candle's own list (candle-core/tests/gguf_tests.rs); the codes are what its messages say. */
describe('gguf_tests', () => {
  const LARGE = 2 ** 31;
  const key = () => new Raw().header(0, 1).string('k').u32(9);

  test('gguf_tests::empty_header_loads', () => {
    using file = GgufFile.fromBytes(new Raw().header(0, 0).done());
    expect([file.metadata.size, file.tensors.size]).toEqual([0, 0]);
  });
  test('gguf_tests::empty_v1_header_loads', () => {
    using file = GgufFile.fromBytes(new Raw(false).header(0, 0).done());
    expect([file.version, file.metadata.size, file.tensors.size]).toEqual([1, 0, 0]);
  });
  test('gguf_tests::rejects_oversized_metadata_kv_count', () => {
    expect(openCode(new Raw().header(0, LARGE).done())).toBe('GGUF_BAD_COUNT');
  });
  test('gguf_tests::rejects_oversized_tensor_count', () => {
    expect(openCode(new Raw().header(LARGE, 0).done())).toBe('GGUF_BAD_COUNT');
  });
  test('gguf_tests::rejects_oversized_string_length', () => {
    expect(openCode(new Raw().header(1, 0).u64(LARGE).data(64).done())).toBe('GGUF_TRUNCATED');
  });
  test('gguf_tests::rejects_oversized_array_length', () => {
    expect(openCode(key().u32(0).u64(LARGE).data(64).done())).toBe('GGUF_BAD_COUNT');
  });
  test('gguf_tests::rejects_oversized_n_dimensions', () => {
    expect(openCode(new Raw().header(1, 0).string('t').u32(0xffffffff).data(64).done())).toBe('GGUF_BAD_SHAPE');
  });
  test('gguf_tests::rejects_deeply_nested_arrays', () => {
    const raw = key();
    for (let i = 0; i < 256; i++) raw.u32(9).u64(1);
    expect(openCode(raw.u32(0).u64(0).done())).toBe('GGUF_LIMIT');
  });
  test('gguf_tests::rejects_tensor_size_exceeding_file', () => {
    const raw = new Raw()
      .header(1, 0)
      .tensor('t', [2 ** 30], 0, 0)
      .pad();
    expect(openCode(raw.done())).toBe('GGUF_TENSOR_OUT_OF_BOUNDS');
  });
  test('gguf_tests::rejects_string_length_above_remaining_file_bytes', () => {
    expect(
      openCode(
        new Raw()
          .header(1, 0)
          .u64(2 ** 20)
          .data(64)
          .done(),
      ),
    ).toBe('GGUF_TRUNCATED');
  });
});

describe('counts and lengths', () => {
  test.each([...HUGE, 3n])('%s tensors or pairs', (count) => {
    expect(openCode(new Raw().header(count, 0).data(32).done())).toBe('GGUF_BAD_COUNT');
    expect(openCode(new Raw().header(0, count).data(32).done())).toBe('GGUF_BAD_COUNT');
  });

  test.each(HUGE)('a key, a string or a name of %s bytes', (length) => {
    expect(openCode(new Raw().header(0, 1).u64(length).data(64).done())).toBe('GGUF_TRUNCATED');
    expect(openCode(new Raw().header(0, 1).string('k').u32(8).u64(length).data(64).done())).toBe('GGUF_TRUNCATED');
    expect(openCode(new Raw().header(1, 0).u64(length).data(64).done())).toBe('GGUF_TRUNCATED');
  });

  test.each(HUGE)('arrays of %s items of any type', (count) => {
    for (let type = 0; type < 13; type++) {
      const bytes = new Raw().header(0, 1).string('k').u32(9).u32(type).u64(count).data(64).done();
      expect(openCode(bytes)).toBe('GGUF_BAD_COUNT');
    }
  });

  test('version 1 with 32-bit lengths', () => {
    expect(openCode(new Raw(false).header(0xffffffff, 0).data(32).done())).toBe('GGUF_BAD_COUNT');
    expect(openCode(new Raw(false).header(0, 1).u32(0xffffffff).data(32).done())).toBe('GGUF_TRUNCATED');
  });

  test('limits that the caller sets', () => {
    const text = new Raw().header(0, 1).string('k').u32(8).string('x'.repeat(200)).done();
    expect(openCode(text)).toBe('opened');
    expect(openCode(text, { limits: { stringBytes: 100 } })).toBe('GGUF_LIMIT');
    const array = new Raw().header(0, 1).string('k').u32(9).u32(0).u64(200).data(200).done();
    expect(openCode(array)).toBe('opened');
    expect(openCode(array, { limits: { arrayItems: 100 } })).toBe('GGUF_LIMIT');
    expect(openCode(array, { limits: { headerMemory: 300 } })).toBe('GGUF_LIMIT');
  });

  test('many tiny objects run into the memory budget, not out of memory', () => {
    // 12 bytes of file each, some hundred bytes of heap each.
    const raw = new Raw().header(0, 1).string('k').u32(9).u32(9).u64(20000);
    for (let i = 0; i < 20000; i++) raw.bytes(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    expect(openCode(raw.done())).toBe('opened');
    expect(openCode(raw.done(), { limits: { headerMemory: 2 ** 20 } })).toBe('GGUF_LIMIT');
  });
});

describe('values', () => {
  function nested(depth: number): Uint8Array {
    const raw = new Raw().header(0, 1).string('k').u32(9);
    for (let i = 1; i < depth; i++) raw.u32(9).u64(1);
    return raw.u32(0).u64(1).data(1).done();
  }

  test('nesting', () => {
    expect(openCode(nested(64))).toBe('opened');
    expect(openCode(nested(65))).toBe('GGUF_LIMIT');
    expect(openCode(nested(10000))).toBe('GGUF_LIMIT');
  });

  test('types that do not exist', () => {
    for (const type of [13, 255, 0xffffffff]) {
      expect(openCode(new Raw().header(0, 1).string('k').u32(type).data(64).done())).toBe('GGUF_BAD_VALUE_TYPE');
      const array = new Raw().header(0, 1).string('k').u32(9).u32(type).u64(1).data(64).done();
      expect(openCode(array)).toBe('GGUF_BAD_VALUE_TYPE');
    }
  });

  test('bools other than 0 and 1', () => {
    expect(openCode(new Raw().header(0, 1).string('k').u32(7).bytes(2).done())).toBe('GGUF_BAD_BOOL');
    const array = new Raw().header(0, 1).string('k').u32(9).u32(7).u64(3).bytes(0, 1, 9).done();
    expect(openCode(array)).toBe('GGUF_BAD_BOOL');
  });

  test('a key twice', () => {
    const raw = new Raw().header(0, 2).string('k').u32(0).bytes(1).string('k').u32(0).bytes(2);
    expect(openCode(raw.done())).toBe('GGUF_DUPLICATE_KEY');
  });

  test.each([0, 3, 33, 0xffffffff])('alignment %i', (alignment) => {
    const raw = new Raw().header(0, 1).string('general.alignment').u32(4).u32(alignment);
    expect(openCode(raw.done())).toBe('GGUF_BAD_ALIGNMENT');
  });

  test('alignment that is no number', () => {
    expect(openCode(new Raw().header(0, 1).string('general.alignment').u32(8).string('32').done())).toBe(
      'GGUF_BAD_ALIGNMENT',
    );
  });
});

describe('tensors', () => {
  const one = (dims: (number | bigint)[], type: number, offset: number | bigint, data = 128) =>
    openCode(new Raw().header(1, 0).tensor('t', dims, type, offset).pad().data(data).done());

  test('a good one opens', () => {
    expect(one([8, 4], 0, 0)).toBe('opened');
    expect(one([32, 2], 8, 0)).toBe('opened');
    expect(one([], 0, 0)).toBe('opened');
    expect(one([8, 0], 0, 0)).toBe('opened');
  });

  test('too many dimensions', () => {
    expect(one([1, 1, 1, 1, 1], 0, 0)).toBe('GGUF_BAD_SHAPE');
    const raw = new Raw().header(1, 0).string('t').u32(0xffffffff).data(64);
    expect(openCode(raw.done())).toBe('GGUF_BAD_SHAPE');
  });

  test('dimensions that overflow', () => {
    for (const dim of HUGE.slice(1)) {
      expect(one([dim, dim], 0, 0)).toBe('GGUF_BAD_SHAPE');
      expect(one([0, dim, dim], 0, 0)).toBe('GGUF_BAD_SHAPE');
      expect(one([dim, dim, dim, dim], 57, 0)).toBe('GGUF_BAD_SHAPE');
    }
    // Wraps to a small number in 64 bits.
    expect(one([2n ** 32n, 2n ** 32n, 1], 0, 0)).toBe('GGUF_BAD_SHAPE');
  });

  test('rows that are no whole number of blocks', () => {
    expect(one([31, 2], 8, 0)).toBe('GGUF_BAD_SHAPE');
    expect(one([128], 12, 0)).toBe('GGUF_BAD_SHAPE');
    expect(one([], 8, 0)).toBe('GGUF_BAD_SHAPE');
  });

  test('data outside the file', () => {
    expect(one([8, 4], 0, 0, 127)).toBe('GGUF_TENSOR_OUT_OF_BOUNDS');
    expect(one([8, 4], 0, 32)).toBe('GGUF_TENSOR_OUT_OF_BOUNDS');
    expect(one([2n ** 50n], 0, 0)).toBe('GGUF_TENSOR_OUT_OF_BOUNDS');
    expect(one([1], 0, 2n ** 52n)).toBe('GGUF_TENSOR_OUT_OF_BOUNDS');
    expect(one([1], 57, 2n ** 40n)).toBe('GGUF_TENSOR_OUT_OF_BOUNDS');
    for (const offset of HUGE.slice(3))
      expect(['GGUF_MISALIGNED_TENSOR', 'GGUF_TENSOR_OUT_OF_BOUNDS']).toContain(one([1], 0, offset));
    // The padding itself is past the end.
    const raw = new Raw()
      .header(1, 1)
      .string('general.alignment')
      .u32(4)
      .u32(2 ** 31)
      .tensor('t', [1], 0, 0);
    expect(openCode(raw.data(64).done())).toBe('GGUF_TENSOR_OUT_OF_BOUNDS');
  });

  test('misalignment', () => {
    expect(one([1], 0, 4)).toBe('GGUF_MISALIGNED_TENSOR');
    const wide = new Raw().header(1, 1).string('general.alignment').u32(4).u32(64).tensor('t', [1], 0, 32);
    expect(openCode(wide.pad(64).data(128).done())).toBe('GGUF_MISALIGNED_TENSOR');
  });

  test('overlap', () => {
    const pair = (a: number, b: number) =>
      openCode(new Raw().header(2, 0).tensor('a', [16], 0, a).tensor('b', [16], 0, b).pad().data(256).done());
    expect(pair(0, 64)).toBe('opened');
    expect(pair(64, 0)).toBe('opened');
    expect(pair(0, 32)).toBe('GGUF_TENSOR_OVERLAP');
    expect(pair(32, 0)).toBe('GGUF_TENSOR_OVERLAP');
    expect(pair(0, 0)).toBe('GGUF_TENSOR_OVERLAP');
  });

  test('a name twice', () => {
    const raw = new Raw().header(2, 0).tensor('a', [8], 0, 0).tensor('a', [8], 0, 32).pad().data(64);
    expect(openCode(raw.done())).toBe('GGUF_DUPLICATE_TENSOR');
  });

  test('an unknown type spoils only its own tensor', () => {
    const raw = new Raw().header(2, 0).tensor('good', [8], 0, 0).tensor('odd', [7, 3], 57, 32).pad().data(64);
    const file = GgufFile.open(store(raw.done()));
    expect(file.tensor('odd')).toMatchObject({
      type: 'unknown(57)',
      ggmlType: 57,
      shape: [3, 7],
      byteLength: undefined,
    });
    expect(file.readTensorBytes('good')).toEqual(new Uint8Array(32).fill(1));
    for (const use of [
      () => file.format('odd'),
      () => file.readTensorBytes('odd'),
      () => [...file.tensorChunks('odd')],
    ]) {
      expect(use).toThrow(expect.objectContaining({ code: 'GGUF_UNKNOWN_TYPE' }));
      expect(use).toThrow(/'odd'.*57/);
    }
    file.close();
  });
});

describe('the file itself', () => {
  test('missing, a folder, a pipe', () => {
    expect(() => GgufFile.open(temporaryPath())).toThrow(expect.objectContaining({ code: 'FILE_NOT_FOUND' }));
    expect(() => GgufFile.open(tmpdir())).toThrow(expect.objectContaining({ code: 'FILE_UNREADABLE' }));
    if (process.platform !== 'win32') {
      const pipe = temporaryPath();
      execFileSync('mkfifo', [pipe]);
      expect(() => GgufFile.open(pipe)).toThrow(expect.objectContaining({ code: 'FILE_UNREADABLE' }));
    }
  });

  test('cut at every 97th byte, and at every byte of the header', () => {
    const whole = new Uint8Array(readFileSync(ALL_TYPES));
    const cuts: number[] = [];
    for (let at = 0; at < whole.length; at += at < HEADER ? 1 : 97) cuts.push(at);
    const codes = new Set<string>();
    store(whole, scratch);
    for (const at of cuts.reverse()) {
      truncateSync(scratch, at);
      const code = codeOf(scratch);
      expect(code).not.toBe('opened');
      codes.add(code);
    }
    expect(codes).toEqual(new Set(['GGUF_TRUNCATED', 'GGUF_BAD_COUNT', 'GGUF_TENSOR_OUT_OF_BOUNDS']));
  });

  test('any byte of the header changed: opens or says why, and reads what it opens', () => {
    const whole = new Uint8Array(readFileSync(ALL_TYPES));
    const fd = openSync(store(whole, scratch), 'r+');
    let opened = 0;
    for (let at = 0; at < HEADER; at++) {
      for (const value of [0, 0xff, whole[at] ^ (1 << (at % 8))]) {
        writeSync(fd, Uint8Array.of(value), 0, 1, at);
        try {
          using file = GgufFile.open(scratch);
          opened++;
          for (const { name, byteLength } of file.tensors.values()) {
            const read = byteLength === undefined ? undefined : file.readTensorBytes(name).length;
            if (read !== byteLength) throw new Error(`${name} gave ${read} bytes of ${byteLength}`);
          }
        } catch (error) {
          expect(error).toBeInstanceOf(FileFormatError);
        }
      }
      writeSync(fd, whole, at, 1, at);
    }
    closeSync(fd);
    expect(opened).toBeGreaterThan(100);
    expect(codeOf(scratch)).toBe('opened');
  });
});
