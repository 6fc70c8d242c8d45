/**
 * How a tensor's elements lie in its storage: shape, strides in elements, offset of the first element. Mirrors candle's
 * `Layout` (candle-core/src/layout.rs) with its `StridedIndex` and `StridedBlocks`.
 *
 * Differs: `reshape` lives here and keeps a view wherever strides allow it (candle copies unless contiguous). A layout is
 * immutable, so its contiguity is computed once.
 */
import { check, DIM, DIM_LIST, INDEX, kind, SHAPE } from './check';
import { checkCalls } from './checked-calls';
import { ShapeError } from './errors';
import { contiguousStrides, elemCount, formatShape, resolveDim, type Shape, sameShape } from './shape';
import { show } from './show';

/** Runs of `blockLen` neighbouring elements, `blockCount` of them: what a copy can move with one memcpy each. */
export interface StridedBlocks {
  readonly blockLen: number;
  readonly blockCount: number;
  /** Storage offsets of the runs, in row-major order. */
  starts(): IterableIterator<number>;
}

const ARRAY = kind(Array.isArray, 'give an array of whole numbers');

/** candle's `Layout`: where a tensor's elements lie in its storage. Immutable; methods give new ones. */
export class Layout {
  readonly shape: Shape;
  /** In elements; 0 repeats (broadcast). */
  readonly strides: readonly number[];
  /** Offset of element [0, ..., 0] in the storage, in elements. */
  readonly startOffset: number;
  readonly elemCount: number;
  #contiguous: boolean | undefined;
  #fresh = false;

