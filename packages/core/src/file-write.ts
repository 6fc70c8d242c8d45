/** Writing files whole or not at all: to a temporary name in the same folder first, renamed when complete. */
import { randomUUID } from 'node:crypto';
import { type FileHandle, open, rename, unlink } from 'node:fs/promises';
import { FileFormatError } from './errors';

/**
 * Runs `write` on a new file that takes the place of `path` when it is complete; after an error there is no trace of it.
 * @throws FileFormatError `FILE_UNWRITABLE`, or what `write` throws
 */
export async function replaceFile(path: string, write: (file: FileHandle) => Promise<void>): Promise<void> {
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    const file = await open(temporary, 'wx');
    try {
      await write(file);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (cause) {
    await unlink(temporary).catch(() => undefined);
    if (!(cause as NodeJS.ErrnoException).syscall) throw cause;
    const message = `${path} cannot be written (${(cause as Error).message}); check the folder, its permissions and free space.`;
    throw new FileFormatError('FILE_UNWRITABLE', message, { path, cause });
  }
}
