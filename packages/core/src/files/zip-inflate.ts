/** A deflated entry of an archive, inflated while it is read: one that is read from its beginning to its end is never whole. */
import { CandleError, FileFormatError } from '../errors';
import { ifNode, node } from '../platform';
import { Inflater } from './inflate';
import type { ByteSource } from './source';

/** Deflated bytes read at once. */
const PIECE = 65536;

/** Gives the next bytes of an entry; fewer than asked for at its end. */
interface Stream<R> {
  /** Where in the entry the next byte is. */
  at: number;
  read(target: Uint8Array): R;
  close(): void;
}

export class InflatedEntry implements ByteSource {
  readonly path: string;
  readonly size: number;
  readonly #packed: ByteSource;
  readonly #damaged: (cause?: Error) => FileFormatError;
  #blocking: Stream<number> | null = null;
  #streaming: Stream<Promise<number>> | null = null;

  /**
   * @param packed the deflated bytes, which stay open when this is closed
   * @param size bytes that they must give
   * @param damaged the error for bytes that do not
   */
  constructor(packed: ByteSource, size: number, damaged: (cause?: Error) => FileFormatError) {
    this.path = packed.path;
    this.size = size;
    this.#packed = packed;
    this.#damaged = damaged;
  }

  async read(target: Uint8Array, offset: number): Promise<void> {
    // A browser has but bytes in memory, and no zlib.
    if (!ifNode('zlib')) return this.readSync(target, offset);
    this.#check(target, offset);
    try {
      if (!this.#streaming || this.#streaming.at > offset) {
        this.#streaming?.close();
        this.#streaming = streaming(this.#packed);
      }
      const stream = this.#streaming;
      const skipped = new Uint8Array(Math.min(PIECE, offset - stream.at));
      while (stream.at < offset) {
        const part = skipped.subarray(0, Math.min(PIECE, offset - stream.at));
        if ((await stream.read(part)) < part.length) throw this.#damaged();
      }
      if ((await stream.read(target)) < target.length) throw this.#damaged();
      if (stream.at === this.size && (await stream.read(new Uint8Array(1))) > 0) throw this.#damaged();
    } catch (error) {
      throw this.#typed(error as Error);
    }
  }

  readSync(target: Uint8Array, offset: number): void {
    this.#check(target, offset);
    try {
      if (!this.#blocking || this.#blocking.at > offset) this.#blocking = blocking(this.#packed);
      const stream = this.#blocking;
      const skipped = new Uint8Array(Math.min(PIECE, offset - stream.at));
      while (stream.at < offset) {
        const part = skipped.subarray(0, Math.min(PIECE, offset - stream.at));
        if (stream.read(part) < part.length) throw this.#damaged();
      }
      if (stream.read(target) < target.length) throw this.#damaged();
      if (stream.at === this.size && stream.read(new Uint8Array(1)) > 0) throw this.#damaged();
    } catch (error) {
      throw this.#typed(error as Error);
    }
  }

  close(): void {
    this.#streaming?.close();
    this.#streaming = null;
    this.#blocking = null;
  }

  #check(target: Uint8Array, offset: number): void {
    if (offset + target.length > this.size) {
      const message = `${this.path}: ${target.length} bytes at ${offset} are past its end at ${this.size}; get the file again.`;
      throw new FileFormatError('FILE_TRUNCATED', message, { path: this.path, offset });
    }
  }

  /** What went wrong in the stream; errors of the file below are typed already. */
  #typed(error: Error): CandleError {
    this.close();
    return error instanceof CandleError ? error : this.#damaged(error);
  }
}

function blocking(packed: ByteSource): Stream<number> {
  let taken = 0;
  const inflater = new Inflater((buffer) => {
    const count = Math.min(buffer.length, packed.size - taken);
    packed.readSync(buffer.subarray(0, count), taken);
    taken += count;
    return count;
  });
  return {
    at: 0,
    read(target) {
      const count = inflater.read(target);
      this.at += count;
      return count;
    },
    close() {},
  };
}

function streaming(packed: ByteSource): Stream<Promise<number>> {
  const pieces = async function* () {
    for (let taken = 0; taken < packed.size; taken += PIECE) {
      const piece = new Uint8Array(Math.min(PIECE, packed.size - taken));
      await packed.read(piece, taken);
      yield piece;
    }
  };
  const input = node('stream').Readable.from(pieces(), { objectMode: false, highWaterMark: PIECE });
  const inflate = node('zlib').createInflateRaw({ chunkSize: PIECE });
  input.on('error', (error) => inflate.destroy(error));
  input.pipe(inflate);
  // Awaited below; without a handler a failure between two reads would end the process.
  inflate.on('error', () => undefined);
  const output = inflate[Symbol.asyncIterator]();
  let held: Uint8Array = new Uint8Array(0);
  return {
    at: 0,
    async read(target) {
      let done = 0;
      while (done < target.length) {
        if (held.length === 0) {
          const next = await output.next();
          if (next.done) break;
          held = next.value as Uint8Array;
        }
        const part = held.subarray(0, target.length - done);
        target.set(part, done);
        held = held.subarray(part.length);
        done += part.length;
      }
      this.at += done;
      return done;
    },
    close() {
      input.destroy();
      inflate.destroy();
    },
  };
}
