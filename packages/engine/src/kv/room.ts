/** How many positions of a cache the memory has room for that a device has left beside a model. */
import { formatBytes, warnOnce } from '@x/core';
import type { CausalModel } from '@x/transformers';
import { BLOCK_SIZE, type CacheDType, positionBytesOf } from './rows';

/** Of the memory that is free, what is left for passes: activations, logits and captured steps. */
const SPARED = 1 / 16;

/** What a device has left for a cache. */
export interface CacheRoom {
  /** Of all sequences together, whole blocks. */
  positions: number;
  /** Bytes that are free. */
  freeBytes: number;
  /** Of keys and values of a position, all layers together. */
  positionBytes: number;
}

/** Positions, in whole blocks, that so many free bytes have room for; a sixteenth of them is left for passes. */
export function positionsIn(freeBytes: number, positionBytes: number): number {
  return Math.max(0, Math.floor((freeBytes * (1 - SPARED)) / (positionBytes * BLOCK_SIZE))) * BLOCK_SIZE;
}

/**
 * What a device has left for the cache of a model that is on it.
 * @param ranks that this host stands for, whose memory is one
 * @returns undefined where the device does not say, or positions take no memory
 */
export function roomFor(model: CausalModel, dtype: CacheDType, ranks: number): CacheRoom | undefined {
  const positionBytes = positionBytesOf(model.kvLayouts, dtype);
  const { device } = model;
  const available = device.availableBytes();
  if (available === undefined || positionBytes === 0) return undefined;
  const freeBytes = device.kind === 'cpu' ? available / ranks : available;
  return { positions: positionsIn(freeBytes, positionBytes), freeBytes, positionBytes };
}

/** What was loaded, as far as it says how long texts may be. */
export interface LoadedSizes {
  model: Pick<CausalModel, 'device'>;
  maxContext: number;
  cacheDtype: CacheDType;
  weightBytes: number;
  room: CacheRoom | undefined;
}

/** Says once when texts cannot become as long as they may. */
export function warnOfContext({ model, maxContext, cacheDtype, weightBytes, room }: LoadedSizes): void {
  if (!room || room.positions >= maxContext) return;
  const { positions, freeBytes, positionBytes } = room;
  const narrower = cacheDtype === 'f32' ? 'f16' : cacheDtype === 'q8_0' ? undefined : 'q8_0';
  const dtype = narrower ? `cacheDtype: '${narrower}', ` : '';
  warnOnce(
    'CONTEXT_DOES_NOT_FIT',
    `maxContext is ${maxContext}, and ${model.device} has room for about ${positions} positions of a key-value cache beside ` +
      `${formatBytes(weightBytes)} of weights: ${formatBytes(freeBytes)} are free, and a position takes ${formatBytes(positionBytes)}. ` +
      `Texts that grow longer end with CACHE_FULL. More fits with ${dtype}a smaller quantisation of the model, or several devices; ` +
      `a maxContext of at most ${Math.max(1, positions)} is kept.`,
    // What is free changes from one time to the next.
    `${model.device} ${weightBytes} ${cacheDtype} ${maxContext}`,
  );
}
