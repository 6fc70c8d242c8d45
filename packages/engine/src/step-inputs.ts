/**
 * What a forward pass reads beside the weights and the cache: tokens, their positions and places, and the blocks of their
 * sequences, all in one piece of memory of the device that one copy fills. The pieces have fixed places, so that a captured
 * step reads other numbers after the next copy.
 */
import { type Device, keep, scope, Tensor } from '@x/core';

/** Elements of each piece. */
export type PieceSizes = Readonly<Record<string, number>>;

export class StepInputs<Sizes extends PieceSizes> {
  /** [size] each, u32, views of one tensor. */
  readonly pieces: { readonly [Name in keyof Sizes]: Tensor };
  private readonly values: Uint32Array;
  private readonly starts: { readonly [Name in keyof Sizes]: number };
  private readonly all: Tensor;

  constructor(
    device: Device,
    private readonly sizes: Sizes,
  ) {
    const names = Object.keys(sizes) as (keyof Sizes)[];
    let total = 0;
    const starts = {} as { [Name in keyof Sizes]: number };
    for (const name of names) {
      starts[name] = total;
      total += sizes[name];
    }
    this.starts = starts;
    this.values = new Uint32Array(total);
    const pieces = {} as { [Name in keyof Sizes]: Tensor };
    this.all = scope(() => {
      const all = Tensor.zeros([total], { dtype: 'u32', device });
      for (const name of names) pieces[name] = keep(all.narrow(0, starts[name], sizes[name]));
      return keep(all);
    });
    this.pieces = pieces;
  }

  /** The host's copy of a piece, to be written before {@link upload}. */
  host(name: keyof Sizes): Uint32Array {
    return this.values.subarray(this.starts[name], this.starts[name] + this.sizes[name]);
  }

  upload(): void {
    this.all.write(this.values);
  }

  dispose(): void {
    for (const piece of Object.values(this.pieces) as Tensor[]) piece.dispose();
    this.all.dispose();
  }
}
