/**
 * Arg-sort of rows of any width: on GPUs a warp or a block sorts a row in shared memory, and wide rows are sorted by the digits
 * of their keys, a byte a pass, by as many blocks as the device has room for; the host does so from far fewer columns on.
 * candle's own kernel (a block a row, fails where shared memory ends) serves narrow rows on the host.
 * Top-k selects instead of sorting; candle sorts the whole row for it.
 */
import { type DType, Layout, type Operand, type SortOps, sizeInBytes } from '@x/core';
import type { KernelDevice } from '../device';
import { checkPositions } from '../errors';
import { clamp } from '../launch-shape';
import { SORT_CHUNK } from '../launchers/constants';
import type { KernelStorage } from '../storage';
import { copyRows, withContiguous } from './copy';
import { filled } from './result';
import {
  argSortRows,
  RADIX_DIGITS,
  radixPart,
  radixPass,
  type SortProblem,
  selectTopk,
  sortRows,
  TOPK_MAX,
} from './sort-rows';

/** Columns up to which candle's kernel, which has no counters to clear, is better on the host. */
const HOST_ROW = 256;

export function sortOps(device: KernelDevice): SortOps {
  return {
    argSortLastDim: (x, descending) => argSort(device, x, descending),

    /** What sorts a row in shared memory writes positions and values at once; elsewhere the values are gathered. */
    sortLastDim(x: Operand, descending: boolean): { values: KernelStorage; positions: KernelStorage } {
      const { shape, rank, elemCount } = x.layout;
      if (device.shapes.isHost || shape[rank - 1] > SORT_CHUNK) {
        const positions = argSort(device, x, descending);
        return withPositions(positions, () => {
          const ids = { storage: positions, layout: Layout.contiguous(shape) };
          return device.ops.gather(x, ids, rank - 1) as KernelStorage;
        });
      }
      return withContiguous(device, x, (from) => {
        const positions = device.allocUninit(elemCount, 'u32');
        return withPositions(positions, () =>
          filled(device, x.storage.dtype, elemCount, (out) =>
            sortRows(device, problemOf(device, from, descending), positions.ptr, out),
          ),
        );
      });
    },

    topkLastDim(x: Operand, k: number, descending: boolean): KernelStorage {
      const cols = x.layout.shape[x.layout.rank - 1];
      const rows = x.layout.elemCount / cols;
      if (k > TOPK_MAX) return sortedPrefix(device, x, { rows, cols, k }, descending);
      return withContiguous(device, x, (from) =>
        filled(device, 'u32', rows * k, (out) => {
          const problem = problemOf(device, from, descending);
          const parts = partsOf(device, rows, cols, k);
          if (parts === 1) {
            selectTopk(device, problem, { width: cols, k, parts }, 0, out);
            return;
          }
          const winners = device.allocUninit(rows * parts * k, 'u32');
          try {
            selectTopk(device, problem, { width: cols, k, parts }, 0, winners.ptr);
            selectTopk(device, problem, { width: parts * k, k, parts: 1 }, winners.ptr, out);
          } finally {
            winners.dispose();
          }
        }),
      );
    },
  };
}

function argSort(device: KernelDevice, x: Operand, descending: boolean): KernelStorage {
  const cols = x.layout.shape[x.layout.rank - 1];
  checkPositions('argSortLastDim', cols);
  return withContiguous(device, x, (from) =>
    filled(device, 'u32', x.layout.elemCount, (out) => {
      const problem = problemOf(device, from, descending);
      const narrow = device.shapes.isHost ? HOST_ROW : SORT_CHUNK;
      if (cols > narrow) sortByDigits(device, problem, out);
      else if (device.shapes.isHost) argSortRows(device, problem, out);
      else sortRows(device, problem, out, 0);
    }),
  );
}

/** The positions go where the values cannot be made. */
function withPositions(
  positions: KernelStorage,
  make: () => KernelStorage,
): { values: KernelStorage; positions: KernelStorage } {
  try {
    return { values: make(), positions };
  } catch (error) {
    positions.dispose();
    throw error;
  }
}

function problemOf(device: KernelDevice, from: Operand, descending: boolean): SortProblem {
  const { layout, storage } = from;
  const cols = layout.shape[layout.rank - 1];
  const { ptr: src } = device.view(from);
  return { descending, dtype: storage.dtype, rows: layout.elemCount / cols, cols, src };
}

/** Candidates a block gets at least when a row is cut into parts: fewer cost more to hand out than to look at. */
const MIN_PART = 8192;

/** Into how many parts a row is cut, so that few long rows occupy the whole device. */
function partsOf(device: KernelDevice, rows: number, cols: number, k: number): number {
  const wanted = Math.ceil(device.hip.properties.multiprocessorCount / rows);
  return clamp(Math.floor(cols / Math.max(MIN_PART, 4 * k)), 1, wanted);
}

/** The beginning of every row of an arg-sort. */
function sortedPrefix(
  device: KernelDevice,
  x: Operand,
  { rows, cols, k }: { rows: number; cols: number; k: number },
  descending: boolean,
): KernelStorage {
  const sorted = argSort(device, x, descending);
  try {
    return filled(device, 'u32', rows * k, (out) =>
      copyRows(device, 'u32', sorted.ptr, out, { rows, cols: k, srcStride: cols, dstStride: k }),
    );
  } finally {
    sorted.dispose();
  }
}

/** What holds the keys of elements of so many bytes. */
const KEYS: Record<number, [dtype: DType, kernel: string]> = {
  1: ['i16', 'b16'],
  2: ['i16', 'b16'],
  4: ['u32', 'b32'],
  8: ['i64', 'b64'],
};

function sortByDigits(device: KernelDevice, { descending, dtype, rows, cols, src }: SortProblem, out: number): void {
  const passes = sizeInBytes(dtype);
  const [keyType, later] = KEYS[passes];
  const part = radixPart(device, rows, cols, passes);
  const scratch: KernelStorage[] = [];
  const allocate = (elements: number, type: DType) => {
    scratch.push(device.allocUninit(elements, type));
    return scratch[scratch.length - 1].ptr;
  };
  try {
    const counts = allocate(rows * Math.ceil(cols / part) * RADIX_DIGITS, 'u32');
    // Buffers alternate, so that the last pass writes the result; it leaves no keys.
    const keys = Array.from({ length: Math.min(2, passes - 1) }, () => allocate(rows * cols, keyType));
    const positions = passes === 1 ? [out] : [out, allocate(rows * cols, 'u32')];
    for (let pass = 0; pass < passes; pass++) {
      const left = passes - 1 - pass;
      radixPass(
        device,
        pass === 0 ? dtype : later,
        { rows, cols, part },
        pass === 0
          ? { values: src, descending }
          : { shift: 8 * pass, keys: keys[(pass - 1) % 2], positions: positions[(left + 1) % 2] },
        counts,
        { keys: left === 0 ? 0 : keys[pass % 2], positions: positions[left % 2] },
      );
    }
  } finally {
    for (const storage of scratch) storage.dispose();
  }
}
