/**
 * The ranks of a model, as the one that leads sees them: tells them what it does, watches that they follow, and ends all with
 * one error when one of them ends, hangs or fails.
 */
import { CollectiveError, type Communicator, DisposedError } from '@x/core';
import type { Command, Followers } from '../execute/executor';
import type { Shard } from '../load/build-model';
import { type Channel, type FromFollower, received, type SentError, type ToFollower } from './messages';
import type { PromptWork } from './prompt-parts';

/** How often ranks are looked at. */
const WATCH_MS = 250;
/** After so long without a message a rank is asked whether it is there. */
const PING_MS = 1000;
/** For what is done for the first time: kernels may be compiled. */
const FIRST_MS = 60_000;
/** For a rank that fails because another one did: that one's own word comes within this time. An ending thread frees memory first. */
const GRACE_MS = 2000;
/** For giving memory back and ending; less where a rank may not be able to. */
const END_MS = 5000;
const FAILED_END_MS = 1500;

/** Groups that are ending: their devices' memory is not yet given back. */
const endings = new Set<Promise<unknown>>();

/** Until no group of this process is ending. */
export async function groupsEnded(): Promise<void> {
  await Promise.all(endings);
}

/** What is known of a failure. What names its origin comes before what may follow from another rank's failure. */
interface Report {
  code: CollectiveError['code'];
  rank: number;
  what: string;
  cause?: unknown;
  /** Whether it may follow from another rank's failure. */
  mayFollow?: boolean;
  /** The error of all who ask. */
  error?: CollectiveError;
}

/** A rank and what is known of its messages. */
interface Watched {
  channel: Channel;
  sent: number;
  acknowledged: number;
  /** When it last dealt with a message, or had none to deal with. */
  since: number;
  /** Numbers of messages that may take long, counted from 1. */
  slow: number[];
  ended: boolean;
}

function disposed(): DisposedError {
  return new DisposedError('DISPOSED', 'the model was disposed; load it again.');
}

export interface GroupOptions {
  /** Names of the ranks' devices. */
  devices: readonly string[];
  /** To the ranks from 1 on. */
  channels: readonly Channel[];
  /** How long a rank may take for a step, in milliseconds. */
  timeoutMs: number;
  /** What ranks have of the model. */
  split?: Shard['split'];
}

export class Group implements Followers {
  /** Of the devices, from when they have come together. */
  communicator: Communicator | undefined;
  /** Called once, when the group has failed: to give back what this rank has. */
  onFailed: () => void = () => {};
  /** Hears what ranks say while the model is loaded. */
  onMessage: (rank: number, message: FromFollower) => void = () => {};
  private readonly ranks: Watched[];
  private readonly waiters = new Set<(error: Error) => void>();
  private readonly kinds = new Set<string>();
  private readonly watch: NodeJS.Timeout;
  private looked = performance.now();
  private told = performance.now();
  private first: Report | undefined;
  private final: CollectiveError | undefined;
  private ending: Promise<void> | undefined;
  private loaded = false;
  private requests = 0;
  /** Who waits for what a rank was asked for. */
  private readonly answers = new Map<string, { resolve(): void; reject(error: Error): void }>();
  /** Buffers that ranks had at their end. */
  private storages = 0;

  constructor(private readonly options: GroupOptions) {
    const now = performance.now();
    this.ranks = options.channels.map((channel) => ({
      channel,
      sent: 0,
      acknowledged: 0,
      since: now,
      slow: [],
      ended: false,
    }));
    for (const rank of this.ranks) {
      const { channel } = rank;
      channel.onMessage = (message) => this.hear(rank, message);
      channel.onEnd = (why) => {
        rank.ended = true;
        if (!this.ending) this.fail({ code: 'RANK_LOST', rank: channel.rank, what: `is gone: ${why}` });
      };
      channel.start();
    }
    this.watch = setInterval(() => this.look(), WATCH_MS);
  }

  /** Ranks, the one that leads among them. */
  get size(): number {
    return this.ranks.length + 1;
  }

  /** What ranks have of the model; default parts of every layer. */
  get split(): Shard['split'] {
    return this.options.split;
  }

