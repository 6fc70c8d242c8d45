/** Writing to what is open or waits for a reader, pipes and descriptors, without ever blocking a thread. */
import { node } from '../platform';

/** Milliseconds that a pipe may be without a reader before that is an error. */
const READER_WAIT = 2000;

/** The part of a FileHandle that files are written through. */
export interface Writable {
  /** At `position`, or with null where the last write ended; may take a part of the bytes. */
  write(bytes: Uint8Array, offset: number, length: number, position: number | null): Promise<{ bytesWritten: number }>;
  close(): Promise<void>;
}

/** An open descriptor, which stays open. Its reader may be slow: writing waits until it takes more. */
export function openDescriptor(fd: number): Writable {
  const { write } = node('fs');
  const { setTimeout: sleep } = node('timers/promises');
  return {
    async write(bytes, offset, length) {
      for (let wait = 0; ; wait = Math.min(wait + 1, 20)) {
        const bytesWritten = await new Promise<number>((resolve, reject) => {
          write(fd, bytes, offset, length, null, (error, count) => {
            if (!error) resolve(count);
            else if (error.code === 'EAGAIN') resolve(0);
            else reject(error);
          });
        });
        if (bytesWritten > 0) return { bytesWritten };
        await sleep(wait);
      }
    },
    async close() {},
  };
}

/**
 * Opens a named pipe that something reads from. Opened in the usual way it would block a thread until somebody does, and the
 * process could not even exit.
 */
export async function openPipe(path: string): Promise<Writable> {
  const { constants, open } = node('fs/promises');
  const { setTimeout: sleep } = node('timers/promises');
  for (const start = performance.now(); ; await sleep(20)) {
    try {
      const file = await open(path, constants.O_WRONLY | constants.O_NONBLOCK);
      return { ...openDescriptor(file.fd), close: () => file.close() };
    } catch (error) {
      const lonely = (error as NodeJS.ErrnoException).code === 'ENXIO';
      if (!lonely || performance.now() - start > READER_WAIT) throw error;
    }
  }
}
