/**
 * Quantising whole weights: row by row, with or without importance, in this thread or on several.
 *
 * Threads are worker threads that share one script, `quantize-worker.js` beside the built package; they are started when
 * first needed, serve every call of the process and keep it from ending no longer than their work takes. The blocks are
 * the same whoever makes them. Where the script is not there (the package runs from its sources) one thread does the work.
 */
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { CandleError, kinds, ShapeError, UnsupportedError } from '@x/core';
import { FLOATS, QUANTIZE_OPTIONS } from './argument-kinds';
import { type BlockFormat, blockFormat, byteLengthOf, isQuantType, QUANT_TYPES, type QuantType } from './blocks';

export interface QuantizeOptions {
  /**
   * How much the values of a row matter: the mean squares of the activations that they meet, as an imatrix file holds
   * them. One number for each value of a row, or as many such lists one after the other as the weight has experts. Types
   * for which ggml makes no use of importance (q8_0, f16 and the like) ignore it. Default: all alike.
   */
  importance?: Float32Array;
  /** Which weight it is and the number of the first row given, for errors. Default: no name, from row 0. */
  weight?: WeightRows;
}

export interface WeightRows {
  name: string;
  firstRow: number;
}

export interface ParallelQuantizeOptions extends QuantizeOptions {
  /** Threads that work on a large weight; default as many as there are processors, 1 stays in this thread. */
  threads?: number;
  /** Stops between two pieces; the promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** Rows of one weight that are quantised in one go. */
export interface QuantizeJob {
  type: QuantType;
  /** Values of the rows. */
  x: Float32Array;
  /** Values in a row. */
  k: number;
  importance?: Float32Array;
  weight?: WeightRows;
  /** Where the rows are among all that share the importance lists: the first one's number, and how many there are. */
  firstRow: number;
  rows: number;
}

const OPTIONS = kinds.fields(QUANTIZE_OPTIONS);

/** A thread's answer in place of blocks: an error, whose class does not cross threads. */
export interface RefusedJob {
  code: string;
  message: string;
}

/** Values that one piece of work has at least: some tenths of a second in the slowest formats. */
const PIECE_VALUES = 2 ** 18;

/**
 * Does a job. Also what the worker threads run.
 * @throws CandleError `NOT_FINITE` for NaN and infinity, which blocks cannot hold
 */
export function quantizeJob(job: QuantizeJob): Uint8Array<ArrayBuffer> {
  const { type, x, k, importance, firstRow, rows } = job;
  const format = blockFormat(type);
  if (format.blockSize > 1) checkFinite(job);
  const blocks = k / format.blockSize;
  const out = new Uint8Array(byteLengthOf(format, x.length));
  if (importance === undefined || format.quantizeWeighted === undefined) {
    format.quantize!(x, 0, out, 0, x.length / format.blockSize);
    return out;
  }
  const lists = importance.length / k;
  for (let at = 0, row = firstRow; at < x.length; at += k, row++) {
    const list = Math.floor((row * lists) / rows);
    format.quantizeWeighted(x, at, out, byteLengthOf(format, at), blocks, importance, list * k);
  }
  return out;
}

/** Most quantisers would hide such a value: it becomes another one, or its block becomes zeros. */
function checkFinite({ type, x, k, firstRow, weight }: QuantizeJob): void {
  if (areFinite(x)) return;
  const at = x.findIndex((value) => !Number.isFinite(value));
  const row = firstRow + Math.floor(at / k) + (weight?.firstRow ?? 0);
  throw new CandleError(
    'NOT_FINITE',
    `Quantising to ${type}: value ${at % k} of row ${row}${weight ? ` of '${weight.name}'` : ''} is ${x[at]}. The weight ` +
      'is damaged: get it again, or leave it in f32 or f16.',
  );
}

/** Of whole blocks, whose values are a multiple of four. Sums of f32 do not overflow in doubles; infinity and NaN stay in them. */
function areFinite(x: Float32Array): boolean {
  // Sums that do not wait for each other.
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  for (let i = 0; i < x.length; i += 4) {
    a += x[i];
    b += x[i + 1];
    c += x[i + 2];
    d += x[i + 3];
  }
  return Number.isFinite(a + b + c + d);
}

/** The format of a type. @throws UnsupportedError where there is no such type */
export function knownFormat(op: string, type: QuantType): BlockFormat {
  if (isQuantType(type)) return blockFormat(type);
  throw new UnsupportedError(
    'UNSUPPORTED',
    `${op}: there is no type '${String(type)}'. Types are listed in QUANT_TYPES.`,
  );
}

/** Fails unless rows of `k` values can be quantised to `format` with these options. */
export function checkQuantize(
  op: string,
  format: BlockFormat,
  k: number,
  rows: number,
  importance?: Float32Array,
): void {
  if (format.quantize === undefined) {
    const written = QUANT_TYPES.filter((type) => blockFormat(type).quantize !== undefined);
    throw new UnsupportedError(
      'UNSUPPORTED',
      `${op}: ${format.type} can be read but not written. Choose one of ${written.join(', ')}.`,
    );
  }
  if (k % format.blockSize !== 0) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: rows of ${k} values are no whole number of ${format.type} blocks of ${format.blockSize}. Choose a type with ` +
        'smaller blocks, such as q8_0 (32) or f16 (1).',
    );
  }
  if (importance === undefined) return;
  const lists = importance.length / k;
  if (!(Number.isInteger(lists) && lists >= 1 && (rows === 0 || rows % lists === 0))) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: ${importance.length} importance values for ${rows} rows of ${k}; give ${k}, or ${k} for each expert. Check ` +
        'that the importance belongs to this weight.',
    );
  }
  for (const value of importance) {
    if (!(value >= 0 && value < Number.POSITIVE_INFINITY)) {
      throw new CandleError(
        'INVALID_ARGUMENT',
        `${op}: an importance is ${value}; each must be a number of zero or more. The importance data is damaged.`,
      );
    }
  }
}

