/**
 * Sums over two ranks that are part of the norm behind them: a kernel (kernels/collectives/norm.h) in which each rank makes half of
 * the rows and writes them to both ranks' memory. For what products of many rows leave to be added to a residual, by threads of one
 * process whose devices reach all of each other's memory.
 *
 * A sum is only noted when it is asked for. Where something else than such a norm reads it first, the library adds it up then. The
 * norm's own sum, x + delta, is on each rank for its rows alone, until something else reads that.
 */
import { type GroupMember, type NormDType, type NormProblem, type StoragePart, settings, sizeInBytes } from '@x/core';
import type { PeerMemory } from '@x/hip';
import type { KernelDevice } from '../device';
import { type LaunchShape, NORM_VALUES } from '../launch-shape';
import { launchNormOfPair } from '../launchers/collectives';
import { type Arrival, KernelStorage } from '../storage';
import { TICKS_PER_MS } from './peer-all-reduce';

/** The smallest sums, in bytes of a rank: of less, meeting the other rank twice takes as long as what is saved. `X_PEER_NORMS=1` takes all. */
const LEAST_BYTES = 2 ** 21;
const QUAD = 4;
/** Threads of the kernel that a multiprocessor has room for, by the registers that they take. */
const THREADS_PER_CU = 1024;
const ALIGNMENT = 16;

/** The library's part: what is left to it is asked for by both ranks. */
export interface PairLibrary {
  /** Adds up what both ranks have. */
  sum(address: number, count: number): void;
  /** Sends the other rank `own` values of f32 from an address on, and receives `theirs`. */
  exchange(own: { address: number; count: number }, theirs: { address: number; count: number }): void;
}

/** Rows of which a rank has some. */
interface Rows {
  first: number;
  count: number;
}

export class PeerNorms {
  readonly #device: KernelDevice;
  readonly #member: Pick<GroupMember, 'rank' | 'timeoutMs'>;
  readonly #memory: PeerMemory;
  readonly #library: PairLibrary;
  /** Sums that are noted. */
  readonly #noted = new Set<PartOfSum>();
  readonly #leastBytes = settings.peerNorms() ? 0 : LEAST_BYTES;
  /** How many sums were part of a norm, less those that the library made after all. */
  #gain = 0;

  constructor(device: KernelDevice, member: GroupMember, memory: PeerMemory, library: PairLibrary) {
    this.#device = device;
    this.#member = member;
    this.#memory = memory;
    this.#library = library;
    device.beforeCaptures.add(this.settle);
  }

  /** Whether sums were part of norms so far, so that the next ones are expected to be. The same on both ranks. */
  get pays(): boolean {
    return this.#gain >= 0;
  }

