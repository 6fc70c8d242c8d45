/** A table of vectors looked up by id: candle-nn's `Embedding` (embedding.rs). */
import { ShapeError, type Tensor } from '@x/core';
import { checkLayer, checkTensors } from './check';
import { Init } from './init';
import { OwningModule } from './module';
import type { VarBuilder } from './var-builder';

/** Rows of a table, by their ids. */
export class Embedding extends OwningModule {
  /** [vocab, hidden] */
  readonly embeddings: Tensor;

  /** Owns the tensor. @throws ShapeError when it is not [vocab, hidden] */
  constructor(embeddings: Tensor) {
    super();
    checkTensors('Embedding', { embeddings });
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
    checkTensors('Embedding', { ids });
    return this.embeddings.embedding(ids);
  }
}

/** An {@link Embedding} from `weight` [inSize, outSize], normal at first. */
export function embedding(inSize: number, outSize: number, vb: VarBuilder): Embedding {
  checkLayer('embedding', { inSize, outSize }, vb);
  return new Embedding(vb.getWithHintsSync([inSize, outSize], 'weight', Init.randn(0, 1)));
}
