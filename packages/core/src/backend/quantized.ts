/** Products with block-quantized weights, as a device may have them in kernels. `@x/quantized` computes on the host where not. */
import type { BlockType } from '../quantized-types';
import type { ExpertTiles } from './experts';
import type { Operand } from './operand';
import type { BackendStorage } from './storage';

/** Dtypes that blocks become. */
export type DenseForm = 'f32' | 'f16' | 'bf16';

/**
 * Block-quantized weights on a device. A weight is a u8 storage of ggml blocks, row after row, `n` rows of `k` values, made
 * by `allocate`. `type` is the ggml name in candle's spelling (see {@link BLOCK_TYPES}).
 */
export interface QuantizedOps {
  /**
   * Rows, as of a step without drafts, by which a device that rounds activations otherwise for one row than for several decides;
   * undefined (the default): those that a product has. Who enqueues steps sets it meanwhile: what a step of several tokens of one text
   * gives then differs from what steps of single tokens give by the order of sums alone.
   */
  roundsAs?: number | undefined;
  /** Whether there are kernels for weights of the type. */
  supports(type: string): boolean;
  /** Bytes that the blocks of `elemCount` values take in this device's memory, with what its kernels need behind them. */
  allocatedBytes(type: BlockType, elemCount: number): number;
  /**
   * Memory of {@link allocatedBytes} for the blocks of `elemCount` values, whole blocks. What kernels need behind the blocks
   * is set, the blocks are not: they are written from byte 0 on.
   */
  allocate(type: BlockType, elemCount: number): BackendStorage;
  /** All `elemCount` values in a dtype. */
  dequantize(weight: BackendStorage, type: BlockType, elemCount: number, dtype: DenseForm): BackendStorage;
  /**
   * x [m, k] in f32, f16 or bf16, contiguous, times the transpose of `n` rows of the weight from row
   * `firstRow` (default 0) on: [m, n] f32.
   */
  matmul(
    weight: BackendStorage,
    type: BlockType,
    size: { m: number; n: number; k: number; firstRow?: number },
    x: Operand,
  ): BackendStorage;
  /** x [m, k] as for {@link matmul}, in the form that {@link matmulActivations} takes: for several products of one x. */
  quantizeActivations(x: Operand, size: { m: number; k: number }): BackendStorage;
  /** As {@link matmul}, of m rows of activations in the device's form. */
  matmulActivations(
    weight: BackendStorage,
    type: BlockType,
    size: { m: number; n: number; k: number; firstRow?: number },
    activations: BackendStorage,
  ): BackendStorage;
  /**
   * As {@link matmulActivations} with several weights one beside the other, [m, the sum of n], in one launch: in decoding a launch
   * costs as much as a small product. Undefined where the device has none for so many rows, weights or their types.
   */
  matmulBeside?(
    weights: readonly { weight: BackendStorage; type: BlockType; n: number }[],
    size: { m: number; k: number },
    activations: BackendStorage,
  ): BackendStorage | undefined;
  /**
   * For every id the product of a row of x with the expert's weights: weight [experts, n, k], ids [tokens * topk] (u32,
   * contiguous, each below the number of experts), x contiguous [tokens * topk, k], or [tokens, k] with `shared`, in f32,
   * f16 or bf16; [tokens * topk, n] f32.
   */
  indexedMoe(
    weight: BackendStorage,
    type: BlockType,
    size: { n: number; k: number; topk: number; shared: boolean },
    x: Operand,
    ids: Operand,
  ): BackendStorage;
  /**
   * For pairs of token and expert in the order of {@link ExpertOps.order} the products of rows with the weights of their experts:
   * weight [experts, n, k], x [pairs, k] contiguous in f32, f16 or bf16; [pairs, n] f32. There where the device has
   * {@link BackendDevice.experts}.
   */
  groupedMatmul?(
    weight: BackendStorage,
    type: BlockType,
    size: { pairs: number; n: number; k: number },
    x: Operand,
    tiles: ExpertTiles,
  ): BackendStorage;
  /** Rows of the weight [.., k] at ids (u32, contiguous): [ids, k] f32. */
  embedding(weight: BackendStorage, type: BlockType, k: number, ids: Operand): BackendStorage;
}