/** Jobs of a weight of rows of `k` values, in order. */
function* jobsOf(
  type: QuantType,
  x: Float32Array,
  k: number,
  { importance, weight }: QuantizeOptions,
): Generator<QuantizeJob> {
  const rows = k === 0 ? 0 : x.length / k;
  const perJob = Math.max(1, Math.floor(PIECE_VALUES / Math.max(k, 1)));
  for (let firstRow = 0; firstRow < rows; firstRow += perJob) {
    const last = Math.min(rows, firstRow + perJob);
    yield { type, x: x.subarray(firstRow * k, last * k), k, importance, weight, firstRow, rows };
  }
}

/** Blocks of a weight in order, piece after piece, made in this thread when asked for. */
export function* quantizedPieces(
  format: BlockFormat,
  x: Float32Array,
  k: number,
  options: QuantizeOptions,
): Generator<{ offset: number; bytes: Uint8Array }> {
  for (const job of jobsOf(format.type, x, k, options)) {
    yield { offset: byteLengthOf(format, job.firstRow * k), bytes: quantizeJob(job) };
  }
}

/**
 * Blocks of `x`, rows of `k` values each, in `type`; on worker threads when there is work for them. Raises
 * `UnsupportedError` for types that cannot be written, `ShapeError` when `x` is no whole rows, rows are no whole blocks or
 * the importance does not fit, and `CandleError` `NOT_FINITE` for NaN and infinity, which blocks cannot hold, `INVALID_ARGUMENT` for
 * importance below zero or not finite; the signal's reason.
 */
