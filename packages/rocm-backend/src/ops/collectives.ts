/**
 * Devices that compute together: NCCL on NVIDIA's GPUs, RCCL on AMD's, sockets on the host (`@x/hip`). Small sums go through the
 * devices' own memory where they reach each other's (peer-all-reduce.ts), large ones beside other work (side-sums.ts).
 */
import {
  type BackendCommunicator,
  CollectiveError,
  type CollectiveErrorCode,
  type CollectiveOps,
  type DType,
  type GroupMember,
  type Reduction,
  type StoragePart,
  settings,
  sizeInBytes,
} from '@x/core';
import {
  COLLECTIVE_LIBRARIES,
  type CollectiveReduction,
  type CollectiveType,
  type HipCommunicator,
  HipError,
  libraryReport,
} from '@x/hip';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { KernelStorage } from '../storage';
import { Agreement } from './agreement';
import { PeerAllReduce } from './peer-all-reduce';
import { PeerNorms } from './peer-norm';
import { SideSums } from './side-sums';
import { SummedNorms } from './summed-norm';

const TYPES: readonly CollectiveType[] = ['u8', 'u32', 'i32', 'i64', 'f16', 'bf16', 'f32', 'f64'];
const FAILURES: readonly string[] = ['RANK_LOST', 'RANK_TIMEOUT', 'RANKS_DIFFER', 'GROUP_FAILED'];

export class DeviceCollectiveOps implements CollectiveOps {
  readonly #device: KernelDevice;

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  describe(): string {
    const { hip } = this.#device;
    const name = COLLECTIVE_LIBRARIES[hip.platform];
    if (name === undefined) return 'sockets';
    const { available, library, version, reason } = libraryReport(name);
    if (available) return `${name} ${version ?? ''} (${library})`;
    throw new HipError(reason!.code, `${reason!.message}. ${reason!.remedy}`, { platform: hip.platform });
  }

