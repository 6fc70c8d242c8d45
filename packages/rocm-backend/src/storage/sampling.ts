/** Choosing tokens: the kernel of SAMPLING (kernels/sampling.hip). */
import { type SamplingOps, type SamplingProblem, type StoragePart, sizeInBytes } from '@x/core';
import { SAMPLING } from '@x/kernels';
import type { RocmDevice } from '../device';
import { unsupported } from '../errors';
import { clamp } from '../launch-shape';
import { RocmStorage } from './index';

/** Sums of this many weights are exact on the host too (kernels/sampling/weight.h). */
const MAX_VOCAB = 2 ** 20;
const THREADS = 1024;
const HOST_BLOCKS_PER_CU = 4;

export class DeviceSamplingOps implements SamplingOps {
  readonly #device: RocmDevice;

  constructor(device: RocmDevice) {
    this.#device = device;
  }

  supports(vocab: number): boolean {
    return vocab > 0 && vocab <= MAX_VOCAB;
  }

  /** `sample_f32(rows, vocab, top, logits, params, edits, masks, out)`, a block a row. */
  choose({ rows, vocab, top, logits, params, edits, masks }: SamplingProblem): RocmStorage {
    const device = this.#device;
    if (!this.supports(vocab)) throw unsupported(`sampling from ${vocab} logits`, 'f32', device);
    const out = device.allocUninit(rows * (2 + 2 * top), 'u32');
    if (rows === 0) return out;
    try {
      const optional = (part: StoragePart | undefined) => (part ? this.#address(part) : 0);
      const pointers = [this.#address(logits), this.#address(params), optional(edits), optional(masks), out.ptr];
      const { shapes, hip } = device;
      const grid = shapes.isHost ? clamp(rows, 1, hip.properties.multiprocessorCount * HOST_BLOCKS_PER_CU) : rows;
      const shape = { grid, block: shapes.isHost ? 1 : THREADS };
      device.launch(SAMPLING, 'sample_f32', shape, [rows, vocab, top, ...pointers]);
      return out;
    } catch (error) {
      out.dispose();
      throw error;
    }
  }

  #address([storage, offset]: StoragePart): number {
    return RocmStorage.on(this.#device, storage).ptr + offset * sizeInBytes(storage.dtype);
  }
}
