/**
 * The results of a batch: a line for each request that was answered, in one file, and for each that was refused or failed, in
 * another, as OpenAI's batches have them. The files are all that a batch remembers, so they are where it goes on after a crash.
 */
import { open, rename, rm, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { kinds } from '@x/core';
import { lockFile, type Release } from '@x/hub';
import type { Line } from '../lines';
import { BatchError } from './errors';
import { LineFile, syncDirectory } from './line-file';
import { linesOfFile } from './lines';
import { type BatchRequest, ID_PREFIX } from './requests';

/** What a request came to. */
export interface Answer {
  /** HTTP's. */
  status: number;
  /** As the server's log has it. */
  requestId: string;
  body: unknown;
}

/** A line of the results. */
export interface Result {
  id: string;
  custom_id: string;
  response: { status_code: number; request_id: string; body: unknown };
  error: null;
}

interface Place {
  id: string;
  file: LineFile;
  /** In bytes. */
  start: number;
  length: number;
}

/** What every line of a batch begins with. */
const BEGINNING = `{"id":"${ID_PREFIX}`;
/** How long the one before may take to be gone, once it was ended. */
const LOCK_TRIES = 15;
const LOCK_PAUSE_MS = 200;

export class Results {
  private readonly places = new Map<string, Place>();

  private constructor(
    readonly output: LineFile,
    readonly errors: LineFile,
    private readonly unlock: Release,
  ) {}

  /**
   * Reads what is there, drops a last line that was cut, and keeps other processes from writing.
   * @param retryFailed drops what failed for no fault of its request (status 500 and above)
   * @throws BatchError BAD_RESULTS, RESULTS_IN_USE, FILE_UNUSABLE
   */
  static async open(
    output: string,
    errors: string,
    { retryFailed = false, signal }: { retryFailed?: boolean; signal?: AbortSignal } = {},
  ): Promise<Results> {
    if (resolve(output) === resolve(errors))
      throw new BatchError('FILE_UNUSABLE', `${output} is to hold results and errors. Give two files.`);
    for (const path of [output, errors]) {
      const found = await stat(path).catch(() => undefined);
      if (found && !found.isFile())
        throw new BatchError('FILE_UNUSABLE', `${path} is no file that can be read again. Give a file.`);
    }
    const unlock = await lock(output, signal);
    try {
      const found = new Map<string, Omit<Place, 'file'> & { path: string }>();
      const sizes: number[] = [];
      for (const path of [output, errors]) {
        if (retryFailed && path === errors) await dropFailed(path, signal);
        sizes.push(await scan(path, found, signal));
      }
      const files = [new LineFile(output, sizes[0]), new LineFile(errors, sizes[1])];
      const results = new Results(files[0], files[1], unlock);
      for (const [customId, { path, ...place }] of found)
        results.places.set(customId, { ...place, file: path === output ? files[0] : files[1] });
      return results;
    } catch (error) {
      await unlock();
      throw error;
    }
  }

  get size(): number {
    return this.places.size;
  }

  /**
   * Whether a request has its result, and which file holds it.
   * @throws BatchError BAD_RESULTS for that of another request with the same custom_id
   */
  has({ customId, id }: Pick<BatchRequest, 'customId' | 'id'>): 'answered' | 'failed' | undefined {
    const place = this.places.get(customId);
    if (place === undefined) return undefined;
    if (place.id === id) return place.file === this.errors ? 'failed' : 'answered';
    throw new BatchError(
      'BAD_RESULTS',
      `${place.file.path} holds the result of another request with the custom_id ${kinds.showField(customId)}. Give another output, or another custom_id.`,
    );
  }

  /** The result that a request has. */
  async read({ customId }: BatchRequest): Promise<Result> {
    const { file, start, length } = this.places.get(customId)!;
    return JSON.parse(await file.read(start, length));
  }

  /** Ends when the result is on the disk. @throws BatchError FILE_UNUSABLE */
  async add(request: BatchRequest, result: Result): Promise<void> {
    const file = result.response.status_code < 300 ? this.output : this.errors;
    const line = JSON.stringify(result);
    const start = await file.append(line);
    this.places.set(request.customId, { id: request.id, file, start, length: Buffer.byteLength(line) });
  }

  async close(): Promise<void> {
    await this.output.close();
    await this.errors.close();
    await this.unlock();
  }
}

/** The line of a request's answer. */
export function resultOf({ id, customId }: BatchRequest, { status, requestId, body }: Answer): Result {
  return { id, custom_id: customId, response: { status_code: status, request_id: requestId, body }, error: null };
}

/** The lock is on the file itself. It is gone with the process, a moment after one that was killed. */
async function lock(path: string, signal?: AbortSignal): Promise<Release> {
  try {
    for (let i = 0; i < LOCK_TRIES; i++) {
      const release = await lockFile(path, { wait: false, signal });
      if (release) return release;
      await sleep(LOCK_PAUSE_MS);
    }
  } catch (cause) {
    signal?.throwIfAborted();
    throw new BatchError(
      'FILE_UNUSABLE',
      `${path} cannot be written: ${(cause as Error).message}. Give one that can be written.`,
      { cause },
    );
  }
  throw new BatchError('RESULTS_IN_USE', `Another process writes ${path}. Wait for it, or give another output.`);
}

/** Puts a file's results into `found`, and cuts the file behind its last whole line. @returns its size in bytes */
async function scan(
  path: string,
  found: Map<string, Omit<Place, 'file'> & { path: string }>,
  signal?: AbortSignal,
): Promise<number> {
  let size = 0;
  let cut = false;
  for await (const line of existing(path, signal)) {
    if (!line.whole) {
      if (!isCut(line.text)) throw noResult(path, line);
      cut = true;
      break;
    }
    const { id, custom_id: customId } = parse(path, line);
    if (found.has(customId))
      throw new BatchError(
        'BAD_RESULTS',
        `${path}, line ${line.number}: there is another result of ${kinds.showField(customId)}. Take one of them away.`,
      );
    found.set(customId, { id, path, start: line.start, length: line.end - line.start - 1 });
    size = line.end;
  }
  if (cut) await truncate(path, size);
  return size;
}

async function* existing(path: string, signal?: AbortSignal): AsyncGenerator<Line> {
  if (await stat(path).catch(() => undefined)) yield* linesOfFile(path, signal, true);
}

/** Whether a text is what is left of a line that was not written to its end: a disk may have the size and no content yet. */
function isCut(text: string): boolean {
  return text.startsWith(BEGINNING) || BEGINNING.startsWith(text) || /^\0+$/.test(text);
}

function parse(path: string, line: Line): Result {
  let value: unknown;
  try {
    value = JSON.parse(line.text);
  } catch {
    // Said below.
  }
  const isResult =
    kinds.isObject(value) &&
    typeof value.id === 'string' &&
    value.id.startsWith(ID_PREFIX) &&
    typeof value.custom_id === 'string' &&
    kinds.isObject(value.response) &&
    typeof value.response.status_code === 'number';
  if (!isResult) throw noResult(path, line);
  return value as unknown as Result;
}

function noResult(path: string, { number }: Line): BatchError {
  return new BatchError(
    'BAD_RESULTS',
    `${path}, line ${number} is no result of a batch, and the file stays as it is. Give another output.`,
  );
}

async function truncate(path: string, size: number): Promise<void> {
  const file = await open(path, 'r+');
  try {
    await file.truncate(size);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Writes the file anew without results of status 500 and above, and puts it in the place of the old one. */
async function dropFailed(path: string, signal?: AbortSignal): Promise<void> {
  const fresh = `${path}.new`;
  await rm(fresh, { force: true });
  const kept = new LineFile(fresh, 0);
  let dropped = 0;
  const written: Promise<number>[] = [];
  for await (const line of existing(path, signal)) {
    if (!line.whole) continue;
    if (parse(path, line).response.status_code >= 500) dropped++;
    else written.push(kept.append(line.text));
  }
  try {
    await Promise.all(written);
  } finally {
    await kept.close();
  }
  if (dropped > 0 && written.length > 0) await rename(fresh, path);
  else if (dropped > 0) await rm(path);
  else await rm(fresh, { force: true });
  if (dropped > 0) await syncDirectory(path);
}
