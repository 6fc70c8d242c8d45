/**
 * Collective operations between devices, after NCCL's C interface, which RCCL shares: one rank a device, each in a thread or
 * process of its own. Every rank makes the same calls in the same order.
 */
import type { StoragePart } from './attention';

/** How values of the ranks become one; `avg` is their sum over the number of ranks. */
export type Reduction = 'sum' | 'prod' | 'min' | 'max' | 'avg';

/** Who joins a group. */
export interface GroupMember {
  /** What {@link CollectiveOps.uniqueId} gave one of the ranks. */
  id: Uint8Array;
  /** From 0 to size - 1, each once. */
  rank: number;
  /** Ranks of the group. */
  size: number;
  /** How long a rank waits for another one, at the start and in a call, before it fails. */
  timeoutMs: number;
}

/** How devices of one kind form groups. */
export interface CollectiveOps {
  /** The library and its version, for people. @throws where there is none, with how to get it */
  describe(): string;
  /** Names a new group. */
  uniqueId(): Uint8Array;
  /** Resolves when all ranks have come. Waits off the JavaScript thread. */
  join(member: GroupMember): Promise<BackendCommunicator>;
}

/**
 * A rank's end of a group. Calls enqueue on the device's stream; parts are contiguous and hold `count` elements of one dtype,
 * `size` times as many where it says so.
 */
export interface BackendCommunicator {
  readonly rank: number;
  readonly size: number;
  /** `target` may be `source`. */
  allReduce(source: StoragePart, target: StoragePart, count: number, reduction: Reduction): void;
  /**
   * As {@link allReduce} of a sum in place, of storages that all ranks use next in the same operations, or none does. So the backend may
   * leave it to what reads the result first. Absent: there is nothing to be gained.
   */
  sumLater?(part: StoragePart, count: number): void;
  /**
   * Runs a function that makes one product, f32, which {@link sumLater} is given next, on all ranks: what comes out of it may lie where
   * it is added up. Nothing but that product may read or write it.
   */
  forSum?<T>(product: () => T): T;
  /** Whether sums that are asked for with {@link sumLater} take no time beside other work. */
  readonly joinsSums?: boolean;
  /** `count` elements of each rank, in order of the ranks: `target` holds size · count. */
  allGather(source: StoragePart, target: StoragePart, count: number): void;
  /** Of size · count elements, reduced over the ranks, each gets its `count`. */
  reduceScatter(source: StoragePart, target: StoragePart, count: number, reduction: Reduction): void;
  /** From `root` to all, in place. */
  broadcast(data: StoragePart, count: number, root: number): void;
  /** To rank `to`, which calls {@link recv} with the same count. */
  send(source: StoragePart, count: number, to: number): void;
  /** From rank `from`, which calls {@link send} with the same count. */
  recv(target: StoragePart, count: number, from: number): void;
  /** Sends and receives that `calls` makes run at once, so that ranks may exchange without waiting in a circle. */
  grouped(calls: () => void): void;
  /** Why the group failed, as far as it is known; undefined while it works. */
  failure(): Error | undefined;
  /** Ends what is under way, here and, as the library can, on other ranks; every later call fails. */
  abort(): void;
  /** Waits for what was enqueued and leaves. */
  dispose(): void;
}
