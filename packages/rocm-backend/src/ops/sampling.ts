/** Choosing tokens: the kernels of SAMPLING (kernels/sampling.hip). */
import type { FollowProblem, SamplingOps, SamplingProblem } from '@x/core';
import type { Counters } from '../counters';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { clamp } from '../launch-shape';
import { launchFollow, launchSample, launchSampleParts, type SamplePartsArguments } from '../launchers/sampling';
import type { KernelStorage } from '../storage';

/** Sums of this many weights are exact on the host too (kernels/sampling/weight.h). */
const MAX_VOCAB = 2 ** 20;
const THREADS = 1024;
const HOST_BLOCKS_PER_CU = 4;
/** Of kernels/sampling/parts.h: threads of a block, and bytes of a row's work beside those of each part. */
const PART_THREADS = 256;
const WORK_BYTES = 32 + 8 * 2048 + 8 * 2048;
const PART_BYTES = 24;
/** Tokens of a part at least, and blocks for each processor from which on a row is not divided further. */
const LEAST_PART = 2048;
const MOST_PARTS = 64;
const PARTS_PER_CU = 2;
/** What each launch of a row in parts does. */
const STEPS = ['scan', 'count', 'list', 'draw'] as const;

export class DeviceSamplingOps implements SamplingOps {
  readonly #device: KernelDevice;
  readonly #counters: Counters;

  constructor(device: KernelDevice, counters: Counters) {
    this.#device = device;
    this.#counters = counters;
  }

  supports(vocab: number): boolean {
    return vocab > 0 && vocab <= MAX_VOCAB;
  }

  /** A block a row, or of few rows and many tokens several. */
  choose(problem: SamplingProblem): KernelStorage {
    const { rows, vocab, top, logits, params, edits, masks } = problem;
    const device = this.#device;
    if (!this.supports(vocab)) throw unsupported(`sampling from ${vocab} logits`, 'f32', device);
    const out = device.allocUninit(rows * (2 + 2 * top), 'u32');
    if (rows === 0) return out;
    try {
      const { shapes, hip } = device;
      const { multiprocessorCount } = hip.properties;
      const args = {
        rows,
        vocab,
        top,
        logits: device.address(logits),
        params: device.address(params),
        edits: edits ? device.address(edits) : 0,
        masks: masks ? device.address(masks) : 0,
        out: out.ptr,
      };
      const most = clamp(Math.floor((multiprocessorCount * PARTS_PER_CU) / rows), 1, MOST_PARTS);
      const parts = Math.min(Math.floor(vocab / LEAST_PART), most);
      if (parts > 1) {
        this.#chooseInParts({ ...args, parts });
        return out;
      }
      const grid = shapes.isHost ? clamp(rows, 1, multiprocessorCount * HOST_BLOCKS_PER_CU) : rows;
      launchSample(device, 'sample_f32', { grid, block: shapes.isHost ? 1 : THREADS }, args);
      return out;
    } catch (error) {
      out.dispose();
      throw error;
    }
  }

  #chooseInParts(args: Omit<SamplePartsArguments, 'work' | 'counters'>): void {
    const device = this.#device;
    const { rows, parts } = args;
    const { shapes, hip } = device;
    const items = rows * parts;
    const shape = shapes.isHost
      ? { grid: clamp(items, 1, hip.properties.multiprocessorCount * HOST_BLOCKS_PER_CU), block: 1 }
      : { grid: items, block: PART_THREADS };
    const work = device.allocUninit(rows * (WORK_BYTES + parts * PART_BYTES), 'u8');
    try {
      const all = { ...args, work: work.ptr, counters: this.#counters.of(rows) };
      for (const step of STEPS) launchSampleParts(device, `sample_${step}_f32`, shape, all);
    } finally {
      work.dispose();
    }
  }

  follow({ rows, vocab, ids, chosen }: FollowProblem): KernelStorage {
    const device = this.#device;
    const out = device.allocUninit(rows, 'u32');
    if (rows === 0) return out;
    try {
      launchFollow(device, 'follow_u32', device.shapes.elementwise(rows), {
        rows,
        vocab,
        ids: device.address(ids),
        chosen: device.address(chosen),
        out: out.ptr,
      });
      return out;
    } catch (error) {
      out.dispose();
      throw error;
    }
  }
}
