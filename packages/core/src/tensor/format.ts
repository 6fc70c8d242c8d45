/** How `console.log` shows a tensor: at most three items from each end of a long dimension, numbers to four places. */
import type { Tensor } from '../tensor';
import { withTemporaries } from './base';
import { cat } from './joining';

const EDGE = 3;
/** Tensors up to this many elements are shown whole. */
const WHOLE = 100;

/** Values and a line like `Tensor[[2, 3], f32, cpu]`; only the latter where values cannot be read. */
export function inspectTensor(tensor: Tensor): string {
  if (tensor.isDisposed || tensor.elemCount === 0) return tensor.toString();
  return withTemporaries((temporary) => {
    const cut = tensor.elemCount > WHOLE;
    let shown = tensor;
    for (let d = 0; cut && d < tensor.rank; d++) {
      const size = tensor.shape[d];
      if (size <= 2 * EDGE) continue;
      const head = temporary(shown.narrow(d, 0, EDGE));
      shown = temporary(cat([head, temporary(shown.narrow(d, size - EDGE, EDGE))], d));
    }
    const values = shown.toArraySync();
    let next = 0;
    const level = (d: number): string => {
      if (d === tensor.rank) return formatNumber(values[next++]);
      const items = Array.from({ length: shown.shape[d] }, () => level(d + 1));
      if (shown.shape[d] < tensor.shape[d]) items.splice(EDGE, 0, '...');
      const separator = d === tensor.rank - 1 ? ', ' : `,\n${' '.repeat(d + 1)}`;
      return `[${items.join(separator)}]`;
    };
    return `${level(0)}\n${tensor}`;
  });
}

function formatNumber(value: number | bigint): string {
  if (typeof value === 'bigint' || Number.isInteger(value) || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e6 ? String(Number(value.toFixed(4))) : value.toExponential(4);
}
