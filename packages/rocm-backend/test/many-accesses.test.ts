/**
 * Tensors of more elements than a GPU has threads for one access each: a thread then takes several, one after the other
 * (X_FOR_EACH in kernels/include/x/launch.h). The result must be, bit for bit, that of the same op on pieces that are small enough.
 */
import { type DType, Tensor } from '@x/core';
import { kernelDevices } from '@x/testing/devices';
import { randomBytes } from '@x/testing/operands';
import { describe, expect, it } from 'vitest';

const ROWS = 2200;
const COLUMNS = 4096;
const PIECE = 100;

describe.each(kernelDevices())('many accesses on %s', (device) => {
  it.each<[DType, DType]>([
    ['f32', 'u8'],
    ['f16', 'i32'],
    ['bf16', 'f16'],
    ['u8', 'f32'],
  ])('%s', (dtype, other) => {
    const random = (shape: number[], seed: number) =>
      Tensor.fromBytes(randomBytes(dtype, shape[0] * shape[1], seed), shape, dtype, device);
    // A pattern repeated over the rows, each row rotated, keeps the test's own work small.
    const pattern = random([PIECE, COLUMNS], 1);
    const x = Tensor.cat(Array<Tensor>(ROWS / PIECE).fill(pattern), 0);
    const y = Tensor.cat([x.narrow(0, 7, ROWS - 7), x.narrow(0, 0, 7)], 0);
    const row = random([1, COLUMNS], 2);
    const column = random([ROWS, 1], 3);

    const inPieces = (op: (first: number, count: number) => Tensor) => {
      const whole = bytes(op(0, ROWS));
      const size = (whole.byteLength / ROWS) * PIECE;
      for (let first = 0; first < ROWS; first += PIECE) {
        const piece = bytes(op(first, PIECE));
        const at = (first / PIECE) * size;
        expect(Buffer.compare(piece, whole.subarray(at, at + size)), `rows from ${first}`).toBe(0);
      }
    };
    const part = (tensor: Tensor, first: number, count: number) => tensor.narrow(0, first, count);
    inPieces((first, count) => part(x, first, count).add(part(y, first, count)));
    inPieces((first, count) => part(x, first, count).lt(part(y, first, count)));
    inPieces((first, count) => part(x, first, count).sqr());
    inPieces((first, count) => part(x, first, count).toDtype(other));
    inPieces((first, count) => part(x, first, count).broadcastMaximum(row));
    inPieces((first, count) => part(x, first, count).broadcastAdd(part(column, first, count)));
    inPieces((first, count) => part(x.ge(y), first, count).whereCond(part(x, first, count), part(y, first, count)));
    const chosen = [5, ROWS - 1, 0, 77];
    const selected = x.indexSelect(Tensor.from(Uint32Array.from(chosen), { device }), 0);
    expect(Buffer.compare(bytes(selected), Buffer.concat(chosen.map((at) => bytes(part(x, at, 1)))))).toBe(0);
    expect(Buffer.compare(bytes(x.t().contiguous().t().contiguous()), bytes(x))).toBe(0);
  });
});

function bytes(tensor: Tensor): Buffer {
  const { storage, layout } = tensor.storageAndLayout();
  return Buffer.from(storage.toHostSync(layout.startOffset, layout.elemCount));
}
