/**
 * Op classes over dispatchers, after candle's `Map1`, `Map1Any`, `Map2`, `Map2Any`, `Map2InPlace` and `Map3`
 * (candle-core/src/cuda_backend/utils.rs). A dispatcher checks dtypes, allocates the result and applies offsets; an op
 * names its kernel and launches it. candle's traits are generic over the element type; here the dtype is part of the
 * kernel's name.
 */
import {
  type BinaryOp,
  binaryRow,
  type CmpOp,
  type Operand as CoreOperand,
  DTYPES,
  type DType,
  isFloat,
  type Layout,
  roundScalar,
  sizeInBytes,
  type UnaryOp,
  unaryRow,
} from '@x/core';
import type { RocmDevice } from './device';
import { unsupported } from './errors';
import { launchGather, launchIndexAdd, launchIndexSelect, launchScatter } from './indexing-kernels';
import { kernelName } from './kernel-name';
import {
  type DimSplit,
  launchAffine,
  launchBinary,
  launchCast,
  launchStridedCopy,
  launchTernary,
  launchUnary,
  type Operand,
  splitAt,
} from './kernels';
import { RocmStorage } from './storage';

const FLOATS: readonly DType[] = ['bf16', 'f16', 'f32', 'f64', 'f8e4m3'];
const INDEX_DTYPES: readonly DType[] = ['u8', 'u32', 'i16', 'i32', 'i64'];

/** One operand, result of the same dtype. */
export abstract class Map1 {
  abstract readonly name: string;
  /** Dtypes with a kernel; all ten unless the op narrows it. */
  readonly dtypes?: readonly DType[];
  /** Elements of the result for this layout. */
  outputCount(layout: Layout): number {
    return layout.elemCount;
  }
  abstract launch(device: RocmDevice, dtype: DType, src: Operand, out: number): void;

  map(storage: RocmStorage, layout: Layout, into?: CoreOperand): RocmStorage {
    const { device, dtype } = storage;
    if (this.dtypes && !this.dtypes.includes(dtype)) throw unsupported(this.name, dtype, device);
    const fill = (out: number) => this.launch(device, dtype, storage.operand(layout), out);
    return run(device, dtype, this.outputCount(layout), fill, into);
  }
}

/** One operand, result of a dtype that the op chooses. */
export abstract class Map1Any {
  abstract readonly name: string;
  abstract outputDtype(dtype: DType): DType;
  abstract outputCount(layout: Layout): number;
  abstract launch(device: RocmDevice, dtype: DType, src: Operand, out: number): void;

  map(storage: RocmStorage, layout: Layout): RocmStorage {
    return run(storage.device, this.outputDtype(storage.dtype), this.outputCount(layout), (out) =>
      this.launch(storage.device, storage.dtype, storage.operand(layout), out),
    );
  }
}

/** Two operands of one dtype, result of a dtype that the op chooses (candle's `Map2Any`). */
export abstract class Map2Any {
  abstract outputDtype(dtype: DType): DType;
  abstract launch(device: RocmDevice, dtype: DType, lhs: Operand, rhs: Operand, out: number): void;

  map(lhs: RocmStorage, lhsLayout: Layout, rhs: RocmStorage, rhsLayout: Layout, into?: CoreOperand): RocmStorage {
    const { device, dtype } = lhs;
    const fill = (out: number) => this.launch(device, dtype, lhs.operand(lhsLayout), rhs.operand(rhsLayout), out);
    return run(device, this.outputDtype(dtype), lhsLayout.elemCount, fill, into);
  }
}

/** Two operands of one dtype, result of that dtype. */
export abstract class Map2 extends Map2Any {
  override outputDtype(dtype: DType): DType {
    return dtype;
  }
}

/** Writes into `dst` from `src` at places that an index storage names. All contiguous. */
export abstract class Map2InPlace {
  abstract launch(device: RocmDevice, kernelSuffix: string, ids: number, src: number, dst: number): void;

