/** Loading a model with several ranks: all at the same time, and all or none. */
import { Communicator, type Device } from '@x/core';
import type { CacheRoom } from '../kv/room';
import { type BuildOptions, type BuiltModel, buildModel, type ModelTexts } from '../load/build-model';
import { findModel } from '../load/model-files';
import { Group, groupsEnded } from './group';
import type { Channel, FromFollower, RankPlan } from './messages';
import { DEFAULT_RANK_TIMEOUT_MS, type ParallelOptions } from './options';
import { startThread } from './threads';

/** What a group of devices waits longer than {@link Group}, which knows more about who is at fault. */
const LATER_MS = 2000;

/** A model whose ranks are loaded. */
export interface ParallelModel extends BuiltModel, ModelTexts {
  group: Group;
}

/** @param devices by rank @throws CollectiveError; what loading a model throws */
export async function loadOnThreads(
  path: string,
  devices: readonly Device[],
  options: BuildOptions,
  { rankTimeoutMs }: ParallelOptions,
): Promise<ParallelModel> {
  // What ended before may still hold the devices' memory.
  await groupsEnded();
  options.signal?.throwIfAborted();
  findModel(path);
  const channels = devices.slice(1).map((_, i) => startThread(i + 1));
  return loadTogether(path, devices.map(String), channels, options, rankTimeoutMs, true);
}

/** @param inThreads whether ranks are told the path and their devices, which processes know */
export async function loadTogether(
  path: string,
  devices: readonly string[],
  channels: readonly Channel[],
  options: BuildOptions,
  timeoutMs = DEFAULT_RANK_TIMEOUT_MS,
  inThreads = false,
): Promise<ParallelModel> {
  const { device, dtype, activations, cacheDtype, maxContext, fused, split, onProgress, signal } = options;
  const size = devices.length;
  const joinMs = timeoutMs + LATER_MS;
  const group = new Group({ devices, channels, timeoutMs, split });
  const stop = new AbortController();
  const own = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  group.onFailed = () => stop.abort();
  const progress = new Progress(size, onProgress);
  const ranks = new Ranks(group, progress);
  let built: (BuiltModel & ModelTexts) | undefined;
  let joining: Promise<Communicator> | undefined;
  try {
    // Devices that come together wait for each other, and threads and programs take their time to start.
    await group.settle(ranks.here(own));
    const id = Communicator.uniqueId(device);
    for (const { rank } of channels) {
      const place = inThreads ? { path, device: devices[rank] } : { path: undefined, device: undefined };
      const plan: RankPlan = {
        rank,
        size,
        id,
        timeoutMs: joinMs,
        dtype,
        activations,
        cacheDtype,
        maxContext,
        fused,
        split,
        ...place,
      };
      group.sendTo(rank, { type: 'load', plan });
    }
    joining = Communicator.join(device, { id, rank: 0, size, timeoutMs: joinMs, guardReads: false });
    const communicator = await group.settle(joining);
    group.communicator = communicator;
    const shard = { rank: 0, size, split, communicator };
    const onOwn = (loaded: number, total: number) => progress.report(0, loaded, total);
    built = await buildModel(path, { ...options, shard, signal: own, onProgress: onOwn }, true);
    await group.settle(ranks.loaded(built.identity(), own));
    group.ready();
    return { ...built, room: built.room && ranks.least(built.room), group };
  } catch (error) {
    built?.model.dispose();
    // Devices may still come together after a rank has failed.
    const giveUp = (late: Communicator) => late !== group.communicator && late.dispose();
    void joining?.then(giveUp).catch(() => {});
    // A rank that failed before is why this one stopped; otherwise this one's own error says most.
    const reason = signal?.aborted ? signal.reason : stop.signal.aborted ? await group.reason() : error;
    await group.end();
    throw reason ?? error;
  }
}

/** Bytes that all ranks have read, as one number. */
class Progress {
  private readonly parts: { loaded: number; total: number }[];

  constructor(
    size: number,
    private readonly listener: BuildOptions['onProgress'],
  ) {
    this.parts = Array.from({ length: size }, () => ({ loaded: 0, total: 0 }));
  }

  report(rank: number, loaded: number, total: number): void {
    this.parts[rank] = { loaded, total };
    const sum = (name: 'loaded' | 'total') => this.parts.reduce((all, part) => all + part[name], 0);
    // Ranks that have said nothing yet have as much to do as this one.
    const unknown = this.parts.filter(({ total }) => total === 0).length;
    this.listener?.(sum('loaded'), sum('total') + unknown * total);
  }
}

/** Which ranks are there, which have loaded, and whether they have the same model. */
class Ranks {
  private readonly present = new Set<number>();
  private readonly identities = new Map<number, string>();
  /** Of a cache, that the others have room for. */
  private readonly positions: number[] = [];
  private changed: () => void = () => {};

  constructor(
    private readonly group: Group,
    progress: Progress,
  ) {
    group.onMessage = (rank: number, message: FromFollower) => {
      if (message.type === 'progress') progress.report(rank, message.loaded, message.total);
      else if (message.type === 'here') this.present.add(rank);
      else if (message.type === 'loaded') {
        this.identities.set(rank, message.identity);
        if (message.positions !== undefined) this.positions.push(message.positions);
      }
      this.changed();
    };
  }

  /** Until all run. */
  here(signal: AbortSignal): Promise<void> {
    return this.until(() => this.present.size === this.group.size - 1, signal);
  }

  /** Until all have loaded. @param identity of this rank's model */
  async loaded(identity: string, signal: AbortSignal): Promise<void> {
    await this.until(() => this.identities.size === this.group.size - 1, signal);
    for (const [rank, other] of this.identities) if (other !== identity) this.group.failModel(rank);
  }

  /** The room of the rank that has least. @param room of this one */
  least(room: CacheRoom): CacheRoom {
    return { ...room, positions: Math.min(room.positions, ...this.positions) };
  }

  private async until(isSo: () => boolean, signal: AbortSignal): Promise<void> {
    const wake = () => this.changed();
    signal.addEventListener('abort', wake);
    try {
      signal.throwIfAborted();
      while (!isSo()) {
        await new Promise<void>((resolve) => {
          this.changed = resolve;
        });
        signal.throwIfAborted();
      }
    } finally {
      signal.removeEventListener('abort', wake);
    }
  }
}