  /** Notes a sum over both ranks; false where it is not worth it. What decides is the same on both ranks. */
  note([storage, offset]: StoragePart, count: number): boolean {
    const device = this.#device;
    const whole = KernelStorage.on(device, storage);
    if (!this.pays || device.recording || device.timesLaunches || whole.hasDependents) return false;
    const fits = whole.dtype === 'f32' && offset === 0 && count === whole.elemCount;
    if (!fits || whole.byteLength < this.#leastBytes) return false;
    const part = new PartOfSum(this, whole);
    this.#noted.add(part);
    whole.arrivesWith(part);
    return true;
  }

  /** @internal */
  over(part: PartOfSum): void {
    this.#noted.delete(part);
  }

  /** @internal The library makes a sum that was noted. */
  addUp(part: PartOfSum): void {
    this.over(part);
    this.#gain--;
    this.#library.sum(part.storage.unsettledPtr, part.storage.elemCount);
  }

  /** @internal Each rank gets the other's rows of a sum. */
  complete(storage: KernelStorage, n: number): void {
    const { rank } = this.#member;
    const [own, theirs] = [rank, 1 - rank].map((one) => {
      const { first, count } = rowsOf(one, storage.elemCount / n);
      return { address: storage.unsettledPtr + first * n * sizeInBytes('f32'), count: count * n };
    });
    this.#library.exchange(own, theirs);
  }

  /** Makes the library add up all that is noted. */
  readonly settle = (): void => {
    for (const part of [...this.#noted]) void part.storage.ptr;
  };

  /**
   * Enqueues the norm of x and a sum of this pair's; false where the kernel does not take them, and nothing has happened.
   * @param made where x + delta and its norm go: rows of n values
   */
  norm(part: PartOfSum, problem: NormProblem, form: NormDType, made: { sum: KernelStorage; y: number }): boolean {
    const device = this.#device;
    const { rows, n, eps, x, delta, deltaScale = 1, deltaAlpha, alpha, beta, centred = false } = problem;
    const shape = this.#shape(n);
    const [, deltaAt] = delta!;
    const given = KernelStorage.on(device, x[0]);
    const address = (weights: StoragePart | undefined) => (weights ? device.address(weights) : 0);
    const weights = [deltaAlpha, alpha, beta].map(address);
    const whole = deltaAt === 0 && part.storage.elemCount === rows * n && given.elemCount === rows * n && x[1] === 0;
    const { timesLaunches, recording } = device;
    if (!shape || !whole || rows < 2 || recording || timesLaunches || weights.some((at) => at % ALIGNMENT !== 0))
      return false;
    this.#gain++;
    const keepsRows = given.arrival instanceof OwnRows && given.arrival.n === n;
    const { rank, timeoutMs } = this.#member;
    const { first, count } = rowsOf(rank, rows);
    const { control, address: stage } = this.#memory;
    device.orderLibraries();
    launchNormOfPair(
      device,
      `norm_of_pair_${form}`,
      { ...shape, grid: Math.min(shape.grid, count) },
      {
        rows: count,
        first,
        n,
        eps,
        deltaScale,
        centred,
        x: keepsRows ? given.unsettledPtr : given.ptr,
        delta: part.storage.unsettledPtr,
        deltaAlpha: weights[0],
        alpha: weights[1],
        beta: weights[2],
        sum: made.sum.ptr,
        y: made.y,
        other: 1 - rank,
        patience: Math.round(timeoutMs * TICKS_PER_MS[device.hip.platform]),
        control,
        stage,
      },
    );
    made.sum.arrivesWith(new OwnRows(this, made.sum, n));
    return true;
  }

  dispose(): void {
    this.#device.beforeCaptures.delete(this.settle);
  }

  /** At most as many blocks as the device has room for. */
  #shape(n: number): (LaunchShape & { grid: number }) | undefined {
    const { shapes, hip } = this.#device;
    if (shapes.isHost) return { grid: hip.properties.multiprocessorCount, block: 1 };
    const block = shapes.normThreads(n);
    const grid = hip.properties.multiprocessorCount * (THREADS_PER_CU / block);
    return n % QUAD === 0 && n <= NORM_VALUES * block ? { grid, block } : undefined;
  }
}

/** A storage that holds this rank's part of a sum. */
export class PartOfSum implements Arrival {
  constructor(
    readonly pair: PeerNorms,
    readonly storage: KernelStorage,
  ) {}

  wait(): void {
    this.pair.addUp(this);
  }

  drop(): void {
    this.pair.over(this);
  }
}

/** A storage of rows of n values that holds this rank's alone. */
class OwnRows implements Arrival {
  constructor(
    private readonly pair: PeerNorms,
    private readonly storage: KernelStorage,
    readonly n: number,
  ) {}

  wait(): void {
    this.pair.complete(this.storage, this.n);
  }

  drop(): void {}
}

/** The rows of a rank. */
function rowsOf(rank: number, rows: number): Rows {
  const half = Math.ceil(rows / 2);
  return rank === 0 ? { first: 0, count: half } : { first: half, count: rows - half };
}
