/**
 * One rank of a group of devices that compute together, in NCCL's terms: through NCCL on cuda, RCCL on rocm, and sockets on the
 * host. Mirrors what candle gets from cudarc's `nccl::Comm` (candle-examples, llama_multiprocess).
 */
import type { DeviceContext } from './context';
import { HipError } from './errors';
import type { HipStream } from './stream';

/** In the order of the addon's numbers. */
const CALLS = ['allReduce', 'allGather', 'reduceScatter', 'broadcast', 'send', 'recv'] as const;
const TYPES = ['u8', 'u32', 'i32', 'i64', 'f16', 'bf16', 'f32', 'f64'] as const;
const REDUCTIONS = ['sum', 'prod', 'min', 'max', 'avg'] as const;

export type CollectiveType = (typeof TYPES)[number];
export type CollectiveReduction = (typeof REDUCTIONS)[number];

/** Who joins a group. */
export interface GroupMembership {
  /** What `device.groupId()` gave one of the ranks, 128 bytes. */
  id: Uint8Array;
  /** From 0 to size - 1, each once. */
  rank: number;
  /** Ranks of the group. */
  size: number;
  /** Milliseconds that a rank waits for another one before the group has failed. */
  timeoutMs: number;
}

/** Contiguous device memory: addresses, and how many elements of `type` each rank has. */
export interface CollectiveData {
  type: CollectiveType;
  source: number;
  target: number;
  count: number;
}

/** Why a group does not work any more. */
export interface GroupFailure {
  code: 'RANK_LOST' | 'RANK_TIMEOUT' | 'RANKS_DIFFER' | 'GROUP_FAILED';
  /** The rank at fault; -1 where it is not known. */
  rank: number;
  message: string;
}

/** The calls enqueue; every rank makes the same ones in the same order. */
export class HipCommunicator {
  readonly rank: number;
  readonly size: number;
  readonly #context: DeviceContext;
  readonly #number: number;
  readonly #words = new Float64Array(7);
  #left = false;

  private constructor(context: DeviceContext, number: number, { rank, size }: GroupMembership) {
    this.#context = context;
    this.#number = number;
    this.rank = rank;
    this.size = size;
  }

  /** @internal Use `device.joinGroup()`. */
  static async join(context: DeviceContext, member: GroupMembership): Promise<HipCommunicator> {
    const { id, rank, size, timeoutMs } = member;
    return new HipCommunicator(context, await context.native.groupJoin(context.id, id, rank, size, timeoutMs), member);
  }

  /** Of each element over all ranks; `target` may be `source`. */
  allReduce(data: CollectiveData, reduction: CollectiveReduction, stream?: HipStream): void {
    this.#call('allReduce', data, { reduction, stream });
  }

  /** The ranks' elements one behind the other: `target` holds size times `count`. */
  allGather(data: CollectiveData, stream?: HipStream): void {
    this.#call('allGather', data, { stream });
  }

  /** `source` holds size times `count` elements, of which each rank gets its `count`, reduced. */
  reduceScatter(data: CollectiveData, reduction: CollectiveReduction, stream?: HipStream): void {
    this.#call('reduceScatter', data, { reduction, stream });
  }

  /** `root`'s source to the target of all. */
  broadcast(data: CollectiveData, root: number, stream?: HipStream): void {
    this.#call('broadcast', data, { peer: root, stream });
  }

  /** To rank `to`, which receives as many elements of the same type. Ranks that send to each other do so {@link grouped}. */
  send(data: Omit<CollectiveData, 'target'>, to: number, stream?: HipStream): void {
    this.#call('send', { ...data, target: 0 }, { peer: to, stream });
  }

  /** Into `target`, what rank `from` sends. */
  recv(data: Omit<CollectiveData, 'source'>, from: number, stream?: HipStream): void {
    this.#call('recv', { ...data, source: 0 }, { peer: from, stream });
  }

  /** Makes the sends and receives of `calls` one exchange. */
  grouped(calls: () => void, stream?: HipStream): void {
    const { native, id } = this.#live();
    native.groupBegin(id, this.#number);
    try {
      calls();
    } finally {
      native.groupEnd(id, this.#number, this.#stream(stream));
    }
  }

  /** Undefined while the group works. */
  failure(): GroupFailure | undefined {
    const { native, id } = this.#live();
    return native.groupFailure(id, this.#number);
  }

  /** Ends what is under way, so that nothing waits for other ranks. */
  abort(): void {
    if (this.#left || this.#context.disposed) return;
    this.#context.native.groupAbort(this.#context.id, this.#number);
  }

  /** Waits for what was enqueued and leaves the group. */
  dispose(): void {
    if (this.#left) return;
    this.#left = true;
    if (!this.#context.disposed) this.#context.native.groupLeave(this.#context.id, this.#number);
  }

  #call(
    call: (typeof CALLS)[number],
    { type, source, target, count }: CollectiveData,
    { reduction = 'sum', peer = 0, stream }: { reduction?: CollectiveReduction; peer?: number; stream?: HipStream },
  ): void {
    const { native, id } = this.#live();
    const words = this.#words;
    words[0] = CALLS.indexOf(call);
    words[1] = TYPES.indexOf(type);
    words[2] = REDUCTIONS.indexOf(reduction);
    words[3] = peer;
    words[4] = source;
    words[5] = target;
    words[6] = count;
    native.groupCall(id, this.#number, this.#stream(stream), words);
  }

  #stream(stream: HipStream | undefined): number {
    return stream ? stream.handleOn(this.#context) : this.#context.stream;
  }

  #live(): DeviceContext {
    this.#context.check();
    if (this.#left) throw new HipError('DISPOSED', 'this rank has left its group. Join one again');
    return this.#context;
  }
}
