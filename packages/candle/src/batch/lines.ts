/** The lines of a batch's files. */
import { fileText, type Line, linesOf } from '../lines';
import { BatchError } from './errors';

/**
 * @param mayBeCut whether the last line may end within a character
 * @throws BatchError FILE_UNUSABLE, BAD_REQUEST for a line that is too long or no UTF-8; the signal's reason
 */
export function linesOfFile(path: string, signal?: AbortSignal, mayBeCut = false): AsyncGenerator<Line> {
  const errors = {
    unreadable: (cause: Error) =>
      new BatchError('FILE_UNUSABLE', `${path} cannot be read: ${cause.message}. Give one that can be read.`, {
        cause,
      }),
    tooLong: (mostBytes: number, line?: number) =>
      new BatchError('BAD_REQUEST', `${path}, line ${line} has more than ${mostBytes} bytes. Give shorter lines.`),
    notUtf8: (cause: unknown, line?: number) =>
      new BatchError('BAD_REQUEST', `${path}, line ${line} is not UTF-8. Give UTF-8.`, { cause }),
  };
  return linesOf(fileText(path), errors, signal, mayBeCut);
}
