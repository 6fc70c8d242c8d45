/**
 * Rows of activations in the blocks that a device's quantized products read: made once, by `QuantizedOps.quantizeActivations`
 * or at the end of a fused kernel, and given to as many products as read them. What the blocks hold is the device's affair.
 */
import { TENSORS } from './scope';
import type { Tensor } from './tensor';

/** Activations [rows, width] in the blocks of their device. */
export class QuantizedActivations implements Disposable {
  /** @param blocks of any dtype, on the device that made them; its scope's, as any tensor */
  constructor(
    readonly blocks: Tensor,
    readonly rows: number,
    /** Values of a row. */
    readonly width: number,
    /** The same in f32, [rows, width], where whoever made the blocks was asked for both. */
    readonly numbers?: Tensor,
  ) {}

  /** For `scope`: the blocks go where this object goes. */
  [TENSORS](): unknown[] {
    return this.numbers ? [this.blocks, this.numbers] : [this.blocks];
  }

  /** Disposes the blocks, and the numbers where there are any. */
  dispose(): void {
    this.blocks.dispose();
    this.numbers?.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
