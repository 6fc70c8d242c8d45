/** Sums over the ranks of a group that are only noted: what reads one first adds it up, and a norm may do that on its way. */
import type { NormDType, NormProblem } from '@x/core';
import type { Arrival, KernelStorage } from '../storage';

/** Where a norm of x and a sum goes, of rows of n values. */
export interface MadeNorm {
  /** x + the sum. */
  sum: KernelStorage;
  /** The norm, or 0. */
  y: number;
  /** The norm as q8_1 blocks, or 0. */
  blocks: number;
}

/** What a storage is to become, of which it has this rank's part. */
export abstract class LaterSum implements Arrival {
  /** Enqueues the norm of x and this sum; false where the kernel does not take them, and nothing has happened. The same on all ranks. */
  abstract norm(problem: NormProblem, form: NormDType, made: MadeNorm): boolean;
  abstract wait(): void;
  abstract drop(): void;
}
