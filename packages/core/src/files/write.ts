/**
 * Writing files whole or not at all, for every format: to a temporary name in the target's folder first, renamed when
 * complete. Links are followed, so it is their target that is replaced; permissions and owner of a replaced file stay. A
 * path that is no regular file (a pipe, `/dev/stdout`, `/dev/null`) is written to as it is, for there is nothing to replace.
 */
import type { Stats } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { CandleError, FileFormatError } from '../errors';
import { node } from '../platform';
import { show } from '../show';
import { openDescriptor, openPipe, type Writable } from './direct';

/** What a file is written through: from its beginning to its end. */
export interface FileSink {
  /** Appends all of `bytes`, which may be used again when the promise resolves. */
  write(bytes: Uint8Array): Promise<void>;
  /** Overwrites bytes that were written before; absent where what was written is gone, as in a pipe. */
  patch?(bytes: Uint8Array, position: number): Promise<void>;
}

/**
 * Runs `write` on a new file that takes the place of `path` when it is complete; after an error there is no trace of it.
 * Other hard links of a replaced file keep the old contents.
 * @throws FileFormatError `FILE_UNWRITABLE` (the system's error is its `cause`), or what `write` throws
 */
export async function replaceFile(path: string, write: (sink: FileSink) => Promise<void>): Promise<void> {
  if (typeof path !== 'string' || path === '' || path.includes('\0')) {
    const message = `A file to write has the path ${show(path)}; give a path that is a string, not empty and without NUL.`;
    throw new CandleError('INVALID_ARGUMENT', message);
  }
  const target = await attempt(path, () => findTarget(path));
  if (target.direct) {
    const { direct } = target;
    const file = await attempt(path, direct);
    try {
      await write({ write: (bytes) => attempt(path, () => writeAll(file, bytes)) });
    } finally {
      await file.close();
    }
    return;
  }
  await replaceRegular(path, target.path, target.stats, write);
}

interface Target {
  /** The file behind all links. */
  path: string;
  /** Of the file that is replaced, if there is one. */
  stats?: Stats;
  /** Opens what cannot be replaced. */
  direct?: () => Promise<Writable>;
}

/** Links that are followed before they count as a circle, as in Linux. */
const MOST_LINKS = 40;

async function findTarget(path: string): Promise<Target> {
  const { access, constants, lstat, open, readlink, realpath } = node('fs/promises');
  const { basename, dirname, isAbsolute, join, sep } = node('path');
  let at = path;
  for (let links = 0; ; links++) {
    if (links > MOST_LINKS) throw problem('ELOOP', 'too many links');
    const folder = await realpath(dirname(at));
    const found: string = join(folder, basename(at));
    // An open descriptor is no place to put another file.
    const descriptor = new RegExp(`^/(?:dev|proc/(?:self|${process.pid}))/fd/(\\d+)$`).exec(found);
    if (descriptor) {
      const fd = Number(descriptor[1]);
      node('fs').fstatSync(fd);
      return { path: found, direct: async () => openDescriptor(fd) };
    }
    const stats = await lstat(at).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    if (stats === undefined && at.endsWith(sep)) throw problem('EISDIR', 'it ends like the name of a folder');
    if (stats?.isSymbolicLink()) {
      const link = await readlink(found);
      at = isAbsolute(link) ? link : join(folder, link);
      continue;
    }
    if (stats === undefined) return { path: found };
    if (stats.isDirectory()) throw problem('EISDIR', 'it is a folder');
    if (stats.isFIFO()) return { path: found, direct: () => openPipe(found) };
    if (stats.isCharacterDevice()) return { path: found, direct: () => open(found, 'w') };
    if (!stats.isFile()) throw problem('EINVAL', `it is a ${stats.isSocket() ? 'socket' : 'block device'}`);
    // A rename would not ask for permission to write the file itself.
    await access(found, constants.W_OK);
    return { path: found, stats };
  }
}

async function replaceRegular(
  path: string,
  target: string,
  stats: Stats | undefined,
  write: (sink: FileSink) => Promise<void>,
): Promise<void> {
  const { open, rename, unlink } = node('fs/promises');
  const { dirname, join } = node('path');
  // Short: the target's own name may be as long as names can be.
  const temporary = join(dirname(target), `.${node('crypto').randomBytes(8).toString('hex')}.tmp`);
  // Never readable by more than the file that it replaces.
  const mode = stats === undefined ? 0o666 : stats.mode & 0o700;
  const file = await attempt(path, () => open(temporary, 'wx', mode));
  try {
    try {
      await write({
        write: (bytes) => attempt(path, () => writeAll(file, bytes)),
        patch: (bytes, position) => attempt(path, () => writeAll(file, bytes, position)),
      });
      await attempt(path, async () => {
        if (stats !== undefined) await keepOwner(file, stats);
        await file.sync();
      });
    } finally {
      await file.close();
    }
    await attempt(path, () => rename(temporary, target));
  } catch (error) {
    await unlink(temporary).catch(() => undefined);
    throw error;
  }
}

/** Owner and group as far as this process may give them, then the permissions, which a change of owner narrows. */
async function keepOwner(file: FileHandle, { uid, gid, mode }: Stats): Promise<void> {
  const own = await file.stat();
  if (own.uid !== uid || own.gid !== gid) await file.chown(uid, gid).catch(() => undefined);
  await file.chmod(mode & 0o7777);
}

/** All of `bytes`, at `position` or where the last write ended. */
async function writeAll(file: Writable, bytes: Uint8Array, position?: number): Promise<void> {
  for (let put = 0; put < bytes.byteLength; ) {
    const at = position === undefined ? null : position + put;
    // Linux writes at most 2 GiB at once.
    put += (await file.write(bytes, put, Math.min(bytes.byteLength - put, 1 << 30), at)).bytesWritten;
  }
}

const ADVICE: Readonly<Record<string, string>> = {
  EACCES: 'change its permissions or those of its folder, or write elsewhere',
  EDQUOT: 'the quota is used up: free space, or write elsewhere',
  EISDIR: 'give the path of a file',
  ELOOP: 'remove the circle of links',
  ENOENT: 'make its folder first',
  ENOSPC: 'the disk is full: free space, or write elsewhere',
  ENOTDIR: 'a part of the path is no folder: check the path',
  ENXIO: 'nothing reads from the pipe: start the reader first',
  EPERM: 'change its permissions or those of its folder, or write elsewhere',
  EPIPE: 'the reader of the pipe went away: start it again',
  EROFS: 'the file system is read-only: write elsewhere',
};

/** Errors of the system as typed ones. */
async function attempt<T>(path: string, body: () => Promise<T>): Promise<T> {
  try {
    return await body();
  } catch (cause) {
    const { code, message, syscall } = cause as NodeJS.ErrnoException;
    if (cause instanceof CandleError || (!syscall && !code)) throw cause;
    const advice = (code && ADVICE[code]) ?? 'check the path, its permissions and the free space';
    throw new FileFormatError('FILE_UNWRITABLE', `${path} cannot be written (${message}); ${advice}.`, { path, cause });
  }
}

function problem(code: string, what: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`${code}: ${what}`), { code });
}
