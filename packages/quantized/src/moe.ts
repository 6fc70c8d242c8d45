/**
 * Products with the weights of chosen experts (candle's `indexed_moe_forward`, which exists for CUDA and six types only;
 * here for every type on every device). Few pairs of token and expert, as in decoding, are one launch of the device's
 * indexed kernel. More are sorted by expert, and the rows of each expert are one product with its part of the weight.
 */
import {
  DeviceError,
  type DType,
  DTypeError,
  elemCount,
  formatShape,
  isGradEnabled,
  isInt,
  kinds,
  ShapeError,
  scope,
  Tensor,
} from '@x/core';
import { QUANTIZED } from './argument-kinds';
import { byteLengthOf } from './blocks';
import type { ExpertOrder } from './expert-order';
import { allocateBlocks } from './load';
import { blockProduct, QMatMul } from './qmatmul';
import type { QTensor } from './qtensor';
import { checkActivation } from './tensors';

/** The weight [n, k] of one expert of [experts, n, k], a tensor of its own. */
export function expertOf(weights: QTensor, expert: number): QTensor {
  const [experts, n, k] = checkedExperts('QTensor.expert', weights);
  if (!(Number.isInteger(expert) && expert >= 0 && expert < experts))
    throw outOfRange('QTensor.expert', expert, experts);
  return scope(() => {
    const { data, format } = weights;
    if (weights.kind === 'dense') return weights.withData([n, k], data.narrow(0, expert, 1).squeeze(0).contiguous());
    const bytes = byteLengthOf(format, n * k);
    const part = data.narrow(0, expert * bytes, bytes);
    const copy = Tensor.fromStorage(allocateBlocks(data.device, weights.blockType, n * k), [bytes], data.device);
    copy.copyFrom(part);
    return weights.withData([n, k], copy);
  });
}

/**
 * Pairs an expert, on average, up to which the indexed kernel is taken. It reads an expert's weights once a pair; products
 * read them once, but are several launches an expert. On a two-core cpu both take as long for 4 (iq4_xs) to more than 16
 * (q4_K) pairs; a GPU's launches weigh more.
 */
const INDEXED_PAIRS = 8;

/** The same of GPUs; vLLM crosses over at about 16 tokens of 8 experts of 128 each on an H200. */
const INDEXED_PAIRS_GPU = 2;
/** Tokens above which numbers are grouped that no indexed kernel takes. */
const GROUPED_TOKENS = 8;

function isHalf(dtype: DType): boolean {
  return dtype === 'f16' || dtype === 'bf16';
}

/** Whether so many pairs of token and expert are few: for the device's indexed kernel, or numbers gathered by expert. */
function areFew(weights: QTensor, pairs: number, experts = weights.shape[0]): boolean {
  return weights.elemCount > 0 && pairs <= INDEXED_PAIRS * experts;
}

/** Whether the device has a kernel that reads the weights of each pair's expert, and no gradient of `x` is wanted. */
function hasIndexedKernel(weights: QTensor, x: Tensor): boolean {
  const { quantized, linear } = weights.device.backend;
  if (weights.kind === 'blocks') return quantized !== undefined;
  return linear !== undefined && isHalf(weights.data.dtype) && !(isGradEnabled() && x.trackOp);
}

/** Tokens whose experts are never read on the host where they need not: a captured step of as many sequences cannot wait. */
const UNREAD_TOKENS = 64;

/** Whether products with so many pairs, a token's side by side, need not know the ids on the host. */
export function canStayUnread(weights: QTensor, tokens: number, pairs: number, experts: number): boolean {
  const possible = weights.kind === 'dense' || weights.device.backend.quantized !== undefined;
  return possible && weights.elemCount > 0 && (tokens <= UNREAD_TOKENS || areFew(weights, pairs, experts));
}

/**
 * Products of rows in the order of `order` with the weights of their experts, one launch for all.
 * @param weights [experts, n, k]
 * @param x [pairs, k], f32, f16 or bf16 @returns [pairs, n] in x's dtype
 */
