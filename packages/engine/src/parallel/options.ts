/** Which devices, in which threads or processes, compute a model together. */
import { Device, DeviceError, type DeviceKind, type DeviceLike, kinds } from '@x/core';
import { TransformersError } from '@x/transformers';
import type { ProcessGroup } from './environment';

export interface ParallelOptions {
  /**
   * Several devices of one kind that compute the model together, each a part of every layer: `['cuda:0', 'cuda:1']`. The first
   * one is this thread's, the others have threads of their own. In place of `device`.
   */
  devices?: readonly DeviceLike[];
  /**
   * How many devices compute the model together. `auto`: all of `devices`, or all of the kind of `device` that are there.
   * Default: as many as `devices`, or one.
   */
  tensorParallel?: number | 'auto';
  /**
   * Whether each device has whole layers, one behind the other, in place of a part of every layer: for models whose heads and
   * widths the devices do not divide, and devices that reach each other slowly. One works at a time. Default false.
   */
  pipeline?: boolean;
  /**
   * Processes that compute the model together, a device each, as {@link processGroup} reads them from the environment. This one
   * has rank 0; the others call {@link followModel}.
   */
  processes?: ProcessGroup;
  /** How long a device may take for its part of a step before all have failed, in milliseconds; default 8000. */
  rankTimeoutMs?: number;
}

export const DEFAULT_RANK_TIMEOUT_MS = 8000;

/** The largest time that timers take. */
const MAX_MS = 2 ** 31 - 1;

const isDevice = (value: unknown) => value instanceof Device || typeof value === 'string';

export const PARALLEL_OPTIONS: Record<keyof ParallelOptions, kinds.Kind> = {
  devices: kinds.kind(
    (value) => Array.isArray(value) && value.length > 0 && value.every(isDevice),
    "give a list of devices or their names, such as ['cuda:0', 'cuda:1']",
  ),
  tensorParallel: kinds.kind(
    (value) => value === 'auto' || (Number.isInteger(value) && (value as number) >= 1),
    "give 'auto' or a whole number of 1 or more",
  ),
  pipeline: kinds.BOOLEAN,
  processes: kinds.kind(kinds.isObject, 'give what processGroup() gives'),
  rankTimeoutMs: kinds.kind(
    (value) => Number.isInteger(value) && (value as number) >= 100 && (value as number) <= MAX_MS,
    `give a whole number of milliseconds from 100 to ${MAX_MS}`,
  ),
};

/**
 * The devices of a model in this process, by rank; undefined where there is one and nobody asked for a list. What is wrong with
 * the options is known here, before a model is loaded.
 * @param device of `loadModel`
 * @throws TransformersError INVALID_OPTION; DeviceError
 */
export function devicesOf(
  device: Device | undefined,
  { devices, tensorParallel, processes, pipeline }: ParallelOptions,
): Device[] | undefined {
  const fail = (what: string) => new TransformersError('INVALID_OPTION', `loadModel: ${what}.`);
  if (pipeline && !devices && !processes && (tensorParallel ?? 1) === 1)
    throw fail('pipeline is for several devices; give devices, or leave it out');
  if (devices && device) throw fail('device and devices are two answers to one question; give one of them');
  if (processes && (devices || (tensorParallel ?? 1) !== 1))
    throw fail(
      'processes have a device each; leave devices and tensorParallel out, and start a process for each device',
    );
  if (devices) {
    const all = devices.map((one) => Device.of(one));
    checkAlike(all, fail);
    if (tensorParallel !== undefined && tensorParallel !== 'auto' && tensorParallel !== all.length)
      throw fail(
        `tensorParallel is ${tensorParallel} and there are ${all.length} devices; all of them compute together`,
      );
    return all.length > 1 ? all : undefined;
  }
  if (tensorParallel === undefined || tensorParallel === 1 || !device) return undefined;
  const found = devicesOfKind(device.kind);
  const count = tensorParallel === 'auto' ? found.length : tensorParallel;
  if (count > found.length) {
    const kind = device.kind;
    throw new DeviceError(
      'DEVICE_UNAVAILABLE',
      `loadModel: tensorParallel is ${count} and the ${kind} devices here are ${found.join(', ')}; give at most ${found.length}.`,
    );
  }
  if (count === 1) return undefined;
  return found.slice(0, count).map((name) => Device.parse(name));
}

function devicesOfKind(kind: DeviceKind): string[] {
  return Device.list()
    .filter(({ location, available }) => available && location.kind === kind)
    .map(({ name }) => name);
}

function checkAlike(devices: readonly Device[], fail: (what: string) => Error): void {
  const [{ kind }] = devices;
  const other = devices.find((device) => device.kind !== kind);
  if (other) throw fail(`devices are ${devices.join(', ')}; a model is computed by devices of one kind`);
  // A host may stand for several devices, in as many threads.
  if (kind === 'cpu' || kind === 'js') return;
  const names = devices.map(String);
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice) throw fail(`devices names ${twice} twice; give each device once`);
}
