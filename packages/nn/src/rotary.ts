/**
 * Rotary position embeddings: candle-nn's `rope` and `rope_i` (rotary_emb.rs), and the tables of cosines and sines that
 * models build for them.
 */
import { type Device, keep, ShapeError, Tensor } from '@x/core';

export interface RotaryTableOptions {
  /** Radians per position of each pair, [headDim / 2]. */
  frequencies: ArrayLike<number>;
  /** Positions in the table. */
  length: number;
  device: Device;
  /**
   * Multiplies both tables. Rotation is linear, so tables scaled by 1 / sqrt(headDim) give queries that need no scaling
   * before the softmax: one operation less per layer. Default 1.
   */
  scale?: number;
}

/** Cosines and sines of position · frequency, computed in double precision, kept in f32. */
export class RotaryTable {
  /** [length, headDim / 2] */
  readonly cos: Tensor;
  readonly sin: Tensor;

  constructor({ frequencies, length, device, scale = 1 }: RotaryTableOptions) {
    const half = frequencies.length;
    const cos = new Float32Array(length * half);
    const sin = new Float32Array(length * half);
    for (let position = 0; position < length; position++) {
      for (let i = 0; i < half; i++) {
        const angle = position * frequencies[i];
        cos[position * half + i] = scale * Math.cos(angle);
        sin[position * half + i] = scale * Math.sin(angle);
      }
    }
    this.cos = keep(Tensor.from(cos, { shape: [length, half], device }));
    this.sin = keep(Tensor.from(sin, { shape: [length, half], device }));
  }

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

  dispose(): void {
    this.cos.dispose();
    this.sin.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/**
 * Rotates element i with element i + d/2: the order of Hugging Face checkpoints.
 * @param xs [batch, heads, seq, d]
 * @param cos and sin: [seq, d/2] or [batch, seq, d/2]
 */
export function rope(xs: Tensor, cos: Tensor, sin: Tensor): Tensor {
  return xs.rope(cos, sin, 'half');
}

/** Rotates neighbours, element 2i with 2i + 1: the order of GGUF llama files. Shapes as {@link rope}. */
export function ropeI(xs: Tensor, cos: Tensor, sin: Tensor): Tensor {
  return xs.rope(cos, sin, 'interleaved');
}
