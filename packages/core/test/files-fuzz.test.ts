/**
 * Damaged files of every format: whatever is changed in a good file, reading it gives tensors or a typed error, in little
 * time and memory. The changes come from a fixed stream, so a failure can be repeated.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { CandleError, scope } from '../src';
import { NpzFile, PthFile, readNpySync, SafetensorsFile, type TensorReader } from '../src/files';
import { stream } from './hostile';

const ROUNDS = 400;
/** More elements than any tensor of a file of this size can hold. */
const MOST = 1 << 20;

/** One to four changes: bytes set to edge values, flipped bits, a cut, a part repeated. */
function damaged(good: Uint8Array, next: (below: number) => number): Uint8Array {
  let bytes = Uint8Array.from(good);
  for (let change = next(4); change >= 0; change--) {
    if (bytes.length === 0) break;
    const at = next(bytes.length);
    const kind = next(8);
    if (kind === 0) bytes = bytes.slice(0, at);
    else if (kind === 1) bytes = Uint8Array.of(...bytes.subarray(0, at), ...bytes.subarray(Math.max(0, at - next(64))));
    else if (kind < 5) bytes[at] = [0, 1, 0x7f, 0x80, 0xff][next(5)];
    else bytes[at] ^= 1 << next(8);
  }
  return bytes;
}

function readAll(reader: TensorReader): void {
  try {
    for (const name of reader.names) {
      const { shape } = reader.info(name);
      // An expanded tensor takes no memory of its own, but reading its values would.
      if (shape.reduce((a, b) => a * b, 1) <= MOST) reader.loadSync(name).toBytesSync();
    }
  } finally {
    reader.close();
  }
}

const formats: [string, (bytes: Uint8Array) => void][] = [
  ['all.safetensors', (bytes) => readAll(SafetensorsFile.open(bytes))],
  ['npy/fortran.npy', (bytes) => readNpySync(bytes)],
  ['npy/bool.npy', (bytes) => readNpySync(bytes)],
  ['npy/plain.npz', (bytes) => readAll(NpzFile.open(bytes))],
  ['npy/deflated.npz', (bytes) => readAll(NpzFile.open(bytes))],
  ['pth/state_dict.pt', (bytes) => readAll(PthFile.open(bytes))],
  ['pth/nested.pt', (bytes) => readAll(PthFile.open(bytes, { key: 'model' }))],
  ['pth/legacy.pt', (bytes) => readAll(PthFile.open(bytes))],
];

describe('damaged files', () => {
  test.each(formats)('%s', (file, read) => {
    const good = readFileSync(new URL(`./fixtures/${file}`, import.meta.url));
    scope(() => read(good));
    const codes = new Map<string, number>();
    for (let round = 1; round <= ROUNDS; round++) {
      const bytes = damaged(good, stream(round * 2654435761));
      let code = 'read';
      try {
        scope(() => read(bytes));
      } catch (error) {
        if (!(error instanceof CandleError)) throw new Error(`round ${round}: ${(error as Error).stack}`);
        code = error.code;
      }
      codes.set(code, (codes.get(code) ?? 0) + 1);
    }
    expect(codes.get('FILE_INVALID') ?? 0).toBeGreaterThan(ROUNDS / 20);
    expect([...codes.keys()].every((code) => /^(read|FILE_|PICKLE_|UNSUPPORTED|DTYPE_|OUT_OF)/.test(code))).toBe(true);
  });
});
