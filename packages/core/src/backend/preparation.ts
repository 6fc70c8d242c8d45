/** What a device offers whose kernels are compiled at their first use, so that this can be done earlier. */
import type { BackendDevice } from './device';

export interface PreparationOps {
  /**
   * A device of the same kind that computes nothing: memory of it has addresses and no contents, what is read from it is zeros. The
   * kernels that it is asked for are compiled for this device meanwhile, on other threads. Null where nothing would be gained.
   */
  rehearsal(): BackendDevice | null;
  /** Kernels that rehearsals were asked for, and how many of them need no more waiting. */
  progress(): { ready: number; wanted: number };
}
