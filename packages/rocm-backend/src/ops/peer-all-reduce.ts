/**
 * Sums over a group's ranks through the devices' own memory: one kernel (kernels/collectives/peers.h) in place of a library's
 * call, for what a decode step adds up after each part of a layer. For ranks in threads of one process, or in processes of one
 * machine, whose devices reach each other's memory; where one does not, all of them leave it to the library.
 *
 * That a driver offers access says little (peers.ts), so a sum of known numbers has to come out right before anything is trusted.
 * What is agreed on goes through the library's all-gather. On `cpu` there are only the sockets: a kernel that waits for another
 * rank would keep the cores that the other rank needs.
 */
import { CollectiveError, type DType, type GroupMember, type Reduction, settings, sizeInBytes } from '@x/core';
import type { HipCommunicator, PeerMemory } from '@x/hip';
import { COLLECTIVES } from '@x/kernels';
import { debug } from '../debug';
import type { KernelDevice } from '../device';
import { messageOf } from '../errors';
import { launchAllReducePeers } from '../launchers/collectives';
import { PEER_ADDRESSES_AT, PEER_BLOCKS, PEER_INBOX_AT, PEER_PACKS, PEER_RANKS } from '../launchers/constants';
import { Agreement, isYes, nameIn } from './agreement';
import { type RowsMemory, SummedNorms } from './summed-norm';

const PACK_BYTES = 16;
/** A message carries as many bytes for its number as for what it says. */
const MESSAGE_BYTES = 2 * PACK_BYTES;
const TURN_BYTES = PEER_BLOCKS * PEER_PACKS * PACK_BYTES;

/**
 * The largest sums, in bytes of a rank. On two H100 they take 2.5 to 3 us, where NCCL takes 7; of 128 KiB and more some graphs of
 * them take 5 us a block instead, one block after the other.
 */
const MAX_BYTES = 2 ** 16;
/** Where each of more than two ranks would send more than this, each adds up a part for all. */
const SENT_BYTES = 2 ** 16;

const DTYPES: readonly DType[] = ['f32', 'f16', 'bf16'];
const KERNELS = ['all_reduce_peers', 'all_reduce_peers_parts'];

/** What the kernel counts in a millisecond. */
export const TICKS_PER_MS = { cuda: 1e6, rocm: 1e5, host: 25 } as const;

/** Ranks that do not reach each other find out when the first sum does not come. */
const TRIAL_MS = 3000;
/** More than a block takes, and no multiple of a pack. */
const TRIAL_COUNT = 1501;

export class PeerAllReduce {
  readonly #device: KernelDevice;
  readonly #member: Pick<GroupMember, 'rank' | 'size' | 'timeoutMs'>;
  readonly #memory: PeerMemory;
  readonly #turns: number;
  /** Where the inbox of sums that are part of norms begins. */
  readonly #rowsAt: number;

  private constructor(device: KernelDevice, member: GroupMember) {
    const { size } = member;
    this.#device = device;
    this.#member = member;
    this.#turns = Math.ceil(MAX_BYTES / TURN_BYTES);
    const inbox = 2 * size * PEER_BLOCKS * this.#turns * PEER_PACKS * MESSAGE_BYTES;
    this.#rowsAt = PEER_INBOX_AT + inbox;
    this.#memory = device.hip.peerMemory(this.#rowsAt + SummedNorms.inboxBytes(size));
  }

