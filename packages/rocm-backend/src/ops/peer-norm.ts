/**
 * Sums over two ranks that are part of the norm behind them: a kernel (kernels/collectives/norm.h) in which each rank makes half of
 * the rows and writes them to both ranks' memory. For what products of many rows leave to be added to a residual, by threads of one
 * process whose devices reach all of each other's memory.
 *
 * A sum is only noted when it is asked for. Where something else than such a norm reads it first, it is added up then. The norm's own
 * sum, x + delta, is on each rank for its rows alone, until something else reads that. Products leave the other rank's rows in its
 * memory as they are made, where nothing waits for them; of those that do not, the norm fetches them.
 */
import { type GroupMember, type NormDType, type NormProblem, type StoragePart, settings, sizeInBytes } from '@x/core';
import type { HipCommunicator, PeerMemory } from '@x/hip';
import { debug } from '../debug';
import type { KernelDevice } from '../device';
import { messageOf } from '../errors';
import { NORM_VALUES } from '../launch-shape';
import { launchNormOfPair } from '../launchers/collectives';
import { type Arrival, KernelStorage } from '../storage';
import { Agreement, isYes, nameIn } from './agreement';
import { TICKS_PER_MS } from './peer-all-reduce';
import type { ProductRows } from './result';

/** The smallest sums, in bytes of a rank: of less, meeting the other rank twice takes as long as what is saved. `X_PEER_NORMS=1` takes all. */
const LEAST_BYTES = 2 ** 21;
/** What products of the other rank write to: half of a pass of 4,096 tokens of 8,192 values. */
const INBOX_BYTES = 2 ** 26;
/** Of a memory's name, its first bytes: the process (packages/hip/native/peer_memory.h). */
const PROCESS_BYTES = 16;
/** Sums that are made by themselves before the first norm. */
const CREDIT = 2;
const QUAD = 4;
/** Threads of the kernel that a multiprocessor has room for, by the registers that they take. */
const THREADS_PER_CU = 1024;
const ALIGNMENT = 16;
/** Rows of a product's parts: a multiple of these, which are whole tiles of products. */
const WHOLE_ROWS = 32;

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

/** Memory in which the two meet, and that in which a product of the other one's leaves rows. */
interface PairMemory {
  meeting: PeerMemory;
  inbox: PeerMemory;
  /** Where this device finds the other's inbox. */
  theirInbox: number;
}

/** What a norm reads and writes beside x. */
interface NormParts {
  delta: number;
  /** The other rank's part of this one's rows, where it is here. */
  deltaHere: number;
  deltaAlpha: number;
  alpha: number;
  beta: number;
  sum: number;
  y: number;
}

export class PeerNorms {
  readonly #device: KernelDevice;
  readonly #member: Pick<GroupMember, 'rank' | 'timeoutMs'>;
  readonly #memory: PairMemory;
  readonly #library: PairLibrary;
  /** Sums that are noted. */
  readonly #noted = new Set<PartOfSum>();
  readonly #leastBytes = settings.peerNorms() ? 0 : LEAST_BYTES;
  /** How many sums were part of a norm, less those that were made by themselves after all; some may come first. */
  #gain = CREDIT;
  /** The product whose rows were left to both ranks, until it is noted. */
  #parted: { m: number; n: number } | undefined;

