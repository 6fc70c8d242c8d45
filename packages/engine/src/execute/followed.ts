/** Tokens of a pass that is enqueued before they are known. */
import type { Communicator, Tensor } from '@x/core';
import type { DeviceChooser } from '../sampling/device-chooser';

/** Whose choices tokens may be, and the ranks that have to learn of them: the first one knows. */
export interface Following {
  chooser?: DeviceChooser | undefined;
  communicator?: Communicator | undefined;
}

/**
 * Ids, u32, with what the last step chose where they stand for it (`idOfRow`); undefined where nobody's choices are meant. May be
 * captured: every rank makes the same calls.
 */
export function followed(ids: Tensor, { chooser, communicator }: Following): Tensor | undefined {
  if (!communicator) return chooser?.followed(ids);
  const tokens = chooser ? chooser.followed(ids) : ids.copy();
  communicator.broadcast(tokens);
  return tokens;
}
