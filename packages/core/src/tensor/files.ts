/** Writing a tensor to a file, a stream or memory that another thread can read. Reading is static: see tensor.ts. */
import { TensorAutograd } from '../autograd/tensor-autograd';
import { writeNpy } from '../files/npy';
import { saveSafetensors } from '../files/safetensors';
import { writeTensor } from '../files/types';
import { type SharedTensor, shareTensor, shareTensorSync } from '../shared-tensor';
import type { Tensor } from '../tensor';

/** What {@link TensorFiles.writeBytes} writes to: a stream of node:stream, a FileHandle, or anything alike. */
export interface ByteSink {
  /** May take a part of the bytes and say how many (`bytesWritten`), as a FileHandle does. */
  write(bytes: Uint8Array): unknown;
}

export abstract class TensorFiles extends TensorAutograd {
  /**
   * Writes the elements in row-major order as little-endian bytes, f16, bf16 and f8e4m3 as their bits; in pieces, so a large
   * tensor is not held in host memory whole. Any shape and dtype.
   * @throws what `sink` throws
   */
  async writeBytes(this: Tensor, sink: ByteSink): Promise<void> {
    await writeTensor(this, (bytes) => writeTo(sink, bytes));
  }

  /**
   * Writes this tensor as an npy file, in row-major order; bf16 and f8e4m3 as the package ml_dtypes does.
   * @throws FileFormatError `FILE_UNWRITABLE`
   */
  async writeNpy(this: Tensor, path: string): Promise<void> {
    await writeNpy(path, this);
  }

  /**
   * Writes this tensor alone to a safetensors file, under `name`; several at once: `saveSafetensors`.
   * @throws FileFormatError `FILE_UNWRITABLE`
   */
  async saveSafetensors(this: Tensor, name: string, path: string): Promise<void> {
    await saveSafetensors(path, new Map([[name, this]]));
  }

  /**
   * A copy in memory that all threads share, to be posted to a worker, where `Tensor.fromShared` makes a tensor of it:
   * posting it copies nothing. Any device, shape and dtype.
   */
  async toShared(this: Tensor): Promise<SharedTensor> {
    return shareTensor(this);
  }

  /** As {@link toShared}, blocking the event loop. */
  toSharedSync(this: Tensor): SharedTensor {
    return shareTensorSync(this);
  }
}

async function writeTo(sink: ByteSink, bytes: Uint8Array): Promise<void> {
  for (let rest = bytes; rest.byteLength > 0; ) {
    const result = (await sink.write(rest)) as { bytesWritten?: number } | boolean | undefined;
    if (result === false) await drained(sink);
    const written = typeof result === 'object' ? result?.bytesWritten : undefined;
    rest = rest.subarray(written ?? rest.byteLength);
  }
}

/** A stream whose buffer is full says so with `false`, and says when it is empty again. */
function drained(sink: ByteSink): Promise<void> {
  const stream = sink as Partial<import('node:events').EventEmitter>;
  return new Promise((resolve, reject) => {
    if (!stream.once || !stream.off) return resolve();
    const settle = (error?: Error) => {
      for (const event of ['drain', 'close', 'error']) stream.off?.(event, settle);
      if (error) reject(error);
      else resolve();
    };
    for (const event of ['drain', 'close', 'error']) stream.once(event, settle);
  });
}
