/**
 * Sums over the ranks of a group that are part of the norm behind them: a kernel (kernels/collectives/norm.h) in which each rank makes
 * its share of the rows and writes them to all ranks' memory. For what products of many rows leave to be added to a residual, by
 * threads of one process whose devices reach all of each other's memory.
 *
 * A sum is only noted when it is asked for. Where something else than such a norm reads it first, it is added up then. The norm's own
 * sum, x + delta, is on each rank for its rows alone, until something else reads that. Products leave the other ranks' rows in their
 * memory as they are made, where nothing waits for them; of those that do not, the norm fetches them.
 */
import { type GroupMember, type NormDType, type NormProblem, type StoragePart, settings, sizeInBytes } from '@x/core';
import type { HipCommunicator, PeerMemory } from '@x/hip';
import { debug } from '../debug';
import type { KernelDevice } from '../device';
import { messageOf } from '../errors';
import { NORM_VALUES } from '../launch-shape';
import { launchNormOfRanks } from '../launchers/collectives';
import { type Arrival, KernelStorage } from '../storage';
import { Agreement, isYes, nameIn } from './agreement';
import { LaterSum, type MadeNorm } from './later-sum';
import { TICKS_PER_MS } from './peer-all-reduce';
import type { ProductRows } from './result';

/** The smallest sums, in bytes of a rank: of less, meeting the others twice takes as long as what is saved. `X_PEER_NORMS=1` takes all. */
const LEAST_BYTES = 2 ** 21;
/** What products of the others write to: what two ranks, and more, have of a pass of 4,096 tokens of 8,192 values. */
const INBOX_BYTES = { two: 2 ** 26, more: 2 ** 27 };
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

/** The library's part: what is left to it is asked for by all ranks. */
export interface RanksLibrary {
  /** Adds up what all ranks have. */
  sum(address: number, count: number): void;
  /** Sends all others this rank's values of f32 and receives theirs: where each rank's are, in their order. */
  exchange(parts: readonly { address: number; count: number }[]): void;
}

/** Rows of which a rank has some. */
interface Rows {
  first: number;
  count: number;
}

/** Memory in which the ranks meet, and that in which products of the others leave rows. */
interface MeetingMemory {
  meeting: PeerMemory;
  inbox: PeerMemory;
  inboxBytes: number;
  /** Where this device finds each rank's inbox. */
  inboxes: readonly number[];
}

/** What a norm reads and writes beside x. */
interface NormParts {
  delta: number;
  /** The others' parts of this rank's rows, where they are here. */
  deltaHere: number;
  deltaAlpha: number;
  alpha: number;
  beta: number;
  sum: number;
  y: number;
}

export class PeerNorms {
  readonly #device: KernelDevice;
  readonly #member: Pick<GroupMember, 'rank' | 'size' | 'timeoutMs'>;
  readonly #memory: MeetingMemory;
  readonly #library: RanksLibrary;
  /** Sums that are noted. */
  readonly #noted = new Set<PartOfSum>();
  readonly #leastBytes = settings.peerNorms() ? 0 : LEAST_BYTES;
  /** How many sums were part of a norm, less those that were made by themselves after all; some may come first. */
  #gain = CREDIT;
  /** The product whose rows were left to all ranks, until it is noted. */
  #parted: { m: number; n: number } | undefined;

  /** Undefined where ranks are not threads of one process that reach each other's memory. All ranks get one or none does. */
  static async join(
    device: KernelDevice,
    ranks: HipCommunicator,
    member: GroupMember,
    meeting: PeerMemory | undefined,
    library: RanksLibrary,
  ): Promise<PeerNorms | undefined> {
    const { rank, size } = member;
    if (!meeting || size < 2) return undefined;
    const agreement = new Agreement(device, ranks, member);
    const inboxBytes = size === 2 ? INBOX_BYTES.two : INBOX_BYTES.more;
    let inbox: PeerMemory | undefined;
    let inboxes: number[] = [];
    let why = 'another rank does not, or is another process';
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
    const can = wanted && attempt(() => (inbox = device.hip.peerMemory(inboxBytes)));
    try {
      const words = await agreement.words(can, inbox?.name);
      const processes = new Set(words.map((word) => nameIn(word, PROCESS_BYTES).join()));
      const reaches = words.every(isYes) && processes.size === 1;
      const reach = () => {
        const { address, name } = inbox!;
        inboxes = words.map((word, one) => (one === rank ? address : inbox!.reach(nameIn(word, name.length))));
      };
      // Asked for by all ranks or by none.
      const agreed = reaches && (await agreement.all(attempt(reach)));
      debug(1, () => `${device.name}: sums are ${agreed ? 'part of norms' : `by themselves: ${why}`}`);
      if (agreed) return new PeerNorms(device, member, { meeting, inbox: inbox!, inboxBytes, inboxes }, library);
    } catch (error) {
      inbox?.dispose();
      throw error;
    }
    inbox?.dispose();
    return undefined;
  }

  private constructor(device: KernelDevice, member: GroupMember, memory: MeetingMemory, library: RanksLibrary) {
    this.#device = device;
    this.#member = member;
    this.#memory = memory;
    this.#library = library;
    device.aroundCaptures.add(this.settle);
  }

