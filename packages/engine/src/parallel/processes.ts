/** A model on the devices of several processes: what the leading one and the others do. */
import { CollectiveError, Device, type DeviceLike, kinds } from '@x/core';
import type { BuildOptions } from '../load/build-model';
import { HUB_SOURCE, type HubSource, modelPath } from '../load/model-files';
import { checkOptions } from '../options';
import { checkGroup, type ProcessGroup } from './environment';
import { Follower } from './follower';
import { loadTogether, type ParallelModel } from './load';
import type { ParallelOptions } from './options';
import { gather, meet, SocketLink } from './sockets';

export interface FollowOptions extends HubSource {
  /** Default: the one with the process's number on its machine (`localRank`), of the best kind that opens. */
  device?: DeviceLike;
  /** Leaves the group, which then ends; the promise rejects with the signal's reason. */
  signal?: AbortSignal;
  /** Called when this process has loaded its part of the model. */
  onLoaded?: () => void;
}

const OPTIONS = {
  device: kinds.DEVICE,
  signal: kinds.SIGNAL,
  onLoaded: kinds.FUNCTION,
  ...HUB_SOURCE,
} satisfies Record<keyof FollowOptions, kinds.Kind>;

/** The device of a process that names none. */
export async function deviceOfProcess({ localRank }: ProcessGroup): Promise<Device> {
  const best = await Device.auto();
  return best.kind === 'rocm' || best.kind === 'cuda' ? Device.at(best.kind, localRank) : best;
}

/** Rank 0: waits for the others and loads with them. */
export async function loadOnProcesses(
  path: string,
  group: ProcessGroup,
  options: BuildOptions,
  { rankTimeoutMs }: ParallelOptions,
): Promise<ParallelModel> {
  checkGroup(group);
  if (group.rank !== 0) {
    const message = `loadModel: this process has rank ${group.rank}, and rank 0 leads; call followModel.`;
    throw new CollectiveError('BAD_RANK', message, { rank: group.rank });
  }
  const channels = await gather(group, options.signal);
  const names = [options.device.toString(), ...channels.map(() => 'another process')];
  return loadTogether(path, names, channels, options, rankTimeoutMs);
}

/**
 * What the processes with ranks above 0 do: each computes its part of the model as long as rank 0, which calls `loadModel` with
 * `processes`, has it. Resolves when rank 0 has disposed the model.
 * @param path as `loadModel` takes it: the same files have to be on each machine
 * @throws CollectiveError where rank 0 is not reached, refuses this process, or is gone; what loading a model throws, of which rank 0
 *   hears too
 */
export async function followModel(path: string, group: ProcessGroup, options: FollowOptions = {}): Promise<void> {
  checkOptions('followModel', options, OPTIONS);
  checkGroup(group);
  if (group.rank === 0)
    throw new CollectiveError('BAD_RANK', 'followModel: rank 0 leads; call loadModel with processes.', { rank: 0 });
  const { signal } = options;
  signal?.throwIfAborted();
  const place = await modelPath(path, options);
  const device = options.device === undefined ? await deviceOfProcess(group) : Device.of(options.device);
  const { socket, rest } = await meet(group, signal);
  await new Promise<void>((resolve, reject) => {
    let isOver = false;
    let failure: unknown;
    const link = new SocketLink(
      socket,
      rest,
      (message) => {
        if (message.type === 'end') isOver = true;
        follower.receive(message);
      },
      (why) => {
        signal?.removeEventListener('abort', leave);
        const lost = new CollectiveError(
          'RANK_LOST',
          `rank 0 of ${group.size} is gone: ${why}. All ranks end with it.`,
          {
            rank: 0,
          },
        );
        void follower.abandon().then(() => {
          if (signal?.aborted) reject(signal.reason);
          else if (failure !== undefined) reject(failure);
          else if (isOver) resolve();
          else reject(lost);
        }, reject);
      },
    );
    const follower = new Follower(link, { path: place, device });
    follower.onLoaded = options.onLoaded ?? follower.onLoaded;
    follower.onFailed = (error) => {
      failure = error;
    };
    link.send({ type: 'here' });
    const leave = () => socket.destroy();
    signal?.addEventListener('abort', leave, { once: true });
    if (signal?.aborted) leave();
  });
}
