/**
 * Memory of a device that the kernels of other devices write to: those of a group's other ranks, in threads of this process or in
 * processes of this machine. Beside it are two words of the host's memory, with which the host ends what waits in a kernel.
 */
import type { HostView, NativePeerMemory } from './addon';
import type { DeviceContext } from './context';

/** Device memory that kernels of a group's other ranks reach by its {@link name}: what `device.peerMemory()` gives. */
export class PeerMemory {
  /** Of the memory, which is zeros at first. */
  readonly address: number;
  /** Two words of 32 bits: not 0 when kernels are to stop; 1 + the rank that a kernel waited for in vain. */
  readonly control: number;
  /** What the other ranks need to {@link reach} it. */
  readonly name: Uint8Array;
  readonly #context: DeviceContext;
  readonly #id: number;
  #disposed = false;

  /** @internal Use `device.peerMemory()`. */
  constructor(context: DeviceContext, { id, address, control, name }: NativePeerMemory) {
    this.#context = context;
    this.#id = id;
    this.address = address;
    this.control = control;
    this.name = name;
  }

  /**
   * Where this device's kernels find another rank's memory, by the {@link name} that it has there. It stays there as long as this
   * one, whatever becomes of the other rank.
   * @throws HipError `DRIVER_ERROR` with why it is not reached
   */
  reach(name: Uint8Array): number {
    this.#check();
    return this.#context.native.peerReach(this.#context.id, this.#id, name);
  }

  /** Into this memory, by the default stream. */
  write(offset: number, view: HostView): void {
    this.#check();
    this.#context.native.peerWrite(this.#context.id, this.#id, offset, view);
  }

  /** The rank that a kernel has waited for in vain. */
  get missing(): number | undefined {
    if (this.#disposed || this.#context.disposed) return undefined;
    const rank = this.#context.native.peerMissing(this.#context.id, this.#id);
    return rank < 0 ? undefined : rank;
  }

  /** Kernels that wait in this device stop, now and later. */
  abort(): void {
    if (this.#disposed || this.#context.disposed) return;
    this.#context.native.peerAbort(this.#context.id, this.#id);
  }

  /** Waits for what was enqueued and gives it back. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    if (!this.#context.disposed) this.#context.native.peerFree(this.#context.id, this.#id);
  }

  #check(): void {
    this.#context.check(this.#disposed, 'memory of a group');
  }
}
