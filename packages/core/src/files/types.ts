/**
 * Element types of files, and moving elements between files and devices in pieces.
 *
 * Types without a tensor dtype are widened when they are read, all exactly: bool to u8 (0 and 1), i8 to i16, u16 to u32, u64
 * to i64 (an error for values from 2^63 on), f8e5m2 to f16. candle does this for u16 alone and refuses the others.
 */
import { check, optional, SIGNAL } from '../check';
import { Device, type DeviceLike } from '../device';
import { type DType, sizeInBytes } from '../dtype';
import { DTypeError } from '../errors';
import { bytesOf, rawFromBytes } from '../host-array';
import { refuseFailedGroup } from '../joined-groups';
import { elemCount, type Shape, validateShape } from '../shape';
import type { Tensor } from '../tensor';
import { tensorOf } from '../tensor/base';
import { DeviceReads } from './device-reads';
import type { ByteSource } from './source';

/** Element types that files hold and tensors are read from. */
export type FileType =
  | 'bool'
  | 'u8'
  | 'i8'
  | 'u16'
  | 'i16'
  | 'u32'
  | 'i32'
  | 'u64'
  | 'i64'
  | 'f16'
  | 'bf16'
  | 'f32'
  | 'f64'
  | 'f8e4m3'
  | 'f8e5m2';

export interface FileElement {
  /** Bytes of one element in the file. */
  readonly bytes: number;
  /** What it is read as. */
  readonly dtype: DType;
  /** Turns bytes of the file into bytes of `dtype`; absent where they are the same. */
  readonly widen?: (bytes: Uint8Array) => ArrayBufferView;
}

export const FILE_TYPES: Readonly<Record<FileType, FileElement>> = {
  bool: { bytes: 1, dtype: 'u8', widen: (bytes) => bytes.map((byte) => (byte === 0 ? 0 : 1)) },
  u8: { bytes: 1, dtype: 'u8' },
  i8: {
    bytes: 1,
    dtype: 'i16',
    widen: (bytes) => Int16Array.from(new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length)),
  },
  u16: { bytes: 2, dtype: 'u32', widen: (bytes) => Uint32Array.from(rawFromBytes('f16', bytes) as Uint16Array) },
  i16: { bytes: 2, dtype: 'i16' },
  u32: { bytes: 4, dtype: 'u32' },
  i32: { bytes: 4, dtype: 'i32' },
  u64: { bytes: 8, dtype: 'i64', widen: signed },
  i64: { bytes: 8, dtype: 'i64' },
  f16: { bytes: 2, dtype: 'f16' },
  bf16: { bytes: 2, dtype: 'bf16' },
  f32: { bytes: 4, dtype: 'f32' },
  f64: { bytes: 8, dtype: 'f64' },
  f8e4m3: { bytes: 1, dtype: 'f8e4m3' },
  f8e5m2: { bytes: 1, dtype: 'f16', widen: (bytes) => Uint16Array.from(bytes, (byte) => byte << 8) },
};

function signed(bytes: Uint8Array): ArrayBufferView {
  const values = rawFromBytes('i64', bytes) as BigInt64Array;
  const over = values.findIndex((value) => value < 0n);
  if (over < 0) return values;
  const value = BigInt.asUintN(64, values[over]);
  throw new DTypeError(
    'DTYPE_MISMATCH',
    `a u64 value, ${value}, is over the largest i64; rewrite the file with i64 or u32 values.`,
  );
}

