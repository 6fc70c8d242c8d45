/**
 * Enqueues forward passes no faster than the device computes them, so that progress and abort signals follow what it has
 * finished. Steps go out in groups of about {@link GROUP_MS}, measured as they run; the last value of each group is read
 * back to learn when it is done. While a group runs the next one is enqueued, so a GPU does not wait for the host.
 *
 * Only the waiting depends on time: the steps and their results are the same at any pace.
 */

import { performance } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { scope, type Tensor } from '@x/core';
import type { ForwardPass } from '@x/transformers';

/** What a group of steps should take, alone on the device. */
const GROUP_MS = 30;
/**
 * The same where others want the device in between: it follows from how long they have to wait, for the time of a group that is
 * measured here then has theirs in it. At first, and within bounds.
 */
const SHARED_MS = { first: 5, least: 3, most: 14 };
/** What a step of others should take, the groups in front of it included; by how much groups grow until it does. */
const OTHERS_MS = 10;
const GROWTH = 1.2;
/**
 * Groups enqueued and not finished, at most; together they take no longer than so many groups should, unless one step alone
 * does.
 */
const MAX_GROUPS = 2;
/**
 * How much of what was measured counts beside the next group. Times are read on this thread: where it is busy it comes late to one
 * group, and the next one seems to have taken nothing.
 */
const KEPT = 0.7;

export interface PacerOptions {
  /** What is to be waited for in place of a device's work. */
  settled?: <T>(work: Promise<T>) => Promise<T>;
  /** Who wants the device between two groups. Default: nobody. */
  others?: () => Others;
}

export interface Others {
  areWaiting: boolean;
  /** How many steps of theirs have ended, and milliseconds that the last one took. */
  steps: number;
  stepMs: number;
}

interface Group {
  steps: number;
  expectedMs: number;
  begun: number;
  /** The time when the device was done with it. */
  finished: Promise<number>;
  report: () => void;
}

export class Pacer {
  private readonly groups: Group[] = [];
  /** What steps took lately: of passes of this size. */
  private readonly lately = { ms: 0, steps: 0, size: 1 };
  private lastFinished = 0;
  private sharedMs = SHARED_MS.first;
  /** Steps of others that {@link sharedMs} knows of. */
  private seen = 0;
  private readonly settled: <T>(work: Promise<T>) => Promise<T>;
  private readonly others: () => Others;

  /**
   * @param check called between groups, after a turn of the event loop; throws to stop
   */
  constructor(
    private readonly check: () => void,
    { settled = (work) => work, others = () => ({ areWaiting: false, steps: 0, stepMs: 0 }) }: PacerOptions = {},
  ) {
    this.settled = settled;
    this.others = others;
  }

  /**
   * Runs a pass to its end, or until something throws, and returns what it returns.
   * @param onDone the share of the pass that the device has finished; the last call may come from a later `run`
   * @param size what the time of a step grows with, such as the tokens of the pass: not in proportion
   */
  async run(pass: ForwardPass, onDone: (share: number) => void = () => {}, size = 1): Promise<Tensor | undefined> {
    const { lately } = this;
    lately.ms *= Math.sqrt(Math.max(1, size / lately.size));
    lately.size = size;
    try {
      for (;;) {
        await this.makeRoom();
        this.share();
        const { stepMs } = this;
        const most = stepMs === undefined ? 1 : Math.max(1, Math.floor(this.groupMs() / stepMs));
        const begun = performance.now();
        let steps = 0;
        let step: ReturnType<ForwardPass['next']>;
        do {
          step = pass.next();
          if (step.done) return step.value;
          steps += step.value.steps ?? 1;
        } while (steps < most && step.value.share < 1);
        const { output, share } = step.value;
        const expectedMs = steps * (stepMs ?? 0);
        const finished = this.settled(whenDone(output));
        // A failure is thrown where the group is waited for; until then it is nobody's.
        finished.catch(() => {});
        this.groups.push({ steps, expectedMs, begun, finished, report: () => onDone(share) });
        await nextTurn();
        this.check();
      }
    } finally {
      pass.return(undefined);
    }
  }

  /** Waits until nothing is enqueued; errors of the device are left to those who read its results. */
  async idle(): Promise<void> {
    for (const { finished } of this.groups.splice(0)) await finished.catch(() => {});
  }

  /** Waits until the device is done with what is enqueued now. As with {@link idle}, errors are left to others. */
  async enqueued(): Promise<void> {
    await Promise.allSettled(this.groups.map(({ finished }) => finished));
  }

  private async makeRoom(): Promise<void> {
    while (this.groups.length > 0 && !this.hasRoom()) {
      const group = this.groups[0];
      const finished = await group.finished;
      this.groups.shift();
      const took = Math.max(finished - Math.max(group.begun, this.lastFinished), 1e-3);
      this.lately.ms = KEPT * this.lately.ms + took;
      this.lately.steps = KEPT * this.lately.steps + group.steps;
      this.lastFinished = finished;
      group.report();
      this.check();
    }
  }

  /** What a step takes; unknown at first, when a group is one step. */
  private get stepMs(): number | undefined {
    const { ms, steps } = this.lately;
    return steps > 0 ? ms / steps : undefined;
  }

  private hasRoom(): boolean {
    const { stepMs } = this;
    if (stepMs === undefined || this.groups.length >= MAX_GROUPS) return false;
    const ahead = this.groups.reduce((sum, { expectedMs }) => sum + expectedMs, 0);
    return ahead + Math.max(stepMs, this.groupMs()) <= MAX_GROUPS * this.groupMs();
  }

  /** What a group should take now. */
  private groupMs(): number {
    return this.others().areWaiting ? this.sharedMs : GROUP_MS;
  }

  /** Lets groups grow or shrink, after each step of others. */
  private share(): void {
    const { steps, stepMs } = this.others();
    if (steps === this.seen) return;
    this.seen = steps;
    const wanted = this.sharedMs * Math.max(0.5, Math.min(GROWTH, OTHERS_MS / stepMs));
    this.sharedMs = Math.min(SHARED_MS.most, Math.max(SHARED_MS.least, wanted));
  }
}

/**
 * The time when the device has computed a tensor. It is not read where the device can tell otherwise: of ranks, only one waits, and a
 * sum over all may not be asked for by one.
 */
async function whenDone(tensor: Tensor): Promise<number> {
  const event = tensor.device.backend.streams?.own.record();
  const element = event ? undefined : firstOf(tensor);
  try {
    await (event?.synchronize() ?? element!.toBytes());
    return performance.now();
  } finally {
    event?.dispose();
    element?.dispose();
  }
}

function firstOf(tensor: Tensor): Tensor {
  return scope(() => tensor.shape.reduce((part, _, dim) => part.narrow(dim, 0, 1), tensor.narrow(0, 0, 1)));
}