  uniqueId(): Uint8Array {
    return named(() => this.#device.hip.groupId());
  }

  async join(member: GroupMember): Promise<BackendCommunicator> {
    try {
      const ranks = await this.#device.hip.joinGroup(member);
      let made: DeviceCommunicator | undefined;
      try {
        made = new DeviceCommunicator(this.#device, ranks, await PeerAllReduce.join(this.#device, ranks, member));
        await made.joinNorms(member);
        return made;
      } catch (error) {
        (made ?? ranks).abort();
        (made ?? ranks).dispose();
        throw error;
      }
    } catch (error) {
      throw collectiveError(error);
    }
  }
}

class DeviceCommunicator implements BackendCommunicator {
  readonly #device: KernelDevice;
  readonly #ranks: HipCommunicator;
  readonly #peers: PeerAllReduce | undefined;
  readonly #aside: SideSums;
  #norms: PeerNorms | undefined;
  #rowNorms: SummedNorms | undefined;

  constructor(device: KernelDevice, ranks: HipCommunicator, peers: PeerAllReduce | undefined) {
    this.#device = device;
    this.#ranks = ranks;
    this.#peers = peers;
    this.#aside = new SideSums(device);
  }

  /** Ends joining: all ranks call it. */
  async joinNorms(member: GroupMember): Promise<void> {
    const device = this.#device;
    const ranks = this.#ranks;
    const type = 'f32';
    const sum = (address: number, count: number) =>
      this.#call('allReduce', () => ranks.allReduce({ type, source: address, target: address, count }, 'sum'));
    // Asked for by all ranks or by none.
    if (this.#peers && (await new Agreement(device, ranks, member).all(settings.peerNorms() !== false)))
      this.#rowNorms = new SummedNorms(device, member, this.#peers.rows, (address, count) => {
        if (this.#peers!.takes(type, count, 'sum')) this.#peers!.run(type, address, address, count);
        else sum(address, count);
      });
    this.#norms = await PeerNorms.join(device, ranks, member, this.#peers?.memory, {
      sum,
      exchange: (parts) =>
        this.#call('exchange', () =>
          ranks.grouped(() => {
            const own = parts[member.rank];
            for (const [other, { address, count }] of parts.entries()) {
              if (other === member.rank) continue;
              ranks.send({ type, source: own.address, count: own.count }, other);
              ranks.recv({ type, target: address, count }, other);
            }
          }),
        ),
    });
  }

  get rank(): number {
    return this.#ranks.rank;
  }

  get size(): number {
    return this.#ranks.size;
  }

  allReduce(source: StoragePart, target: StoragePart, count: number, reduction: Reduction): void {
    const type = this.#numbers('allReduce', source);
    const both = this.#both(source, target);
    const data = { type, ...both, count };
    if (this.#peers?.takes(type, count, reduction)) this.#peers.run(type, both.source, both.target, count);
    else if (this.#aside.takes(count * sizeInBytes(type))) {
      const storages = [source, target].map(([storage]) => KernelStorage.on(this.#device, storage));
      named(() => this.#aside.run((stream) => this.#ranks.allReduce(data, reduction, stream), storages));
    } else this.#call('allReduce', () => this.#ranks.allReduce(data, reduction));
  }

  sumLater(part: StoragePart, count: number): void {
    if (this.#norms?.note(part, count) || this.#rowNorms?.note(part, count)) return;
    this.allReduce(part, part, count, 'sum');
  }

  forSum<T>(product: () => T): T {
    return this.#norms ? this.#norms.forSum(product) : product();
  }

  get joinsSums(): boolean {
    return this.#norms?.pays ?? false;
  }

  allGather(source: StoragePart, target: StoragePart, count: number): void {
    const bytes = this.#bytes(source, count);
    this.#call('allGather', () => this.#ranks.allGather({ ...bytes, ...this.#both(source, target) }));
  }

  reduceScatter(source: StoragePart, target: StoragePart, count: number, reduction: CollectiveReduction): void {
    const type = this.#numbers('reduceScatter', source);
    const data = { type, ...this.#both(source, target), count };
    this.#call('reduceScatter', () => this.#ranks.reduceScatter(data, reduction));
  }

  broadcast(data: StoragePart, count: number, root: number): void {
    const bytes = this.#bytes(data, count);
    this.#call('broadcast', () => this.#ranks.broadcast({ ...bytes, ...this.#both(data, data) }, root));
  }

  send(source: StoragePart, count: number, to: number): void {
    const bytes = this.#bytes(source, count);
    this.#call('send', () => this.#ranks.send({ ...bytes, source: this.#device.address(source) }, to));
  }

  recv(target: StoragePart, count: number, from: number): void {
    const bytes = this.#bytes(target, count);
    this.#call('recv', () => this.#ranks.recv({ ...bytes, target: this.#device.address(target) }, from));
  }

  grouped(calls: () => void): void {
    this.#aside.settle();
    named(() => this.#ranks.grouped(calls));
  }

  failure(): Error | undefined {
    const missing = this.#peers?.failure();
    if (missing) return missing;
    const failure = this.#ranks.failure();
    if (!failure) return undefined;
    const { code, rank, message } = failure;
    return new CollectiveError(code, remedied(message), rank >= 0 ? { rank } : {});
  }

  abort(): void {
    this.#peers?.abort();
    this.#ranks.abort();
  }

  dispose(): void {
    this.#ranks.dispose();
    this.#aside.dispose();
    this.#norms?.dispose();
    this.#rowNorms?.dispose();
    this.#peers?.dispose();
  }

  #call(name: string, call: () => void): void {
    this.#aside.settle();
    named(() => this.#device.callLibrary(() => name, call));
  }

  #both(source: StoragePart, target: StoragePart): { source: number; target: number } {
    return { source: this.#device.address(source), target: this.#device.address(target) };
  }

  /** What is only moved is bytes, whatever its dtype. */
  #bytes([{ dtype }]: StoragePart, count: number): { type: CollectiveType; count: number } {
    return { type: 'u8', count: count * sizeInBytes(dtype) };
  }

  #numbers(op: string, [{ dtype }]: StoragePart): CollectiveType {
    if (isReduced(dtype)) return dtype;
    throw unsupported(op, dtype, this.#device);
  }
}

function isReduced(dtype: DType): dtype is CollectiveType {
  return (TYPES as readonly DType[]).includes(dtype);
}

function named<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw collectiveError(error);
  }
}

/** A group that failed is core's error; a missing library and a wrong argument stay what they are. */
function collectiveError(error: unknown): unknown {
  if (!(error instanceof HipError) || !FAILURES.includes(error.code)) return error;
  return new CollectiveError(error.code as CollectiveErrorCode, remedied(error.message), { cause: error });
}

function remedied(message: string): string {
  return message.includes('. ') ? message : `${message}; end all ranks and start them again`;
}