export function groupedMoe(weights: QTensor, x: Tensor, order: ExpertOrder): Tensor {
  const op = 'QTensor.groupedMoe';
  const [experts, n, k] = checkedExperts(op, weights);
  checkActivation(op, x);
  checkDevice(op, 'input', x, weights);
  const { pairs } = order;
  if (x.rank !== 2 || x.dim(0) !== pairs || x.dim(1) !== k || experts !== order.experts) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: input ${formatShape(x.shape)} and weight ${formatShape(weights.shape)} for ${pairs} pairs of ${order.experts} experts; ` +
        'give [pairs, k] and [experts, n, k].',
    );
  }
  const { device } = weights;
  const size = { pairs, n, k };
  return scope(() => {
    if (weights.kind === 'dense') {
      const { dtype } = weights.data;
      // Kernels of devices with products of f32 by halves have groups of these too.
      const rows = x.toDtype(device.backend.linear && x.dtype !== dtype ? 'f32' : dtype).contiguous();
      const ops = device.backend.experts!;
      const made = ops.groupedMatmul(weights.data.storagePart(), size, rows.storageAndLayout(), order.tiles);
      return Tensor.fromStorage(made, [pairs, n], device).toDtype(x.dtype);
    }
    const ops = device.backend.quantized!;
    const [storage] = weights.data.storagePart();
    const rows = x.contiguous().storageAndLayout();
    const made = ops.groupedMatmul!(storage, weights.blockType, size, rows, order.tiles);
    return Tensor.fromStorage(made, [pairs, n], device).toDtype(x.dtype);
  });
}

/**
 * Whether products with so many pairs are better made by {@link groupedMoe}: it reads an expert's weights once for 64 pairs,
 * the indexed kernel once a pair; numbers are copied for each pair where they are not grouped.
 */
export function isGrouped(weights: QTensor, tokens: number, pairs: number, experts: number): boolean {
  if (!weights.device.backend.experts?.supports(weights.shape[0])) return false;
  const { quantized, linear } = weights.device.backend;
  const dense = weights.kind === 'dense';
  if (dense && !(linear && isHalf(weights.data.dtype))) return tokens > GROUPED_TOKENS;
  const each = weights.device.kind === 'cpu' ? INDEXED_PAIRS : INDEXED_PAIRS_GPU;
  // Both round activations in their own way.
  const deciding = (pairs / tokens) * (quantized?.roundsAs ?? tokens);
  return (dense || quantized?.groupedMatmul !== undefined) && deciding > each * experts;
}

/** As {@link indexedMoe} for {@link canStayUnread}; ids u32, contiguous, are all below the number of experts. */
export function indexedUnread(weights: QTensor, x: Tensor, ids: Tensor): Tensor {
  return hasIndexedKernel(weights, x) ? indexedKernel(weights, x, ids) : indexedNumbers(weights, x, ids);
}

/** Products with numbers: the weights of each pair's expert are gathered, no more at once than there are experts. */
function indexedNumbers(weights: QTensor, x: Tensor, ids: Tensor): Tensor {
  const [experts, n, k] = weights.shape;
  const [tokens, topk] = ids.shape;
  const pairs = tokens * topk;
  return scope(() => {
    const { data } = weights;
    const chosen = ids.reshape([pairs]);
    const dtype = x.dtype === 'f32' ? 'f32' : data.dtype;
    const rows = x.toDtype(dtype).broadcastAs([tokens, topk, k]).reshape([pairs, 1, k]);
    const parts: Tensor[] = [];
    for (let at = 0; at < pairs; at += experts) {
      const count = Math.min(experts, pairs - at);
      const product = () => {
        const own = data.indexSelect(chosen.narrow(0, at, count), 0).toDtype(dtype);
        return rows.narrow(0, at, count).matmul(own.transpose(1, 2));
      };
      parts.push(scope(product));
    }
    const all = parts.length === 1 ? parts[0] : Tensor.cat(parts, 0);
    return all.reshape([tokens, topk, n]).toDtype(x.dtype);
  });
}

/** As {@link indexedMoe} by the device's kernel; ids u32, contiguous, are all below the number of experts. */
function indexedKernel(weights: QTensor, x: Tensor, ids: Tensor): Tensor {
  const [, n, k] = weights.shape;
  const [tokens, choices] = x.shape;
  const topk = ids.elemCount / tokens;
  return scope(() => {
    const inBlocks = weights.kind === 'blocks';
    const rows = (inBlocks ? x : x.toDtype('f32')).contiguous();
    const [input, list] = [rows.storageAndLayout(), ids.storageAndLayout()];
    const size = { n, k, topk, shared: choices === 1 };
    const part = weights.data.storagePart();
    const { quantized, linear } = weights.device.backend;
    const made = inBlocks
      ? quantized!.indexedMoe(part[0], weights.blockType, size, input, list)
      : linear!.indexedMoe(part, input, list, size);
    return Tensor.fromStorage(made, [tokens, topk, n], weights.device).toDtype(x.dtype);
  });
}

/** Checks what `QTensor.indexedMoeForward` is given, but for the ids' values. */
export function checkIndexed(weights: QTensor, x: Tensor, ids: Tensor): void {
  const op = 'QTensor.indexedMoeForward';
  checkInput(op, weights, x, ids.shape);
  checkDevice(op, 'ids', ids, weights);
  if (!isInt(ids.dtype)) {
    throw new DTypeError('DTYPE_MISMATCH', `${op}: the ids are ${ids.dtype}; convert them with toDtype('u32').`);
  }
}

/**
 * For every token the product of its row (or the row of each choice) with the weights of the experts that it chose.
 * @param weights [experts, n, k]
 * @param x [tokens, topk or 1, k] on the weight's device, f32, f16 or bf16
 * @param ids [tokens * topk] expert of each pair of token and choice, on the host
 * @returns [tokens, topk, n] in x's dtype
 * @throws ShapeError `INDEX_OUT_OF_RANGE` for an expert that is not there
 */
export function indexedMoe(weights: QTensor, x: Tensor, ids: ArrayLike<number | bigint>): Tensor {
  const [experts, n, k] = checkedExperts('QTensor.indexedMoeForward', weights);
  const tokens = x.dim(0);
  const topk = tokens === 0 ? 0 : ids.length / tokens;
  const { device } = x;
  if (ids.length === 0) return Tensor.zeros([tokens, topk, n], x.dtype, device);
  const chosen = Uint32Array.from(ids, (id) => {
    if (id >= 0 && id < experts && Number.isInteger(Number(id))) return Number(id);
    throw outOfRange('QTensor.indexedMoeForward', id, experts);
  });
  if (hasIndexedKernel(weights, x) && areFew(weights, chosen.length))
    return scope(() => indexedKernel(weights, x, Tensor.from(chosen, { device })));
  const order = Uint32Array.from(chosen, (_, pair) => pair).sort((a, b) => chosen[a] - chosen[b] || a - b);
  const shared = x.dim(1) === 1;
  return scope(() => {
    const rows = x.reshape([elemCount(x.shape) / k, k]);
    const parts: Tensor[] = [];
    for (let start = 0, end = 0; start < order.length; start = end) {
      const expert = chosen[order[start]];
      while (end < order.length && chosen[order[end]] === expert) end++;
      const pairs = order.subarray(start, end);
      const from = Uint32Array.from(pairs, (pair) => (shared ? Math.floor(pair / topk) : pair));
      parts.push(
        scope(() => {
          const input = rows.indexSelect(Tensor.from(from, { device }), 0);
          if (weights.kind === 'blocks')
            return blockProduct(weights, input, { m: from.length, n, k, firstRow: expert * n }, [from.length, n]);
          using weight = expertOf(weights, expert);
          using map = QMatMul.fromQTensor(weight);
          return map.forward(input);
        }),
      );
    }
    const places = new Uint32Array(order.length);
    order.forEach((pair, place) => {
      places[pair] = place;
    });
    return Tensor.cat(parts, 0).indexSelect(Tensor.from(places, { device }), 0).reshape([tokens, topk, n]);
  });
}

/** @param ids their shape: [tokens, topk] */
function checkInput(op: string, weights: QTensor, x: Tensor, ids: readonly number[]): void {
  const [, , k] = checkedExperts(op, weights);
  checkActivation(op, x);
  checkDevice(op, 'input', x, weights);
  const fits = x.rank === 3 && ids.length === 2 && x.dim(2) === k && x.dim(0) === ids[0];
  if (fits && (x.dim(1) === 1 || x.dim(1) === ids[1])) return;
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: input ${formatShape(x.shape)}, ids ${formatShape(ids)} and weight ${formatShape(weights.shape)}; give ` +
      '[tokens, topk or 1, k], [tokens, topk] and [experts, n, k].',
  );
}

