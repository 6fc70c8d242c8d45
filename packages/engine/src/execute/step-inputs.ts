/**
 * What a forward pass reads beside the weights and the cache: tokens, their positions and places, and the blocks of their
 * sequences, all in one piece of memory of the device that one copy fills. The pieces have fixed places, so that a captured
 * step reads other numbers after the next copy.
 */
import { type Device, keep, scope, Tensor } from '@x/core';

/** Elements of each piece. */
export type PieceSizes = Readonly<Record<string, number>>;

/** Elements of all pieces. */
function totalOf(sizes: PieceSizes): number {
  return Object.values(sizes).reduce((sum, size) => sum + size, 0);
}

/** Where each piece begins. */
function startsOf<Sizes extends PieceSizes>(sizes: Sizes): { readonly [Name in keyof Sizes]: number } {
  let total = 0;
  const starts = {} as { [Name in keyof Sizes]: number };
  for (const name of Object.keys(sizes) as (keyof Sizes)[]) {
    starts[name] = total;
    total += sizes[name];
  }
  return starts;
}

/** The pieces of a tensor of all of them, as views of it. */
export function piecesOf<Sizes extends PieceSizes>(
  all: Tensor,
  sizes: Sizes,
): { readonly [Name in keyof Sizes]: Tensor } {
  const starts = startsOf(sizes);
  const pieces = {} as { [Name in keyof Sizes]: Tensor };
  for (const name of Object.keys(sizes) as (keyof Sizes)[]) pieces[name] = all.narrow(0, starts[name], sizes[name]);
  return pieces;
}

/** The numbers, on the host. */
export class StepNumbers<Sizes extends PieceSizes> {
  /** Of all pieces, in their order. */
  readonly values: Uint32Array;
  private readonly starts: { readonly [Name in keyof Sizes]: number };

  constructor(readonly sizes: Sizes) {
    this.starts = startsOf(sizes);
    this.values = new Uint32Array(totalOf(sizes));
  }

  /** A piece, to be written. */
  piece(name: keyof Sizes): Uint32Array {
    return this.values.subarray(this.starts[name], this.starts[name] + this.sizes[name]);
  }
}

/** Room for them on the device. */
export class StepInputs<Sizes extends PieceSizes> {
  /** [size] each, u32, views of one tensor. */
  readonly pieces: { readonly [Name in keyof Sizes]: Tensor };
  private readonly all: Tensor;

  constructor(device: Device, sizes: Sizes) {
    [this.all, this.pieces] = scope(() => {
      const all = keep(Tensor.zeros([totalOf(sizes)], { dtype: 'u32', device }));
      const pieces = piecesOf(all, sizes);
      for (const piece of Object.values(pieces) as Tensor[]) keep(piece);
      return [all, pieces];
    });
  }

  /** @param values of {@link StepNumbers.values}; they may be changed afterwards */
  write(values: Uint32Array): void {
    this.all.write(values);
  }

  dispose(): void {
    for (const piece of Object.values(this.pieces) as Tensor[]) piece.dispose();
    this.all.dispose();
  }
}
