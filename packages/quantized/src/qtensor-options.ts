/** Options of {@link QTensor}'s functions. */
import type { DeviceLike } from '@x/core';
import type { DenseDType } from './load';
import type { RowPart } from './mxfp4';
import type { TensorPart } from './part';
import type { ParallelQuantizeOptions, QuantizeOptions } from './quantize';

export interface QTensorOptions {
  /** Dtype of the numbers when a device has no kernels for the type; default `f32`. Ignored elsewhere. */
  dense?: DenseDType;
}

export interface QTensorLoadOptions extends QTensorOptions {
  /** Stops loading between two pieces; the promise rejects with the signal's reason. */
  signal?: AbortSignal;
  /** A part of the tensor, of which no other bytes are read where the file allows. Default: all of it. */
  part?: TensorPart;
}

export interface Mxfp4LoadOptions extends Omit<QTensorLoadOptions, 'part'> {
  /** Default: all rows. */
  part?: RowPart;
}

export interface QuantizeTensorOptions extends QTensorOptions, QuantizeOptions {
  /** Where the blocks go; default the tensor's device (candle's `quantize_onto`). */
  device?: DeviceLike;
}

export interface IndexedMoeOptions {
  /**
   * Whether ids are read on the host, where one out of range raises an error; default true. With false nothing waits for
   * the device with few tokens, 64 at least (its indexed kernel, or numbers gathered by expert), and such an id is an error
   * as in `Tensor.embedding`: right for ids that a top-k made.
   */
  readIds?: boolean;
  /** Whether ids, u32, are known to be in range, such as a router's: with `readIds: false` nothing looks at them then. Default false. */
  areInside?: boolean;
  /** Experts of the mixture, where the weight has some of them only: how many pairs of it are few. Default: those of the weight. */
  experts?: number;
}

export interface AsyncQuantizeTensorOptions extends QuantizeTensorOptions, ParallelQuantizeOptions {}
