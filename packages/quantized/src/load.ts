/**
 * Bringing blocks onto a device: either as they are, or, where the device has no use for them, as dense numbers. Both go
 * through one bounded buffer, so that a weight larger than memory's spare room can still be loaded.
 *
 * Each loader is a generator that pauses after every piece. Run to its end at once it blocks, as reading files does in
 * candle; run with a turn of the event loop in between, it does not.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type BackendDevice,
  type BackendStorage,
  BLOCK_TYPES,
  type BlockType,
  Device,
  type DeviceLike,
  encodeBf16,
  encodeF16,
  isBlockType,
  kinds,
} from '@x/core';
import { type BlockFormat, byteLengthOf } from './blocks';
import type { TensorFile } from './gguf/has-blocks';

/**
 * Bytes of a tensor in order; every piece is whole blocks, except where the type is loaded as it is. Those with `ready` are there
 * when that is, and are for {@link finishAsync} only.
 */
export type Pieces = Iterable<{ offset: number; bytes: Uint8Array; ready?: Promise<void> }>;
/** Pauses after each piece, and for one that is not there yet. */
export type Loader = Generator<Promise<void> | undefined, BackendStorage, void>;
export type DenseDType = 'f32' | 'f16' | 'bf16';

/** What becomes of a weight on a device. */
export function placement(device: BackendDevice, format: BlockFormat): 'blocks' | 'same' | 'dense' {
  if (format.type === 'f32' || format.type === 'f16' || format.type === 'bf16') return 'same';
  // Plain numbers that no product takes.
  if (format.blockSize === 1) return 'dense';
  // Without kernels of any kind the blocks are computed with on the host, which knows them all.
  return device.quantized === undefined || device.quantized.supports(format.type) ? 'blocks' : 'dense';
}

/**
 * Bytes that a weight of a file takes on a device: its blocks, or the numbers that it becomes where there are no kernels
 * for its type (`dense`, default f32). undefined for a type that cannot be read.
 */
export function deviceBytes(
  tensor: { format?: BlockFormat; elemCount: number; byteLength?: number },
  device: DeviceLike,
  dense: DenseDType = 'f32',
): number | undefined {
  kinds.check('deviceBytes', 'tensor', tensor, kinds.OBJECT);
  const { format, elemCount, byteLength } = tensor;
  if (format === undefined || byteLength === undefined) return undefined;
  const { backend } = Device.of(device);
  const where = placement(backend, format);
  if (where === 'dense') return elemCount * (dense === 'f32' ? 4 : 2);
  if (where === 'same' || !isBlockType(format.type)) return byteLength;
  return backend.quantized?.allocatedBytes(format.type, elemCount) ?? byteLength;
}

/** Memory for the blocks of `count` values, as the device's kernels want it. */
export function allocateBlocks({ backend }: Device, type: BlockType, count: number): BackendStorage {
  if (backend.quantized !== undefined) return backend.quantized.allocate(type, count);
  return backend.allocUninit(byteLengthOf(BLOCK_TYPES[type], count), 'u8');
}

/** A file's tensor as it is, read straight into what `allocate` gives. */
export async function loadDirect(
  file: TensorFile,
  name: string,
  allocate: () => BackendStorage,
  signal?: AbortSignal,
): Promise<BackendStorage> {
  signal?.throwIfAborted();
  const storage = allocate();
  try {
    await file.readOnto(name, storage, signal);
    return storage;
  } catch (error) {
    storage.dispose();
    throw error;
  }
}

/** The bytes as they are, into what `allocate` gives, which is allocated when loading begins. */
export function* loadSame({ backend }: Device, allocate: () => BackendStorage, pieces: Pieces): Loader {
  const storage = allocate();
  let loaded = false;
  try {
    for (const { offset, bytes, ready } of pieces) {
      if (ready) yield ready;
      backend.write(storage, offset, bytes);
      if (!ready) yield undefined;
    }
    loaded = true;
    return storage;
  } finally {
    // Also when the generator is abandoned half-way.
    if (!loaded) storage.dispose();
  }
}

/** The blocks as numbers. */
export function* loadDense(
  device: Device,
  format: BlockFormat,
  dtype: DenseDType,
  count: number,
  pieces: Pieces,
): Loader {
  const { backend } = device;
  const storage = backend.allocUninit(count, dtype);
  let values = new Float32Array(0);
  let loaded = false;
  try {
    let at = 0;
    for (const { bytes, ready } of pieces) {
      if (ready) yield ready;
      const blocks = bytes.byteLength / format.blockBytes;
      const length = blocks * format.blockSize;
      if (values.length < length) values = new Float32Array(length);
      format.dequantize(bytes, 0, values, 0, blocks);
      const packed = pack(values.subarray(0, length), dtype);
      backend.write(storage, at, packed);
      at += packed.byteLength;
      if (!ready) yield undefined;
    }
    loaded = true;
    return storage;
  } finally {
    if (!loaded) storage.dispose();
  }
}

/** Values in the bits of a dtype; f32 is not copied. */
export function pack(values: Float32Array, dtype: DenseDType): Float32Array | Uint16Array {
  if (dtype === 'f32') return values;
  return dtype === 'f16' ? encodeF16(values) : encodeBf16(values);
}

/** Runs a loader to its end. */
export function finish(loader: Loader): BackendStorage {
  for (;;) {
    const step = loader.next();
    if (step.done) return step.value;
  }
}

/** Runs a loader to its end with a turn of the event loop after every piece; an aborted signal stops it. */
export async function finishAsync(loader: Loader, signal?: AbortSignal): Promise<BackendStorage> {
  try {
    for (;;) {
      signal?.throwIfAborted();
      const step = loader.next();
      if (step.done) return step.value;
      await (step.value ?? nextTurn());
    }
  } catch (error) {
    // Closing a finished or failed generator does nothing.
    loader.return(undefined as never);
    throw error;
  }
}
