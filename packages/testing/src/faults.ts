/**
 * Faults of a driver on request, for tests of what is left when a call fails: the addon puts a table in front of a platform's
 * own (packages/hip/native/faulty_driver.h) that counts calls, fails the one that is asked for, and knows what is live.
 */
import { type BackendDevice, CandleError, type Device, OutOfMemoryError } from '@x/core';
import { addon, type NativeFaultState } from '../../hip/src/addon';
import { type Platform, platformNumber, platforms } from '../../hip/src/platforms';
import { random } from './random';
import { testSettings } from './settings';

/** The call that fails: the `nth` of an entry point of the driver table, from 1. */
export interface FaultSite {
  entry: string;
  nth: number;
}

/** `once`: that call. `entry`: it and all later ones of the entry point. `all`: it and all later calls, as of a device that is gone. */
export type FaultReach = 'once' | 'entry' | 'all';
const REACHES: readonly FaultReach[] = ['once', 'entry', 'all'];

/** Statuses, numbers that HIP, CUDA and the host platform share. */
const OUT_OF_MEMORY = 2;
const LAUNCH_FAILURE = 719;
const UNKNOWN_ERROR = 999;

/** Calls that make something, which an exhausted device refuses. */
const ALLOCATING = ['malloc', 'hostMalloc', 'streamCreate', 'eventCreate', 'moduleLoad', 'graphInstantiate'];
/** What a failed call may come to. */
const CODES = ['DRIVER_ERROR', 'OUT_OF_MEMORY', 'CACHE_FULL', 'CAPTURE_FAILED', 'DEVICE_UNAVAILABLE'];
/** What takes longer hangs. */
const DEADLINE_MS = 30_000;
const PLATFORMS: Readonly<Record<string, Platform>> = { cpu: 'host', rocm: 'rocm', cuda: 'cuda' };

/** What a piece of work came to while a call failed: its value, unless it raised an error, and what is wrong with that. */
export interface Outcome<T> {
  value?: T;
  problem?: string;
}

/** Says that more is kept than before: wrong where a second failure of the same call keeps more again. */
export interface Growth {
  grows: string;
}

/** Does work while a call fails, and what is to be true afterwards; yields a line for each thing that is wrong. */
export type FaultTrial = (
  settled: <T>(work: () => Promise<T> | T) => Promise<Outcome<T>>,
) => AsyncGenerator<string | Growth | undefined, void, void>;

/** What a device with kernels allocates through: every allocation, also those that its cache serves. */
interface Allocating {
  malloc(bytes: number): number;
}

/** The pseudo entry point of {@link Allocating}. */
const ALLOCATION = 'allocation';

export class Faults {
  readonly platform: Platform;
  private readonly number: number;
  private unwatch = () => 0;

  /** @param device its name, before it is opened */
  constructor(device: Device | string) {
    this.platform = PLATFORMS[`${device}`.replace(/:.*/, '')];
    this.number = platformNumber(this.platform);
    this.clear();
    // A platform is asked what it has once a process; no test is to see that.
    platforms([this.platform]);
    this.clear();
  }

  /** Counts from here on, and fails `site` with `status`. */
  plan({ entry, nth }: FaultSite, status: number, reach: FaultReach = 'once'): void {
    addon().planFault(this.number, entry, nth, status, REACHES.indexOf(reach));
  }

  /** Counts from here on, and fails nothing. */
  clear(): void {
    this.unwatch();
    addon().planFault(this.number, '', 0, 0, 0);
  }

  /**
   * From here to {@link clear} the allocations of a device are counted, and fail where `fails` says so of the nth: the driver sees
   * few of them, since a device keeps what it frees.
   * @returns how many there were
   */
  allocations(backend: BackendDevice, fails: (nth: number) => boolean = () => false): () => number {
    const device = backend as BackendDevice & Allocating;
    const { malloc } = device;
    let count = 0;
    device.malloc = (bytes) => {
      if (fails(++count))
        throw new OutOfMemoryError('OUT_OF_MEMORY', `allocation ${count} of ${bytes} bytes is to fail`);
      return malloc.call(device, bytes);
    };
    this.unwatch = () => {
      // The method of the class again.
      delete (device as Partial<Allocating>).malloc;
      this.unwatch = () => 0;
      return count;
    };
    return this.unwatch;
  }

  get state(): NativeFaultState {
    return addon().faultState(this.number);
  }

