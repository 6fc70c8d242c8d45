/**
 * Words with which the blocks of one launch tell which of them is the last (kernels/shared/arrive.h). A launch finds zeros and
 * leaves zeros, so that nothing clears them in between, in a captured graph neither.
 *
 * Launches of one stream follow each other and share them; each stream has its own. Graphs are launched on the device's own
 * stream and have that one's. They lie outside of the allocator's pools, because a graph may hold their address.
 */
import type { HipDevice } from '@x/hip';

const WORD = 4;
/** Words at least, so that there seldom are more than the first. */
const LEAST = 4096;

interface Words {
  ptr: number;
  count: number;
}

export class Counters {
  readonly #hip: HipDevice;
  /** The stream that work goes to. */
  readonly #current: () => number;
  /** Of each stream; the last is the largest. */
  readonly #words = new Map<number, Words[]>();

  constructor(hip: HipDevice, current: () => number) {
    this.#hip = hip;
    this.#current = current;
  }

  /** The address of at least so many zeros for the next launch. */
  of(count: number): number {
    const stream = this.#current();
    let all = this.#words.get(stream);
    if (!all) {
      all = [];
      this.#words.set(stream, all);
    }
    let last = all.at(-1);
    if (!last || last.count < count) {
      last = this.#make(Math.max(count, LEAST));
      all.push(last);
    }
    return last.ptr;
  }

  /** A stream is gone, and its work done. */
  closed(stream: number): void {
    for (const { ptr } of this.#words.get(stream) ?? []) this.#hip.free(ptr);
    this.#words.delete(stream);
  }

  #make(count: number): Words {
    const hip = this.#hip;
    const ptr = hip.alloc(count * WORD);
    try {
      // Zeros are written now, not by each replay of a graph.
      if (hip.currentStream.isCapturing) hip.memcpyHtoD(ptr, new Uint32Array(count), hip.defaultStream);
      else hip.memset(ptr, 0, count * WORD);
    } catch (error) {
      hip.free(ptr);
      throw error;
    }
    return { ptr, count };
  }
}
