import { HipError } from '@x/hip';

/** The HipError that `run` throws. */
export function failure(run: () => unknown): HipError {
  try {
    run();
  } catch (error) {
    if (error instanceof HipError) return error;
    throw error;
  }
  throw new Error('expected a HipError');
}
