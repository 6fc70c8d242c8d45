/**
 * What was never given back: with `X_DEBUG=1` or more, every tensor remembers where it was made, and when the process (or
 * worker) ends, those that were neither disposed nor collected are listed on stderr, the largest first. Without the switch
 * this costs one comparison a tensor.
 */
import { shared } from './one-core';
import { nodeProcess, stackLines } from './platform';
import { settings } from './settings';
import type { TensorHandle } from './storage-ref';

const LISTED = 20;

/** Places by handle; null when the switch is off, undefined before the first tensor. */
const leaks = shared('leaks', () => ({ live: undefined as Map<TensorHandle, string> | null | undefined }));

/** Remembers a new tensor. */
export function watchForLeak(handle: TensorHandle): void {
  if (leaks.live === undefined) leaks.live = start();
  leaks.live?.set(handle, callSite());
}

/** Forgets a tensor that was given back. */
export function noLeak(handle: TensorHandle): void {
  leaks.live?.delete(handle);
}

function start(): Map<TensorHandle, string> | null {
  if (!nodeProcess || settings.debug() < 1) return null;
  const handles = new Map<TensorHandle, string>();
  nodeProcess.once('exit', () => {
    if (handles.size > 0) nodeProcess?.stderr.write(leakReport(handles));
  });
  return handles;
}

/** One line a place, with the tensors made there that are still alive. */
function leakReport(handles: ReadonlyMap<TensorHandle, string>): string {
  const places = new Map<string, { tensors: number; bytes: number; what: Set<string> }>();
  const buffers = new Set<unknown>();
  let total = 0;
  for (const [{ ref }, place] of handles) {
    if (!ref) continue;
    const entry = places.get(place) ?? { tensors: 0, bytes: 0, what: new Set() };
    entry.tensors++;
    entry.what.add(`${ref.storage.dtype} on ${ref.device}`);
    // Views share a buffer, which counts where it is met first.
    if (!buffers.has(ref)) {
      entry.bytes += ref.bytes;
      total += ref.bytes;
      buffers.add(ref);
    }
    places.set(place, entry);
  }
  const sorted = [...places].sort(([, a], [, b]) => b.bytes - a.bytes);
  const lines = sorted
    .slice(0, LISTED)
    .map(
      ([place, { tensors, bytes, what }]) =>
        `  ${count(tensors)} (${[...what].join(', ')}), ${bytes} bytes, made ${place}`,
    );
  const rest = sorted.length > LISTED ? [`  and at ${sorted.length - LISTED} other places`] : [];
  const head = `${count(handles.size)} of ${total} bytes not disposed at exit; use dispose(), using or scope():`;
  return [head, ...lines, ...rest].map((line) => `[x1] ${line}\n`).join('');
}

function count(tensors: number): string {
  return tensors === 1 ? '1 tensor' : `${tensors} tensors`;
}

/** The nearest caller outside of this package, whose folder the first line of a stack tells. */
function callSite(): string {
  const frames = stackLines(40);
  // `at callSite (/folder/leaks.ts:1:2)` or `at /folder/index.js:1:2`
  const own = /[( ]([^( ]*[/\\])[^/\\]*:\d+:\d+\)?$/.exec(frames[0] ?? '')?.[1];
  const caller = own && frames.find((frame) => !frame.includes(own));
  return caller?.trim() ?? 'in @x/core';
}
