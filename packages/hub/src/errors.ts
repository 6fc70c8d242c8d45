/** What goes wrong here, told apart by `code`. */
import { CandleError } from '@x/core';

export type HubErrorCode =
  /** The name of a model, or a file's name in a repository, that is none. */
  | 'INVALID_NAME'
  | 'INVALID_OPTION'
  /** No such repository, revision or file. */
  | 'NOT_FOUND'
  /** A name that several models of a repository answer to. */
  | 'AMBIGUOUS'
  /** A private or gated repository, or a token that the hub does not accept. */
  | 'UNAUTHORIZED'
  /** Something is not in the cache, and nothing may be asked for. */
  | 'OFFLINE'
  | 'DOWNLOAD_FAILED'
  /** A redirect or a page of a listing that leads where it must not. */
  | 'UNSAFE_REDIRECT'
  /** What came is not what the hub announced: another size or another hash. */
  | 'HASH_MISMATCH'
  | 'DISK_FULL'
  | 'CACHE_UNWRITABLE'
  /** Another process downloads the file that is to be removed. */
  | 'BUSY';

/** What is wrong with a name, the hub, a download or the cache; told apart by `code`. */
export class HubError extends CandleError {
  override name = 'HubError';
  declare readonly code: HubErrorCode;

  constructor(code: HubErrorCode, message: string, options?: { cause?: unknown; option?: string }) {
    super(code, message, options);
  }
}

/** What file systems answer where a file cannot be made. */
const UNWRITABLE: ReadonlySet<string> = new Set([
  ...['EACCES', 'EPERM', 'EROFS', 'ENOTDIR', 'EEXIST', 'EISDIR', 'ERR_FS_EISDIR', 'ELOOP'],
  ...['ENAMETOOLONG', 'EINVAL', 'ENOENT', 'ENOTEMPTY', 'ENOSYS', 'EOPNOTSUPP', 'ENOTSUP'],
  // Of Node's permission model.
  'ERR_ACCESS_DENIED',
]);

/** What the file system refused, as an error that says what to do. */
export function fileError(path: string, cause: unknown): unknown {
  const { code } = cause as NodeJS.ErrnoException;
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    const remedy =
      'Free some space or choose another place with HF_HUB_CACHE; the download then goes on where it stopped.';
    return new HubError('DISK_FULL', `${path}: the disk is full. ${remedy}`, { cause });
  }
  if (code !== undefined && UNWRITABLE.has(code)) {
    const remedy = 'Check its permissions, or choose another place with HF_HUB_CACHE.';
    return new HubError('CACHE_UNWRITABLE', `${path}: the cache cannot be written (${code}). ${remedy}`, { cause });
  }
  return cause;
}
