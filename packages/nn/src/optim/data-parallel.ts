/**
 * One model trained by several ranks, each on its own part of a batch: PyTorch's `DistributedDataParallel`. Every rank has all
 * variables; their gradients are averaged before each step, in buckets, so that steps are those of the whole batch.
 */
import { CollectiveError, type Communicator, type GradStore, kinds, noGrad, scope, Tensor, type Var } from '@x/core';
import { checkPositive } from '../check';
import { checkGradients } from './gradients';

export interface DataParallelOptions {
  /** Gradients that are averaged in one call, in bytes; default 25 MiB. */
  bucketBytes?: number;
}

const BUCKET_BYTES = 25 * 2 ** 20;
const COMMUNICATOR = kinds.kind(
  (value) => typeof (value as Partial<Communicator> | null | undefined)?.allReduceInPlace === 'function',
  'give what Communicator.join gave',
);

/** One rank's part: {@link averageGradients} goes between `backward` and the optimiser's step. */
export class DistributedDataParallel {
  readonly #buckets: readonly (readonly Var[])[];

  /**
   * Gives all ranks the values that rank 0 has.
   * @param vars the same on all ranks, in the same order, on the communicator's device
   * @throws CollectiveError `RANKS_DIFFER` where their number, shapes or dtypes are not
   */
  constructor(
    readonly vars: readonly Var[],
    readonly communicator: Communicator,
    options: DataParallelOptions = {},
  ) {
    kinds.check('DistributedDataParallel', 'vars', vars, kinds.TENSORS);
    kinds.check('DistributedDataParallel', 'communicator', communicator, COMMUNICATOR);
    kinds.check('DistributedDataParallel', 'options', options, kinds.OBJECT);
    const { bucketBytes = BUCKET_BYTES } = options;
    checkPositive('DistributedDataParallel', { bucketBytes });
    checkAlike(vars, communicator);
    for (const variable of vars) communicator.broadcast(variable, 0);
    this.#buckets = bucketsOf(vars, bucketBytes);
  }

  /**
   * Puts the mean over the ranks in place of each gradient; a variable without one counts as zeros. All ranks call it once a
   * step, and nothing waits.
   */
  averageGradients(grads: GradStore): void {
    checkGradients('averageGradients', grads, this.vars);
    noGrad(() => {
      for (const bucket of this.#buckets) {
        using flat = scope(() =>
          Tensor.cat(
            bucket.map((variable) => grads.orInsert(variable).flattenAll()),
            0,
          ),
        );
        this.communicator.allReduceInPlace(flat, 'avg');
        let start = 0;
        for (const variable of bucket) {
          const { elemCount, shape } = variable;
          // Of its own, so that the bucket's memory goes with the bucket.
          const mean = scope(() => flat.narrow(0, start, elemCount).reshape(shape).copy());
          grads.insert(variable, mean)?.dispose();
          start += elemCount;
        }
      }
    });
  }
}

/** Variables of one dtype together, the last ones first: theirs are the first gradients of a backward pass. */
function bucketsOf(vars: readonly Var[], limit: number): Var[][] {
  const buckets: Var[][] = [];
  let bytes = 0;
  for (const variable of [...vars].reverse()) {
    const size = variable.elemCount * (variable.dtype === 'f64' ? 8 : 4);
    const last = buckets.at(-1);
    if (last && last[0].dtype === variable.dtype && bytes + size <= limit) last.push(variable);
    else {
      buckets.push([variable]);
      bytes = 0;
    }
    bytes += size;
  }
  return buckets;
}

/** A call of other sizes on another rank would wait for ever with some libraries. */
function checkAlike(vars: readonly Var[], communicator: Communicator): void {
  const text = vars.map(({ shape, dtype }) => `${dtype}[${shape}]`).join();
  const own = Uint32Array.of(vars.length, hashOf(text));
  const all = scope(() =>
    communicator.allGather(Tensor.from(own, { device: communicator.device })).toArraySync<Uint32Array>(),
  );
  for (let rank = 0; rank < communicator.size; rank++) {
    if (all[2 * rank] === own[0] && all[2 * rank + 1] === own[1]) continue;
    const message = `DistributedDataParallel: rank ${rank} has ${all[2 * rank]} variables and rank ${communicator.rank} has ${own[0]}, or their shapes and dtypes differ; make the same model on all.`;
    throw new CollectiveError('RANKS_DIFFER', message, { rank });
  }
}

/** FNV-1a of 32 bits. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
