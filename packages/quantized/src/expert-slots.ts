/**
 * Memory on a device for some experts of a weight whose experts are all in the host's memory: slots, each of which holds the
 * expert that was last copied there. To products it is a weight of as many experts as there are slots. candle has all experts on
 * the device, or all layers elsewhere.
 */
import { Device, kinds, type PinnedBytes, ShapeError, sizeInBytes, TENSORS, Tensor } from '@x/core';
import { QUANTIZED } from './argument-kinds';
import { byteLengthOf } from './blocks';
import { allocateBlocks, type DenseDType, placement } from './load';
import { QTensor } from './qtensor';

/** Slots on a device for some experts of a weight in the host's memory, which {@link put} copies there. */
export class ExpertSlots implements Disposable {
  /** [slots, n, k], on the device. It stays this object's: do not dispose it. */
  readonly weight: QTensor;
  /** Bytes of an expert. */
  readonly expertBytes: number;
  readonly #host: QTensor;
  /** The experts' bytes on the host. */
  readonly #bytes: Uint8Array;
  /** The same, where the device copies from there by itself. */
  readonly #pinned: PinnedBytes | null | undefined;

  private constructor(host: QTensor, weight: QTensor, expertBytes: number) {
    this.#host = host;
    this.weight = weight;
    this.expertBytes = expertBytes;
    const [from, offset] = host.data.storagePart();
    const first = offset * sizeInBytes(from.dtype);
    this.#bytes = from.bytes!().subarray(first, first + host.shape[0] * expertBytes);
    this.#pinned = weight.device.backend.pin?.(this.#bytes);
  }

  /** Where weights are whose experts are copied from there. */
  static get hostDevice(): Device {
    return Device.js();
  }

  /**
   * Takes memory on `device`; what is in it counts for nothing before {@link put}.
   * @param host [experts, n, k] on {@link hostDevice}: shared, so the caller disposes its own
   * @param dense of blocks that the device has no kernels for; default f32
   * @throws ShapeError `SHAPE_MISMATCH` for a weight of another rank; OutOfMemoryError
   */
  static of(host: QTensor, slots: number, device: Device, dense: DenseDType = 'f32'): ExpertSlots {
    kinds.check('ExpertSlots.of', 'host', host, QUANTIZED);
    kinds.check('ExpertSlots.of', 'slots', slots, kinds.POSITIVE);
    if (host.rank !== 3) {
      throw new ShapeError('SHAPE_MISMATCH', `ExpertSlots.of: ${host} has no experts; give a weight [experts, n, k].`);
    }
    const isKept = host.kind === 'dense' || placement(device.backend, host.format) === 'blocks';
    const own = isKept ? host.share() : numbersOf(host, dense);
    try {
      const [, n, k] = own.shape;
      const { data, format } = own;
      const isBlocks = own.kind === 'blocks';
      const expertBytes = isBlocks ? byteLengthOf(format, n * k) : n * k * sizeInBytes(data.dtype);
      const shape = [slots, n, k];
      const storage = isBlocks
        ? allocateBlocks(device, own.blockType, slots * n * k)
        : device.backend.allocUninit(slots * n * k, data.dtype);
      const tensor = Tensor.fromStorage(storage, isBlocks ? [slots * expertBytes] : shape, device);
      return new ExpertSlots(own, own.withData(shape, tensor), expertBytes);
    } catch (error) {
      own.dispose();
      throw error;
    }
  }

  /** Of the weight on the host; {@link weight} has as many as there are slots. */
  get experts(): number {
    return this.#host.shape[0];
  }

  /** Bytes of all experts on the host. */
  get hostBytes(): number {
    return this.experts * this.expertBytes;
  }

  /** Of them those that are page-locked: copies from there are several times faster. */
  get pinnedBytes(): number {
    return this.#pinned ? this.hostBytes : 0;
  }

  /** Copies an expert to a slot, behind what the device was given before. */
  put(slot: number, expert: number): void {
    const { expertBytes: bytes, weight } = this;
    const first = expert * bytes;
    const [to] = weight.data.storagePart();
    if (this.#pinned) this.#pinned.write(to, slot * bytes, first, bytes);
    else weight.device.backend.write(to, slot * bytes, this.#bytes.subarray(first, first + bytes));
  }

  /** For `scope`: the memory goes where this object goes. */
  [TENSORS](): unknown[] {
    return [this.#host, this.weight];
  }

  /** Gives the slots back, and the share of the weight on the host. */
  dispose(): void {
    this.#pinned?.dispose();
    this.#host.dispose();
    this.weight.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

function numbersOf(blocks: QTensor, dtype: DenseDType): QTensor {
  using numbers = blocks.dequantize(dtype);
  return QTensor.fromTensor(numbers);
}
