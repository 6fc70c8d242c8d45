/** What goes wrong with batches, told apart by `code`. */
import { CandleError } from '@x/core';

export type BatchErrorCode =
  /** A line, or a job, that is no request. */
  | 'BAD_REQUEST'
  /** A file of results that is none, or one of another batch. */
  | 'BAD_RESULTS'
  /** Another process writes the results. */
  | 'RESULTS_IN_USE'
  /** A file that cannot be read or written. */
  | 'FILE_UNUSABLE'
  /** The device or the model fails on one request after the other. */
  | 'STOPPED'
  /** A queue without its packages, or one that cannot be reached. */
  | 'NO_QUEUE';

export class BatchError extends CandleError {
  override name = 'BatchError';
  declare readonly code: BatchErrorCode;

  // Narrows the codes that this class may carry.
  constructor(code: BatchErrorCode, message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }
}
