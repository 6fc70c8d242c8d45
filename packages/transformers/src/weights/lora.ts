/**
 * LoRA adapters beside the weights of a model: y + scale · (x · Aᵀ) · Bᵀ for the rows of a batch that chose one. Weights stay
 * as they are, in blocks or not, so one model serves any number of adapters at once, and rows without one are computed as if
 * there were none.
 *
 * What runs names its rows with {@link LoraSites.during}; a layer asks for them. Layers whose weights are stacked (query, key
 * and value) are one product here too: the A of the parts one below the other, and their B as blocks of one matrix.
 */
import { type Device, DisposedError, formatShape, keep, type RopeKind, type Shape, scope, Tensor } from '@x/core';
import type { Activations, Module } from '@x/nn';
import type { DenseDType, PartRange } from '@x/quantized';
import { TransformersError } from '../errors';
import {
  type BlockLayer,
  type BlockWeight,
  inDtype,
  roundsTo,
  takesBlocks,
  type Unbiased,
  unbiasedOf,
} from './q-linear';

/** What an adapter adds to one linear layer: W + scale · B · A. */
export interface LoraDelta {
  /** The layer, by its GGUF name without `.weight`, such as `blk.0.attn_q`. */
  readonly target: string;
  /** What the file calls it. */
  readonly source: string;
  readonly rank: number;
  /** Rows of B: outputs of the layer. */
  readonly out: number;
  /** Columns of A: inputs of the layer. */
  readonly width: number;
  readonly scale: number;
  /** A [rank, width] and B [out, rank], f32; the caller's. */
  load(): Promise<{ a: Float32Array; b: Float32Array }>;
}

/** An adapter in a file, opened for one model. Its matrices are read when they are asked for. */
export interface LoraFile {
  readonly path: string;
  readonly deltas: readonly LoraDelta[];
  close(): void;
}

/** Rows of a batch that one adapter is for. */
export interface LoraRows {
  readonly adapter: Lora;
  /** Multiplies what the adapter adds. */
  readonly scale: number;
  /** The first row, and how many there are. */
  readonly start: number;
  readonly count: number;
}

/** A layer that adapters know, among those that are one product here. */
export interface LoraPart {
  /** The GGUF name, without `.weight`. */
  name: string;
  out: number;
  /** Where its outputs are in the files, in the order in which they are here. Default: as they are there. */
  order?: readonly PartRange[];
}

/** One layer, or a part of the outputs of layers that are stacked. */
interface Site {
  layer: LoraLinear;
  start: number;
  out: number;
  width: number;
  order: readonly PartRange[] | undefined;
}

/** A layer's share of an adapter. */
interface LoraProduct {
  /** [r, in] */
  a: Tensor;
  /** [out, r], times the adapter's own scale. */
  b: Tensor;
}

/** An adapter on the device of a model: what {@link LoraSites.attach} makes. */
export class Lora {
  private disposed = false;

  /** @internal */
  constructor(
    /** Of all adapters that a model has had, never used twice. */
    readonly id: number,
    private readonly products: ReadonlyMap<LoraLinear, LoraProduct>,
  ) {}

  /** @internal What it adds in a layer; undefined where it adds nothing. */
  at(layer: LoraLinear): LoraProduct | undefined {
    if (this.disposed)
      throw new DisposedError('DISPOSED', 'forward: the adapter of these tokens was unloaded; load it again.');
    return this.products.get(layer);
  }

  /** Gives its memory back. Harmless when repeated. */
  dispose(): void {
    this.disposed = true;
    for (const { a, b } of this.products.values()) for (const part of [a, b]) part.dispose();
  }
}

/** The linear layers of a model that adapters can change. */
export class LoraSites {
  private readonly sites = new Map<string, Site>();
  private readonly attached = new Set<Lora>();
  private count = 0;
  private disposed = false;
  /** @internal Of what is being computed. */
  rows: readonly LoraRows[] = [];