  /**
   * Runs a trial for each of the calls that a run makes: once with the call failing; for calls that make something, with these and
   * all later ones out of memory; and for a few of each entry point, with the device gone from there on.
   * @param counts calls of a clean run @param most of an entry point, see {@link faultSites}
   * @param allocating a device, and how often it allocates in such a run: each of these allocations fails, too
   * @returns a line for everything that was wrong
   */
  async problems(
    counts: Readonly<Record<string, number>>,
    most: number,
    trial: FaultTrial,
    allocating?: { backend: BackendDevice; count: number },
  ): Promise<string[]> {
    const scaled = Math.max(1, Math.round(most * testSettings.scale));
    const sites = faultSites(counts, scaled);
    const making = sites.filter(({ entry }) => ALLOCATING.includes(entry));
    const plans: [FaultSite[], number, FaultReach][] = [
      [sites, UNKNOWN_ERROR, 'once'],
      [making, OUT_OF_MEMORY, 'entry'],
      [faultSites(counts, 1), LAUNCH_FAILURE, 'all'],
    ];
    const problems: string[] = [];
    const once = async (site: FaultSite, reach: FaultReach, arm: () => void): Promise<(string | Growth)[]> => {
      const settled = <T>(work: () => Promise<T> | T) => this.settled(site, reach, work);
      const found: (string | Growth)[] = [];
      arm();
      for await (const problem of trial(settled)) if (problem) found.push(problem);
      this.clear();
      return found;
    };
    const run = async (site: FaultSite, reach: FaultReach, arm: () => void) => {
      let found = await once(site, reach, arm);
      // What a device keeps of a batch that was made for the first time is no leak.
      if (found.length > 0 && found.every((each) => typeof each !== 'string')) found = await once(site, reach, arm);
      for (const each of found)
        problems.push(`${site.entry} ${site.nth} (${reach}) ${typeof each === 'string' ? each : each.grows}`);
    };
    for (const [sites, status, reach] of plans)
      for (const site of sites) await run(site, reach, () => this.plan(site, status, reach));
    if (!allocating) return problems;
    for (const site of faultSites({ [ALLOCATION]: allocating.count }, scaled)) {
      for (const reach of ['once', 'entry'] as const) {
        const fails = (nth: number) => nth === site.nth || (reach === 'entry' && nth > site.nth);
        await run(site, reach, () => void this.allocations(allocating.backend, fails));
      }
    }
    return problems;
  }

  private async settled<T>(site: FaultSite, reach: FaultReach, work: () => Promise<T> | T): Promise<Outcome<T>> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<Outcome<T>>((resolve) => {
      timer = setTimeout(() => resolve({ problem: 'hangs' }), DEADLINE_MS);
    });
    const run = async (): Promise<Outcome<T>> => {
      try {
        return { value: await work() };
      } catch (error) {
        return { problem: this.problemOf(site, reach, error) };
      }
    };
    try {
      return await Promise.race([run(), late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** What is wrong with an error as the answer to a fault. */
  private problemOf({ entry }: FaultSite, reach: FaultReach, error: unknown): string | undefined {
    if (!(error instanceof CandleError)) return `raises no CandleError: ${(error as Error)?.stack ?? error}`;
    const { code, message } = error;
    if (!CODES.includes(code)) return `raises ${code}: ${message}`;
    if (reach === 'all')
      return message.includes('the device is unusable') ? undefined : `does not say that: ${message}`;
    if (code === 'OUT_OF_MEMORY' || code === 'CACHE_FULL' || this.platform !== 'host') return undefined;
    return message.includes(entry.replace(/(D8)?Async$/, '')) ? undefined : `is not named by ${code}: ${message}`;
  }
}

/**
 * The calls to go over: every one of an entry point that has at most `most`; else its first, middle and last (one: the last), and as
 * many more that a generator with a fixed seed chooses. The same counts give the same sites.
 */
function faultSites(counts: Readonly<Record<string, number>>, most: number): FaultSite[] {
  const next = random(0x9e3779b9);
  const below = (count: number) => Math.floor(next() * count);
  return Object.entries(counts).flatMap(([entry, count]) => {
    const outstanding = [count, 1, (count + 1) >> 1].slice(0, most);
    const chosen = new Set(count <= most ? Array.from({ length: count }, (_, i) => i + 1) : outstanding);
    while (chosen.size < Math.min(count, most)) chosen.add(1 + below(count));
    return [...chosen].sort((a, b) => a - b).map((nth) => ({ entry, nth }));
  });
}
