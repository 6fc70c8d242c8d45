/**
 * Products with a linear layer's weights in f16 or bf16, as a device may have them in kernels: activations are f32, or rounded to
 * the weights' dtype already; results and sums are f32. `@x/quantized` converts and multiplies where not.
 */
import type { StoragePart } from './attention';
import type { Operand } from './operand';
import type { BackendStorage } from './storage';

/** Dtypes that such weights have. */
export type HalfDType = 'f16' | 'bf16';

export interface LinearOps {
  /**
   * What the activations of a product of so many rows are rounded to before it: `f32` where they stay as they are and the
   * products are exact.
   */
  formOf(dtype: HalfDType, rows: number): 'f32' | HalfDType;
  /** x [m, k] in f32 or the weight's dtype, contiguous, times the transpose of the weight [n, k], contiguous: [m, n] f32. */
  matmul(weight: StoragePart, x: Operand, size: { m: number; n: number; k: number }): BackendStorage;
  /**
   * For every id the product of a row of x with the expert's weights: weight [experts, n, k], ids [tokens * topk] (u32,
   * contiguous, each below the number of experts), x in f32, contiguous, [tokens * topk, k], or [tokens, k] with `shared`;
   * [tokens * topk, n] f32.
   */
  indexedMoe(
    weight: StoragePart,
    x: Operand,
    ids: Operand,
    size: { n: number; k: number; topk: number; shared: boolean },
  ): BackendStorage;
}