  /** Whether sums were part of norms so far, so that the next ones are expected to be. The same on all ranks. */
  get pays(): boolean {
    return this.#gain >= 0;
  }

  /** Runs what makes a product for the next sum, f32: the other ranks' rows of it may go to their inboxes. */
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

  /** Notes a sum over the ranks; false where it is not worth it. What decides is the same on all ranks. */
  note([storage, offset]: StoragePart, count: number): boolean {
    const whole = KernelStorage.on(this.#device, storage);
    const isWhole = whole.dtype === 'f32' && offset === 0 && count === whole.elemCount;
    const parted = this.#parted;
    this.#parted = undefined;
    if (parted && !(isWhole && count === parted.m * parted.n))
      throw new Error('internal: another sum than that of the product whose rows went to the other ranks');
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

  /** @internal Each rank gets the others' rows of a sum. */
  complete(storage: KernelStorage, n: number): void {
    const parts = this.#shares(storage.elemCount / n).map(({ first, count }) => ({
      address: storage.unsettledPtr + first * n * sizeInBytes('f32'),
      count: count * n,
    }));
    this.#library.exchange(parts);
  }

  /** Makes all that is noted. */
  readonly settle = (): void => {
    for (const part of [...this.#noted]) void part.storage.ptr;
  };

  /** @internal */
  norm(part: PartOfSum, problem: NormProblem, form: NormDType, made: MadeNorm): boolean {
    const device = this.#device;
    const { rows, n, eps, x, delta, deltaScale = 1, deltaAlpha, alpha, beta, centred = false } = problem;
    const { storage } = part;
    const [, deltaAt] = delta!;
    const given = KernelStorage.on(device, x[0]);
    const address = (weights: StoragePart | undefined) => (weights ? device.address(weights) : 0);
    const weights = [deltaAlpha, alpha, beta].map(address);
    const whole = [storage, given].every(({ elemCount }) => elemCount === rows * n) && deltaAt === 0 && x[1] === 0;
    const { timesLaunches, recording } = device;
    if (made.blocks !== 0 || !whole || !this.#shape(n) || rows < this.#member.size || recording || timesLaunches)
      return false;
    if ((part.n ?? n) !== n || weights.some((at) => at % ALIGNMENT !== 0)) return false;
    // Not where one of them is what is to be added up.
    if (given === storage || storage.arrival !== part) return false;
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
    this.#device.aroundCaptures.delete(this.settle);
    this.#memory.inbox.dispose();
  }

  /** Whether sums of so many values are noted. */
  #takes(count: number): boolean {
    const { recording, timesLaunches } = this.#device;
    return this.pays && !recording && !timesLaunches && count * sizeInBytes('f32') >= this.#leastBytes;
  }

  /**
   * Where the rows of a product go: this rank's to `out`, the others' to their inboxes, first, so that they are on their way meanwhile.
   * Each begins with the next rank's, so that not all write to the same one.
   */
  #parts({ m, n }: { m: number; n: number }, out: number): ProductRows[] | undefined {
    const { rank, size } = this.#member;
    const { inboxBytes, inboxes } = this.#memory;
    const rowBytes = n * sizeInBytes('f32');
    const partBytes = (m / size) * rowBytes;
    const fits = m % (size * WHOLE_ROWS) === 0 && this.#shape(n) !== undefined && (size - 1) * partBytes <= inboxBytes;
    // There is one inbox.
    const isTaken = this.#parted !== undefined || [...this.#noted].some((part) => part.n !== undefined);
    if (!fits || isTaken || !this.#takes(m * n)) return undefined;
    this.#parted = { m, n };
    const shares = this.#shares(m);
    const others = Array.from({ length: size - 1 }, (_, i) => (rank + 1 + i) % size);
    return [
      // In an inbox are the others' parts, in their order.
      ...others.map((to) => ({ ...shares[to], to: inboxes[to] + (rank < to ? rank : rank - 1) * partBytes })),
      { ...shares[rank], to: out + shares[rank].first * rowBytes },
    ];
  }

  /** The rows of each rank. */
  #shares(rows: number): Rows[] {
    const { size } = this.#member;
    const from = (rank: number) => Math.floor((rank * rows) / size);
    return Array.from({ length: size }, (_, rank) => ({ first: from(rank), count: from(rank + 1) - from(rank) }));
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
    const { rank, size, timeoutMs } = this.#member;
    const { first, count } = this.#shares(rows)[rank];
    const { grid, block } = this.#shape(n)!;
    const { control, address: stage } = this.#memory.meeting;
    device.orderLibraries();
    launchNormOfRanks(
      device,
      `norm_of_ranks_${form}`,
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
        rank,
        ranks: size,
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
class PartOfSum extends LaterSum {
  /** @param n values of a row, of this rank's rows alone: the others' parts of these are in its inbox; undefined: all rows are here */
  constructor(
    readonly norms: PeerNorms,
    readonly storage: KernelStorage,
    readonly n: number | undefined,
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

/** A storage of rows of n values that holds this rank's alone. */
class OwnRows implements Arrival {
  constructor(
    private readonly norms: PeerNorms,
    private readonly storage: KernelStorage,
    readonly n: number,
  ) {}

  wait(): void {
    this.norms.complete(this.storage, this.n);
  }

  drop(): void {}
}
