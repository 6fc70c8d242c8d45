/** Attention of packed sequences: the kernels `attention_packed` (kernels/attention/packed.h). */
import type { DType, Operand, PackedAttentionOps, PackedProblem, PackedTiles, StoragePart } from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { clamp, type LaunchShape } from '../launch-shape';
import { launchAttentionPacked } from '../launchers/attention';
import { PACKED_MAX_HEAD, PACKED_ROWS } from '../launchers/constants';
import type { KernelStorage } from '../storage';
import { denseCopy } from './copy';
import { filled } from './result';

const DTYPES: readonly DType[] = ['f32', 'f16', 'bf16'];
const THREADS = 256;
/** Beyond every window. */
const EVERYTHING = 2 ** 31 - 1;

export class DevicePackedAttentionOps implements PackedAttentionOps {
  readonly #device: KernelDevice;

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  tileRows(dtype: DType, { d, tokens }: PackedProblem): number | undefined {
    // The host has tiles of f32 only; a query at a time is slower than its products.
    const dtypes = this.#device.shapes.isHost ? DTYPES.slice(0, 1) : DTYPES;
    return dtypes.includes(dtype) && d >= 1 && d <= PACKED_MAX_HEAD && tokens < EVERYTHING ? PACKED_ROWS : undefined;
  }

  forward(
    problem: PackedProblem,
    q: Operand,
    k: Operand,
    v: Operand,
    { table, count }: PackedTiles,
    slopes?: StoragePart,
  ): KernelStorage {
    const { tokens, heads, kvHeads, d, scale, before, after } = problem;
    const device = this.#device;
    const { dtype } = q.storage;
    if (this.tileRows(dtype, problem) === undefined) throw unsupported('packedAttention', dtype, device);
    const copies: KernelStorage[] = [];
    const source = (x: Operand) => {
      const [row, head, each] = x.layout.strides;
      if (each === 1 || d === 1) return { ptr: device.view(x).ptr, row, head };
      const copy = denseCopy(device, x);
      copies.push(copy);
      return { ptr: copy.ptr, row: x.layout.shape[1] * d, head: d };
    };
    try {
      const [from, keys, values] = [q, k, v].map(source);
      return filled(device, dtype, tokens * heads * d, (out) =>
        launchAttentionPacked(device, `attention_packed_${dtype}`, this.#shape(count * heads), {
          tiles: device.address(table),
          count,
          heads,
          kvHeads,
          d,
          before: Math.min(before, EVERYTHING),
          after: Math.min(after, EVERYTHING),
          scale,
          slopes: slopes ? device.address(slopes) : 0,
          q: from.ptr,
          qRow: from.row,
          qHead: from.head,
          k: keys.ptr,
          kRow: keys.row,
          kHead: keys.head,
          v: values.ptr,
          vRow: values.row,
          vHead: values.head,
          out,
        }),
      );
    } finally {
      for (const copy of copies) copy.dispose();
    }
  }

  #shape(items: number): LaunchShape {
    const { shapes, hip } = this.#device;
    if (shapes.isHost)
      return { grid: clamp(items, 1, hip.properties.multiprocessorCount * 8), block: 1, sharedBytes: 0 };
    return { grid: shapes.blocks(items * THREADS, THREADS), block: THREADS, sharedBytes: 0 };
  }
}
