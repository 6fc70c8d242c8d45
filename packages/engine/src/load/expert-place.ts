/**
 * Where the experts of a mixture are: on the device, or in host memory with as many of each layer on the device as there is room
 * for. Decided before a weight is read, from the sizes in the file and what the device has left.
 */
import { type Device, formatBytes, kinds, sizeInBytes, warnOnce } from '@x/core';
import type { TensorReader } from '@x/core/files';
import {
  type CausalModel,
  type DecoderConfig,
  HostExperts,
  type ModelDescription,
  type MoeConfig,
  mixtureOf,
  TransformersError,
  weightBytes,
} from '@x/transformers';
import { defaultCacheDtype } from '../kv/pool';
import { positionBytesOf } from '../kv/rows';
import { promptChunk } from '../schedule/prompt-chunk';
import type { BuildOptions } from './build-model';
import { kvLayoutsOf } from './load-memory';

export interface ExpertOptions {
  /**
   * Where the weights of experts are, in models that have them. `device`: all on the device. `host`: in the host's memory, as in
   * the file, and the device has those of each layer that were used last (`hotExperts`); others are copied there when tokens
   * choose them, which takes time. The texts are the same. `auto`, the default: `device` where the device has room for the whole
   * model and a cache of one sequence, else `host`; on `cpu` and `js`, and for a model on several devices, `device`.
   */
  experts?: 'auto' | 'device' | 'host';
  /**
   * Experts of each layer that are on the device, where the others are in host memory: at least as many as a token takes. Default:
   * as many as there is room for beside a cache of one sequence; on `cpu` and `js`, where they are copies, a quarter.
   */
  hotExperts?: number;
}

export const EXPERT_OPTIONS: Record<keyof ExpertOptions, kinds.Kind> = {
  experts: kinds.oneOf(['auto', 'device', 'host']),
  hotExperts: kinds.POSITIVE,
};

/** Of what the device has free, what stays so at least beside weights and cache. */
const SPARE_SHARE = 1 / 16;
/** Of a layer's experts those that are hot on devices whose memory is the host's. */
const HOST_SHARE = 1 / 4;

/** @throws TransformersError INVALID_OPTION for options that contradict each other or a model on several devices */
export function checkExpertOptions({ experts, hotExperts }: ExpertOptions, isAlone: boolean): void {
  const given = experts === 'host' ? "experts: 'host'" : hotExperts !== undefined ? 'hotExperts' : undefined;
  if (experts === 'device' && hotExperts !== undefined)
    throw invalid(
      "hotExperts is for experts in host memory; leave it out, or give experts: 'auto' or 'host'",
      'hotExperts',
    );
  if (given && !isAlone)
    throw invalid(
      `${given} is for a model on one device; leave it out, and each device has its part of the experts`,
      'experts',
    );
}

/**
 * Experts of each layer that are on the device; undefined: all are, and none in host memory.
 * @throws TransformersError INVALID_OPTION for fewer than a token takes
 */
export async function hotExpertsOf(
  file: TensorReader,
  description: ModelDescription,
  options: BuildOptions,
): Promise<number | undefined> {
  const { device, dtype, shard, experts: place = 'auto', hotExperts } = options;
  const mixture = mixtureOf(description.config);
  if (!mixture) return undefined;
  const { experts, chosen } = mixture;
  const asked = hotExperts === undefined ? undefined : new HostExperts(hotExperts).slotsOf(experts, chosen);
  if (place === 'device' || shard) return undefined;
  const free = hasOwnMemory(device) ? device.availableBytes() : undefined;
  if (free === undefined) {
    if (place === 'auto') return undefined;
    return asked ?? Math.max(chosen, Math.ceil(experts * HOST_SHARE));
  }
  const { architecture: layout, config } = description;
  const bytes = weightBytes(file, { device, dtype, layout, layers: config.numLayers });
  const spare = Math.max(free * SPARE_SHARE, workBytes(config, mixture, device));
  const room = free - spare - (await cacheBytes(file, description, options));
  if (place === 'auto' && bytes.all <= room) return undefined;
  const fitting = Math.floor((room - (bytes.all - bytes.experts)) / (bytes.experts / experts));
  return asked ?? Math.min(experts, Math.max(chosen, fitting));
}

/** Says so where the device cannot copy experts from host memory by itself: each that is missing takes several times as long. */
export function warnOfOrdinaryMemory({ device, hostExperts }: CausalModel): void {
  if (!hostExperts || !hasOwnMemory(device)) return;
  const { hostBytes, pinnedBytes } = hostExperts.stats;
  if (pinnedBytes === hostBytes) return;
  warnOnce(
    'EXPERTS_NOT_PINNED',
    `of ${formatBytes(hostBytes)} of experts in host memory ${formatBytes(hostBytes - pinnedBytes)} could not be page-locked, so copies to ${device} ` +
      'take several times as long; free memory of the host, let the container or WSL lock more of it (ulimit -l), or give a model with smaller experts.',
  );
}

/** Elsewhere the device's memory is the host's. */
const hasOwnMemory = ({ kind }: Device) => kind === 'rocm' || kind === 'cuda';

/** About what a pass of a prompt makes on its way. */
function workBytes(config: DecoderConfig, { chosen, width }: MoeConfig, device: Device): number {
  const { hiddenSize } = config;
  // Rows of each expert, what is inside of it, and what it gives; attention and what is added up.
  const values = 3 * chosen * (hiddenSize + width) + 8 * hiddenSize;
  return promptChunk(config, device, 0) * values * sizeInBytes('f32');
}

/** Of the longest sequence, or of all together where that is bounded. */
async function cacheBytes(
  file: TensorReader,
  description: ModelDescription,
  { device, cacheDtype, maxContext = description.config.contextLength, cachePositions = maxContext }: BuildOptions,
): Promise<number> {
  const kvLayouts = await kvLayoutsOf(file, description);
  return positionBytesOf(kvLayouts, cacheDtype ?? defaultCacheDtype(device.kind, true)) * cachePositions;
}

function invalid(what: string, option: string): TransformersError {
  return new TransformersError('INVALID_OPTION', `loadModel: ${what}.`, { option });
}
