/**
 * The one error class of this package. `code` says what kind of failure it is; when a driver call failed, `call`,
 * `driverName` and `status` say which and how in the driver's own words, and the message ends with what to do.
 */
import type { Platform } from './platforms';

export type HipErrorCode =
  | 'LIBRARY_NOT_FOUND'
  | 'SYMBOL_MISSING'
  | 'NO_DEVICE'
  | 'NO_PERMISSION'
  | 'DRIVER_ERROR'
  | 'OUT_OF_MEMORY'
  | 'INVALID_ARGUMENT'
  | 'DISPOSED'
  | 'COMPILE_FAILED'
  | 'LIBRARY_ERROR'
  | 'ADDON_MISSING'
  | 'FUNCTION_NOT_FOUND'
  | 'RANK_LOST'
  | 'RANK_TIMEOUT'
  | 'RANKS_DIFFER'
  | 'GROUP_FAILED';

/** What a {@link HipError} carries beside its code and message. */
export interface HipErrorDetails {
  platform?: Platform;
  /** The driver's or library's call, in its own name: `hipMalloc`, `cuMemAlloc`, `miopenConvolutionForwardImmediate`. */
  call?: string;
  /** The driver's name of the error: `hipErrorOutOfMemory`. */
  driverName?: string;
  /** The driver's number of the error. */
  status?: number;
  /** OUT_OF_MEMORY of an allocation: bytes asked for. */
  requestedBytes?: number;
  /** OUT_OF_MEMORY: bytes free on the device at that moment, if the driver says. */
  freeBytes?: number;
  /** OUT_OF_MEMORY: bytes of the device. */
  totalBytes?: number;
  /** ADDON_MISSING: what to do, with which the message ends. */
  remedy?: string;
  cause?: unknown;
}

/**
 * Everything that goes wrong with drivers, libraries, compilers and their arguments, told apart by `code`. Core counts it among
 * its `CandleError`s.
 */
export class HipError extends Error {
  override readonly name = 'HipError';
  readonly code: HipErrorCode;
  // Declared, not initialised: a detail that is not known is absent, so that a printed error shows only facts.
  declare readonly platform?: Platform;
  declare readonly call?: string;
  declare readonly driverName?: string;
  declare readonly status?: number;
  declare readonly requestedBytes?: number;
  declare readonly freeBytes?: number;
  declare readonly totalBytes?: number;
  declare readonly remedy?: string;

  constructor(code: HipErrorCode, message: string, details: HipErrorDetails = {}) {
    const { cause, ...known } = details;
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    for (const [key, value] of Object.entries(known)) {
      if (value !== undefined) Object.defineProperty(this, key, { value, enumerable: true });
    }
  }
}

// @x/core, on which this package does not depend, counts it among its `CandleError`s by this.
Object.defineProperty(HipError.prototype, Symbol.for('x.candle.error'), { value: true });

/** How the addon makes its errors: empty strings and negative sizes stand for "not known". */
export function makeNativeError(
  code: string,
  message: string,
  platform: string,
  call: string,
  driverName: string,
  status: number,
  requestedBytes: number,
  freeBytes: number,
  totalBytes: number,
): HipError {
  const size = (bytes: number) => (bytes < 0 ? undefined : bytes);
  const error = new HipError(code as HipErrorCode, message, {
    platform: (platform || undefined) as Platform | undefined,
    call: call || undefined,
    driverName: driverName || undefined,
    status: status || undefined,
    requestedBytes: size(requestedBytes),
    freeBytes: size(freeBytes),
    totalBytes: size(totalBytes),
  });
  Error.captureStackTrace(error, makeNativeError);
  return error;
}

export function invalidArgument(message: string, platform?: Platform): HipError {
  return new HipError('INVALID_ARGUMENT', message, { platform });
}

export function disposed(what: string, platform?: Platform): HipError {
  return new HipError('DISPOSED', `the ${what} was disposed and cannot be used any more. Create a new one`, {
    platform,
  });
}
