/**
 * Which device is being captured (see graph.ts). `Device.capture` calls a synchronous function, so one field tells all
 * code that runs meanwhile, and nothing else sees it.
 */
import type { Device } from './device';
import { CaptureError } from './errors';
import { shared } from './one-core';
import type { StorageRef } from './storage-ref';

interface Capture {
  device?: Device;
  /** The first thing that was refused: what rejects a promise instead of throwing must fail the capture all the same. */
  refused?: CaptureError;
  /** What was written in place so far. */
  written?: Set<StorageRef>;
}

const current = shared('capture', (): Capture => ({}));

/**
 * Runs `fn` as the work of a captured graph of `device`.
 * @param written gets the memory that is written in place
 */
export function whileCapturing<T>(device: Device, written: Set<StorageRef> | undefined, fn: () => T): T {
  current.device = device;
  current.refused = undefined;
  current.written = written;
  try {
    const result = fn();
    if (current.refused !== undefined) throw current.refused;
    return result;
  } finally {
    current.device = undefined;
    current.refused = undefined;
    current.written = undefined;
  }
}

/** Tells records that kept a storage that it is no longer what it was, and a graph under capture that it writes there. */
export function noteWrite(ref: StorageRef): void {
  ref.version++;
  current.written?.add(ref);
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
