/** Choosing tokens: the kernels of SAMPLING (kernels/sampling.hip). */
import type { FollowProblem, SamplingOps, SamplingProblem } from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { clamp } from '../launch-shape';
import { launchFollow, launchSample } from '../launchers/sampling';
import type { KernelStorage } from '../storage';

/** Sums of this many weights are exact on the host too (kernels/sampling/weight.h). */
const MAX_VOCAB = 2 ** 20;
const THREADS = 1024;
const HOST_BLOCKS_PER_CU = 4;

export class DeviceSamplingOps implements SamplingOps {
  readonly #device: KernelDevice;

  constructor(device: KernelDevice) {
    this.#device = device;
  }

  supports(vocab: number): boolean {
    return vocab > 0 && vocab <= MAX_VOCAB;
  }

  /** A block a row. */
  choose({ rows, vocab, top, logits, params, edits, masks }: SamplingProblem): KernelStorage {
    const device = this.#device;
    if (!this.supports(vocab)) throw unsupported(`sampling from ${vocab} logits`, 'f32', device);
    const out = device.allocUninit(rows * (2 + 2 * top), 'u32');
    if (rows === 0) return out;
    try {
      const { shapes, hip } = device;
      const grid = shapes.isHost ? clamp(rows, 1, hip.properties.multiprocessorCount * HOST_BLOCKS_PER_CU) : rows;
      const shape = { grid, block: shapes.isHost ? 1 : THREADS };
      launchSample(device, 'sample_f32', shape, {
        rows,
        vocab,
        top,
        logits: device.address(logits),
        params: device.address(params),
        edits: edits ? device.address(edits) : 0,
        masks: masks ? device.address(masks) : 0,
        out: out.ptr,
      });
      return out;
    } catch (error) {
      out.dispose();
      throw error;
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