  /** Undefined where ranks are not two threads of a process that reach each other's memory. Both ranks get one or none does. */
  static async join(
    device: KernelDevice,
    ranks: HipCommunicator,
    member: GroupMember,
    meeting: PeerMemory | undefined,
    library: PairLibrary,
  ): Promise<PeerNorms | undefined> {
    const { rank, size } = member;
    if (!meeting || size !== 2) return undefined;
    const agreement = new Agreement(device, ranks, member);
    let inbox: PeerMemory | undefined;
    let theirInbox = 0;
    let why = 'the other rank does not, or is another process';
    const attempt = (part: () => void): boolean => {
      try {
        part();
        return true;
      } catch (error) {
        why = messageOf(error);
        return false;
      }
    };
    // What is written to other memory than a stage is coherent on NVIDIA's GPUs; on AMD's that has not been seen.
    const wanted = settings.peerNorms() ?? device.hip.platform === 'cuda';
    if (!wanted) why = 'X_PEER_NORMS';
    const can = wanted && attempt(() => (inbox = device.hip.peerMemory(INBOX_BYTES)));
    try {
      const words = await agreement.words(can, inbox?.name);
      const [own, theirs] = words.map((word) => nameIn(word, PROCESS_BYTES).join());
      const reaches = words.every(isYes) && own === theirs;
      const reach = () => (theirInbox = inbox!.reach(nameIn(words[1 - rank], inbox!.name.length)));
      // Asked for by both ranks or by none.
      const agreed = reaches && (await agreement.all(attempt(reach)));
      debug(1, () => `${device.name}: sums are ${agreed ? 'part of norms' : `by themselves: ${why}`}`);
      if (agreed) return new PeerNorms(device, member, { meeting, inbox: inbox!, theirInbox }, library);
    } catch (error) {
      inbox?.dispose();
      throw error;
    }
    inbox?.dispose();
    return undefined;
  }

