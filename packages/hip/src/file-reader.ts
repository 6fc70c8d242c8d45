/**
 * Files into device memory, without their bytes passing through JavaScript: read on other threads into page-locked memory, and
 * copied from there while the next piece is read. On the host platform they are read to where they belong.
 *
 * There are at most 32 MiB of page-locked memory, locked when needed and kept for the next reads. Where the system has no more
 * of it, ordinary memory does, from which copies take longer.
 */
import { getSystemErrorMap } from 'node:util';
import type { DeviceContext } from './context';
import { invalidArgument } from './errors';
import type { HipStream } from './stream';

/** Reads files into device memory: what `device.openFileReader()` gives. Several reads may be under way at once. */
export class HipFileReader {
  readonly #context: DeviceContext;
  readonly #id: number;
  readonly #current: () => HipStream;
  #disposed = false;

  /** @internal Use `device.openFileReader()`. */
  constructor(context: DeviceContext, id: number, current: () => HipStream) {
    this.#context = context;
    this.#id = id;
    this.#current = current;
  }

  /**
   * Bytes [position, position + bytes) of an open file to `dst`, after what `stream` was given so far; the descriptor may be closed
   * meanwhile. Resolves when they are there, to their number: fewer where the file ends before. Rejects with an error with the
   * system's `code` and `errno` where reading fails, which is `ECANCELED` when the memory was freed.
   * @throws HipError as a copy to the device
   */
  async read(
    fd: number,
    position: number,
    dst: number,
    bytes: number,
    stream: HipStream = this.#current(),
  ): Promise<number> {
    this.#context.check(this.#disposed, 'reader of files');
    if (!Number.isInteger(fd) || fd < 0)
      throw invalidArgument(`a file descriptor is a whole number from 0, not ${fd}`, this.#context.platform);
    const { native, id } = this.#context;
    const got = await native.fileRead(id, this.#id, fd, position, dst, bytes, stream.handleOn(this.#context));
    if (got >= 0) return got;
    const [code, text] = getSystemErrorMap().get(got) ?? ['UNKNOWN', `error ${-got}`];
    throw Object.assign(new Error(`${code}: ${text}, read`), { code, errno: got, syscall: 'read' });
  }

  /** Gives the page-locked memory back, after the last read under way. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    if (!this.#context.disposed) this.#context.native.fileReaderClose(this.#context.id, this.#id);
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
