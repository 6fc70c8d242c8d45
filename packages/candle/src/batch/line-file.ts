/** A file that grows by whole lines, each on the disk before it counts. */
import { type FileHandle, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { BatchError } from './errors';

interface Pending {
  bytes: Buffer;
  resolve: (start: number) => void;
  reject: (error: unknown) => void;
}

export class LineFile {
  private handle: Promise<FileHandle> | undefined;
  private pending: Pending[] = [];
  private writing: Promise<void> | undefined;
  private failure: BatchError | undefined;

  /** @param size of the file as it is, in bytes; it is made with its first line if it is not there */
  constructor(
    readonly path: string,
    private size: number,
  ) {}

  /**
   * Ends when the line is on the disk: lines that come while others are written are written together.
   * @param line without its end @returns where it starts, in bytes @throws BatchError FILE_UNUSABLE, from then on for all
   */
  append(line: string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.pending.push({ bytes: Buffer.from(`${line}\n`), resolve, reject });
      this.writing ??= this.write();
    });
  }

  /** Bytes of the file from `start` on. */
  async read(start: number, length: number): Promise<string> {
    const { buffer } = await (await this.opened()).read(Buffer.alloc(length), 0, length, start);
    return buffer.toString();
  }

  async close(): Promise<void> {
    await this.writing;
    await (await this.handle?.catch(() => undefined))?.close();
    this.handle = undefined;
  }

  private async write(): Promise<void> {
    while (this.pending.length > 0) {
      const group = this.pending;
      this.pending = [];
      try {
        // Behind a line that was cut nothing may follow.
        if (this.failure) throw this.failure;
        const handle = await this.opened();
        await handle.appendFile(Buffer.concat(group.map(({ bytes }) => bytes)));
        await handle.datasync();
        for (const { bytes, resolve } of group) {
          resolve(this.size);
          this.size += bytes.length;
        }
      } catch (cause) {
        this.failure ??= new BatchError(
          'FILE_UNUSABLE',
          `${this.path} cannot be written: ${(cause as Error).message}. What is whole in it stays; the same command goes on from there.`,
          { cause },
        );
        for (const { reject } of group) reject(this.failure);
      }
    }
    this.writing = undefined;
  }

  private opened(): Promise<FileHandle> {
    this.handle ??= openDurably(this.path);
    return this.handle;
  }
}

/** Opens a file to append to and to read. */
async function openDurably(path: string): Promise<FileHandle> {
  const handle = await open(path, 'a+');
  await syncDirectory(path);
  return handle;
}

/** What is in a file's directory, new names and those that changed, stays from here on. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(dirname(path), 'r');
  try {
    await directory.sync();
  } catch (error) {
    // Some systems have no such thing for directories.
    if (!['EINVAL', 'EPERM', 'EISDIR', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  } finally {
    await directory.close();
  }
}
