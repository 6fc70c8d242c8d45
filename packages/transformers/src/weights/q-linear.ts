/** A linear layer on a {@link QMatMul}: weights in blocks, or numbers; what comes out is of the dtype that goes in. */
import { keep, TENSORS, type Tensor } from '@x/core';
import { OwningModule } from '@x/nn';
import type { QMatMul } from '@x/quantized';

export class QLinear extends OwningModule {
  private readonly bias: Tensor | undefined;

  /** Owns both. @param bias [out], of the dtype of what goes in */
  constructor(
    private readonly product: QMatMul,
    bias?: Tensor,
  ) {
    super();
    for (const weight of product[TENSORS]()) keep(weight as Tensor);
    this.bias = bias && this.own(bias);
  }

  /** [..., in] to [..., out]. */
  forward(xs: Tensor): Tensor {
    const ys = this.product.forward(xs);
    return this.bias ? ys.broadcastAdd(this.bias) : ys;
  }

  override dispose(): void {
    super.dispose();
    this.product.dispose();
  }
}
