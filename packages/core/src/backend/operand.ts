import type { Layout } from '../layout';
import type { BackendStorage } from './storage';

/**
 * What operations take: a storage and the view of it that is meant. Strides may be zero (broadcast) or permuted and the
 * offset non-zero, unless an operation says "contiguous", which is about the order and leaves the offset free.
 */
export interface Operand {
  readonly storage: BackendStorage;
  readonly layout: Layout;
}
