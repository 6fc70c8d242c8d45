/** Where a file's bytes come from: core's reader, with the codes and words of GGUF. */
import { kinds } from '@x/core';
import { type ByteSource, openSource, type SourceErrors } from '@x/core/files';
import { BYTES } from '../argument-kinds';
import { ggufError } from './error';

/** Raises `FILE_NOT_FOUND`, or `FILE_UNREADABLE` for what is no regular file or cannot be opened. */
export function openFile(path: string): ByteSource {
  kinds.check('open', 'path', path, kinds.STRING);
  return openSource(path, { errors: ERRORS });
}

export function openBytes(bytes: Uint8Array, name: string): ByteSource {
  kinds.check('fromBytes', 'bytes', bytes, BYTES);
  kinds.check('fromBytes', 'name', name, kinds.STRING);
  return openSource(bytes, { name, errors: ERRORS });
}

const ERRORS: SourceErrors = {
  missing: (path, cause) => ggufError('FILE_NOT_FOUND', path, 'there is no such file. Check the path.', cause),
  truncated: (path, offset, length, got) =>
    ggufError(
      'GGUF_TRUNCATED',
      path,
      `the file ended at byte ${offset + got} while ${length} bytes were read at byte ${offset}: it became shorter ` +
        'after it was opened. Open it again once nothing writes to it.',
    ),
};
