/**
 * A fuzzer over the parsers: valid files, changed at random from a seed that is printed when something is wrong. Clean
 * means that every file opens or raises a `FileFormatError`, that what opens can be read, and that neither takes long nor
 * much memory. `X_FUZZ_SECONDS` sets how long it goes on (CI: 60; default 2), `X_FUZZ_SEED` where it starts.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FileFormatError } from '@x/core';
import { random } from '@x/testing/random';
import { testSettings } from '@x/testing/settings';
import { afterAll, expect, test } from 'vitest';
import { GgmlFile, GgufFile, loadImatrix, type TensorFile } from '../src';
import { ALL_TYPES } from './fixture';
import { Raw } from './raw-gguf';

const { fuzzSeconds: SECONDS, fuzzSeed: SEED } = testSettings;
/** The most that one file may take; a header within its budget of memory takes some ms. */
const MOST_MS = 2000;
const LIMITS = { headerMemory: 16 * 2 ** 20 };

const folder = mkdtempSync(join(tmpdir(), 'gguf-fuzz-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const scratch = join(folder, 'imatrix.dat');

const use = (file: TensorFile) => {
  for (const { name, byteLength, elemCount, format } of file.tensors.values()) {
    if (byteLength === undefined || format === undefined) continue;
    const bytes = file.readTensorBytes(name);
    if (bytes.length !== byteLength) throw new Error(`'${name}' gave ${bytes.length} bytes of ${byteLength}`);
    if (elemCount > 0) format.dequantize(bytes, 0, new Float32Array(format.blockSize), 0, 1);
  }
  file.close();
};

const openGguf = (bytes: Uint8Array) => use(GgufFile.fromBytes(bytes, { limits: LIMITS }));
const openGgml = (bytes: Uint8Array) => use(GgmlFile.fromBytes(bytes));
const openImatrix = (bytes: Uint8Array) => {
  writeFileSync(scratch, bytes);
  loadImatrix(scratch);
};

function seeds(): [name: string, bytes: Uint8Array, open: (bytes: Uint8Array) => void][] {
  const nested = new Raw().header(1, 3).string('a').u32(9).u32(9).u64(2).u32(8).u64(1).string('x').u32(7).u64(2);
  nested.bytes(0, 1).string('general.alignment').u32(4).u32(64).string('s').u32(8).string('text');
  nested.tensor('t', [8, 4], 0, 0).pad(64).data(128);
  const old = new Raw(false).header(2, 1).string('n').u32(9).u32(4).size(2).u32(7).u32(9);
  old.tensor('a', [32], 8, 0).tensor('b', [2, 3], 1, 64).pad().data(34).pad().data(12);
  // Version 1, no tensor, one key 'k' with a uint32 array of two.
  const big = new Raw().bytes(0x47, 0x47, 0x55, 0x46, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 107);
  big.bytes(0, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 6);
  const ggml = new Raw().u32(0x67676a74).u32(3);
  for (const value of [1, 32, 256, 4, 1, 8, 7]) ggml.u32(value);
  ggml.u32(2).bytes(97, 98).u32(0).u32(2).u32(1).u32(8).u32(32).u32(2).bytes(119).pad(32).data(68);
  const imatrix = new Raw().u32(1).u32(3).bytes(97, 46, 119).u32(4).u32(2).data(8).u32(1).u32(1).bytes(100);
  return [
    ['every type', new Uint8Array(readFileSync(ALL_TYPES)), openGguf],
    ['nested arrays', nested.done(), openGguf],
    ['version 1', old.done(), openGguf],
    ['big-endian', big.done(), openGguf],
    ['ggml', ggml.done(), openGgml],
    ['imatrix', imatrix.done(), openImatrix],
  ];
}

/** Numbers that break what trusts them. */
const ODD = [
  0n,
  1n,
  0x7fn,
  0xffn,
  0x7fffffffn,
  0xffffffffn,
  2n ** 31n,
  2n ** 53n,
  2n ** 63n,
  2n ** 64n - 1n,
  2n ** 40n,
];

/** One to four changes: bytes, numbers, cuts, repeats and removals, mostly in the first kilobytes, where headers are. */
function mutate(source: Uint8Array, next: () => number): Uint8Array {
  const below = (count: number) => Math.floor(next() * count);
  let bytes = source.slice();
  const place = () => below(Math.min(bytes.length, next() < 0.9 ? 1536 : bytes.length));
  for (let change = below(4); change >= 0 && bytes.length > 0; change--) {
    const at = place();
    const kind = below(7);
    if (kind === 0) bytes[at] = below(256);
    else if (kind === 1) bytes[at] ^= 1 << below(8);
    else if (kind === 2 || kind === 3) {
      const number = new Uint8Array(BigUint64Array.of(ODD[below(ODD.length)]).buffer, 0, kind === 2 ? 4 : 8);
      bytes.set(number.subarray(0, bytes.length - at), at);
    } else if (kind === 4) bytes = bytes.slice(0, at);
    else {
      const length = 1 + below(64);
      const to = kind === 5 ? at : Math.min(bytes.length, at + length);
      const from = kind === 5 ? Math.max(0, at - length) : at;
      // A piece twice, or left out.
      const [head, tail] =
        kind === 5 ? [bytes.slice(0, to), bytes.slice(from)] : [bytes.slice(0, from), bytes.slice(to)];
      bytes = new Uint8Array(head.length + tail.length);
      bytes.set(head);
      bytes.set(tail, head.length);
    }
  }
  return bytes;
}

const fuzz = () => {
  const files = seeds();
  for (const [, bytes, open] of files) open(bytes);
  const until = performance.now() + SECONDS * 1000;
  const before = process.memoryUsage().rss;
  const counts = { opened: 0, refused: 0 };
  const codes = new Set<string>();
  for (let seed = SEED; performance.now() < until; seed++) {
    const next = random(seed);
    // The first numbers of near seeds are near.
    for (let i = 0; i < 8; i++) next();
    const [name, bytes, open] = files[Math.floor(next() * files.length)];
    const changed = mutate(bytes, next);
    const started = performance.now();
    try {
      open(changed);
      counts.opened++;
    } catch (error) {
      if (!(error instanceof FileFormatError)) {
        throw new Error(`'${name}' with X_FUZZ_SEED=${seed} raised ${String(error)}`, { cause: error });
      }
      codes.add(error.code);
      counts.refused++;
    }
    const took = performance.now() - started;
    if (took > MOST_MS) throw new Error(`'${name}' with X_FUZZ_SEED=${seed} took ${took.toFixed(0)} ms`);
  }
  expect(counts.opened).toBeGreaterThan(10);
  expect(counts.refused).toBeGreaterThan(10);
  expect(codes.size).toBeGreaterThan(8);
  // The heap grows with what is not collected yet, but not with what headers claim.
  expect(process.memoryUsage().rss - before).toBeLessThan(512 * 2 ** 20);
};

test(`files changed at random for ${SECONDS} s`, fuzz, (SECONDS + 60) * 1000);
