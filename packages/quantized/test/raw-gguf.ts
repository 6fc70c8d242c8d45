/** Builds GGUF bytes field by field, so that a test can make any one of them lie. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FileFormatError } from '@x/core';
import { GgufFile, type GgufOpenOptions } from '../src/gguf';

const folder = mkdtempSync(join(tmpdir(), 'gguf-test-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
/** Overwritten by every test that opens a file only to see what happens. */
export const scratch = join(folder, 'scratch.gguf');
let count = 0;

/** A path nobody else uses, in a folder that goes with the process. */
export function temporaryPath(): string {
  count++;
  return join(folder, `${count}.gguf`);
}

/** Writes a file and returns its path, by default a new one. */
export function store(bytes: Uint8Array, path = temporaryPath()): string {
  writeFileSync(path, bytes);
  return path;
}

/** The code of the error that opening a file raises; 'opened' when it raises none. */
export function codeOf(path: string, options?: GgufOpenOptions): string {
  try {
    GgufFile.open(path, options).close();
    return 'opened';
  } catch (error) {
    if (!(error instanceof FileFormatError)) throw error;
    if (error.path !== path || !error.message.startsWith(path)) throw new Error(`no path in: ${error.message}`);
    return error.code;
  }
}

/** As {@link codeOf}, of a file with these bytes. */
export function openCode(bytes: Uint8Array, options?: GgufOpenOptions): string {
  return codeOf(store(bytes, scratch), options);
}

export class Raw {
  #parts: number[] = [];

  /** `wide` is false for version 1, whose lengths and counts have 32 bits. */
  constructor(readonly wide = true) {}

  bytes(...values: number[]): this {
    this.#parts.push(...values);
    return this;
  }
  u32(value: number): this {
    return this.bytes(...new Uint8Array(Uint32Array.of(value).buffer));
  }
  u64(value: number | bigint): this {
    return this.bytes(...new Uint8Array(BigUint64Array.of(BigInt(value)).buffer));
  }
  size(value: number | bigint): this {
    return this.wide ? this.u64(value) : this.u32(Number(value));
  }
  string(text: string): this {
    const utf8 = new TextEncoder().encode(text);
    return this.size(utf8.length).bytes(...utf8);
  }
  header(tensors: number | bigint, pairs: number | bigint, version = this.wide ? 3 : 1): this {
    return this.bytes(0x47, 0x47, 0x55, 0x46).u32(version).size(tensors).size(pairs);
  }
  /** The description of a tensor; `dims` in the file's order, innermost first. */
  tensor(name: string, dims: (number | bigint)[], type: number, offset: number | bigint): this {
    this.string(name).u32(dims.length);
    for (const dim of dims) this.size(dim);
    return this.u32(type).u64(offset);
  }
  pad(alignment = 32): this {
    while (this.#parts.length % alignment !== 0) this.#parts.push(0);
    return this;
  }
  data(length: number): this {
    return this.bytes(...new Array<number>(length).fill(1));
  }
  done(): Uint8Array {
    return Uint8Array.from(this.#parts);
  }
}
