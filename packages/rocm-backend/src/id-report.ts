/**
 * Ids out of range, which a kernel finds (`check_ids_{i}`, kernels/indexing/check.h) and the host learns of when it next
 * waits for the device. A device has one report, six words: the first such id since they were last read.
 */
import { type DType, type IdRange, idOutOfRange, settings } from '@x/core';
import type { HipDevice } from '@x/hip';
import type { KernelDevice } from './device';
import { kernelName } from './kernel-name';
import { launchCheckIds } from './launchers/indexing';
import type { View } from './storage';

const WORDS = 6;
const BYTES = WORDS * 8;
/** The dimension of ranges that have none. */
const NO_DIM = 2 ** 32;

const LATE = ' The device has met it since it was last waited for; X_LAUNCH_BLOCKING=1 raises this at the operation.';

export class IdReport {
  readonly #device: KernelDevice;
  readonly #hip: HipDevice;
  /** Lives as long as the device: a captured graph may hold it. */
  readonly #ptr: number;
  /** Names and smallest ids of operations; a report has the place in this list. */
  readonly #ops: { op: string; low: number }[] = [];
  /** Every launch is waited for, so the operation itself can raise the error. */
  readonly #blocking = settings.launchBlocking();
  /** Whether a kernel may have written since the report was last read. */
  #unread = false;
  /** Whether another stream, or a graph that is not the device's own, has such kernels, which run unseen. */
  #runsUnseen = false;

  constructor(device: KernelDevice) {
    this.#device = device;
    this.#hip = device.hip;
    this.#ptr = device.hip.alloc(BYTES);
    this.#clear();
  }

  /** Enqueues a look at the ids. Throws with `X_LAUNCH_BLOCKING=1`, as {@link readSync}. */
  check(op: string, dtype: DType, ids: View, { size, low = 0, dim = NO_DIM }: IdRange): void {
    const { numDims, ptr: info } = this.#device.info([ids.layout]);
    const numel = ids.layout.elemCount;
    launchCheckIds(this.#device, kernelName('check_ids', dtype), this.#device.shapes.elementwise(numel), {
      numel,
      numDims,
      info,
      ids: ids.ptr,
      low,
      size,
      op: this.#numberOf(op, low),
      dim,
      report: this.#ptr,
    });
    const { recording } = this.#device;
    if (recording) {
      recording.checksIds = true;
      return;
    }
    this.expect();
    const { isCapturing } = this.#hip.currentStream;
    if (isCapturing) this.#runsUnseen = true;
    if (this.#blocking && !isCapturing) this.readSync();
  }

  /** A kernel that looks at ids was enqueued. */
  expect(): void {
    this.#unread = true;
    // A report of another stream may come after the next reading.
    if (this.#device.streams.isShared) this.#runsUnseen = true;
  }

  /** Enqueues the reading. Rejects with INDEX_OUT_OF_RANGE when work enqueued so far has met an id out of range. */
  async read(): Promise<void> {
    if (!this.#begin()) return;
    const words = new BigInt64Array(WORDS);
    const copied = this.#hip.memcpyDtoH(words, this.#ptr);
    try {
      // What is found from here on is for the next reading.
      this.#clear();
    } finally {
      // Also where that fails: a copy that nobody waits for would be an unhandled rejection.
      await copied;
    }
    this.#raise(words);
  }

  /** As {@link read}, waiting. */
  readSync(): void {
    if (!this.#begin()) return;
    const words = new BigInt64Array(WORDS);
    this.#hip.memcpyDtoHSync(words, this.#ptr);
    if (words[0] !== 0n) this.#clear();
    this.#raise(words);
  }

  #begin(): boolean {
    const wanted = this.#unread || this.#runsUnseen;
    this.#unread = false;
    return wanted;
  }

  #clear(): void {
    this.#hip.memset(this.#ptr, 0, BYTES);
  }

  #numberOf(op: string, low: number): number {
    const known = this.#ops.findIndex((entry) => entry.op === op && entry.low === low);
    return known < 0 ? this.#ops.push({ op, low }) - 1 : known;
  }

  #raise([found, number, dim, position, id, size]: BigInt64Array): void {
    if (found === 0n) return;
    const { op, low } = this.#ops[Number(number)];
    const range = { size: Number(size), low, dim: Number(dim) === NO_DIM ? undefined : Number(dim) };
    throw idOutOfRange(op, id, Number(position), range, this.#blocking ? '' : LATE);
  }
}
