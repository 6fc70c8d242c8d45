/**
 * Caches in 8 bits, a scale for each 32 values of a head: the values of ggml's q8_0 at half the memory of f16. Kernels read them as
 * they are (`pagedAttention` and its relatives); what multiplies numbers takes their blocks out with {@link pagedUnpack}.
 */
import { CandleError, type DType, scope, Tensor } from '@x/core';
import { checkObjects, checkTensors } from '../check';
import { CACHE_GROUP, checkCache, type PagedCache } from './paged-cache';

/** Added to a value over its scale, so that a byte is never negative. */
const ZERO = 128;
const LARGEST = 127;

/**
 * Blocks of a cache one after the other, as a cache of their own in numbers of `dtype`: keys [blocks · blockSize, kvHeads, d].
 * @param blocks [blocks], u32
 * @param dtype f32, f16 or bf16
 * @throws CandleError `INVALID_ARGUMENT` for other ids or another dtype; ShapeError `SHAPE_MISMATCH`
 */
export function pagedUnpack(cache: PagedCache, blocks: Tensor, dtype: DType): PagedCache {
  const op = 'pagedUnpack';
  checkObjects(op, { cache });
  checkCache(op, cache);
  const { keys, values, scales, blockSize } = cache;
  checkTensors(op, { blocks });
  if (blocks.dtype !== 'u32' || blocks.rank !== 1 || !['f32', 'f16', 'bf16'].includes(dtype)) {
    throw new CandleError(
      'INVALID_ARGUMENT',
      `${op}: blocks ${blocks.dtype} [${blocks.shape}] to ${dtype}; give u32 [blocks], and f32, f16 or bf16.`,
    );
  }
  const isView = scales !== undefined && scales.keys === scales.values;
  const unpacked = (rows: Tensor, groups: Tensor | undefined) =>
    groups ? unpackRows(rows, groups, blockSize, blocks, dtype) : gather(rows, blockSize, blocks).toDtype(dtype);
  const own = unpacked(keys, scales?.keys);
  return { keys: own, values: isView ? own.narrow(2, 0, values.dim(2)) : unpacked(values, scales?.values), blockSize };
}

function unpackRows(rows: Tensor, groups: Tensor, blockSize: number, blocks: Tensor, dtype: DType): Tensor {
  const [slots, kvHeads, width] = rows.shape;
  const shape = [blocks.dim(0) * blockSize, kvHeads, width];
  const { device } = rows;
  const kernels = device.backend.pagedAttention;
  const whole = [rows, groups, blocks].every((tensor) => tensor.device === device && tensor.isContiguous());
  if (kernels && whole && blocks.dim(0) > 0) {
    const made = kernels.unpack(
      {
        count: blocks.dim(0),
        blocks: blocks.storagePart(),
        blockValues: blockSize * kvHeads * width,
        poolBlocks: slots / blockSize,
        codes: rows.storagePart(),
        scales: groups.storagePart(),
      },
      dtype,
    );
    return Tensor.fromStorage(made, shape, device);
  }
  return scope(() => {
    const [codes, factors] = [rows, groups].map((part) => gather(part, blockSize, blocks).toDtype('f32'));
    const split = codes.reshape([shape[0], kvHeads, width / CACHE_GROUP, CACHE_GROUP]).sub(ZERO);
    return split.mul(factors.unsqueeze(3)).reshape(shape).toDtype(dtype);
  });
}

function gather(rows: Tensor, blockSize: number, blocks: Tensor): Tensor {
  const [slots, kvHeads, width] = rows.shape;
  return rows
    .contiguous()
    .reshape([slots / blockSize, blockSize * kvHeads * width])
    .indexSelect(blocks, 0)
    .reshape([blocks.dim(0) * blockSize, kvHeads, width]);
}

/** Rows [positions, kvHeads, d] as such a cache has them, in f32: codes of that shape and scales [positions, kvHeads, d / 32]. */
export function groupsOf(rows: Tensor): { codes: Tensor; scales: Tensor } {
  const [positions, kvHeads, width] = rows.shape;
  const groups = [positions, kvHeads, width / CACHE_GROUP, CACHE_GROUP];
  const split = rows.toDtype('f32').contiguous().reshape(groups);
  const scales = split.abs().maxKeepdim(3).div(LARGEST);
  // Of a group of zeros the scale is 0 too.
  const divisors = scales.add(scales.eq(0).toDtype('f32'));
  return {
    codes: split.div(divisors).round().add(ZERO).reshape(rows.shape),
    scales: scales.reshape([positions, kvHeads, groups[2]]),
  };
}
