/** Linear layers of which each token chooses some: the experts of a mixture. */
import { keep, type Tensor } from '@x/core';
import type { DenseDType, ExpertOrder, QTensor } from '@x/quantized';
import { inDtype } from './q-linear';

export class ExpertLinear {
  /** Owns both. @param weight [experts, out, in] @param dtype that inputs are rounded to @param bias [experts, out], f32 */
  constructor(
    /** [experts, out, in] */
    readonly weight: QTensor,
    private readonly dtype: DenseDType,
    /** [experts, out], f32 */
    readonly bias?: Tensor,
  ) {
    for (const part of [weight, bias]) if (part) keep(part);
  }

  get experts(): number {
    return this.weight.shape[0];
  }

  /** Whether {@link forwardGroups} is the faster way for so many tokens. */
  prefersGroups(tokens: number, chosen: number): boolean {
    return this.weight.prefersGroups(tokens, chosen);
  }

  /**
   * x [tokens, chosen or 1, in] times the weights of the experts that each token chose, ids [tokens, chosen], u32, in range:
   * [tokens, chosen, out] in f32. The ids stay on the device where the tokens are few.
   */
  forward(x: Tensor, ids: Tensor): Tensor {
    const ys = this.weight.indexedMoeForwardSync(this.rounded(x), ids, { readIds: false, areInside: true });
    if (!this.bias) return ys;
    return ys.add(this.bias.indexSelect(ids.flattenAll(), 0).reshape(ys.shape));
  }

  /** Rows x [pairs, in] in the order of `order`: [pairs, out] in f32. */
  forwardGroups(x: Tensor, order: ExpertOrder): Tensor {
    const ys = this.weight.groupedMoe(this.rounded(x), order);
    return this.bias ? ys.add(this.bias.indexSelect(order.owners, 0)) : ys;
  }

  /** f32, so that products give f32. */
  private rounded(x: Tensor): Tensor {
    return inDtype(inDtype(x, this.dtype), 'f32');
  }

  dispose(): void {
    this.weight.dispose();
    this.bias?.dispose();
  }
}
