/**
 * How the ranks of a group share a model's weights (tensor parallelism): rows of the layers that make queries, keys, values and
 * what feed-forward layers have inside, columns of those that take these, whose products are then added over the ranks; rows of
 * the embedding and of the head; parts of each expert, or some of the experts. What does not divide is on every rank.
 * Source: Shoeybi et al., Megatron-LM, arXiv 1909.08053.
 */
import { type Communicator, DeviceError, keep, scope, Tensor } from '@x/core';
import { type Activations, type Module, OwningModule } from '@x/nn';
import type { DenseDType, PartRange, QTensor } from '@x/quantized';
import { TransformersError } from '../errors';
import { type BlockLayer, roundsTo, takesBlocks } from './q-linear';

/** The rank of a group whose part of the weights is read. Its communicator stays its owner's. */
export interface Shard {
  readonly rank: number;
  /** Ranks of the group. */
  readonly size: number;
  readonly communicator: Communicator;
  /** What is shared: `tensors`, of every layer a part (the default), or whole `layers`, one behind the other. */
  readonly split?: 'tensors' | 'layers';
}

/** The layers of a rank, where ranks have layers; its neighbours have those in front and behind. */
export interface Stage {
  readonly shard: Shard;
  readonly layers: PartRange;
  readonly isFirst: boolean;
  readonly isLast: boolean;
}

/** @throws TransformersError `INVALID_OPTION` for more ranks than layers */
export function stageOf(shard: Shard | undefined, layers: number): Stage | undefined {
  if (shard?.split !== 'layers' || shard.size === 1) return undefined;
  const { rank, size } = shard;
  const own = shareOf({ ...shard, split: 'tensors' }, layers);
  if (own) return { shard, layers: own, isFirst: rank === 0, isLast: rank === size - 1 };
  throw new TransformersError(
    'INVALID_OPTION',
    `the model has ${layers} layers, which ${size} devices cannot share; give at most ${layers} devices.`,
  );
}

/** This rank's part of so many things, of which each has a `unit` of elements that stay together; undefined where it has none to share. */
export function shareOf(shard: Shard | undefined, count: number, unit = 1): PartRange | undefined {
  if (!isDivided(shard) || count % unit !== 0 || count / unit < shard.size) return undefined;
  const [first, end] = [shard.rank, shard.rank + 1].map(
    (rank) => Math.floor((rank * count) / unit / shard.size) * unit,
  );
  return { start: first, count: end - first };
}

/** Whether ranks have parts of tensors. */
export function isDivided(shard: Shard | undefined): shard is Shard {
  return shard !== undefined && shard.size > 1 && shard.split !== 'layers';
}

/** Heads of queries, and those of keys and values that they look at. */
export interface HeadShare {
  queries: PartRange;
  keys: PartRange;
}

/**
 * This rank's heads: as many as any other's, whole groups that share keys, or parts of one group, whose keys several ranks then have.
 * @param valid whether so many heads can be this rank's
 */
export function headsOf(
  shard: Shard | undefined,
  heads: number,
  kvHeads: number,
  valid: (heads: PartRange) => boolean,
): HeadShare | undefined {
  if (!isDivided(shard) || heads % shard.size !== 0) return undefined;
  const { rank, size } = shard;
  const own = heads / size;
  const queries = { start: rank * own, count: own };
  if (!valid(queries)) return undefined;
  if (kvHeads % size === 0) return { queries, keys: { start: (rank * kvHeads) / size, count: kvHeads / size } };
  if (size % kvHeads === 0) return { queries, keys: { start: Math.floor((rank * kvHeads) / size), count: 1 } };
  return undefined;
}

/** Rows or columns of so many heads. */
export function timesRange({ start, count }: PartRange, width: number): PartRange {
  return { start: start * width, count: count * width };
}

/** A linear layer of which each rank has some columns: the products are added over the ranks. */
export class SummedLinear extends OwningModule implements BlockLayer {
  /** Owns `layer`. @param isPlain whether it is now a product and no more, on all ranks */
  constructor(
    private readonly layer: Module,
    private readonly communicator: Communicator,
    private readonly isPlain: () => boolean,
  ) {
    super();
  }

  get takesBlocks(): boolean {
    return takesBlocks(this.layer);
  }

  roundsTo(rows: number): DenseDType | undefined {
    return roundsTo(this.layer, rows);
  }

  forward(xs: Activations): Tensor {
    const layer = this.layer as BlockLayer;
    if (this.isPlain()) return this.communicator.sumOfProduct(() => layer.forward(xs));
    return summed(layer.forward(xs), this.communicator);
  }

  override dispose(): void {
    super.dispose();
    this.layer.dispose();
  }
}

/** The sum over the ranks, in the place of a part of it, of what a layer adds to the residual. */
export function summed(part: Tensor, communicator: Communicator): Tensor {
  const whole = part.isContiguous() ? part : part.contiguous();
  communicator.sumLater(whole);
  return whole;
}

/** A table of which each rank has some rows: others are zeros, and the sum over the ranks is the whole. */
export class SharedTable extends OwningModule {
  /** Owns the rank's rows. @param range which they are */
  constructor(
    private readonly rows: QTensor,
    private readonly range: PartRange,
    private readonly communicator: Communicator,
  ) {
    super();
    keep(rows);
  }

  forward(ids: Tensor): Tensor {
    const { rows, range, communicator } = this;
    return scope(() => {
      // Ids below the range wrap around and are above it.
      const local = ids.sub(range.start);
      const own = local.lt(range.count);
      const found = rows.embedding(local.mul(own.toDtype('u32')));
      const part = found.mul(own.toDtype('f32').unsqueeze(-1));
      communicator.allReduceInPlace(part);
      return part;
    });
  }

  override dispose(): void {
    super.dispose();
    this.rows.dispose();
  }
}

/** The head, of whose rows each rank has some: all get all logits. */
export class SharedHead extends OwningModule implements BlockLayer {
  /** Owns `layer`. @param own rows of this rank @param each rows of the ranks but the last one, which may have less @param all of all ranks */
  constructor(
    private readonly layer: Module,
    private readonly sizes: { own: number; each: number; all: number },
    private readonly communicator: Communicator,
  ) {
    super();
  }

  get takesBlocks(): boolean {
    return takesBlocks(this.layer);
  }

  roundsTo(rows: number): DenseDType | undefined {
    return roundsTo(this.layer, rows);
  }

  forward(xs: Activations): Tensor {
    const { own, each, all } = this.sizes;
    const part = (this.layer as BlockLayer).forward(xs);
    const rows = part.dim(0);
    const padded =
      own === each ? part : Tensor.cat([part, Tensor.zeros([rows, each - own], part.dtype, part.device)], 1);
    const gathered = this.communicator.allGather(padded, 1);
    return gathered.dim(1) === all ? gathered : gathered.narrow(1, 0, all).contiguous();
  }

  override dispose(): void {
    super.dispose();
    this.layer.dispose();
  }
}

/** @throws DeviceError `DEVICE_MISMATCH` for a communicator of another device than the weights' */
export function checkShard({ communicator, rank, size }: Shard, device: { toString(): string }): void {
  const fits = communicator.rank === rank && communicator.size === size;
  if (fits && String(communicator.device) === String(device)) return;
  throw new DeviceError(
    'DEVICE_MISMATCH',
    `shard ${rank} of ${size} on ${device} with a communicator of rank ${communicator.rank} of ${communicator.size} on ${communicator.device}; give the one that this rank joined with.`,
  );
}
