/**
 * Products with the weights of chosen experts (candle's `indexed_moe_forward`, which exists for CUDA and six types only;
 * here for every type on every device). The experts that tokens chose are read on the host; the rows of each expert are
 * one product, made where the weight lies. An expert's blocks are copied on the device for it, since a product takes a
 * whole storage.
 */
import { DeviceError, DTypeError, elemCount, formatShape, ShapeError, scope, Tensor } from '@x/core';
import { byteLengthOf } from './blocks';
import { KERNEL_PADDING } from './load';
import { QMatMul } from './qmatmul';
import { QTensor } from './qtensor';
import { checkActivation } from './tensors';

/** The weight [n, k] of one expert of [experts, n, k], a tensor of its own. */
export function expertOf(weights: QTensor, expert: number): QTensor {
  const [experts, n, k] = checkedExperts('QTensor.expert', weights);
  if (!(Number.isInteger(expert) && expert >= 0 && expert < experts))
    throw outOfRange('QTensor.expert', expert, experts);
  return scope(() => {
    const { data, format, type } = weights;
    if (weights.kind === 'dense') return QTensor.wrap(type, [n, k], data.narrow(0, expert, 1).squeeze(0).contiguous());
    const bytes = byteLengthOf(format, n * k);
    const part = data.narrow(0, expert * bytes, bytes);
    const zeros = Tensor.zeros([byteLengthOf(format, KERNEL_PADDING)], 'u8', data.device);
    return QTensor.wrap(type, [n, k], Tensor.cat([part, zeros], 0).narrow(0, 0, bytes));
  });
}

/** Checks what {@link indexedMoe} is given; returns the ids as contiguous u32, which the caller disposes. */
export function checkedIds(weights: QTensor, x: Tensor, ids: Tensor): Tensor {
  const op = 'QTensor.indexedMoeForward';
  const [, , k] = checkedExperts(op, weights);
  checkActivation(op, x);
  for (const [what, tensor] of [
    ['input', x],
    ['ids', ids],
  ] as const) {
    if (tensor.device.equals(weights.device)) continue;
    throw new DeviceError(
      'DEVICE_MISMATCH',
      `${op}: the ${what} is on ${tensor.device} and the weight on ${weights.device}. Move it with toDevice.`,
    );
  }
  const fits = x.rank === 3 && ids.rank === 2 && x.dim(2) === k && x.dim(0) === ids.dim(0);
  if (!fits || (x.dim(1) !== 1 && x.dim(1) !== ids.dim(1))) {
    throw new ShapeError(
      'SHAPE_MISMATCH',
      `${op}: input ${formatShape(x.shape)}, ids ${formatShape(ids.shape)} and weight ${formatShape(weights.shape)}; give ` +
        '[tokens, topk or 1, k], [tokens, topk] and [experts, n, k].',
    );
  }
  if (ids.dtype !== 'u32' && ids.dtype !== 'u8' && ids.dtype !== 'i64') {
    throw new DTypeError('DTYPE_MISMATCH', `${op}: the ids are ${ids.dtype}; give u32, u8 or i64.`);
  }
  return scope(() => ids.toDtype('u32').contiguous());
}

/**
 * For every token the product of its row (or the row of each choice) with the weights of the experts that it chose.
 * @param x [tokens, topk or 1, k], f32, f16 or bf16
 * @param chosen [tokens * topk] expert of each pair of token and choice
 * @returns [tokens, topk, n] in x's dtype
 */
export function indexedMoe(weights: QTensor, x: Tensor, chosen: Uint32Array): Tensor {
  const [experts, n, k] = checkedExperts('QTensor.indexedMoeForward', weights);
  const tokens = x.dim(0);
  const topk = tokens === 0 ? 0 : chosen.length / tokens;
  const { device } = x;
  if (chosen.length === 0) return Tensor.zeros([tokens, topk, n], x.dtype, device);
  const bad = chosen.find((expert) => expert >= experts);
  if (bad !== undefined) throw outOfRange('QTensor.indexedMoeForward', bad, experts);
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
          using weight = expertOf(weights, expert);
          using map = QMatMul.fromQTensor(weight);
          return map.forward(rows.indexSelect(Tensor.from(from, { device }), 0));
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

function checkedExperts(op: string, weights: QTensor): [experts: number, n: number, k: number] {
  if (weights.rank === 3) return weights.shape as [number, number, number] & readonly number[];
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `${op}: the weight is ${formatShape(weights.shape)}; it must be [experts, n, k]. Reshape or stack the experts.`,
  );
}

function outOfRange(op: string, expert: number, experts: number): ShapeError {
  return new ShapeError(
    'INDEX_OUT_OF_RANGE',
    `${op}: there is no expert ${expert} among ${experts}. Route tokens to 0 to ${experts - 1}.`,
  );
}
