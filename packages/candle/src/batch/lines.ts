/** Lines of files of any size, with their places in bytes. */
import { open } from 'node:fs/promises';
import { BatchError } from './errors';

export interface Line {
  /** From 1. */
  number: number;
  /** Offset in the file, in bytes. */
  start: number;
  /** Behind the line and its end. */
  end: number;
  text: string;
  /** Whether it has an end: the last line of a file that was cut has none. */
  whole: boolean;
}

const CHUNK_BYTES = 2 ** 20;
/** A request with its texts, or an answer with 32 choices and their probabilities, is far below. */
const MOST_BYTES = 2 ** 28;
const LINE_FEED = 0x0a;

/**
 * The lines from the beginning of a file, a carriage return before the end left out.
 * @param mayBeCut whether the last line may end within a character
 * @throws BatchError FILE_UNUSABLE, BAD_REQUEST for a line that is too long or no UTF-8; the signal's reason
 */
export async function* linesOf(path: string, signal?: AbortSignal, mayBeCut = false): AsyncGenerator<Line> {
  const file = await open(path, 'r').catch((cause: Error) => {
    throw new BatchError('FILE_UNUSABLE', `${path} cannot be read: ${cause.message}. Give one that can be read.`, {
      cause,
    });
  });
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let number = 0;
  let start = 0;
  let parts: Buffer[] = [];
  let size = 0;
  const take = (whole: boolean): Line => {
    const bytes = Buffer.concat(parts);
    const end = start + size;
    const line = { number: ++number, start, end, text: '', whole };
    try {
      line.text = decoder.decode(whole ? bytes.subarray(0, -1) : bytes).replace(/\r$/, '');
    } catch (cause) {
      if (whole || !mayBeCut)
        throw new BatchError('BAD_REQUEST', `${path}, line ${number} is not UTF-8. Give UTF-8.`, { cause });
      line.text = bytes.toString('latin1');
    }
    [start, parts, size] = [end, [], 0];
    return line;
  };
  try {
    for (;;) {
      signal?.throwIfAborted();
      // One for each, for parts of it stay in use.
      const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES);
      if (bytesRead === 0) break;
      for (let from = 0; from < bytesRead; ) {
        const at = buffer.subarray(0, bytesRead).indexOf(LINE_FEED, from);
        const to = at < 0 ? bytesRead : at + 1;
        parts.push(buffer.subarray(from, to));
        size += to - from;
        if (size > MOST_BYTES)
          throw new BatchError(
            'BAD_REQUEST',
            `${path}, line ${number + 1} has more than ${MOST_BYTES} bytes. Give shorter lines.`,
          );
        if (at >= 0) yield take(true);
        from = to;
      }
    }
    if (size > 0) yield take(false);
  } finally {
    await file.close();
  }
}
