/** A linear layer on a {@link QMatMul}: weights in blocks, or numbers; what comes out is f32, whatever goes in. */
import { keep, QuantizedActivations, TENSORS, type Tensor } from '@x/core';
import { type Activations, Linear, type Module, OwningModule } from '@x/nn';
import { areBlocks, type DenseDType, fusesMix, mixedExperts, type QMatMul, type QTensor } from '@x/quantized';

/** Rows of which the product and the bias are one kernel, which reads the weight once a row. */
const BIASED_ROWS = 1;

/** A weight in blocks, [out, in], and the bias of its layer, [out]. */
export interface BlockWeight {
  weight: QTensor;
  bias?: Tensor;
}

export class QLinear extends OwningModule {
  private readonly bias: Tensor | undefined;

  /** Owns both. @param bias [out], f32 */
  constructor(
    private readonly product: QMatMul,
    bias?: Tensor,
  ) {
    super();
    for (const weight of product[TENSORS]()) keep(weight as Tensor);
    this.bias = bias && this.own(bias);
  }

  /** Whether it reads activations in blocks. */
  get takesBlocks(): boolean {
    return this.product.takesBlocks;
  }

  /** {@link RoundingLayer.roundsTo} */
  roundsTo(rows: number): DenseDType | undefined {
    return this.product.roundsTo(rows);
  }

  /** Its weight where that is in blocks; this layer's. */
  get blockWeight(): BlockWeight | undefined {
    const weight = this.product.blocks;
    return weight && { weight, ...(this.bias && { bias: this.bias }) };
  }

  /** [..., in] to [..., out]; blocks to [rows, out]. */
  forward(xs: Activations): Tensor {
    const { bias } = this;
    if (bias && xs instanceof QuantizedActivations && xs.rows <= BIASED_ROWS && areBlocks(xs.blocks)) {
      const weight = this.product.blocks;
      if (weight && fusesMix(weight)) return mixedExperts(weight, xs, undefined, { bias });
    }
    const ys = xs instanceof QuantizedActivations ? this.product.forwardBlocks(xs) : this.product.forwardWide(xs);
    return bias ? ys.broadcastAdd(bias) : ys;
  }

  /** {@link forward}, and the bias that is still to be added to it, [out], this layer's: for a kernel that adds it on its way. */
  unbiased(xs: Activations): Unbiased {
    const { bias } = this;
    // Of a single row the product adds it.
    const alone = xs instanceof QuantizedActivations ? xs.rows <= BIASED_ROWS : xs.elemCount === xs.dim(-1);
    if (!bias || alone) return { product: this.forward(xs) };
    const product = xs instanceof QuantizedActivations ? this.product.forwardBlocks(xs) : this.product.forwardWide(xs);
    return { product, bias };
  }

  override dispose(): void {
    super.dispose();
    this.product.dispose();
  }
}

/** A layer that reads activations in blocks while `takesBlocks` says so. */
export interface BlockLayer extends Omit<Module, 'forward'> {
  readonly takesBlocks: boolean;
  /** Undefined where it is more than a product with one, such as while an adapter changes it. */
  readonly blockWeight?: BlockWeight | undefined;
  forward(xs: Activations): Tensor;
}

/** Whether a layer reads activations in blocks. */
export function takesBlocks(layer: Module | BlockLayer): layer is BlockLayer {
  return (layer as Partial<BlockLayer>).takesBlocks === true;
}

/** A layer whose product rounds many rows of f32 to another dtype, and takes them in it as well. */
interface RoundingLayer {
  /** The dtype; undefined for so many rows that are multiplied as they are. */
  roundsTo(rows: number): DenseDType | undefined;
}

/** As {@link RoundingLayer.roundsTo}; undefined for layers that have none. */
export function roundsTo(layer: Module | Partial<RoundingLayer>, rows: number): DenseDType | undefined {
  return (layer as Partial<RoundingLayer>).roundsTo?.(rows);
}

/** Activations as numbers that a layer takes: what its product would round them to is left as it is, others are in `dtype`. */
function numbersFor(layer: Module, xs: Tensor, dtype: DenseDType): Tensor {
  const isNarrow = dtype === 'f32' && xs.dtype !== 'f32';
  return isNarrow && xs.dtype === roundsTo(layer, xs.elemCount / xs.dim(-1)) ? xs : inDtype(xs, dtype);
}

/** What a layer makes of activations, f32. They are in blocks only if it takes these; numbers are rounded to `dtype`. */
export function project(layer: Module, xs: Activations, dtype: DenseDType): Tensor {
  if (!(xs instanceof QuantizedActivations))
    return layer.forward(takesBlocks(layer) ? xs : numbersFor(layer, xs, dtype));
  if (!takesBlocks(layer)) throw new Error('internal: activations in blocks for a layer that does not take them');
  return layer.forward(xs);
}

/** A product, and the bias of its layer that is still to be added, [out], the layer's. */
export interface Unbiased {
  product: Tensor;
  bias?: Tensor;
}

/** What a layer, of numbers or of blocks, can leave of its bias to a kernel that adds it on its way. */
export function unbiasedOf(layer: Module, xs: Activations): Unbiased | undefined {
  if (layer instanceof QLinear) return layer.unbiased(xs);
  if (!(layer instanceof Linear) || xs instanceof QuantizedActivations || xs.rank !== 2) return undefined;
  const { weight, bias } = layer;
  return bias?.rank === 1 ? { product: xs.matmul(weight.t()), bias } : undefined;
}

/** A layer that can leave its bias to a kernel that adds it on its way. */
interface UnbiasedLayer {
  unbiased(xs: Activations): Unbiased;
}

/** As {@link project}, of a layer that can leave its bias without it. */
export function projectUnbiased(layer: Module & Partial<UnbiasedLayer>, xs: Activations, dtype: DenseDType): Unbiased {
  if (!layer.unbiased) return { product: project(layer, xs, dtype) };
  const inBlocks = takesBlocks(layer);
  if (xs instanceof QuantizedActivations && !inBlocks)
    throw new Error('internal: activations in blocks for a layer that does not take them');
  return (layer as UnbiasedLayer).unbiased(
    xs instanceof QuantizedActivations || inBlocks ? xs : numbersFor(layer as Module, xs, dtype),
  );
}

/** In `dtype`; the tensor itself where it is so already. */
export function inDtype(x: Tensor, dtype: DenseDType): Tensor {
  return x.dtype === dtype ? x : x.toDtype(dtype);
}