  map(
    dst: RocmStorage,
    dstLayout: Layout,
    ids: RocmStorage,
    idsLayout: Layout,
    src: RocmStorage,
    srcLayout: Layout,
  ): void {
    if (srcLayout.elemCount === 0) return;
    this.launch(
      dst.device,
      kernelName(indexDtype(ids), dst.dtype),
      ids.operand(idsLayout).ptr,
      src.operand(srcLayout).ptr,
      dst.operand(dstLayout).ptr,
    );
  }
}

/** Three operands; the result has the dtype of the last two. */
export abstract class Map3 {
  abstract launch(device: RocmDevice, kernelSuffix: string, a: Operand, b: Operand, c: Operand, out: number): void;

  map(a: RocmStorage, aLayout: Layout, b: RocmStorage, bLayout: Layout, c: RocmStorage, cLayout: Layout): RocmStorage {
    return run(a.device, b.dtype, aLayout.elemCount, (out) =>
      this.launch(
        a.device,
        kernelName(indexDtype(a), b.dtype),
        a.operand(aLayout),
        b.operand(bLayout),
        c.operand(cLayout),
        out,
      ),
    );
  }
}

export class Unary extends Map1 {
  override readonly name: string;
  override readonly dtypes: readonly DType[];
  constructor(op: UnaryOp) {
    super();
    this.name = op;
    this.dtypes = unaryRow(op).integers ? DTYPES : FLOATS;
  }
  override launch(device: RocmDevice, dtype: DType, src: Operand, out: number): void {
    const { kernel, integers, cost } = unaryRow(this.name as UnaryOp);
    const copies = integers === 'same' && !isFloat(dtype);
    launchUnary(device, kernelName(copies ? 'ucopy' : kernel, dtype), src, out, copies ? 'short' : cost);
  }
}

/** A contiguous copy of a strided view. */
export class Copy extends Map1 {
  override readonly name = 'copy';
  override launch(device: RocmDevice, dtype: DType, src: Operand, out: number): void {
    launchStridedCopy(device, dtype, src, out);
  }
}

export class Elu extends Map1 {
  override readonly name: string = 'elu';
  readonly kernel: string = 'uelu';
  override readonly dtypes = FLOATS;
  constructor(private readonly alpha: number) {
    super();
  }
  override launch(device: RocmDevice, dtype: DType, src: Operand, out: number): void {
    launchUnary(device, kernelName(this.kernel, dtype), src, out, 'long', this.alpha);
  }
}

export class Powf extends Elu {
  override readonly name = 'powf';
  override readonly kernel = 'upowf';
}

export class Affine extends Map1 {
  override readonly name = 'affine';
  constructor(
    private readonly mul: number,
    private readonly add: number,
  ) {
    super();
  }
  override launch(device: RocmDevice, dtype: DType, src: Operand, out: number): void {
    launchAffine(device, dtype, src, out, roundScalar(dtype, this.mul), roundScalar(dtype, this.add));
  }
}

export class Cast extends Map1Any {
  override readonly name = 'toDtype';
  constructor(private readonly to: DType) {
    super();
  }
  override outputDtype(): DType {
    return this.to;
  }
  override outputCount(layout: Layout): number {
    return layout.elemCount;
  }
  override launch(device: RocmDevice, dtype: DType, src: Operand, out: number): void {
    launchCast(device, dtype, this.to, src, out);
  }
}

export class Binary extends Map2 {
  constructor(private readonly op: BinaryOp) {
    super();
  }
  override map(
    lhs: RocmStorage,
    lhsLayout: Layout,
    rhs: RocmStorage,
    rhsLayout: Layout,
    into?: CoreOperand,
  ): RocmStorage {
    if (!binaryRow(this.op).integers && !isFloat(lhs.dtype)) throw unsupported(this.op, lhs.dtype, lhs.device);
    return super.map(lhs, lhsLayout, rhs, rhsLayout, into);
  }
  override launch(device: RocmDevice, dtype: DType, lhs: Operand, rhs: Operand, out: number): void {
    launchBinary(device, kernelName(binaryRow(this.op).kernel, dtype), lhs, rhs, out);
  }
}