  private constructor(device: KernelDevice, member: GroupMember, memory: PairMemory, library: PairLibrary) {
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

  /** Runs what makes a product for the next sum, f32: the other rank's rows of it may go to its inbox. */
  forSum<T>(product: () => T): T {
    const device = this.#device;
    device.splitProduct = (size, out) => this.#parts(size, out);
    try {
      return product();
    } catch (error) {
      this.#parted = undefined;
      throw error;
    } finally {
      device.splitProduct = undefined;
    }
  }

  /** Notes a sum over both ranks; false where it is not worth it. What decides is the same on both ranks. */
  note([storage, offset]: StoragePart, count: number): boolean {
    const whole = KernelStorage.on(this.#device, storage);
    const isWhole = whole.dtype === 'f32' && offset === 0 && count === whole.elemCount;
    const parted = this.#parted;
    this.#parted = undefined;
    if (parted && !(isWhole && count === parted.m * parted.n))
      throw new Error('internal: another sum than that of the product whose rows went to the other rank');
    if (!parted && !(isWhole && this.#takes(count) && !whole.hasDependents)) return false;
    const part = new PartOfSum(this, whole, parted?.n);
    this.#noted.add(part);
    whole.arrivesWith(part);
    return true;
  }

  /** @internal */
  over(part: PartOfSum): void {
    this.#noted.delete(part);
  }

  /** @internal A sum that was noted is made by itself. */
  addUp(part: PartOfSum): void {
    this.over(part);
    this.#gain--;
    const { storage, n } = part;
    const address = storage.unsettledPtr;
    if (n === undefined) {
      this.#library.sum(address, storage.elemCount);
      return;
    }
    // With nothing to be added to, and no norm.
    const device = this.#device;
    const zeros = device.zeros(storage.elemCount, 'f32');
    const none = { deltaAlpha: 0, alpha: 0, beta: 0 };
    const parts = { delta: address, deltaHere: this.#memory.inbox.address, ...none, sum: zeros.ptr, y: address };
    const problem = { rows: storage.elemCount / n, n, eps: 0, deltaScale: 1, centred: false };
    try {
      this.#launch('f32', problem, zeros.ptr, parts);
    } finally {
      zeros.dispose();
    }
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

  /** Makes all that is noted. */
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
    const { storage } = part;
    const [, deltaAt] = delta!;
    const given = KernelStorage.on(device, x[0]);
    const address = (weights: StoragePart | undefined) => (weights ? device.address(weights) : 0);
    const weights = [deltaAlpha, alpha, beta].map(address);
    const whole = [storage, given].every(({ elemCount }) => elemCount === rows * n) && deltaAt === 0 && x[1] === 0;
    const { timesLaunches, recording } = device;
    if (!whole || !this.#shape(n) || rows < 2 || recording || timesLaunches) return false;
    if ((part.n ?? n) !== n || weights.some((at) => at % ALIGNMENT !== 0)) return false;
    this.#gain++;
    const keepsRows = given.arrival instanceof OwnRows && given.arrival.n === n;
    this.#launch(form, { rows, n, eps, deltaScale, centred }, keepsRows ? given.unsettledPtr : given.ptr, {
      delta: storage.unsettledPtr,
      deltaHere: part.n === undefined ? 0 : this.#memory.inbox.address,
      deltaAlpha: weights[0],
      alpha: weights[1],
      beta: weights[2],
      sum: made.sum.ptr,
      y: made.y,
    });
    made.sum.arrivesWith(new OwnRows(this, made.sum, n));
    return true;
  }

  dispose(): void {
    this.#device.beforeCaptures.delete(this.settle);
    this.#memory.inbox.dispose();
  }

  /** Whether sums of so many values are noted. */
  #takes(count: number): boolean {
    const { recording, timesLaunches } = this.#device;
    return this.pays && !recording && !timesLaunches && count * sizeInBytes('f32') >= this.#leastBytes;
  }

  /** Where the rows of a product go: this rank's to `out`, the other's to its inbox, first, so that they are on their way meanwhile. */
  #parts({ m, n }: { m: number; n: number }, out: number): ProductRows[] | undefined {
    const half = (m / 2) * n * sizeInBytes('f32');
    const fits = m % (2 * WHOLE_ROWS) === 0 && this.#shape(n) !== undefined && half <= INBOX_BYTES;
    // There is one inbox.
    const isTaken = this.#parted !== undefined || [...this.#noted].some((part) => part.n !== undefined);
    if (!fits || isTaken || !this.#takes(m * n)) return undefined;
    this.#parted = { m, n };
    const { rank } = this.#member;
    const [own, theirs] = [rank, 1 - rank].map((one) => rowsOf(one, m));
    return [
      { ...theirs, to: this.#memory.theirInbox },
      { ...own, to: out + own.first * n * sizeInBytes('f32') },
    ];
  }

  #launch(
    form: NormDType,
    {
      rows,
      n,
      eps,
      deltaScale,
      centred,
    }: { rows: number; n: number; eps: number; deltaScale: number; centred: boolean },
    x: number,
    { delta, deltaHere, deltaAlpha, alpha, beta, sum, y }: NormParts,
  ): void {
    const device = this.#device;
    const { rank, timeoutMs } = this.#member;
    const { first, count } = rowsOf(rank, rows);
    const { grid, block } = this.#shape(n)!;
    const { control, address: stage } = this.#memory.meeting;
    device.orderLibraries();
    launchNormOfPair(
      device,
      `norm_of_pair_${form}`,
      { grid: Math.min(grid, count), block },
      {
        rows: count,
        first,
        n,
        eps,
        deltaScale,
        centred,
        x,
        delta,
        deltaAlpha,
        alpha,
        beta,
        sum,
        y,
        deltaHere,
        other: 1 - rank,
        patience: Math.round(timeoutMs * TICKS_PER_MS[device.hip.platform]),
        control,
        stage,
      },
    );
  }

  /** At most as many blocks as the device has room for. */
  #shape(n: number): { grid: number; block: number } | undefined {
    const { shapes, hip } = this.#device;
    const { multiprocessorCount } = hip.properties;
    const block = shapes.normThreads(n);
    const grid = multiprocessorCount * (THREADS_PER_CU / block);
    return n % QUAD === 0 && n <= NORM_VALUES * block ? { grid, block } : undefined;
  }
}

/** A storage that holds this rank's part of a sum. */
export class PartOfSum implements Arrival {
  /** @param n values of a row, of this rank's rows alone: the other's part of these is in its inbox; undefined: all rows are here */
  constructor(
    readonly pair: PeerNorms,
    readonly storage: KernelStorage,
    readonly n: number | undefined,
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
