/**
 * Tensors between worker threads: copied into shared memory, posted, and made tensors of again on the other side. A tensor
 * itself cannot be posted, for it belongs to a device of its thread; the copy belongs to no one and is collected when the
 * last thread drops it.
 */
import { Device, type DeviceLike } from './device';
import { type DType, isDType, sizeInBytes } from './dtype';
import { CandleError, UnsupportedError } from './errors';
import { PIECE, writeTensor } from './files/types';
import { elemCount, formatShape, type Shape, validateShape } from './shape';
import type { Tensor } from './tensor';
import { tensorOf } from './tensor/base';

/** A plain object for `postMessage`, `workerData` and `structuredClone`, which share its memory. */
export interface SharedTensor {
  readonly dtype: DType;
  readonly shape: Shape;
  /** The elements in row-major order, little-endian. Who writes to it changes it for all. */
  readonly bytes: SharedArrayBuffer;
}

export async function shareTensor(tensor: Tensor): Promise<SharedTensor> {
  const shared = allocate(tensor);
  const target = new Uint8Array(shared.bytes);
  let at = 0;
  await writeTensor(tensor, async (bytes) => {
    target.set(bytes, at);
    at += bytes.byteLength;
  });
  return shared;
}

export function shareTensorSync(tensor: Tensor): SharedTensor {
  const shared = allocate(tensor);
  new Uint8Array(shared.bytes).set(tensor.toBytesSync());
  return shared;
}

function allocate({ dtype, shape, elemCount: count }: Tensor): SharedTensor {
  if (typeof SharedArrayBuffer === 'undefined') {
    const message =
      'toShared: this page has no shared memory; serve it with the headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp.';
    throw new UnsupportedError('UNSUPPORTED', message);
  }
  return { dtype, shape: shape.slice(), bytes: new SharedArrayBuffer(count * sizeInBytes(dtype)) };
}

/**
 * A tensor of its own from shared memory, on `device` (default `Device.current()`).
 * @throws CandleError `INVALID_ARGUMENT` for what `Tensor.toShared` did not make
 */
export function tensorFromShared(shared: SharedTensor, device?: DeviceLike): Tensor {
  const { dtype, shape, bytes } = shared;
  const proper = isDType(dtype) && isShared(bytes);
  const sizes = validateShape('fromShared', shape);
  if (!proper || bytes.byteLength !== elemCount(sizes) * sizeInBytes(dtype)) {
    const held = isShared(bytes) ? `${bytes.byteLength} bytes` : 'no shared memory';
    throw new CandleError(
      'INVALID_ARGUMENT',
      `fromShared: ${formatShape(sizes)} of ${String(dtype)} comes with ${held}; post what toShared gave as it is.`,
    );
  }
  const on = Device.of(device);
  const tensor = tensorOf(on.backend.allocUninit(elemCount(sizes), dtype), sizes, on);
  try {
    const { storage } = tensor.storageAndLayout();
    const source = new Uint8Array(bytes);
    // slice copies into memory of this thread, which is all that devices take.
    for (let at = 0; at < source.length; at += PIECE) on.backend.write(storage, at, source.slice(at, at + PIECE));
    return tensor;
  } catch (error) {
    tensor.dispose();
    throw error;
  }
}

/** A page that is not isolated has no such class. */
function isShared(bytes: unknown): bytes is SharedArrayBuffer {
  return typeof SharedArrayBuffer !== 'undefined' && bytes instanceof SharedArrayBuffer;
}
