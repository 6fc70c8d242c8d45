/**
 * Tensors between worker threads: copied into shared memory, posted, and made tensors of again on the other side. A tensor
 * itself cannot be posted, for it belongs to a device of its thread; the copy belongs to no one and is collected when the
 * last thread drops it.
 */
import { Device, type DeviceLike } from './device';
import { type DType, isDType, sizeInBytes } from './dtype';
import { CandleError } from './errors';
import { PIECE, writeTensor } from './file-types';
import { elemCount, formatShape, type Shape, validateShape } from './shape';
import { Tensor } from './tensor';

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
  return { dtype, shape: shape.slice(), bytes: new SharedArrayBuffer(count * sizeInBytes(dtype)) };
}

/**
 * A tensor of its own from shared memory, on `device` (default `Device.current()`).
 * @throws CandleError `INVALID_ARGUMENT` for what `Tensor.toShared` did not make
 */
export function tensorFromShared(shared: SharedTensor, device?: DeviceLike): Tensor {
  const { dtype, shape, bytes } = shared;
  const proper = isDType(dtype) && bytes instanceof SharedArrayBuffer;
  const sizes = validateShape('fromShared', shape);
  if (!proper || bytes.byteLength !== elemCount(sizes) * sizeInBytes(dtype)) {
    const held = bytes instanceof SharedArrayBuffer ? `${bytes.byteLength} bytes` : 'no shared memory';
    throw new CandleError(
      'INVALID_ARGUMENT',
      `fromShared: ${formatShape(sizes)} of ${String(dtype)} comes with ${held}; post what toShared gave as it is.`,
    );
  }
  const on = Device.of(device);
  const tensor = Tensor.empty(sizes, dtype, on);
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
