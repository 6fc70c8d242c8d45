/**
 * Large sums over a group's ranks on a stream of their own: a device goes on with what does not need the result, such as another
 * part of a prompt. Whatever touches the sum first is put behind it ({@link KernelStorage.arrivesWith}), so callers need not know.
 * What the library is asked for otherwise runs behind these sums, in the order in which all ranks make their calls.
 */
import type { HipEvent, HipStream } from '@x/hip';
import type { KernelDevice } from '../device';
import type { KernelStorage } from '../storage';

/** The smallest sums, in bytes of a rank: passing from stream to stream takes some microseconds. */
const LEAST_BYTES = 2 ** 21;

export class SideSums {
  readonly #device: KernelDevice;
  readonly #stream: HipStream;
  /** Where the device's stream was when a sum was asked for. */
  readonly #asked: HipEvent;
  /** Where the last sum ends; undefined while nothing waits for one. */
  #last: { done: HipEvent; isAwaited: boolean } | undefined;
  /** Puts the device's streams behind all sums. */
  readonly settle = (): void => {
    if (this.#last) this.#await(this.#last);
  };

  constructor(device: KernelDevice) {
    this.#device = device;
    this.#stream = device.hip.createStream();
    this.#asked = device.hip.createEvent();
    device.beforeReplays.add(this.settle);
  }

  /** Whether such a sum is one of these: what is the same on all ranks decides. */
  takes(bytes: number): boolean {
    const { recording, timesLaunches } = this.#device;
    return bytes >= LEAST_BYTES && !recording && !timesLaunches;
  }

  /** @param sum enqueues it on the stream that it is given @param storages that it reads or writes */
  run(sum: (stream: HipStream) => void, storages: readonly KernelStorage[]): void {
    const { hip } = this.#device;
    this.#asked.record(hip.currentStream);
    this.#stream.waitEvent(this.#asked);
    this.#device.enqueue(
      () => 'allReduce',
      () => sum(this.#stream),
    );
    const own = { done: hip.createEvent(), isAwaited: false };
    own.done.record(this.#stream);
    this.#last = own;
    const wait = () => this.#await(own);
    for (const storage of new Set(storages)) storage.arrivesWith({ wait, drop: wait });
  }

  dispose(): void {
    this.#device.beforeReplays.delete(this.settle);
    this.#asked.dispose();
    this.#stream.dispose();
  }

  #await(sum: { done: HipEvent; isAwaited: boolean }): void {
    if (sum.isAwaited) return;
    sum.isAwaited = true;
    if (this.#last === sum) this.#last = undefined;
    if (!sum.done.isDisposed) this.#device.streams.waitAll(sum.done);
    sum.done.dispose();
  }
}
