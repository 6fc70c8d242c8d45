/** What the ranks of a group tell each other before they use each other's memory. */
import type { GroupMember } from '@x/core';
import { type HipCommunicator, HipError } from '@x/hip';
import type { KernelDevice } from '../device';

/** A word: whether its rank can, and what its memory is called. */
const SAYS = 0;
const NAME_AT = 8;
const WORD_BYTES = 512;

/** What all ranks say, through the library. A rank that does not answer in time ends the group. */
export class Agreement {
  readonly #device: KernelDevice;
  readonly #ranks: HipCommunicator;
  readonly #member: GroupMember;

  constructor(device: KernelDevice, ranks: HipCommunicator, member: GroupMember) {
    this.#device = device;
    this.#ranks = ranks;
    this.#member = member;
  }

  async all(says: boolean): Promise<boolean> {
    return (await this.words(says)).every(isYes);
  }

  /** What each rank says, in their order. */
  async words(says: boolean, name: Uint8Array = new Uint8Array()): Promise<Uint8Array[]> {
    const { hip } = this.#device;
    const { size, timeoutMs } = this.#member;
    const own = new Uint8Array(WORD_BYTES);
    own[SAYS] = Number(says);
    own.set(name, NAME_AT);
    const all = new Uint8Array(size * WORD_BYTES);
    const source = this.#device.malloc(own.byteLength);
    const target = this.#device.malloc(all.byteLength);
    let isLate = false;
    const late = setTimeout(() => {
      isLate = true;
      this.#ranks.abort();
    }, timeoutMs);
    try {
      hip.memcpyHtoD(source, own);
      this.#device.callLibrary(
        () => 'allGather',
        () => this.#ranks.allGather({ type: 'u8', source, target, count: WORD_BYTES }),
      );
      await hip.memcpyDtoH(all, target);
    } finally {
      clearTimeout(late);
      this.#device.free(source);
      this.#device.free(target);
    }
    if (isLate)
      throw new HipError('RANK_TIMEOUT', `not all ${size} ranks answered within ${timeoutMs} ms after they had joined`);
    return Array.from({ length: size }, (_, rank) => all.subarray(rank * WORD_BYTES, (rank + 1) * WORD_BYTES));
  }
}

/** Whether a rank says that it can. */
export function isYes(word: Uint8Array): boolean {
  return word[SAYS] === 1;
}

/** What a rank calls its memory. */
export function nameIn(word: Uint8Array, bytes: number): Uint8Array {
  return word.slice(NAME_AT, NAME_AT + bytes);
}
