/** A table of vectors looked up by id: candle-nn's `Embedding` (embedding.rs). */
import { ShapeError, type Tensor } from '@x/core';
import { OwningModule } from './module';

export class Embedding extends OwningModule {
  /** [vocab, hidden] */
  readonly embeddings: Tensor;

  /** Owns the tensor. @throws ShapeError when it is not [vocab, hidden] */
  constructor(embeddings: Tensor) {
    super();
    if (embeddings.rank !== 2) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `Embedding: the table has shape [${embeddings.shape}]; give [vocab, hidden].`,
      );
    }
    this.embeddings = this.own(embeddings);
  }

  get hiddenSize(): number {
    return this.embeddings.dim(1);
  }

  /** u32 (or another integer dtype) ids of any shape [...] to [..., hidden]. */
  forward(ids: Tensor): Tensor {
    return this.embeddings.embedding(ids);
  }
}