  /** @param dtype of what linear layers are given @param pairs how rotated pairs lie in rows of queries and keys */
  constructor(
    readonly device: Device,
    private readonly dtype: DenseDType,
    readonly pairs: RopeKind,
  ) {}

  /** A layer that adapters can change; it owns `layer`, whose outputs are those of the parts one after the other. */
  layer(layer: Module, parts: readonly LoraPart[], width: number): LoraLinear {
    const outs = parts.reduce((sum, { out }) => sum + out, 0);
    const made = new LoraLinear(layer, outs, this);
    let start = 0;
    for (const { name, out, order } of parts) {
      this.sites.set(name, { layer: made, start, out, width, order });
      start += out;
    }
    return made;
  }

  /** Computes something of whose rows some are an adapter's. Rows that are named nowhere have none. */
  during<T>(rows: readonly LoraRows[] | undefined, run: () => T): T {
    const before = this.rows;
    this.rows = rows ?? [];
    try {
      return run();
    } finally {
      this.rows = before;
    }
  }

  /**
   * Brings an adapter to the device, for {@link LoraRows}; the caller disposes it, or the model does.
   * @throws TransformersError BAD_ADAPTER for layers that the model has not or that have other sizes; the signal's reason
   */
  async attach({ path, deltas }: LoraFile, signal?: AbortSignal): Promise<Lora> {
    checkLora({ path, deltas }, (target) => {
      const site = this.sites.get(target);
      return site && [site.out, site.width];
    });
    const byLayer = new Map<LoraLinear, { site: Site; delta: LoraDelta }[]>();
    for (const delta of deltas) {
      const site = this.sites.get(delta.target)!;
      byLayer.set(site.layer, [...(byLayer.get(site.layer) ?? []), { site, delta }]);
    }
    const products = new Map<LoraLinear, LoraProduct>();
    const lora = new Lora(++this.count, products);
    try {
      for (const [layer, parts] of byLayer) {
        signal?.throwIfAborted();
        products.set(layer, await this.product(parts));
      }
      signal?.throwIfAborted();
      if (this.disposed)
        throw new DisposedError(
          'DISPOSED',
          `${path}: the model was disposed while the adapter was loaded; load both again.`,
        );
      this.attached.add(lora);
      return lora;
    } catch (error) {
      lora.dispose();
      throw error;
    }
  }

  /** Gives an adapter back. */
  detach(lora: Lora): void {
    this.attached.delete(lora);
    lora.dispose();
  }

  /** Gives all adapters back; the layers are their models'. */
  dispose(): void {
    this.disposed = true;
    for (const lora of this.attached) lora.dispose();
    this.attached.clear();
  }

  /** The adapter's part of one layer: all A below each other, each B where its outputs and its A are, zeros elsewhere. */
  private async product(parts: readonly { site: Site; delta: LoraDelta }[]): Promise<LoraProduct> {
    const [{ site }] = parts;
    const { outs } = site.layer;
    const ranks = parts.reduce((sum, { delta }) => sum + delta.rank, 0);
    const a = new Float32Array(ranks * site.width);
    const b = new Float32Array(outs * ranks);
    let first = 0;
    for (const { site, delta } of parts) {
      const { rank, scale } = delta;
      const own = await delta.load();
      a.set(own.a, first * site.width);
      let to = site.start;
      for (const { start, count } of site.order ?? [{ start: 0, count: site.out }])
        for (let row = start; row < start + count; row++, to++)
          for (let i = 0; i < rank; i++) b[to * ranks + first + i] = scale * own.b[row * rank + i];
      first += rank;
    }
    const { device, dtype } = this;
    const onDevice = (values: Float32Array, shape: readonly number[]) =>
      inDtype(Tensor.from(values, { device }).reshape(shape), dtype);
    return scope(() => ({ a: keep(onDevice(a, [ranks, site.width])), b: keep(onDevice(b, [outs, ranks])) }));
  }
}

