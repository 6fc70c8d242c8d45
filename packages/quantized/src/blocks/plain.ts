/**
 * Types without blocks: f32, f16 and bf16 weights (candle's `F32`, `F16`, `BF16`), and the plain numbers that GGUF can
 * also carry (f64 and the signed integers), read as f32. A block is one value.
 */
import { decodeBf16, decodeF16, encodeBf16, encodeF16 } from '@x/core';
import type { BlockFormat, Dequantize, QuantType } from './format';

function view(bytes: Uint8Array, at: number): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset + at, bytes.byteLength - at);
}

function scalar(
  type: QuantType,
  ggmlType: number,
  bytes: number,
  read: (v: DataView, at: number) => number,
): BlockFormat {
  const dequantize: Dequantize = (src, srcOffset, out, outOffset, blocks) => {
    const v = view(src, srcOffset);
    for (let i = 0; i < blocks; i++) out[outOffset + i] = read(v, i * bytes);
  };
  return { type, ggmlType, blockSize: 1, blockBytes: bytes, dequantize };
}

export const F32: BlockFormat = {
  type: 'f32',
  ggmlType: 0,
  blockSize: 1,
  blockBytes: 4,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    // Bytes, not numbers, are copied: a NaN keeps its bits.
    const to = new Uint8Array(out.buffer, out.byteOffset + outOffset * 4, blocks * 4);
    to.set(src.subarray(srcOffset, srcOffset + blocks * 4));
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    out.set(new Uint8Array(x.buffer, x.byteOffset + xOffset * 4, blocks * 4), outOffset);
  },
};

export const F16: BlockFormat = {
  type: 'f16',
  ggmlType: 1,
  blockSize: 1,
  blockBytes: 2,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    decodeF16(words(src, srcOffset, blocks), part(out, outOffset, blocks));
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    out.set(bytesOf(encodeF16(x.subarray(xOffset, xOffset + blocks))), outOffset);
  },
};

export const BF16: BlockFormat = {
  type: 'bf16',
  ggmlType: 30,
  blockSize: 1,
  blockBytes: 2,
  dequantize(src, srcOffset, out, outOffset, blocks) {
    decodeBf16(words(src, srcOffset, blocks), part(out, outOffset, blocks));
  },
  quantize(x, xOffset, out, outOffset, blocks) {
    out.set(bytesOf(encodeBf16(x.subarray(xOffset, xOffset + blocks))), outOffset);
  },
};

function part(out: Float32Array, at: number, count: number): Float32Array<ArrayBuffer> {
  return new Float32Array(out.buffer as ArrayBuffer, out.byteOffset + at * 4, count);
}

/** 16-bit words at any byte; copied when they are not aligned. */
function words(bytes: Uint8Array, at: number, count: number): Uint16Array {
  const start = bytes.byteOffset + at;
  if (start % 2 === 0) return new Uint16Array(bytes.buffer, start, count);
  return new Uint16Array(bytes.slice(at, at + 2 * count).buffer);
}

function bytesOf(words: Uint16Array): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
}

export const F64 = scalar('f64', 28, 8, (v, at) => v.getFloat64(at, true));
export const I8 = scalar('i8', 24, 1, (v, at) => v.getInt8(at));
export const I16 = scalar('i16', 25, 2, (v, at) => v.getInt16(at, true));
export const I32 = scalar('i32', 26, 4, (v, at) => v.getInt32(at, true));
export const I64 = scalar('i64', 27, 8, (v, at) => Number(v.getBigInt64(at, true)));