  /** @throws ShapeError `INVALID_SHAPE` unless there is a stride a size, all whole numbers, sizes and offset from 0 */
  constructor(shape: Shape, strides: readonly number[], startOffset = 0) {
    check('Layout', 'shape', shape, ARRAY);
    check('Layout', 'strides', strides, ARRAY);
    if (shape.length !== strides.length) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `Layout: shape ${formatShape(shape)} has ${shape.length} dimensions and there are ${strides.length} strides; give one stride each.`,
      );
    }
    this.shape = shape;
    this.strides = strides;
    this.startOffset = startOffset;
    this.elemCount = elemCount(shape);
    if (!isSound(this)) throw unsound(this);
  }

  /** Row-major, without gaps. */
  static contiguous(shape: Shape, startOffset = 0): Layout {
    check('Layout.contiguous', 'shape', shape, ARRAY);
    const layout = new Layout(shape, contiguousStrides(shape), startOffset);
    layout.#contiguous = true;
    layout.#fresh = startOffset === 0;
    return layout;
  }

  /** Whether this is the layout of a new storage: made by {@link Layout.contiguous}, at offset 0. */
  get isFresh(): boolean {
    return this.#fresh;
  }

  get rank(): number {
    return this.shape.length;
  }

  /** candle's name for the shape as a plain list. */
  get dims(): Shape {
    return this.shape;
  }

  /** Size of one dimension, negative from the end. */
  dim(dim: number): number {
    return this.shape[resolveDim('dim', dim, this.shape)];
  }

  /** Row-major without gaps; dimensions of size 1 may have any stride. */
  isContiguous(): boolean {
    this.#contiguous ??= this.elemCount === 0 || denseInOrder(this.shape, this.strides, true);
    return this.#contiguous;
  }

  /** Column-major without gaps. */
  isFortranContiguous(): boolean {
    return this.elemCount === 0 || denseInOrder(this.shape, this.strides, false);
  }

  /** `[first, end)` in the storage when contiguous, else null. */
  contiguousOffsets(): [number, number] | null {
    return this.isContiguous() ? [this.startOffset, this.startOffset + this.elemCount] : null;
  }

  /** One past the largest storage offset that the layout reaches; 0 when it is empty. */
  endOffset(): number {
    if (this.elemCount === 0) return 0;
    let last = this.startOffset;
    for (let i = 0; i < this.shape.length; i++) last += (this.shape[i] - 1) * this.strides[i];
    return last + 1;
  }

  /**
   * The part [start, start + len) of a dimension.
   * @throws ShapeError `INDEX_OUT_OF_RANGE`
   */
  narrow(dim: number, start: number, len: number): Layout {
    const d = resolveDim('narrow', dim, this.shape);
    if (!Number.isInteger(start) || !Number.isInteger(len) || start < 0 || len < 0 || start + len > this.shape[d]) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `narrow: [${start}, ${start + len}) is outside dimension ${d} of shape ${formatShape(this.shape)}; stay within 0..${this.shape[d]}.`,
      );
    }
    const shape = this.shape.slice();
    shape[d] = len;
    return new Layout(shape, this.strides, this.startOffset + start * this.strides[d]);
  }

  /** The first `sizes[d]` positions of every dimension d, which has as many. */
  narrowTo(sizes: Shape): Layout {
    return sameShape(sizes, this.shape) ? this : new Layout(sizes, this.strides, this.startOffset);
  }

  /** Two dimensions swapped. */
  transpose(dim1: number, dim2: number): Layout {
    const a = resolveDim('transpose', dim1, this.shape);
    const b = resolveDim('transpose', dim2, this.shape);
    const shape = this.shape.slice();
    const strides = this.strides.slice();
    [shape[a], shape[b]] = [shape[b], shape[a]];
    [strides[a], strides[b]] = [strides[b], strides[a]];
    return new Layout(shape, strides, this.startOffset);
  }

  /** Dimension `i` of the result is dimension `dims[i]` of this; `dims` names each dimension once. */
  permute(dims: readonly number[]): Layout {
    const order = dims.map((dim) => resolveDim('permute', dim, this.shape));
    if (order.length !== this.rank || new Set(order).size !== this.rank) {
      throw new ShapeError(
        'INVALID_SHAPE',
        `permute: [${dims.join(', ')}] is no order of the ${this.rank} dimensions of ${formatShape(this.shape)}; name each dimension once.`,
      );
    }
    return new Layout(
      order.map((d) => this.shape[d]),
      order.map((d) => this.strides[d]),
      this.startOffset,
    );
  }

  /**
   * Stretched to `shape`: new dimensions in front, sizes of 1 repeated by a stride of 0.
   * @throws ShapeError `SHAPE_MISMATCH`
   */
  broadcastAs(shape: Shape): Layout {
    if (sameShape(shape, this.shape)) return this;
    const added = shape.length - this.rank;
    const strides = new Array<number>(shape.length).fill(0);
    let fits = added >= 0;
    for (let i = 0; fits && i < this.rank; i++) {
      if (this.shape[i] === shape[i + added]) strides[i + added] = this.strides[i];
      else fits = this.shape[i] === 1;
    }
    if (!fits) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `broadcastAs: ${formatShape(this.shape)} does not stretch to ${formatShape(shape)}; only sizes of 1 and missing leading dimensions stretch.`,
      );
    }
    return new Layout(shape, strides, this.startOffset);
  }

  /** A dimension of size 1 put at `dim`; -1 appends. */
  unsqueeze(dim: number): Layout {
    const d = resolveDim('unsqueeze', dim, this.shape, this.rank + 1);
    const shape = this.shape.slice();
    const strides = this.strides.slice();
    strides.splice(d, 0, d < this.rank ? this.strides[d] * this.shape[d] : 1);
    shape.splice(d, 0, 1);
    return new Layout(shape, strides, this.startOffset);
  }

  /** A dimension taken out if its size is 1, as candle: any other size leaves the layout as it is. */
  squeeze(dim: number): Layout {
    const d = resolveDim('squeeze', dim, this.shape);
    if (this.shape[d] !== 1) return this;
    return new Layout(
      this.shape.filter((_, i) => i !== d),
      this.strides.filter((_, i) => i !== d),
      this.startOffset,
    );
  }

  /** The same elements under another shape of equal count, or null where only a copy can give it. */
  reshape(shape: Shape): Layout | null {
    if (elemCount(shape) !== this.elemCount) {
      throw new ShapeError(
        'SHAPE_MISMATCH',
        `Layout.reshape: ${formatShape(this.shape)} has ${this.elemCount} elements and ${formatShape(shape)} has ${elemCount(shape)}; the counts must be equal.`,
      );
    }
    if (this.isContiguous()) return Layout.contiguous(shape, this.startOffset);
    // Old dimensions are merged into groups that step evenly; a new dimension must fall inside one group.
    const strides = new Array<number>(shape.length).fill(1);
    let next = shape.length - 1;
    let groupStride = 1;
    let groupCount = 1;
    const old = this.shape.map((size, i) => ({ size, stride: this.strides[i] })).filter(({ size }) => size !== 1);
    for (let i = old.length - 1; i >= 0; i--) {
      if (groupCount === 1) groupStride = old[i].stride;
      groupCount *= old[i].size;
      if (i > 0 && old[i - 1].stride === groupCount * groupStride) continue;
      let filled = 1;
      while (next >= 0 && (filled < groupCount || shape[next] === 1)) {
        strides[next] = filled * groupStride;
        filled *= shape[next];
        next--;
      }
      if (filled !== groupCount) return null;
      groupCount = 1;
    }
    return new Layout(shape, strides, this.startOffset);
  }

  /** Storage offsets of all elements in row-major order. */
  *stridedIndices(): IterableIterator<number> {
    if (this.elemCount === 0) return;
    const { shape, strides } = this;
    const index = new Array<number>(shape.length).fill(0);
    let offset = this.startOffset;
    for (;;) {
      yield offset;
      let d = shape.length - 1;
      for (; d >= 0; d--) {
        offset += strides[d];
        if (++index[d] < shape[d]) break;
        offset -= shape[d] * strides[d];
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }

  /** The longest runs of neighbouring elements, innermost dimensions merged. */
  stridedBlocks(): StridedBlocks {
    let blockLen = 1;
    let outer = this.rank;
    while (outer > 0 && (this.strides[outer - 1] === blockLen || this.shape[outer - 1] === 1)) {
      outer--;
      blockLen *= this.shape[outer];
    }
    const blocks = new Layout(this.shape.slice(0, outer), this.strides.slice(0, outer), this.startOffset);
    const empty = this.elemCount === 0;
    return {
      blockLen: empty ? 0 : blockLen,
      blockCount: empty ? 0 : blocks.elemCount,
      starts: () => (empty ? [][Symbol.iterator]() : blocks.stridedIndices()),
    };
  }

  toString(): string {
    return `Layout(shape ${formatShape(this.shape)}, strides ${formatShape(this.strides)}, offset ${this.startOffset})`;
  }
}

checkCalls(
  Layout.prototype,
  {
    dim: { dim: DIM },
    narrow: { dim: DIM, start: INDEX, len: INDEX },
    transpose: { dim1: DIM, dim2: DIM },
    permute: { dims: DIM_LIST },
    broadcastAs: { shape: SHAPE },
    unsqueeze: { dim: DIM },
    squeeze: { dim: DIM },
    reshape: { shape: SHAPE },
  },
  'Layout.',
);

/** Whole sizes and an offset from 0, whole strides, and a count that is exact in a double. */
function isSound({ shape, strides, startOffset, elemCount }: Layout): boolean {
  for (let i = 0; i < shape.length; i++) {
    if (!Number.isSafeInteger(shape[i]) || shape[i] < 0) return false;
    if (elemCount > 0 && !Number.isSafeInteger(strides[i])) return false;
  }
  return Number.isSafeInteger(startOffset) && startOffset >= 0 && Number.isSafeInteger(elemCount);
}

function unsound({ shape, strides, startOffset }: Layout): ShapeError {
  const given = `shape ${show(shape)}, strides ${show(strides)}, offset ${show(startOffset)}`;
  return new ShapeError(
    'INVALID_SHAPE',
    `Layout: ${given} address no elements; sizes and the offset are whole numbers from 0, strides whole numbers, and there are at most 2^53 elements.`,
  );
}

function denseInOrder(shape: Shape, strides: readonly number[], rowMajor: boolean): boolean {
  let acc = 1;
  for (let i = 0; i < shape.length; i++) {
    const d = rowMajor ? shape.length - 1 - i : i;
    if (shape[d] > 1 && strides[d] !== acc) return false;
    acc *= shape[d];
  }
  return true;
}
