/**
 * Reads a file's header by position through one small buffer. Every read is checked against the file's size before
 * anything is allocated, and what a header makes us allocate is charged against a budget, so a header that lies about
 * counts or lengths costs no more memory than the file itself could justify.
 */
import type { ByteSource } from '@x/core/files';
import { swapNumbers } from './endian';
import { ggufError } from './error';

const BUFFER_BYTES = 64 * 1024;

export class ByteReader {
  /** What is being read, for messages. */
  what = 'the header';
  #position = 0;
  #start = 0;
  #filled = 0;
  #budget: number;
  readonly #buffer: Buffer;
  readonly #view: DataView;

  readonly path: string;
  /** Bytes of the file. */
  readonly size: number;
  /** Whether numbers have their last byte first, as in nearly all files. */
  littleEndian = true;

  constructor(
    readonly source: ByteSource,
    budget: number,
  ) {
    this.path = source.path;
    this.size = source.size;
    this.#buffer = Buffer.from(new ArrayBuffer(Math.min(BUFFER_BYTES, Math.max(source.size, 8))));
    this.#view = new DataView(this.#buffer.buffer);
    this.#budget = budget;
  }

  get position(): number {
    return this.#position;
  }

  get remaining(): number {
    return this.size - this.#position;
  }

  /** Takes `bytes` from the memory budget of the header. */
  charge(bytes: number): void {
    this.#budget -= bytes;
    if (this.#budget < 0) {
      throw ggufError(
        'GGUF_LIMIT',
        this.path,
        `the header needs more memory than allowed, at ${this.what} (byte ${this.#position}). If the file is to be ` +
          'trusted, open it with a larger limits.headerMemory.',
      );
    }
  }

  /** Fails unless `bytes` more bytes are in the file. */
  require(bytes: number): void {
    if (bytes > this.remaining) {
      throw ggufError(
        'GGUF_TRUNCATED',
        this.path,
        `${this.what} needs ${bytes} bytes at byte ${this.#position}, and the file has only ${this.remaining} more ` +
          `(${this.size} in all). The file is cut short or damaged: download it again.`,
      );
    }
  }

  uint8(): number {
    return this.#view.getUint8(this.#take(1));
  }
  int8(): number {
    return this.#view.getInt8(this.#take(1));
  }
  uint16(): number {
    return this.#view.getUint16(this.#take(2), this.littleEndian);
  }
  int16(): number {
    return this.#view.getInt16(this.#take(2), this.littleEndian);
  }
  uint32(): number {
    return this.#view.getUint32(this.#take(4), this.littleEndian);
  }
  int32(): number {
    return this.#view.getInt32(this.#take(4), this.littleEndian);
  }
  float32(): number {
    return this.#view.getFloat32(this.#take(4), this.littleEndian);
  }
  float64(): number {
    return this.#view.getFloat64(this.#take(8), this.littleEndian);
  }
  uint64(): bigint {
    return this.#view.getBigUint64(this.#take(8), this.littleEndian);
  }
  int64(): bigint {
    return this.#view.getBigInt64(this.#take(8), this.littleEndian);
  }

  /** A u64 as a number; a value past 2^53 - 1, which no file can hold that many of, becomes infinity. */
  size64(): number {
    const at = this.#take(8);
    const [low, high] = this.littleEndian ? [at, at + 4] : [at + 4, at];
    const words = this.#view.getUint32(high, this.littleEndian);
    // The words above 2^53 first: their sum would be rounded.
    return words > 0x1fffff ? Number.POSITIVE_INFINITY : words * 2 ** 32 + this.#view.getUint32(low, this.littleEndian);
  }

  /** `length` bytes in a buffer of their own. */
  bytes(length: number): ArrayBuffer {
    this.require(length);
    const out = new Uint8Array(length);
    const buffered = Math.min(length, this.#start + this.#filled - this.#position);
    const at = this.#position - this.#start;
    if (buffered > 0) out.set(this.#buffer.subarray(at, at + buffered));
    const rest = Math.max(buffered, 0);
    if (rest < length) this.source.readSync(out.subarray(rest), this.#position + rest);
    this.#position += length;
    return out.buffer;
  }

  /** `count` numbers of `size` bytes each, in this machine's order. */
  numbers(count: number, size: number): ArrayBuffer {
    const buffer = this.bytes(count * size);
    if (!this.littleEndian) swapNumbers(new Uint8Array(buffer), size);
    return buffer;
  }

  /** Moves on to a multiple of `alignment`. */
  align(alignment: number): void {
    const bytes = (alignment - (this.#position % alignment)) % alignment;
    this.require(bytes);
    this.#position += bytes;
  }

  /** Moves on by `bytes` without reading them. */
  skip(bytes: number): void {
    this.require(bytes);
    this.#position += bytes;
  }

  /**
   * UTF-8, wrong bytes replaced as candle does, trailing NULs of old writers removed. A byte order mark is kept: vocabularies
   * have tokens that begin with one.
   */
  text(length: number): string {
    this.require(length);
    let text: string;
    if (length <= this.#buffer.byteLength) {
      const at = this.#take(length);
      text = this.#buffer.toString('utf8', at, at + length);
    } else {
      text = Buffer.from(this.bytes(length)).toString('utf8');
    }
    let end = text.length;
    while (end > 0 && text.charCodeAt(end - 1) === 0) end--;
    return end === text.length ? text : text.slice(0, end);
  }

  /** Moves on by `bytes`, at most the buffer's size; returns where they start in the buffer. */
  #take(bytes: number): number {
    let at = this.#position - this.#start;
    if (at + bytes > this.#filled) {
      this.require(bytes);
      this.#start = this.#position;
      this.#filled = Math.min(this.#buffer.byteLength, this.remaining);
      this.source.readSync(this.#buffer.subarray(0, this.#filled), this.#start);
      at = 0;
    }
    this.#position += bytes;
    return at;
  }
}