export interface LoadOptions {
  /** Converts on the device. Default: what the file's type is read as. */
  dtype?: DType;
  /** Stops a `load` that does not block between two pieces; its promise rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** Where the elements of a tensor are in a source, row-major and without gaps. */
export interface StoredElements {
  type: FileType;
  offset: number;
  bigEndian?: boolean;
  /** Sees the bytes of the file in order, for checksums. */
  observe?: (bytes: Uint8Array) => void;
}

/** Bytes moved at once; a multiple of every element size. */
export const PIECE = 8 * 1024 * 1024;
/** Pieces that are read ahead, as many as Node has threads for that, and bytes of each: the first one is waited for. */
const AHEAD = 4;
const AHEAD_BYTES = 2 * 1024 * 1024;

/** A tensor of `shape` streamed from a source to a device. */
export async function readTensor(
  source: ByteSource,
  stored: StoredElements,
  shape: Shape,
  device: DeviceLike | undefined,
  signal?: AbortSignal,
): Promise<Tensor> {
  check('load', 'options.signal', signal, optional(SIGNAL));
  signal?.throwIfAborted();
  const { target, total, isPlain, put } = start(stored, shape, device);
  try {
    if (isPlain && source.readOnto && DeviceReads.on(target.device.backend)) {
      await source.readOnto(target.storageAndLayout().storage, stored.offset, total, signal);
      return target;
    }
    const begin = (at: number, buffer = new Uint8Array(Math.min(AHEAD_BYTES, total))) => {
      const piece = buffer.subarray(0, Math.min(AHEAD_BYTES, total - at));
      const ready = source.read(piece, stored.offset + at);
      // Nobody waits for those behind one that fails.
      ready.catch(() => {});
      return { buffer, piece, ready };
    };
    // While one is put where it belongs, the next ones are read on other threads.
    const pending: ReturnType<typeof begin>[] = [];
    let next = 0;
    const ahead = source.concurrent ? AHEAD : 1;
    for (; next < total && pending.length < ahead; next += AHEAD_BYTES) pending.push(begin(next));
    for (let done = 0; done < total; done += AHEAD_BYTES) {
      const { buffer, piece, ready } = pending.shift()!;
      await ready;
      signal?.throwIfAborted();
      put(done, piece);
      if (next < total) pending.push(begin(next, buffer));
      next += AHEAD_BYTES;
    }
    return target;
  } catch (error) {
    target.dispose();
    throw error;
  }
}

/** As {@link readTensor}, blocking the event loop. */
export function readTensorSync(source: ByteSource, stored: StoredElements, shape: Shape, device?: DeviceLike): Tensor {
  const { target, total, put } = start(stored, shape, device);
  try {
    const buffer = new Uint8Array(Math.min(PIECE, total));
    for (let done = 0; done < total; done += PIECE) {
      const piece = buffer.subarray(0, Math.min(PIECE, total - done));
      source.readSync(piece, stored.offset + done);
      put(done, piece);
    }
    return target;
  } catch (error) {
    target.dispose();
    throw error;
  }
}

function start({ type, bigEndian, observe }: StoredElements, shape: Shape, device?: DeviceLike) {
  const { bytes, dtype, widen } = FILE_TYPES[type];
  const on = Device.of(device);
  const sizes = validateShape('load', shape);
  const target = tensorOf(on.backend.allocUninit(elemCount(sizes), dtype), sizes, on);
  return {
    target,
    total: elemCount(shape) * bytes,
    /** Whether the bytes go to the device as they are. */
    isPlain: !widen && !observe && !bigEndian,
    /** Takes a piece that begins `done` bytes into the elements. */
    put: (done: number, piece: Uint8Array): void => {
      observe?.(piece);
      if (bigEndian) swapBytes(piece, bytes);
      const { storage } = target.storageAndLayout();
      on.backend.write(storage, (done / bytes) * sizeInBytes(dtype), widen ? widen(piece) : piece);
    },
  };
}

/** Reverses the bytes of each element, in place. */
function swapBytes(bytes: Uint8Array, width: number): void {
  if (width === 1) return;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < bytes.byteLength; at += width) {
    if (width === 2) view.setUint16(at, view.getUint16(at), true);
    else if (width === 4) view.setUint32(at, view.getUint32(at), true);
    else view.setBigUint64(at, view.getBigUint64(at), true);
  }
}

/** The tensor in another dtype, in place of itself. */
export function converted(tensor: Tensor, options: LoadOptions | null): Tensor {
  const dtype = options?.dtype;
  if (!dtype || dtype === tensor.dtype) return tensor;
  try {
    return tensor.toDtype(dtype);
  } finally {
    tensor.dispose();
  }
}

/** Calls `write` with the tensor's bytes in row-major order, little-endian, a piece at a time. */
export async function writeTensor(tensor: Tensor, write: (bytes: Uint8Array) => Promise<void>): Promise<void> {
  const dense = tensor.contiguous();
  try {
    const { storage, layout } = dense.storageAndLayout();
    const step = PIECE / sizeInBytes(dense.dtype);
    for (let done = 0; done < layout.elemCount; done += step) {
      const count = Math.min(step, layout.elemCount - done);
      const bytes = new Uint8Array(await storage.toHost(layout.startOffset + done, count));
      refuseFailedGroup('save', dense.device);
      await write(bytesOf(bytes));
    }
  } finally {
    dense.dispose();
  }
}