function checkDevice(op: string, what: string, tensor: Tensor, weights: QTensor): void {
  if (tensor.device.equals(weights.device)) return;
  throw new DeviceError(
    'DEVICE_MISMATCH',
    `${op}: the ${what} is on ${tensor.device} and the weight on ${weights.device}. Move it with toDevice.`,
  );
}

/** Checks as {@link checkIndexed} for ids on the host, in the order of their pairs. */
export function checkIndexedHost(weights: QTensor, x: Tensor, ids: ArrayLike<unknown>): void {
  const op = 'QTensor.indexedMoe';
  const tokens = x.rank === 3 ? x.dim(0) : 0;
  const topk = ids.length === 0 ? 0 : ids.length / tokens;
  if (!Number.isInteger(topk)) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: ${ids.length} ids for input ${formatShape(x.shape)}; give each of its tokens as many ids, x [tokens, topk or 1, k].`,
    );
  }
  checkInput(op, weights, x, [tokens, topk]);
}

function checkedExperts(op: string, weights: QTensor): [experts: number, n: number, k: number] {
  kinds.check(op, 'weights', weights, QUANTIZED);
  if (weights.rank === 3) return weights.shape as [number, number, number] & readonly number[];
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: the weight is ${formatShape(weights.shape)}; it must be [experts, n, k]. Reshape or stack the experts.`,
  );
}

function outOfRange(op: string, expert: number | bigint, experts: number): ShapeError {
  return new ShapeError(
    'INDEX_OUT_OF_RANGE',
    `${op}: there is no expert ${expert} among ${experts}. Route tokens to 0 to ${experts - 1}.`,
  );
}
