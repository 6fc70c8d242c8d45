import type { HipDevice } from '@x/hip';
import { expect, it } from 'vitest';
import { Counters } from './counters';

/** A device that says what it is asked for. */
function device() {
  const calls: string[] = [];
  const state = { capturing: false, full: false };
  let next = 0;
  const hip = {
    defaultStream: 'own',
    get currentStream() {
      return { isCapturing: state.capturing };
    },
    alloc: (bytes: number) => {
      calls.push(`alloc ${bytes}`);
      next += 2 ** 20;
      return next;
    },
    free: (ptr: number) => calls.push(`free ${ptr / 2 ** 20}`),
    memset: (ptr: number, byte: number, bytes: number) => {
      if (state.full) throw new Error('lost');
      calls.push(`memset ${ptr / 2 ** 20} ${byte} ${bytes}`);
    },
    memcpyHtoD: (ptr: number, view: Uint32Array, stream: unknown) =>
      calls.push(`copy ${ptr / 2 ** 20} ${view.byteLength} ${Math.max(...view)} ${stream}`),
  };
  return { hip: hip as unknown as HipDevice, calls, state };
}

it('gives the launches of a stream the same zeros, and each stream its own', () => {
  const { hip, calls } = device();
  let stream = 0;
  const counters = new Counters(hip, () => stream);
  const first = counters.of(8);
  expect(counters.of(4096)).toBe(first);
  stream = 3;
  expect(counters.of(8)).not.toBe(first);
  expect(calls).toEqual(['alloc 16384', 'memset 1 0 16384', 'alloc 16384', 'memset 2 0 16384']);
  counters.closed(3);
  counters.closed(4);
  expect(calls.slice(4)).toEqual(['free 2']);
  stream = 0;
  expect(counters.of(1)).toBe(first);
});

it('keeps what a graph may hold when there are to be more', () => {
  const { hip, calls } = device();
  const counters = new Counters(hip, () => 0);
  const first = counters.of(1);
  const more = counters.of(5000);
  expect(more).not.toBe(first);
  expect(counters.of(1)).toBe(more);
  expect(calls.filter((call) => call.startsWith('free'))).toEqual([]);
});

it('writes zeros once where a graph is being captured, not with each replay', () => {
  const { hip, calls, state } = device();
  state.capturing = true;
  new Counters(hip, () => 0).of(1);
  expect(calls).toEqual(['alloc 16384', 'copy 1 16384 0 own']);
});

it('gives back what could not be filled', () => {
  const { hip, calls, state } = device();
  state.full = true;
  const counters = new Counters(hip, () => 0);
  expect(() => counters.of(1)).toThrow('lost');
  expect(calls).toEqual(['alloc 16384', 'free 1']);
  state.full = false;
  expect(counters.of(1)).toBe(2 * 2 ** 20);
});
