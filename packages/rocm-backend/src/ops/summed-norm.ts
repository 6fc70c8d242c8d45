/**
 * Sums over the ranks of a group that are part of the norm behind them, of few rows: a kernel (kernels/collectives/summed-norm.h) in
 * which each rank makes all rows of what the others send it. For what a decode step leaves to be added to a residual, where sums go
 * through the devices' own memory (peer-all-reduce.ts).
 */
import { type GroupMember, type NormDType, type NormProblem, type StoragePart, sizeInBytes } from '@x/core';
import type { PeerMemory } from '@x/hip';
import type { KernelDevice } from '../device';
import { MAX_NORM_THREADS } from '../launch-shape';
import { launchSummedNorm } from '../launchers/collectives';
import { PEER_ROW_FOURS, PEER_ROWS } from '../launchers/constants';
import { KernelStorage } from '../storage';
import { paddedWidth } from './activations';
import { LaterSum, type MadeNorm } from './later-sum';

const FOUR = 4;
/** A four, and as many bytes for the number of its call. */
const MESSAGE_BYTES = 2 * FOUR * sizeInBytes('f32');
/** What a rank sends to all others, at most, in fours: as far as it was measured to be sooner than a library's sum, and 64 KiB elsewhere. */
const MOST_SENT = { cuda: 2 ** 15, rocm: 2 ** 12, host: 0 } as const;
const ALIGNMENT = 16;

/** The memory in which ranks meet, and where in it the rows' inbox begins. */
export interface RowsMemory {
  memory: PeerMemory;
  inboxAt: number;
  /** A millisecond of the device's clock. */
  ticksPerMs: number;
}

export class SummedNorms {
  readonly #device: KernelDevice;
  readonly #member: Pick<GroupMember, 'rank' | 'size' | 'timeoutMs'>;
  readonly #rows: RowsMemory;
  /** Adds up what all ranks have, by itself. */
  readonly #sum: (address: number, count: number) => void;
  /** Sums that are noted. */
  readonly #noted = new Set<RowsOfSum>();

  /** Bytes of the rows' inbox of a group. */
  static inboxBytes(size: number): number {
    return 2 * size * PEER_ROWS * PEER_ROW_FOURS * MESSAGE_BYTES;
  }

  constructor(
    device: KernelDevice,
    member: Pick<GroupMember, 'rank' | 'size' | 'timeoutMs'>,
    rows: RowsMemory,
    sum: (address: number, count: number) => void,
  ) {
    this.#device = device;
    this.#member = member;
    this.#rows = rows;
    this.#sum = sum;
    device.aroundCaptures.add(this.settle);
  }

  /** Notes a sum over the ranks; false where it is by itself. What decides is the same on all ranks. */
  note([storage, offset]: StoragePart, count: number): boolean {
    const whole = KernelStorage.on(this.#device, storage);
    const isWhole = whole.dtype === 'f32' && offset === 0 && count === whole.elemCount;
    const fits = (count / FOUR) * (this.#member.size - 1) <= MOST_SENT[this.#device.hip.platform];
    if (!isWhole || !fits || whole.hasDependents) return false;
    const sum = new RowsOfSum(this, whole);
    this.#noted.add(sum);
    whole.arrivesWith(sum);
    return true;
  }

  /** @internal */
  over(sum: RowsOfSum): void {
    this.#noted.delete(sum);
  }

  /** @internal A sum that was noted is made by itself. */
  addUp(sum: RowsOfSum): void {
    this.over(sum);
    this.#sum(sum.storage.unsettledPtr, sum.storage.elemCount);
  }

  /** Makes all that is noted. */
  readonly settle = (): void => {
    for (const sum of [...this.#noted]) void sum.storage.ptr;
  };

  /** @internal */
  norm(part: RowsOfSum, problem: NormProblem, form: NormDType, made: MadeNorm): boolean {
    const device = this.#device;
    const { storage } = part;
    const { rows, n, eps, x, delta, deltaScale = 1, deltaAlpha, alpha, beta, centred = false } = problem;
    const fits = rows <= PEER_ROWS && n % FOUR === 0 && n / FOUR <= PEER_ROW_FOURS;
    if (!fits || storage.elemCount !== rows * n || delta![1] !== 0) return false;
    const address = (part: StoragePart | undefined) => (part ? device.address(part) : 0);
    const operands = { x: address(x), deltaAlpha: address(deltaAlpha), alpha: address(alpha), beta: address(beta) };
    // Not where one of them is what is to be added up.
    if (storage.arrival !== part || Object.values(operands).some((at) => at % ALIGNMENT !== 0)) return false;
    const { rank, size, timeoutMs } = this.#member;
    const { memory, inboxAt, ticksPerMs } = this.#rows;
    device.orderLibraries();
    launchSummedNorm(
      device,
      `summed_norm_${form}`,
      // Twice the threads of a norm: a four each, of most rows, so that none waits for another.
      { grid: rows, block: Math.min(MAX_NORM_THREADS, 2 * device.shapes.normThreads(n)) },
      {
        rows,
        n,
        padded: paddedWidth(n),
        eps,
        deltaScale,
        centred,
        ...operands,
        delta: storage.unsettledPtr,
        sum: made.sum.ptr,
        blocks: made.blocks,
        y: made.y,
        inboxAt,
        rank,
        ranks: size,
        patience: Math.round(timeoutMs * ticksPerMs),
        control: memory.control,
        stage: memory.address,
      },
    );
    return true;
  }

  dispose(): void {
    this.#device.aroundCaptures.delete(this.settle);
  }
}

/** A storage that holds this rank's part of a sum of few rows. */
class RowsOfSum extends LaterSum {
  constructor(
    private readonly norms: SummedNorms,
    readonly storage: KernelStorage,
  ) {
    super();
  }

  norm(problem: NormProblem, form: NormDType, made: MadeNorm): boolean {
    return this.norms.norm(this, problem, form, made);
  }

  wait(): void {
    this.norms.addUp(this);
  }

  drop(): void {
    this.norms.over(this);
  }
}