export async function quantizeBlocks(
  type: QuantType,
  x: Float32Array,
  k: number,
  options: ParallelQuantizeOptions = {},
): Promise<Uint8Array<ArrayBuffer>> {
  const op = 'quantizeBlocks';
  const format = knownFormat(op, type);
  kinds.check(op, 'x', x, FLOATS);
  kinds.check(op, 'k', k, kinds.POSITIVE);
  kinds.check(op, 'options', options, OPTIONS);
  if (x.length % k !== 0) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: ${x.length} values are no whole number of rows of ${k}. Give whole rows.`,
    );
  }
  const { importance, signal, threads = availableParallelism() } = options;
  checkQuantize(op, format, k, x.length / k, importance);
  const out = new Uint8Array(byteLengthOf(format, x.length));
  const jobs = jobsOf(type, x, k, options);
  const pool = x.length >= 2 * PIECE_VALUES && threads > 1 ? sharedPool(threads) : undefined;
  const put = (job: QuantizeJob, bytes: Uint8Array) => out.set(bytes, byteLengthOf(format, job.firstRow * k));
  if (pool === undefined) {
    for (const job of jobs) {
      signal?.throwIfAborted();
      put(job, quantizeJob(job));
      await nextTurn();
    }
    return out;
  }
  // As many takers as threads: each asks for the next job when its last one is done.
  const taker = async () => {
    for (const job of jobs) {
      signal?.throwIfAborted();
      put(job, await pool.run(job));
    }
  };
  await Promise.all(Array.from({ length: threads }, taker));
  return out;
}

/** Where the worker's script is; undefined when it was not built. */
function workerScript(): URL | undefined {
  // Absent in a bundle that was made a CommonJS one.
  if (!import.meta.url) return undefined;
  const url = new URL('./quantize-worker.js', import.meta.url);
  return existsSync(fileURLToPath(url)) ? url : undefined;
}

let shared: QuantizePool | undefined;

function sharedPool(threads: number): QuantizePool | undefined {
  const script = workerScript();
  if (script === undefined) return undefined;
  shared ??= new QuantizePool(script);
  shared.grow(threads);
  return shared;
}

/** @internal Worker threads that do jobs, each one at a time. */
export class QuantizePool {
  readonly #script: URL;
  #workers: PoolWorker[] = [];
  #closed = false;

  constructor(script: URL) {
    this.#script = script;
  }

  /** Has at least so many threads, up to the number of processors. */
  grow(threads: number): void {
    const wanted = Math.min(threads, availableParallelism());
    while (this.#workers.length < wanted) this.#workers.push(new PoolWorker(this.#script));
  }

  /** The blocks of a job, from the thread with the least to do. A thread that broke down is replaced. */
  run(job: QuantizeJob): Promise<Uint8Array> {
    if (this.#closed) {
      return Promise.reject(new CandleError('DISPOSED', 'QuantizePool: its threads were ended. Make another pool.'));
    }
    const size = Math.max(1, this.#workers.length);
    this.#workers = this.#workers.filter(({ broken }) => !broken);
    this.grow(size);
    return this.#workers.reduce((a, b) => (b.waiting < a.waiting ? b : a)).run(job);
  }

  /** Ends the threads. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#workers.splice(0).map((worker) => worker.close()));
  }
}

interface Waiting {
  resolve(bytes: Uint8Array): void;
  reject(error: unknown): void;
}

class PoolWorker {
  readonly #worker: Worker;
  /** Jobs handed over and not answered, in order. */
  readonly #queue: Waiting[] = [];
  #failure: unknown;

  constructor(script: URL) {
    this.#worker = new Worker(script);
    this.#worker.unref();
    this.#worker.on('message', (answer: Uint8Array | RefusedJob) => {
      const waiting = this.#queue.shift();
      if (answer instanceof Uint8Array) waiting?.resolve(answer);
      else waiting?.reject(new CandleError(answer.code, answer.message));
      if (this.#queue.length === 0) this.#worker.unref();
    });
    this.#worker.on('error', (error) => this.#fail(error));
    this.#worker.on('exit', () =>
      this.#fail(new CandleError('INTERRUPTED', 'A quantising thread ended early. Quantise again.')),
    );
  }

  get broken(): boolean {
    return this.#failure !== undefined;
  }

  get waiting(): number {
    return this.#queue.length;
  }

  run(job: QuantizeJob): Promise<Uint8Array> {
    // While a job is out, the process must not end for want of other work.
    this.#worker.ref();
    return new Promise((resolve, reject) => {
      this.#queue.push({ resolve, reject });
      // The rows are copied, so that they can be moved to the thread without taking the caller's away.
      const x = job.x.slice();
      this.#worker.postMessage({ ...job, x, importance: job.importance?.slice() }, [x.buffer]);
    });
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }

  #fail(error: unknown): void {
    this.#failure ??= error;
    for (const { reject } of this.#queue.splice(0)) reject(error);
  }
}
