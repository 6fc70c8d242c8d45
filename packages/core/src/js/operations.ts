/**
 * What the plain TypeScript backend computes, a file a family. The others are tested against it, so it prefers being right
 * and readable to being fast: operands are brought into row-major order first, narrow floats are computed in f32 (sums in
 * f64), integers wrap.
 */
import type { BackendOperations, ConvOps, FusedOps, ResamplingOps, ScanOps, SortOps } from '../backend';
import * as convolutions from './conv';
import { copying } from './copy';
import { elementwise } from './elementwise';
import * as rows from './fused';
import { indexing } from './indexing';
import { matmul } from './matmul';
import { avgPool2d, maxPool2d } from './pool';
import { reduce } from './reduce';
import { cumsum } from './scan';
import { argSortLastDim, sortLastDim, topkLastDim } from './sort';
import { upsampleBilinear2d, upsampleNearest1d, upsampleNearest2d } from './upsample';

// Operands of one operation are on one device, so its functions are given operands of its own.
export const ops: BackendOperations = { ...elementwise, ...indexing, ...copying, reduce, matmul } as BackendOperations;
export const fused = rows as Partial<FusedOps>;
export const conv = convolutions as ConvOps;
export const resampling = {
  avgPool2d,
  maxPool2d,
  upsampleNearest1d,
  upsampleNearest2d,
  upsampleBilinear2d,
} as Partial<ResamplingOps>;
export const sorting = { argSortLastDim, sortLastDim, topkLastDim } as SortOps;
export const scan = { cumsum } as ScanOps;
