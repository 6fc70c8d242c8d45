/** Rows of weights: looked up in a table, and taken out of a tensor. */
import { keep, scope, Tensor } from '@x/core';
import { OwningModule } from '@x/nn';
import type { PartRange, QTensor } from '@x/quantized';

/** Rows of a table in f32, blocks or numbers. */
export class TableRows extends OwningModule {
  /** Owns the table. */
  constructor(private readonly table: QTensor) {
    super();
    keep(table);
  }

  forward(ids: Tensor): Tensor {
    return this.table.embedding(ids);
  }

  override dispose(): void {
    this.table.dispose();
  }
}

/** Ranges of a dimension one behind the other, in memory of their own. */
export function ranged(tensor: Tensor, dim: number, ranges: readonly PartRange[]): Tensor {
  return scope(() =>
    Tensor.cat(
      ranges.map(({ start, count }) => tensor.narrow(dim, start, count)),
      dim,
    ).copy(),
  );
}
