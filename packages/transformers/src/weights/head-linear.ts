/** Linear layers of heads, each of which has its own. */
import { keep, type QuantizedActivations, scope, Tensor } from '@x/core';
import { ExpertOrder, fusesMix, mixedExperts, mixedExpertsInto, type QTensor } from '@x/quantized';

export class HeadLinear {
  /** The number of each head, as a token's choice of experts: what the product with blocks is given. */
  private readonly ids: Tensor;

  /** Owns it. @param weight [heads, out, in] */
  constructor(private readonly weight: QTensor) {
    keep(weight);
    this.ids = scope(() => keep(Tensor.arange(0, weight.shape[0], 'u32', weight.device).unsqueeze(0)));
  }

  /** x [tokens, heads, in] to [tokens, heads, out] in x's dtype. What it makes on the way is its caller's scope's. */
  forward(x: Tensor): Tensor {
    const { weight } = this;
    if (weight.kind === 'blocks') {
      const [tokens, heads, width] = x.shape;
      const rows = tokens * heads;
      const ids = this.ids.broadcastAs([tokens, heads]).contiguous();
      const order = weight.prefersGroups(rows, 1) ? ExpertOrder.of(ids.reshape([rows, 1]), heads) : undefined;
      if (!order) return weight.indexedMoeForwardSync(x, ids, { readIds: false, areInside: true });
      const made = weight.groupedMoe(x.reshape([rows, width]).indexSelect(order.sources, 0), order);
      return made.indexSelect(order.places, 0).reshape([tokens, heads, weight.shape[1]]);
    }
    const { data } = weight;
    return x.toDtype(data.dtype).transpose(0, 1).matmul(data.transpose(1, 2)).transpose(0, 1).toDtype(x.dtype);
  }

  /** Whether {@link forwardBlocks} and {@link forwardInto} are kernels of the device, and the best way for so many tokens. */
  takesBlocks(tokens: number): boolean {
    return fusesMix(this.weight) && !this.weight.prefersGroups(tokens * this.ids.dim(1), 1);
  }

  /** x, a row a head of a token, to [tokens · heads, out], f32. */
  forwardBlocks(x: QuantizedActivations): Tensor {
    return mixedExperts(this.weight, x, this.idsOf(x.rows), {});
  }

  /** The same into the first columns of `to`, [tokens · heads, out or more], f32. */
  forwardInto(to: Tensor, x: QuantizedActivations): void {
    mixedExpertsInto(to, this.weight, x, this.idsOf(x.rows));
  }

  /** The head of each row, [rows, 1]. */
  private idsOf(rows: number): Tensor {
    const heads = this.ids.dim(1);
    const each = rows === heads ? this.ids : this.ids.broadcastAs([rows / heads, heads]).contiguous();
    return each.reshape([rows, 1]);
  }

  dispose(): void {
    this.weight.dispose();
    this.ids.dispose();
  }
}
