/**
 * The groups that devices are in. A group's calls are enqueued, so that one may fail after what reads its result was enqueued as
 * well: numbers that were never added up are known by the group's failure alone, which is looked at where values are read.
 */
import type { Device } from './device';
import { CollectiveError } from './errors';
import { shared } from './one-core';

interface Group {
  failure(): Error | undefined;
}

const groups = shared('groups', () => new WeakMap<object, Set<Group>>());

export function addGroup(device: Device, group: Group): void {
  const { backend } = device;
  const known = groups.get(backend);
  if (known) known.add(group);
  else groups.set(backend, new Set([group]));
}

export function removeGroup(device: Device, group: Group): void {
  groups.get(device.backend)?.delete(group);
}

/**
 * Behind each read of values.
 * @throws CollectiveError when a group of the device failed, and was not disposed
 */
export function refuseFailedGroup(op: string, device: Device): void {
  for (const group of groups.get(device.backend) ?? []) {
    const failure = group.failure();
    if (!failure) continue;
    const { code, rank } =
      failure instanceof CollectiveError ? failure : { code: 'GROUP_FAILED' as const, rank: undefined };
    throw new CollectiveError(
      code,
      `${op}: ${failure.message.replace(/\.$/, '')}. What ${device} computed since then may lack other ranks' parts; dispose of the communicator to read it nevertheless.`,
      { ...(rank === undefined ? {} : { rank }), cause: failure },
    );
  }
}