  /** Why the group does no more work; another error may follow, where its origin is not known yet. */
  get failure(): CollectiveError | undefined {
    return this.final ?? (this.first && this.errorOf(this.first));
  }

  /** Why the group ended, once the origin is known: the error of all who ask. */
  get origin(): CollectiveError | undefined {
    return this.final;
  }

  /** The model is loaded: ranks no longer keep the process alive. */
  ready(): void {
    this.loaded = true;
    this.watch.unref();
    for (const { channel } of this.ranks) channel.keepAlive(false);
  }

  /** @throws CollectiveError the failure that ended the group */
  tell(command: Command): void {
    // The first of its kind may compile kernels, and each capture does once more what the first did.
    const isFirst = command.kind === 'capture' || !this.kinds.has(command.kind);
    this.kinds.add(command.kind);
    this.send({ type: 'command', command }, isFirst);
  }

  /** A message to all ranks. @param isFirst whether they may take long for it */
  send(message: ToFollower, isFirst = false): void {
    const { failure } = this;
    if (failure) throw failure;
    if (this.ending) return;
    this.told = performance.now();
    for (const rank of this.ranks) {
      rank.sent++;
      if (isFirst) rank.slow.push(rank.sent);
      rank.channel.send(message);
    }
  }

  /** A message to one rank. */
  sendTo(rank: number, message: ToFollower): void {
    const one = this.ranks[rank - 1];
    one.sent++;
    one.channel.send(message);
  }

  /**
   * What the other ranks do beside steps; resolves when all have done it.
   * @throws what a rank could not do it for, when all have ended it: the group goes on
   */
  async ask(work: PromptWork): Promise<void> {
    const reason = await this.reason();
    if (this.ending) throw reason ?? disposed();
    const request = this.requests++;
    const answers = this.ranks.map(
      ({ channel }) =>
        new Promise<void>((resolve, reject) => {
          this.answers.set(`${request} ${channel.rank}`, { resolve, reject });
        }),
    );
    const all = Promise.allSettled(answers);
    this.send({ type: 'prompt', request, work });
    const failed = (await this.settle(all)).find((answer) => answer.status === 'rejected');
    if (failed) throw failed.reason;
  }

  own<T>(part: () => T): T {
    const { failure } = this;
    if (failure) throw failure;
    try {
      return part();
    } catch (error) {
      // What is under way when the model is disposed ends as on one device.
      if (this.ending) throw error;
      this.failBy(0, error);
      throw this.failure;
    }
  }

  /** A rank has loaded another model than this one. */
  failModel(rank: number): never {
    this.fail({ code: 'RANKS_DIFFER', rank, what: 'has loaded other files: the same model has to be on all machines' });
    throw this.failure;
  }