export class Cmp extends Map2Any {
  constructor(private readonly op: CmpOp) {
    super();
  }
  override outputDtype(): DType {
    return 'u8';
  }
  override launch(device: RocmDevice, dtype: DType, lhs: Operand, rhs: Operand, out: number): void {
    launchBinary(device, kernelName(this.op, dtype), lhs, rhs, out);
  }
}

export class WhereCond extends Map3 {
  override launch(
    device: RocmDevice,
    suffix: string,
    cond: Operand,
    onTrue: Operand,
    onFalse: Operand,
    out: number,
  ): void {
    launchTernary(device, kernelName('where', suffix), cond, onTrue, onFalse, out);
  }
}

/** `indexSelect` and `gather`: operands contiguous, except the ids of `indexSelect`. */
export class Select {
  constructor(
    private readonly kernel: 'is' | 'gather',
    private readonly dim: number,
  ) {}

  map(src: RocmStorage, layout: Layout, ids: RocmStorage, idsLayout: Layout): RocmStorage {
    const { device } = src;
    const split = splitAt(layout.shape, this.dim);
    const idsDim = this.kernel === 'is' ? idsLayout.elemCount : idsLayout.shape[this.dim];
    const suffix = kernelName(indexDtype(ids), src.dtype);
    return run(device, src.dtype, split.left * idsDim * split.right, (out) => {
      const from = src.operand(layout).ptr;
      if (this.kernel === 'is')
        launchIndexSelect(
          device,
          kernelName('is', suffix),
          ids.operand(idsLayout),
          from,
          out,
          split,
          idsDim,
          sizeInBytes(src.dtype),
        );
      else launchGather(device, kernelName('gather', suffix), ids.operand(idsLayout).ptr, from, out, split, idsDim);
    });
  }
}

export class IndexAdd extends Map2InPlace {
  constructor(
    private readonly split: DimSplit,
    private readonly dstDim: number,
  ) {
    super();
  }
  override launch(device: RocmDevice, suffix: string, ids: number, src: number, dst: number): void {
    launchIndexAdd(device, kernelName('ia', suffix), ids, src, dst, this.split, this.dstDim);
  }
}

export class Scatter extends Map2InPlace {
  constructor(
    private readonly kernel: 's' | 'sa',
    private readonly split: DimSplit,
    private readonly dstDim: number,
  ) {
    super();
  }
  override launch(device: RocmDevice, suffix: string, ids: number, src: number, dst: number): void {
    launchScatter(device, kernelName(this.kernel, suffix), ids, src, dst, this.split, this.dstDim);
  }
}

/**
 * Allocates a result, fills it, and gives it back when the launch fails; `into` is memory of the caller's instead. Nothing
 * is launched for an empty result.
 */
export function run(
  device: RocmDevice,
  dtype: DType,
  elemCount: number,
  fill: (out: number) => void,
  into?: CoreOperand,
): RocmStorage {
  if (into) {
    const target = RocmStorage.on(device, into.storage);
    if (elemCount > 0) fill(target.operand(into.layout).ptr);
    return target;
  }
  const out = device.allocUninit(elemCount, dtype);
  if (elemCount === 0) return out;
  try {
    fill(out.ptr);
  } catch (error) {
    out.dispose();
    throw error;
  }
  return out;
}

/** The dtype of conditions and ids, an integer one. */
export function indexDtype(ids: RocmStorage): DType {
  if (!INDEX_DTYPES.includes(ids.dtype)) throw unsupported('indexing', ids.dtype, ids.device);
  return ids.dtype;
}
