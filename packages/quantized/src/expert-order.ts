/**
 * Pairs of token and expert in an order in which those of an expert follow one another, made on the device from the experts that
 * a router chose: what products with the weights of many experts are given, each in one launch (`QTensor.groupedMoe`).
 */
import {
  type BlockType,
  type ExpertTiles,
  formatShape,
  type GroupedExpertsProblem,
  kinds,
  ShapeError,
  type StoragePart,
  TENSORS,
  Tensor,
} from '@x/core';
import { idsInside } from './tensors';

/** Pairs of token and expert by expert, for {@link QTensor.groupedMoe}; {@link ExpertOrder.of} makes it, the caller disposes it. */
export class ExpertOrder implements Disposable {
  readonly pairs: number;
  /** Of a token. */
  readonly chosen: number;
  readonly experts: number;
  /** Pairs of a tile at most. */
  readonly #tile: number;
  /** Views of one tensor: see `ExpertOps.order`. */
  readonly #parts: Tensor;

  private constructor(
    { pairs, chosen, experts, tile }: { pairs: number; chosen: number; experts: number; tile: number },
    parts: Tensor,
  ) {
    this.pairs = pairs;
    this.chosen = chosen;
    this.experts = experts;
    this.#tile = tile;
    this.#parts = parts;
  }

  /**
   * undefined where the device has no kernels for it.
   * @param ids [tokens, chosen], u32 or another integer dtype: the experts of each token
   * @param types of the weights' blocks, where {@link groupedExperts} alone is given it, which may then be faster
   * @throws ShapeError `SHAPE_MISMATCH` for another rank; ids beyond `experts` as in `Tensor.embedding`
   */
  static of(ids: Tensor, experts: number, types?: readonly BlockType[]): ExpertOrder | undefined {
    kinds.check('ExpertOrder.of', 'ids', ids, kinds.TENSOR);
    kinds.check('ExpertOrder.of', 'experts', experts, kinds.POSITIVE);
    if (ids.rank !== 2) {
      throw new ShapeError('SHAPE_MISMATCH', `ExpertOrder.of: ids ${formatShape(ids.shape)}; give [tokens, chosen].`);
    }
    const [tokens, chosen] = ids.shape;
    const pairs = tokens * chosen;
    const { device } = ids;
    const { experts: ops } = device.backend;
    if (!ops?.supports(experts) || pairs === 0) return undefined;
    using inside = idsInside('ExpertOrder.of', ids, experts);
    const tile = ops.tilePairs({ pairs, experts }, types);
    const size = { pairs, experts, chosen, tile };
    const storage = ops.order(inside.storagePart(), size);
    return new ExpertOrder(size, Tensor.fromStorage(storage, [storage.elemCount], device));
  }

  /** Where each pair goes: [pairs], u32, the pairs of a token side by side. */
  get places(): Tensor {
    return this.#parts.narrow(0, 0, this.pairs);
  }

  /** The token of what lies in each place: [pairs], u32. */
  get sources(): Tensor {
    return this.#parts.narrow(0, this.pairs, this.pairs);
  }

  /** The expert of what lies in each place: [pairs], u32. */
  get owners(): Tensor {
    return this.#parts.narrow(0, 2 * this.pairs, this.pairs);
  }

  /** @internal What `QuantizedExpertOps.grouped` is given. */
  get problem(): GroupedExpertsProblem['order'] {
    const [storage, offset] = this.#parts.storagePart();
    const part = (i: number): StoragePart => [storage, offset + i * this.pairs];
    return { places: part(0), sources: part(1), owners: part(2), tiles: this.tiles };
  }

  /** @internal */
  get tiles(): ExpertTiles {
    const [storage, offset] = this.#parts.storagePart();
    const count = this.#parts.elemCount / 3 - this.pairs;
    return { tiles: [storage, offset + 3 * this.pairs], count, most: this.#tile };
  }

  /** For `scope`: the memory goes where this object goes. */
  [TENSORS](): unknown[] {
    return [this.#parts];
  }

  /** Gives the memory back; {@link places} and its like are views of it, and keep it until they are disposed too. */
  dispose(): void {
    this.#parts.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