  settle<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const done = () => this.waiters.delete(reject);
      // Once something has failed, the final error is everyone's; what devices gave meanwhile is worth nothing.
      this.waiters.add(reject);
      if (this.final) reject(this.final);
      work.then(
        (value) => {
          if (this.failure) return;
          done();
          resolve(value);
        },
        (error) => {
          if (this.failure) return;
          done();
          reject(error);
        },
      );
    });
  }

  /** The failure, once its origin is known; undefined where the group works. */
  async reason(): Promise<CollectiveError | undefined> {
    if (this.first === undefined || this.final) return this.final;
    return this.settle(Promise.resolve()).then(
      () => this.final,
      () => this.final,
    );
  }

  /** Ends all ranks: resolves when they are gone, with the buffers that they then still had on their devices. */
  end(): Promise<number> {
    if (this.ending === undefined) {
      const ending = this.leave().finally(() => endings.delete(ending));
      endings.add(ending);
      this.ending = ending;
    }
    return this.ending.then(() => this.storages);
  }

  /** What tests do to a rank. */
  disturb(rank: number, how: 'fail' | 'hang' | 'exit'): void {
    this.sendTo(rank, { type: 'disturb', how });
  }

  private async leave(): Promise<void> {
    clearInterval(this.watch);
    for (const { reject } of this.answers.values()) reject(disposed());
    this.answers.clear();
    const { channels } = this.options;
    for (const rank of this.ranks)
      if (!rank.ended) rank.channel.send({ type: 'end', failed: this.final !== undefined });
    // What waits for other ranks on this one's device ends with the group; those that follow wait the same way.
    this.communicator?.dispose();
    this.communicator = undefined;
    const until = performance.now() + (this.final ? FAILED_END_MS : END_MS);
    while (this.ranks.some(({ ended }) => !ended) && performance.now() < until)
      await new Promise((resolve) => setTimeout(resolve, 10));
    await Promise.all(channels.map((channel, i) => (this.ranks[i].ended ? undefined : channel.terminate())));
  }

  private hear(rank: Watched, message: FromFollower): void {
    if (message.type === 'failed') {
      const error = received(message.error);
      this.failBy(rank.channel.rank, error);
    } else if (message.type === 'ended') this.storages += message.storages;
    else if (message.type === 'done') this.answered(rank.channel.rank, message.request, message.error);
    else this.onMessage(rank.channel.rank, message);
  }

  private answered(rank: number, request: number, error: SentError | undefined): void {
    const key = `${request} ${rank}`;
    const answer = this.answers.get(key);
    this.answers.delete(key);
    if (error) answer?.reject(received(error));
    else answer?.resolve();
  }

  /** @param rank whose error it is, or who heard of it */
  private failBy(rank: number, cause: unknown): void {
    const what = cause instanceof Error ? cause.message : String(cause);
    if (cause instanceof CollectiveError) {
      const origin = cause.rank ?? rank;
      this.fail({ code: cause.code, rank: origin, what: `failed: ${what}`, cause, mayFollow: true });
    } else this.fail({ code: 'GROUP_FAILED', rank, what: `failed: ${what}`, cause });
  }

  private fail(report: Report): void {
    if (this.final) return;
    if (this.first === undefined) {
      this.first = report;
      setTimeout(() => this.finish(), report.mayFollow ? GRACE_MS : 0);
    } else if (this.first.mayFollow && !report.mayFollow) {
      this.first = report;
      this.finish();
    }
  }

  private finish(): void {
    if (this.final || !this.first) return;
    this.final = this.errorOf(this.first);
    clearInterval(this.watch);
    this.communicator?.abort();
    try {
      this.onFailed();
    } finally {
      void this.end();
      for (const reject of this.waiters) reject(this.final);
      this.waiters.clear();
    }
  }

  private errorOf(report: Report): CollectiveError {
    const { code, rank, what, cause } = report;
    const { devices } = this.options;
    const remedy = this.loaded ? 'All ranks of the model were ended; load it again.' : 'No rank was loaded.';
    const place = `rank ${rank} of ${devices.length} (${devices[rank]})`;
    report.error ??= new CollectiveError(code, `${place} ${what.replace(/\.$/, '')}. ${remedy}`, { rank, cause });
    return report.error;
  }

  private look(): void {
    const now = performance.now();
    // Where this thread was busy itself, answers may lie unread.
    const isLate = now - this.looked > 4 * WATCH_MS;
    this.looked = now;
    const failure = this.communicator?.failure();
    if (failure) this.failBy(0, failure);
    if (this.first || !this.loaded) return;
    for (const rank of this.ranks) {
      const acknowledged = rank.channel.acknowledged();
      if (isLate || acknowledged !== rank.acknowledged || acknowledged === rank.sent) rank.since = now;
      rank.acknowledged = acknowledged;
      rank.slow = rank.slow.filter((number) => number > acknowledged);
      const { timeoutMs } = this.options;
      const most = rank.slow[0] === acknowledged + 1 ? Math.max(FIRST_MS, timeoutMs) : timeoutMs;
      if (now - rank.since <= most) continue;
      const seconds = Math.round((now - rank.since) / 100) / 10;
      this.fail({ code: 'RANK_TIMEOUT', rank: rank.channel.rank, what: `has not answered for ${seconds} s` });
      return;
    }
    if (now - this.told >= PING_MS) this.send({ type: 'ping' });
  }
}
