/**
 * Which device is being captured (see graph.ts). `Device.capture` calls a synchronous function, so one field tells all
 * code that runs meanwhile, and nothing else sees it.
 */
import type { Device } from './device';
import { CaptureError } from './errors';
import { shared } from './one-core';
import type { StorageRef } from './storage-ref';
import type { Tensor } from './tensor';

/** Divides the graph that is recorded where the host has something to do. */
export type Divide = (tensors: readonly Tensor[], run: (...tensors: readonly Tensor[]) => void) => void;

/** What a captured function tells of itself. */
export interface Recording {
  /** Gets the memory that is written in place. */
  written: Set<StorageRef>;
  divide: Divide;
}

interface Capture {
  device?: Device;
  /** The first thing that was refused: what rejects a promise instead of throwing must fail the capture all the same. */
  refused?: CaptureError;
  /** While a graph is recorded; not while the function is called for its results. */
  recording?: Recording;
}

const current = shared('capture', (): Capture => ({}));

/**
 * Runs `fn` as the work of a captured graph of `device`.
 * @param recording where a graph is recorded
 */
export function whileCapturing<T>(device: Device, recording: Recording | undefined, fn: () => T): T {
  current.device = device;
  current.refused = undefined;
  current.recording = recording;
  try {
    const result = fn();
    if (current.refused !== undefined) throw current.refused;
    return result;
  } finally {
    current.device = undefined;
    current.refused = undefined;
    current.recording = undefined;
  }
}

/** Whether a captured function runs, and what divides its graph where one is recorded. */
export function captureUnderWay(): { isUnderWay: boolean; divide: Divide | undefined } {
  return { isUnderWay: current.device !== undefined, divide: current.recording?.divide };
}

/** Runs `fn` in the middle of a captured function as if there were none. */
export function outsideCapture(fn: () => void): void {
  const { device, refused, recording } = current;
  current.device = undefined;
  current.recording = undefined;
  try {
    fn();
  } finally {
    current.device = device;
    current.refused = refused;
    current.recording = recording;
  }
}

/** Tells records that kept a storage that it is no longer what it was, and a graph under capture that it writes there. */
export function noteWrite(ref: StorageRef): void {
  ref.version++;
  current.recording?.written.add(ref);
}

/**
 * In front of what a captured graph cannot repeat.
 * @param what the beginning of the message: the function and why it cannot be captured
 * @param remedy the end of the message
 * @throws CaptureError `CAPTURE_UNSUPPORTED` while a device is being captured
 */
export function refuseInCapture(what: string, remedy: string): void {
  if (current.device === undefined) return;
  current.refused ??= new CaptureError(
    'CAPTURE_UNSUPPORTED',
    `${what} while ${current.device} is being captured; ${remedy}.`,
  );
  throw current.refused;
}

/** @throws CaptureError `CAPTURE_UNSUPPORTED` when another device than this one is being captured */
export function refuseOtherDevice(device: Device): void {
  if (current.device === undefined || current.device === device) return;
  refuseInCapture(
    `work on ${device}, which a graph of another device does not repeat,`,
    `move its tensors to ${current.device} before, or capture a graph for each device`,
  );
}

/** @throws CaptureError `CAPTURE_UNSUPPORTED` for what an async function gives. @param what the beginning of the message */
export function refusePromise(what: string, value: unknown): void {
  const then = (value as { then?: unknown } | null | undefined)?.then;
  if (typeof then !== 'function') return;
  // Its rejection would end the process; what is wrong is said here.
  then.call(
    value,
    () => {},
    () => {},
  );
  throw new CaptureError(
    'CAPTURE_UNSUPPORTED',
    `${what} returned a promise, and what an async function enqueues later is in no graph; give a synchronous function and await before or afterwards.`,
  );
}