  /**
   * Undefined where the ranks do not all reach each other. All ranks of a group call it, and all get one or none does.
   * @throws CollectiveError where a rank is gone meanwhile; HipError
   */
  static async join(
    device: KernelDevice,
    ranks: HipCommunicator,
    member: GroupMember,
  ): Promise<PeerAllReduce | undefined> {
    const { rank, size } = member;
    if (device.hip.platform === 'host' || size < 2 || size > PEER_RANKS) return undefined;
    const agreement = new Agreement(device, ranks, member);
    let peers: PeerAllReduce | undefined;
    let why = '';
    const attempt = (part: () => void): boolean => {
      try {
        part();
        return true;
      } catch (error) {
        if (error instanceof CollectiveError) throw error;
        why = messageOf(error);
        return false;
      }
    };
    try {
      if (!settings.peer()) why = 'X_PEER=0';
      const can =
        settings.peer() &&
        attempt(() => {
          for (const kernel of KERNELS)
            for (const dtype of DTYPES) device.getOrLoadFunc(`${kernel}_${dtype}`, COLLECTIVES);
          peers = new PeerAllReduce(device, member);
        });
      const words = await agreement.words(can, peers?.name);
      let agreed = words.every(isYes);
      // The two that follow are asked for by all ranks or by none.
      if (agreed) agreed = await agreement.all(attempt(() => peers!.#reach(words)));
      if (agreed) agreed = await agreement.all(await peers!.#sumArrives());
      why ||= 'another rank cannot';
      debug(1, () => {
        const through = agreed ? `peer memory up to ${MAX_BYTES} bytes` : `the library: ${why}`;
        return `${device.name}, rank ${rank} of ${size}: sums go through ${through}`;
      });
      if (agreed) return peers;
    } catch (error) {
      peers?.abort();
      peers?.dispose();
      throw error;
    }
    peers?.dispose();
    return undefined;
  }

  /** What the memory is called for the other ranks. */
  get name(): Uint8Array {
    return this.#memory.name;
  }

  /** The memory that the ranks meet in; its first {@link PEER_INBOX_AT} bytes have room for other kernels' words. */
  get memory(): PeerMemory {
    return this.#memory;
  }

  /** Where sums are added up that are part of norms. */
  get rows(): RowsMemory {
    const ticksPerMs = TICKS_PER_MS[this.#device.hip.platform];
    return { memory: this.#memory, inboxAt: this.#rowsAt, ticksPerMs };
  }

  /** Whether such a reduction goes this way: what is the same on all ranks decides. */
  takes(dtype: DType, count: number, reduction: Reduction): boolean {
    return reduction === 'sum' && DTYPES.includes(dtype) && count * sizeInBytes(dtype) <= MAX_BYTES;
  }

  /** Enqueues `target` = the sum of all ranks' `source`, addresses of `count` elements; they may be the same. */
  run(dtype: DType, source: number, target: number, count: number): void {
    const device = this.#device;
    device.orderLibraries();
    this.#launch(dtype, source, target, count, this.#member.timeoutMs);
  }

  /** A rank that did not come. */
  failure(): CollectiveError | undefined {
    const { missing } = this.#memory;
    if (missing === undefined) return undefined;
    const message = `rank ${missing} did not come within ${this.#member.timeoutMs} ms; end all ranks and start them again`;
    return new CollectiveError('RANK_TIMEOUT', message, { rank: missing });
  }

  /** Lets kernels go that wait for other ranks. */
  abort(): void {
    this.#memory.abort();
  }

  /** Waits for the device. */
  dispose(): void {
    this.#memory.dispose();
  }

  #launch(dtype: DType, source: number, target: number, count: number, timeoutMs: number): void {
    const { hip } = this.#device;
    const { rank, size } = this.#member;
    const bytes = count * sizeInBytes(dtype);
    const packs = Math.ceil(bytes / PACK_BYTES);
    const byParts = size > 2 && bytes * (size - 1) > SENT_BYTES;
    const grid = Math.min(PEER_BLOCKS, Math.ceil(packs / PEER_PACKS));
    launchAllReducePeers(
      this.#device,
      `${KERNELS[Number(byParts)]}_${dtype}`,
      { grid, block: PEER_PACKS },
      {
        count,
        rank,
        ranks: size,
        turns: this.#turns,
        patience: Math.round(timeoutMs * TICKS_PER_MS[hip.platform]),
        source,
        target,
        control: this.#memory.control,
        stage: this.#memory.address,
      },
    );
  }

  #reach(words: readonly Uint8Array[]): void {
    const memory = this.#memory;
    const nameBytes = memory.name.length;
    const addresses = words.map((word, rank) =>
      rank === this.#member.rank ? memory.address : memory.reach(nameIn(word, nameBytes)),
    );
    memory.write(PEER_ADDRESSES_AT, BigUint64Array.from(addresses, BigInt));
  }

  /** Whether a sum of numbers that every rank knows is right, twice: once for each half of the inboxes. */
  async #sumArrives(): Promise<boolean> {
    const device = this.#device;
    const { rank, size } = this.#member;
    const number = (i: number) => 1 + (i % 251);
    const own = Float32Array.from({ length: TRIAL_COUNT }, (_, i) => (rank + 1) * number(i));
    const source = device.malloc(own.byteLength);
    const target = device.malloc(own.byteLength);
    const ranks = (size * (size + 1)) / 2;
    try {
      device.hip.memcpyHtoD(source, own);
      for (let i = 0; i < 2; i++) {
        this.#launch('f32', source, target, TRIAL_COUNT, TRIAL_MS);
        const back = new Float32Array(TRIAL_COUNT);
        await device.hip.memcpyDtoH(back, target);
        if (this.#memory.missing !== undefined) return false;
        if (!back.every((value, at) => value === ranks * number(at))) return false;
      }
      return true;
    } finally {
      device.free(source);
      device.free(target);
    }
  }
}
