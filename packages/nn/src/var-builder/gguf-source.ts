/** Weights of a GGUF file as numbers. Layers that keep their blocks come from `@x/quantized`'s own builder. */
import type { Device, DType, Shape, Tensor } from '@x/core';
import { type GgufFile, QTensor } from '@x/quantized';
import { converted, type VarSource } from './source';

export class GgufSource implements VarSource {
  constructor(private readonly file: GgufFile) {}

  get label(): string {
    return this.file.path;
  }

  names(): string[] {
    return [...this.file.tensors.keys()];
  }

  shapeOf(name: string): Shape | undefined {
    return this.file.tensors.get(name)?.shape;
  }

  bytesOf(name: string): number {
    return this.file.tensor(name).byteLength ?? 0;
  }

  async load(name: string, device: Device, dtype: DType | undefined, signal?: AbortSignal): Promise<Tensor> {
    return numbers(await QTensor.load(this.file, name, device, { signal }), dtype);
  }

  loadSync(name: string, device: Device, dtype: DType | undefined): Tensor {
    return numbers(QTensor.fromGguf(this.file, name, device), dtype);
  }

  /** The file is its opener's to close. */
  close(): void {}
}

/** In `dtype`, or in f32 or what a plain weight is stored as. Disposes the blocks. */
function numbers(blocks: QTensor, dtype: DType | undefined): Tensor {
  try {
    const { type } = blocks;
    const natural = type === 'f16' || type === 'bf16' ? type : 'f32';
    const wanted = dtype === 'f16' || dtype === 'bf16' ? dtype : dtype === undefined ? natural : 'f32';
    return converted(blocks.dequantize(wanted), dtype);
  } finally {
    blocks.dispose();
  }
}
