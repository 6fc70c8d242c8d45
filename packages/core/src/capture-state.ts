/**
 * Which device is being captured (see graph.ts). `Device.capture` calls a synchronous function, so one variable tells all
 * code that runs meanwhile, and nothing else sees it.
 */
import type { Device } from './device';
import { CaptureError } from './errors';

let captured: Device | undefined;
/** The first thing that was refused: what rejects a promise instead of throwing must fail the capture all the same. */
let refused: CaptureError | undefined;

/** Runs `fn` as the work of a captured graph of `device`. */
export function whileCapturing<T>(device: Device, fn: () => T): T {
  captured = device;
  refused = undefined;
  try {
    const result = fn();
    if (refused !== undefined) throw refused;
    return result;
  } finally {
    captured = undefined;
    refused = undefined;
  }
}

/**
 * In front of what a captured graph cannot repeat.
 * @param what the beginning of the message: the function and why it cannot be captured
 * @param remedy the end of the message
 * @throws CaptureError `CAPTURE_UNSUPPORTED` while a device is being captured
 */
export function refuseInCapture(what: string, remedy: string): void {
  if (captured === undefined) return;
  refused ??= new CaptureError('CAPTURE_UNSUPPORTED', `${what} while ${captured} is being captured; ${remedy}.`);
  throw refused;
}

/** @throws CaptureError `CAPTURE_UNSUPPORTED` when another device than this one is being captured */
export function refuseOtherDevice(device: Device): void {
  if (captured === undefined || captured === device) return;
  refuseInCapture(
    `work on ${device}, which a graph of another device does not repeat,`,
    `move its tensors to ${captured} before, or capture a graph for each device`,
  );
}
