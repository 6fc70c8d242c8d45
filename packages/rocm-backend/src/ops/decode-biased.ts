/**
 * What lies between products whose biases are still to be added: kernels/decode/activated.h, and the norm of between.h. On the host
 * each pass over activations that is saved counts.
 */
import type { BiasedActivationProblem, BiasedNormProblem, BiasedOps, PlainActivation } from '@x/core';
import type { KernelDevice } from '../device';
import { unsupported } from '../errors';
import { launchDecodeActivated, launchDecodeNormBiased } from '../launchers/decode';
import type { KernelStorage } from '../storage';
import { activationRowBytes, activationRows, BLOCK_VALUES, paddedWidth } from './activations';
import { keptIfFilled } from './result';

/** Blocks of the quantized products, or numbers. */
type Form = 'f32' | 'blocks';

export class DeviceBiasedOps implements BiasedOps {
  readonly #device: KernelDevice;

  /** For the host, whose quantized products read blocks whatever the number of rows. */
  constructor(device: KernelDevice) {
    this.#device = device;
  }

  norm(
    { rows, n, eps, x, delta, bias, alpha, beta, centred = false }: BiasedNormProblem,
    as: Form | 'both',
  ): { sum: KernelStorage; normed: KernelStorage; blocks?: KernelStorage } {
    const device = this.#device;
    const made: KernelStorage[] = [];
    const allocate = (form: Form) => {
      made.push(this.#allocate(rows, n, form));
      return made[made.length - 1];
    };
    try {
      const sum = allocate('f32');
      const blocks = as === 'f32' ? undefined : allocate('blocks');
      const numbers = as === 'blocks' ? undefined : allocate('f32');
      launchDecodeNormBiased(
        device,
        'decode_norm_biased',
        { grid: device.shapes.hostBlocks(rows), block: 1 },
        {
          rows,
          n,
          padded: paddedWidth(n),
          eps,
          centred,
          x: device.address(x),
          delta: device.address(delta),
          deltaBias: device.address(bias),
          alpha: alpha ? device.address(alpha) : 0,
          beta: beta ? device.address(beta) : 0,
          sum: sum.ptr,
          blocks: blocks?.ptr ?? 0,
          y: numbers?.ptr ?? 0,
        },
      );
      return { sum, normed: numbers ?? blocks!, ...(numbers && blocks && { blocks }) };
    } catch (error) {
      for (const one of made) one.dispose();
      throw error;
    }
  }

  activated(activation: PlainActivation, problem: BiasedActivationProblem, as: Form): KernelStorage {
    const device = this.#device;
    const { rows, n, x, row, bias } = problem;
    return keptIfFilled(this.#allocate(rows, n, as), (out) => {
      const shape = device.shapes.elementwise(rows * n);
      const sources = { x: device.address(x), xRow: row, bias: bias ? device.address(bias) : 0 };
      const results = as === 'blocks' ? { blocks: out, y: 0 } : { blocks: 0, y: out };
      const args = { rows, n, padded: paddedWidth(n), ...sources, ...results };
      launchDecodeActivated(device, `decode_activated_${activation}`, shape, args);
    });
  }

  #allocate(rows: number, n: number, form: Form): KernelStorage {
    if (form === 'f32') return this.#device.allocUninit(rows * n, 'f32');
    if (n % BLOCK_VALUES !== 0) throw unsupported(`decode.biased of ${n} values in blocks`, 'f32', this.#device);
    return this.#device.allocUninit(activationRows(rows) * activationRowBytes(n), 'u8');
  }
}
