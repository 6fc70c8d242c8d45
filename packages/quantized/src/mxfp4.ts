/**
 * Weights in MXFP4 as checkpoints have them (gpt-oss): `NAME_blocks`, u8 [..., rows, groups, 16], where byte j of a group of 32
 * values holds value 2j low and value 2j + 1 high, and `NAME_scales`, u8 [..., rows, groups], the exponent plus 127. They
 * become ggml's blocks of the same values, which have the exponent in front and values j and j + 16 in byte j; nothing is
 * rounded. Source: openai/gpt-oss, gpt_oss/torch/weights.py; ggml, ggml-quants.c.
 */
import { FileFormatError, formatShape, ShapeError } from '@x/core';
import type { TensorReader } from '@x/core/files';
import type { Pieces } from './load';

/** A reader that gives parts of a tensor: those of safetensors files. */
export type PartReader = TensorReader & Required<Pick<TensorReader, 'readPartSync'>>;

/** Every `of`-th row from row `index` on (rows of the parts take turns), or the `index`-th of `of` equal runs of rows. */
export interface RowPart {
  index: number;
  of: number;
  interleaved: boolean;
}

const VALUES = 32;
const PACKED = VALUES / 2;
/** Bytes of ggml's block. */
const BLOCK = 1 + PACKED;
/** Bytes of a piece's packed values, about. */
const PIECE = 4 * 2 ** 20;

/** Names of the two tensors of a weight. */
export function mxfp4Names(name: string): readonly [blocks: string, scales: string] {
  return [`${name}_blocks`, `${name}_scales`];
}

/**
 * The shape of such a weight, outermost dimension first.
 * @throws FileFormatError `FILE_INVALID` where the two tensors do not belong together
 */
export function mxfp4Shape(file: TensorReader, name: string): number[] {
  const [blocks, scales] = mxfp4Names(name).map((part) => file.info(part));
  const [dims, groups] = [blocks.shape, scales.shape];
  const leading = dims.slice(0, -1);
  const fits = dims.length >= 3 && dims.at(-1) === PACKED && groups.length === leading.length;
  const bytes = dims.reduce((product, size) => product * size, 1);
  if (
    fits &&
    leading.every((size, i) => size === groups[i]) &&
    blocks.byteLength === bytes &&
    scales.byteLength * PACKED === bytes
  )
    return [...leading.slice(0, -1), leading[leading.length - 1] * VALUES];
  throw new FileFormatError(
    'FILE_INVALID',
    `${file.path}: "${blocks.name}" is ${formatShape(dims)} of ${blocks.byteLength} bytes and "${scales.name}" ${formatShape(groups)} of ` +
      `${scales.byteLength}; MXFP4 takes u8 [..., rows, groups, ${PACKED}] and u8 [..., rows, groups]. Download the file again.`,
    { path: file.path },
  );
}

/**
 * The shape of a part.
 * @throws FileFormatError as {@link mxfp4Shape}; ShapeError `SHAPE_MISMATCH` where rows do not go into so many parts
 */
export function mxfp4PartShape(file: TensorReader, name: string, { index, of }: RowPart = WHOLE): number[] {
  const shape = mxfp4Shape(file, name);
  const rows = shape[shape.length - 2];
  if (Number.isInteger(rows / of) && Number.isInteger(index) && index >= 0 && index < of)
    return [...shape.slice(0, -2), rows / of, shape[shape.length - 1]];
  throw new ShapeError(
    'SHAPE_MISMATCH',
    `QTensor.loadMxfp4: part ${index} of ${of} of "${name}", which has ${rows} rows; give parts that they divide into, from 0 on.`,
  );
}

/** The blocks of a weight, or of a part of its rows, in order. */
export function* mxfp4Pieces(file: PartReader, name: string, part: RowPart = WHOLE): Pieces & Generator {
  const shape = mxfp4Shape(file, name);
  const [blocks, scales] = mxfp4Names(name);
  const groups = shape[shape.length - 1] / VALUES;
  const rows = shape[shape.length - 2];
  const matrices = shape.slice(0, -2).reduce((product, size) => product * size, 1);
  const { index, of, interleaved } = part;
  const wanted = rows / of;
  const stride = interleaved ? of : 1;
  const atOnce = Math.max(1, Math.floor(PIECE / (stride * groups * PACKED)));
  let offset = 0;
  for (let matrix = 0; matrix < matrices; matrix++) {
    for (let row = 0; row < wanted; row += atOnce) {
      const count = Math.min(atOnce, wanted - row);
      const first = matrix * rows + (interleaved ? row * of : index * wanted + row);
      const values = new Uint8Array(count * stride * groups * PACKED);
      const exponents = new Uint8Array(count * stride * groups);
      file.readPartSync(blocks, first * groups * PACKED, values);
      file.readPartSync(scales, first * groups, exponents);
      const bytes = new Uint8Array(count * groups * BLOCK);
      for (let i = 0; i < count; i++) {
        const from = (i * stride + (interleaved ? index : 0)) * groups;
        repack(values, exponents, from, bytes, i * groups, groups);
      }
      yield { offset, bytes };
      offset += bytes.byteLength;
    }
  }
}

const WHOLE: RowPart = { index: 0, of: 1, interleaved: false };

/** Groups [from, from + count) of a checkpoint to blocks from `to` on. */
function repack(
  values: Uint8Array,
  exponents: Uint8Array,
  from: number,
  out: Uint8Array,
  to: number,
  count: number,
): void {
  let at = to * BLOCK;
  for (let group = from; group < from + count; group++) {
    out[at++] = exponents[group];
    const low = group * PACKED;
    const high = low + PACKED / 2;
    for (let i = 0; i < PACKED / 2; i++) {
      const a = values[low + i];
      const b = values[high + i];
      out[at++] = (a & 15) | ((b & 15) << 4);
      out[at++] = (a >> 4) | (b & 0xf0);
    }
  }
}
