/**
 * Errors: one class a subject, each with a stable `code` for programs and a message for people.
 *
 * candle has one enum, `Error`, with a variant per cause; here a cause is a `code` and a variant's fields are in the
 * message. A message says what was wrong, with the numbers, and ends with what to do about it.
 */

import { brand } from './brand';

/**
 * The base of every error that the packages of this family raise on purpose. `error instanceof CandleError` also holds for
 * `HipError` of `@x/hip` and `KernelError` of `@x/kernels`, which stand alone, and for errors of another copy of this
 * package in the process.
 */
export class CandleError extends Error {
  override name = 'CandleError';
  /** Stable and upper case, e.g. `SHAPE_MISMATCH`. */
  readonly code: string;
  /** The option of the call that is wrong, where one is, e.g. `topP`. */
  declare readonly option?: string;

  constructor(code: string, message: string, options: { cause?: unknown; option?: string } = {}) {
    const { option, ...rest } = options;
    super(message, rest);
    this.code = code;
    if (option !== undefined) this.option = option;
  }
}

export type ShapeErrorCode = 'SHAPE_MISMATCH' | 'INVALID_SHAPE' | 'DIM_OUT_OF_RANGE' | 'INDEX_OUT_OF_RANGE';

/** Shapes that do not fit each other, a shape that is none, a dimension or an index that does not exist. */
export class ShapeError extends CandleError {
  override name = 'ShapeError';
  declare readonly code: ShapeErrorCode;

  // Narrows the codes that this class may carry.
  constructor(code: ShapeErrorCode, message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }
}

/** Operands of different dtypes, or a dtype that the operation has no meaning for (`DTYPE_MISMATCH`). */
export class DTypeError extends CandleError {
  override name = 'DTypeError';
  declare readonly code: 'DTYPE_MISMATCH';

  // Narrows the codes that this class may carry.
  constructor(code: 'DTYPE_MISMATCH', message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }
}

/** A tensor, storage, device or file was used after it was disposed (`DISPOSED`). */
export class DisposedError extends CandleError {
  override name = 'DisposedError';
  declare readonly code: 'DISPOSED';

  // Narrows the codes that this class may carry.
  constructor(code: 'DISPOSED', message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }
}

export type DeviceErrorCode = 'DEVICE_UNKNOWN' | 'DEVICE_UNAVAILABLE' | 'DEVICE_MISMATCH';

/** A device name nobody knows, a device that cannot be opened here, operands on different devices. */
export class DeviceError extends CandleError {
  override name = 'DeviceError';
  declare readonly code: DeviceErrorCode;

  // Narrows the codes that this class may carry.
  constructor(code: DeviceErrorCode, message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }
}

/** An allocation did not fit (`OUT_OF_MEMORY`). */
export class OutOfMemoryError extends CandleError {
  override name = 'OutOfMemoryError';
  declare readonly code: 'OUT_OF_MEMORY';
  /** Bytes that were asked for, when known. */
  readonly requestedBytes: number | undefined;

  constructor(code: 'OUT_OF_MEMORY', message: string, options?: { cause?: unknown; requestedBytes?: number }) {
    super(code, message, options);
    this.requestedBytes = options?.requestedBytes;
  }
}

/** A combination of operation, dtype and device without an implementation (`UNSUPPORTED`). */
export class UnsupportedError extends CandleError {
  override name = 'UnsupportedError';
  declare readonly code: 'UNSUPPORTED';

  // Narrows the codes that this class may carry.
  constructor(code: 'UNSUPPORTED', message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }
}

export type CaptureErrorCode = 'CAPTURE_UNSUPPORTED' | 'CAPTURE_FAILED';

/**
 * A captured graph (`Device.capture`): its function did what a graph cannot repeat (`CAPTURE_UNSUPPORTED`), or the device
 * did not make a graph of it, or results changed their shapes (`CAPTURE_FAILED`).
 */
export class CaptureError extends CandleError {
  override name = 'CaptureError';
  declare readonly code: CaptureErrorCode;

  // Narrows the codes that this class may carry.
  constructor(code: CaptureErrorCode, message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }
}

export type CollectiveErrorCode = 'BAD_RANK' | 'RANK_LOST' | 'RANK_TIMEOUT' | 'RANKS_DIFFER' | 'GROUP_FAILED';

/**
 * Ranks that compute together: a rank that there is not (`BAD_RANK`), one that ended or broke its connection (`RANK_LOST`), did
 * not come in time (`RANK_TIMEOUT`) or made another call (`RANKS_DIFFER`), or a failure of the library (`GROUP_FAILED`).
 */
export class CollectiveError extends CandleError {
  override name = 'CollectiveError';
  declare readonly code: CollectiveErrorCode;
  /** The rank at fault, where it is known. */
  readonly rank: number | undefined;

  constructor(code: CollectiveErrorCode, message: string, options: { rank?: number; cause?: unknown } = {}) {
    super(code, message, options);
    this.rank = options.rank;
  }
}

/** Formats add their own codes (`GGUF_...`). */
export type FileErrorCode =
  | 'FILE_NOT_FOUND'
  | 'FILE_UNREADABLE'
  | 'FILE_UNWRITABLE'
  | 'FILE_TRUNCATED'
  | 'FILE_INVALID'
  | 'FILE_NO_SUCH_TENSOR'
  | (string & {});

/** A file that is missing, cut short, or not what its format allows. */
export class FileFormatError extends CandleError {
  override name = 'FileFormatError';
  declare readonly code: FileErrorCode;
  /** The file, empty when it is not known. */
  readonly path: string;
  /** Byte offset in the file where the trouble is, when there is such a place. */
  readonly offset: number | undefined;

  constructor(code: FileErrorCode, message: string, options: { path?: string; offset?: number; cause?: unknown } = {}) {
    super(code, message, options);
    this.path = options.path ?? '';
    this.offset = options.offset;
  }
}

// The first is that of every error of the family, also of packages that do not depend on this one.
brand(CandleError, 'x.candle.error');
brand(ShapeError, 'x.core.ShapeError');
brand(DTypeError, 'x.core.DTypeError');
brand(DisposedError, 'x.core.DisposedError');
brand(DeviceError, 'x.core.DeviceError');
brand(OutOfMemoryError, 'x.core.OutOfMemoryError');
brand(UnsupportedError, 'x.core.UnsupportedError');
brand(CaptureError, 'x.core.CaptureError');
brand(CollectiveError, 'x.core.CollectiveError');
brand(FileFormatError, 'x.core.FileFormatError');