/** A linear layer, and what adapters add to it. */
class LoraLinear implements BlockLayer {
  /** @internal `LoraSites.layer` */
  constructor(
    private readonly layer: Module,
    /** Outputs of all its parts. */
    readonly outs: number,
    private readonly adapters: LoraSites,
  ) {}

  /** Whether it reads activations in blocks: not while an adapter changes it, which reads numbers. */
  get takesBlocks(): boolean {
    return takesBlocks(this.layer) && !this.isChanged;
  }

  /** Whether an adapter changes it in what is being computed. */
  get isChanged(): boolean {
    return this.adapters.rows.some(({ adapter }) => adapter.at(this));
  }

  /** What its product rounds so many rows to: not while an adapter changes it. */
  roundsTo(rows: number): DenseDType | undefined {
    return this.isChanged ? undefined : roundsTo(this.layer, rows);
  }

  get blockWeight(): BlockWeight | undefined {
    return takesBlocks(this.layer) && this.takesBlocks ? this.layer.blockWeight : undefined;
  }

  /** [..., in] to [..., out], or blocks to [rows, out]; [rows, in] where an adapter changes it. */
  forward(xs: Activations): Tensor {
    const ys = this.layer.forward(xs as Tensor);
    for (const rows of this.adapters.rows) {
      const product = rows.adapter.at(this);
      if (product) addRows(ys, xs as Tensor, rows, product);
    }
    return ys;
  }

  /** {@link forward}, and a bias that is still to be added: none where an adapter changes the layer. */
  unbiased(xs: Activations): Unbiased {
    const { layer, isChanged } = this;
    return (isChanged ? undefined : unbiasedOf(layer, xs)) ?? { product: this.forward(xs) };
  }

  dispose(): void {
    this.layer.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Adds to some rows of y [rows, out], in place, what an adapter makes of those of x [rows, in]. */
function addRows(ys: Tensor, xs: Tensor, { scale, start, count }: LoraRows, { a, b }: LoraProduct): void {
  if (xs.rank !== 2 || start + count > xs.dim(0))
    throw new Error(`internal: rows ${start} to ${start + count} of ${formatShape(xs.shape)} have an adapter`);
  scope(() => {
    const some = (rows: Tensor) => (count === xs.dim(0) ? rows : rows.narrow(0, start, count));
    const inside = like(some(xs), a).matmul(a.t());
    const delta = (scale === 1 ? inside : inside.mul(scale)).matmul(b.t());
    some(ys).addSet(like(delta, ys));
  });
}

/**
 * Whether an adapter fits a model.
 * @param shapeOf of a layer's weight, by its GGUF name without `.weight`: [out, in]; undefined for a layer that is not there
 * @throws TransformersError BAD_ADAPTER
 */
export function checkLora(
  { path, deltas }: Pick<LoraFile, 'path' | 'deltas'>,
  shapeOf: (target: string) => Shape | undefined,
): void {
  for (const { target, source, out, width } of deltas) {
    const shape = shapeOf(target);
    if (!shape) {
      const what = `changes ${source}, and the model has no linear layer of that name that adapters can change (${target})`;
      throw badAdapter(path, what);
    }
    const own = [out, width];
    if (shape.join() !== own.join()) {
      const what = `changes ${source} by ${formatShape(own)}, and the model's weight is ${formatShape(shape)}`;
      throw badAdapter(path, what);
    }
  }
}

/** In the dtype of another one. */
function like(x: Tensor, other: Tensor): Tensor {
  return x.dtype === other.dtype ? x : x.toDtype(other.dtype);
}

/** @param what continues "the adapter" */
export function badAdapter(path: string, what: string): TransformersError {
  return new TransformersError('BAD_ADAPTER', `${path}: the adapter ${what}. Give one that was made for this model.`);
}

/** @param what continues "the adapter" */
export function unsupportedAdapter(path: string, what: string, cause?: unknown): TransformersError {
  return new TransformersError(
    'UNSUPPORTED_ADAPTER',
    `${path}: the adapter ${what}, which is not supported. Merge it into the model with the tool that made it.`,
    { cause },
  );
}
