/** candle's `quantized_var_builder::VarBuilder`: a {@link VarBuilder} whose weights keep the blocks of a GGUF file. */
import type { DeviceLike } from '@x/core';
import type { TensorReader } from '@x/core/files';
import { VarBuilder } from '@x/nn';
import { GgufFile, type QTensor } from '@x/quantized';
import { WeightFile } from './weight-file';

export type QuantizedVarBuilder = VarBuilder<QTensor>;

export const QuantizedVarBuilder = {
  /** The tensors of an open file by their names in it; it is closed by `dispose`. */
  fromGguf(file: TensorReader, device?: DeviceLike): QuantizedVarBuilder {
    return VarBuilder.fromBackend(new WeightFile(file), { device });
  },

  /** The same for a file in memory, which is kept as long as the builder. */
  fromGgufBuffer(bytes: Uint8Array, device?: DeviceLike): QuantizedVarBuilder {
    return QuantizedVarBuilder.fromGguf(GgufFile.fromBytes(bytes), device);
  },
} as const;
