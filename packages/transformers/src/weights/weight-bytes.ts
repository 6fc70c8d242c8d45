/** What the weights of a file take on a device, before they are read. */
import { type DeviceLike, elemCount, type Shape, sizeInBytes } from '@x/core';
import type { TensorReader } from '@x/core/files';
import { type DenseDType, deviceBytes, hasBlocks } from '@x/quantized';
import { numberBytes } from './halves';
import { withScales } from './scaled-fp8';
import { WeightFile } from './weight-file';
import type { TensorLayout } from './weights';

export interface WeightBytes {
  /** Of all weights. */
  all: number;
  /** Of the experts of all mixtures among them. */
  experts: number;
}

export interface WeightBytesOptions {
  device: DeviceLike;
  /** As in `WeightOptions`. */
  dtype?: DenseDType | undefined;
  /** Of an architecture, by which experts are found in files that are no GGUF. */
  layout?: TensorLayout | undefined;
  /** Layers of the model. Default 0: experts are not looked for. */
  layers?: number;
}

/** @param file stays the caller's */
export function weightBytes(
  file: TensorReader,
  { device, dtype, layout, layers = 0 }: WeightBytesOptions,
): WeightBytes {
  const read = withScales(file);
  const numbers = (type: string, shape: Shape) =>
    dtype && shape.length > 1 ? elemCount(shape) * sizeInBytes(dtype) : numberBytes(type, shape, device);
  const bytesOf = (name: string) => {
    if (hasBlocks(read)) {
      const tensor = read.tensor(name);
      return tensor.format?.blockSize === 1 ? numbers(tensor.type, tensor.shape) : (deviceBytes(tensor, device) ?? 0);
    }
    const info = read.info(name) as ReturnType<TensorReader['info']> & { dtype?: string };
    // MXFP4, which stays in blocks, is the only one that is bytes in the file.
    return info.dtype === 'U8' ? info.byteLength : numbers(info.dtype ?? 'F32', info.shape);
  };
  const sum = (names: Iterable<string>) => {
    let bytes = 0;
    for (const name of names) bytes += bytesOf(name);
    return bytes;
  };
  const weights = new WeightFile(file, { names: layout?.names });
  // Gates and ups may be parts of one tensor.
  const experts = new Set<string>();
  for (let layer = 0; layer < layers; layer++)
    for (const part of ['gate', 'up', 'down'])
      for (const name of weights.storedNames(`blk.${layer}.ffn_${part}_exps.weight`)) experts.add(name);
  return { all: sum(read.names), experts: sum(experts) };
}
