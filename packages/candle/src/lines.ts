/** Text from files and standard input: in lines with their places in bytes, or whole. */
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';

export interface Line {
  /** From 1. */
  number: number;
  /** Offset in the file, in bytes. */
  start: number;
  /** Behind the line and its end. */
  end: number;
  /** Without the line's end and a carriage return before it. */
  text: string;
  /** Whether it has an end: the last line of a file that was cut has none. */
  whole: boolean;
}

/** What the reader of a file throws. The line is undefined for a text that is read whole. */
export interface TextErrors {
  unreadable(cause: NodeJS.ErrnoException): Error;
  tooLong(mostBytes: number, line?: number): Error;
  notUtf8(cause: unknown, line?: number): Error;
}

const CHUNK_BYTES = 2 ** 20;
/** A request with its texts, or an answer with 32 choices and their probabilities, is far below. */
const MOST_BYTES = 2 ** 28;
const LINE_FEED = 0x0a;

/** Bytes that are opened when they are read. */
export type TextSource = () => Readable;

export const standardInput: TextSource = () => process.stdin;

export function fileText(path: string): TextSource {
  return () => createReadStream(path, { highWaterMark: CHUNK_BYTES });
}

/**
 * The lines of a source, which is closed behind the last one or when the caller leaves. A byte order mark is left out.
 * @param mayBeCut whether the last line may end within a character
 * @throws what `errors` makes; the signal's reason
 */
export async function* linesOf(
  source: TextSource,
  errors: TextErrors,
  signal?: AbortSignal,
  mayBeCut = false,
): AsyncGenerator<Line> {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
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
      if (whole || !mayBeCut) throw errors.notUtf8(cause, number);
      line.text = bytes.toString('latin1');
    }
    if (number === 1) line.text = line.text.replace(/^\uFEFF/, '');
    [start, parts, size] = [end, [], 0];
    return line;
  };
  for await (const chunk of chunksOf(source, errors, signal)) {
    for (let from = 0; from < chunk.length; ) {
      const at = chunk.indexOf(LINE_FEED, from);
      const to = at < 0 ? chunk.length : at + 1;
      parts.push(chunk.subarray(from, to));
      size += to - from;
      if (size > MOST_BYTES) throw errors.tooLong(MOST_BYTES, number + 1);
      if (at >= 0) yield take(true);
      from = to;
    }
  }
  if (size > 0) yield take(false);
}

/** All of a source. @throws what `errors` makes; the signal's reason */
export async function textOf(source: TextSource, errors: TextErrors, signal?: AbortSignal): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of chunksOf(source, errors, signal)) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > MOST_BYTES) throw errors.tooLong(MOST_BYTES);
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks));
  } catch (cause) {
    throw errors.notUtf8(cause);
  }
}

async function* chunksOf(source: TextSource, errors: TextErrors, signal?: AbortSignal): AsyncGenerator<Buffer> {
  signal?.throwIfAborted();
  const stream = source();
  const stop = () => stream.destroy(signal?.reason as Error);
  signal?.addEventListener('abort', stop);
  try {
    for await (const chunk of stream) yield chunk as Buffer;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException | undefined)?.syscall === undefined) throw cause;
    throw errors.unreadable(cause as NodeJS.ErrnoException);
  } finally {
    signal?.removeEventListener('abort', stop);
    stream.destroy();
  }
}
