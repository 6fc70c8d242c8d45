/**
 * Rotary position embeddings: candle-nn's `rope`, `rope_i` and `rope_thd` (rotary_emb.rs), and the tables of cosines and
 * sines that models build for them.
 */
import { allocRaw, type DeviceLike, keep, kinds, type RopeKind, ShapeError, scope, Tensor } from '@x/core';
import { checkTensors } from './check';

export interface RotaryTableOptions {
  /** Radians per position of each pair, [headDim / 2]. */
  frequencies: ArrayLike<number>;
  /** Positions in the table. */
  length: number;
  device: DeviceLike;
  /**
   * Multiplies both tables. Rotation is linear, so tables scaled by 1 / sqrt(headDim) give queries that need no scaling
   * before the softmax: one operation less per layer. Default 1.
   */
  scale?: number;
}

const OPTIONS = kinds.fields({
  frequencies: kinds.kind((value) => Array.isArray(value) || ArrayBuffer.isView(value), 'give an array of numbers'),
  length: kinds.COUNT,
  device: kinds.DEVICE,
  scale: kinds.optional(kinds.FINITE),
});

/** Cosines and sines of position · frequency, computed in double precision, kept in f32. */
export class RotaryTable {
  /** [length, headDim / 2] */
  readonly cos: Tensor;
  readonly sin: Tensor;

  /** @throws CandleError `INVALID_ARGUMENT` */
  constructor(options: RotaryTableOptions) {
    kinds.check('RotaryTable', 'options', options, OPTIONS);
    const { frequencies, length, device, scale = 1 } = options;
    const half = frequencies.length;
    const cos = allocRaw('f32', length * half) as Float32Array;
    const sin = allocRaw('f32', length * half) as Float32Array;
    for (let position = 0; position < length; position++) {
      for (let i = 0; i < half; i++) {
        const angle = position * frequencies[i];
        cos[position * half + i] = scale * Math.cos(angle);
        sin[position * half + i] = scale * Math.sin(angle);
      }
    }
    const tables = scope(() => [cos, sin].map((values) => Tensor.from(values, { shape: [length, half], device })));
    [this.cos, this.sin] = tables.map((table) => keep(table));
  }

  /** Positions in the table. */
  get length(): number {
    return this.cos.dim(0);
  }

  /** Views of the rows [start, start + count). @throws ShapeError beyond the table */
  at(start: number, count: number): { cos: Tensor; sin: Tensor } {
    if (start < 0 || start + count > this.length) {
      throw new ShapeError(
        'INDEX_OUT_OF_RANGE',
        `RotaryTable: positions ${start} to ${start + count - 1} of a table of ${this.length}; make a longer table.`,
      );
    }
    return { cos: this.cos.narrow(0, start, count), sin: this.sin.narrow(0, start, count) };
  }

  /** Gives both tables back. */
  dispose(): void {
    this.cos.dispose();
    this.sin.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/**
 * {@link rope}, {@link ropeI} or {@link ropeThd} by name. Tables may be longer than the sequence, as in candle: the first rows
 * are used. Those of fewer than d/2 columns rotate as many pairs of each head's beginning; the rest stays.
 */
export function rotate(xs: Tensor, cos: Tensor, sin: Tensor, kind: RopeKind): Tensor {
  checkTensors('rotate', { xs, cos, sin });
  const seq = xs.shape[kind === 'thd' ? 1 : 2] ?? 0;
  const d = xs.shape.at(-1) ?? 0;
  const turned = 2 * (cos.shape.at(-1) ?? 0);
  return scope(() => {
    const angles = [firstRows(cos, seq), firstRows(sin, seq)] as const;
    if (turned >= d) return xs.rope(...angles, kind);
    return Tensor.cat([xs.narrow(-1, 0, turned).rope(...angles, kind), xs.narrow(-1, turned, d - turned)], -1);
  });
}

function firstRows(table: Tensor, seq: number): Tensor {
  return table.rank >= 2 && table.dim(-2) > seq ? table.narrow(-2, 0, seq) : table;
}

/**
 * Rotates element i with element i + d/2: the order of Hugging Face checkpoints.
 * @param xs [batch, heads, seq, d]
 * @param cos and sin: [seq, d/2] or [batch, seq, d/2]; more rows than `seq` are fine
 */
export function rope(xs: Tensor, cos: Tensor, sin: Tensor): Tensor {
  checkTensors('rope', { xs, cos, sin });
  return rotate(xs, cos, sin, 'half');
}

/** Rotates neighbours, element 2i with 2i + 1: the order of GGUF llama files. Shapes as {@link rope}. */
export function ropeI(xs: Tensor, cos: Tensor, sin: Tensor): Tensor {
  checkTensors('ropeI', { xs, cos, sin });
  return rotate(xs, cos, sin, 'interleaved');
}

/** {@link rope} of [batch, seq, heads, d], the order before heads are transposed. */
export function ropeThd(xs: Tensor, cos: Tensor, sin: Tensor): Tensor {
  checkTensors('ropeThd', { xs, cos, sin });
  return rotate(xs, cos, sin, 'thd');
}

/** [seq, d/2] or [batch, seq, d/2] as [1 or batch, 1, seq, d/2], which fits [batch, heads, seq, ...]. */
function perHead(table: Tensor, seq: number): Tensor {
  const rows = firstRows(table, seq);
  return rows.rank === 2 ? rows.unsqueeze(0).unsqueeze(0) : rows.unsqueeze(1);
}

function rotateHalf(xs: Tensor): Tensor {
  const half = xs.dim(-1) / 2;
  return Tensor.cat([xs.narrow(-1, half, half).neg(), xs.narrow(-1, 0, half)], -1);
}

/** {@link rope} in steps that have gradients of their own. */
export function ropeSlow(xs: Tensor, cos: Tensor, sin: Tensor): Tensor {
  checkTensors('ropeSlow', { xs, cos, sin });
  return scope(() => {
    const [c, s] = [cos, sin].map((table) => perHead(Tensor.cat([table, table], -1), xs.dim(2)));
    return xs.broadcastMul(c).add(rotateHalf(xs).broadcastMul(s));
  });
}

/** {@link ropeI} in steps that have gradients of their own. */
export function ropeISlow(xs: Tensor, cos: Tensor, sin: Tensor): Tensor {
  checkTensors('ropeISlow', { xs, cos, sin });
  return scope(() => {
    const [c, s] = [cos, sin].map((table) => perHead(table, xs.dim(2)).unsqueeze(-1));
    const pairs = xs.reshape([...xs.shape.slice(0, -1), xs.dim(-1) / 2, 2]);
    const [first, second] = [pairs.narrow(-1, 0, 1), pairs.narrow(-1, 1, 1)];
    const turned = [
      first.broadcastMul(c).sub(second.broadcastMul(s)),
      first.broadcastMul(s).add(second.broadcastMul(c)),
    ];
    return Tensor.cat(turned, -1).reshape(xs.shape);
  });
}

/** {@link ropeThd} in steps that have gradients of their own. */
export function ropeThdSlow(xs: Tensor, cos: Tensor, sin: Tensor): Tensor {
  checkTensors('ropeThdSlow', { xs, cos, sin });
  return scope(() => ropeSlow(xs.transpose(1, 2), cos, sin).transpose(1, 2));
}
