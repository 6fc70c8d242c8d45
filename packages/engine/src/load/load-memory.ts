/** Why a model could not be loaded into the memory of a device: sizes, and the context that would fit. */
import { type Device, formatBytes, OutOfMemoryError } from '@x/core';
import type { TensorReader } from '@x/core/files';
import type { DenseDType } from '@x/quantized';
import { type CausalModel, checkWeights, type ModelDescription, mixtureOf, weightBytes } from '@x/transformers';
import { positionsIn } from '../kv/room';
import { type CacheDType, positionBytesOf } from '../kv/rows';

export interface LoadAttempt {
  file: TensorReader;
  description: ModelDescription;
  device: Device;
  dtype: DenseDType | undefined;
  /** @param layouts of a model without weights */
  cacheDtypeOf(layouts: CausalModel['kvLayouts']): CacheDType;
  /** Positions that a sequence was to have. */
  maxContext: number;
  /** Devices that have a part each. */
  ranks: number;
  /** Before anything was loaded; undefined where the device does not say. */
  freeBytes: number | undefined;
}

/** `cause` with what the model takes, and what would fit. */
export async function loadedTooMuch(cause: OutOfMemoryError, attempt: LoadAttempt): Promise<OutOfMemoryError> {
  const { file, device, dtype, maxContext, ranks, freeBytes } = attempt;
  const bytes = weightBytes(file, { device, dtype }).all / ranks;
  const parts = ranks > 1 ? `, one of ${ranks} parts of it,` : '';
  const free = freeBytes === undefined ? '' : `, of which ${formatBytes(freeBytes)} were free when loading began`;
  const positions = freeBytes === undefined ? undefined : await fitting(attempt, freeBytes - bytes);
  const message =
    `loadModel: the model${parts} takes about ${formatBytes(bytes)} of the memory of ${device}${free}.${contextText(positions, maxContext)} ` +
    `Take ${mixtureOf(attempt.description.config) ? "experts: 'host' with few hotExperts, " : ''}a smaller quantisation, several devices, or one with ` +
    'more memory, or dispose what else is on it.';
  return new OutOfMemoryError('OUT_OF_MEMORY', message, { cause, requestedBytes: cause.requestedBytes });
}

function contextText(positions: number | undefined, asked: number): string {
  if (positions === undefined) return '';
  if (positions === 0) return ' No context fits beside it.';
  return ` A context of about ${positions} positions would fit: give that as maxContext, in place of ${asked}.`;
}

/** What the cache will keep of each layer, before any weight is loaded. */
export async function kvLayoutsOf(
  file: TensorReader,
  description: ModelDescription,
): Promise<CausalModel['kvLayouts']> {
  const { model } = await checkWeights(file, description);
  model.dispose();
  return model.kvLayouts;
}

/** The context that so many bytes have room for; undefined of a model whose positions take no memory. */
async function fitting(
  { file, description, cacheDtypeOf, ranks }: LoadAttempt,
  freeBytes: number,
): Promise<number | undefined> {
  const kvLayouts = await kvLayoutsOf(file, description);
  const positionBytes = positionBytesOf(kvLayouts, cacheDtypeOf(kvLayouts)) / ranks;
  if (positionBytes === 0) return freeBytes > 0 ? undefined : 0;
  return Math.min(description.config.contextLength, positionsIn(freeBytes, positionBytes));
}
